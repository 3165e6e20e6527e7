//go:build race

package spec

// The race detector makes decoding ten times slower and finds nothing more in a
// longer file.
const hostileSize = maxFile / 8
