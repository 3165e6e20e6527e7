//go:build !race

package spec

const hostileSize = maxFile
