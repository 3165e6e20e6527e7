package engine

import (
	"slices"

	"railbed/transports"
)

// addHole adds a hole to holes, which are in order and do not touch. If that makes more than
// transports.MaxHoles, the two closest holes are merged with the bytes between them.
func addHole(holes []transports.Hole, one transports.Hole) []transports.Hole {
	at, _ := slices.BinarySearchFunc(holes, one.Offset, func(h transports.Hole, offset int) int {
		return h.Offset - offset
	})
	holes = slices.Insert(holes, at, one)
	if at+1 < len(holes) && end(holes[at]) >= holes[at+1].Offset {
		holes = joinHoles(holes, at)
	}
	if at > 0 && end(holes[at-1]) >= holes[at].Offset {
		holes = joinHoles(holes, at-1)
	}
	if len(holes) > transports.MaxHoles {
		closest := 0
		for i := range len(holes) - 1 {
			if holes[i+1].Offset-end(holes[i]) < holes[closest+1].Offset-end(holes[closest]) {
				closest = i
			}
		}
		holes = joinHoles(holes, closest)
	}
	return holes
}

// end is the offset after a hole.
func end(h transports.Hole) int { return h.Offset + h.Bytes }

// joinHoles merges a hole with the next one.
func joinHoles(holes []transports.Hole, at int) []transports.Hole {
	holes[at].Bytes = max(end(holes[at]), end(holes[at+1])) - holes[at].Offset
	return slices.Delete(holes, at+1, at+2)
}
