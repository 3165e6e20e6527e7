//go:build race

package spec

// The race detector makes decoding ten times slower, and a longer file finds no more races.
const hostileSize = maxFile / 8
