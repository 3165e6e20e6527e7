package plan

import "github.com/agnivade/levenshtein"

// nearest returns the candidate that a misspelt name most likely meant, or "" if none is near.
// About a third of its letters may differ, but not all.
func nearest(name string, candidates []string) string {
	best, distance := "", max(1, (len(name)+1)/3)+1
	for _, candidate := range candidates {
		if d := levenshtein.ComputeDistance(name, candidate); d < distance && d < len(candidate) {
			best, distance = candidate, d
		}
	}
	return best
}
