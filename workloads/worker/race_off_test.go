//go:build !race

package worker

// raced reports whether the race detector is on, with which a rank takes several times as long.
const raced = false
