package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"railbed/internal/printable"
)

// ByReason formats counts by reason and priority as "loss 1 at 0; tail 12 at 0, 3 at 5", sorted by
// the reasons' names.
func ByReason[M ~map[string]C, C ~[8]uint64](counts M) string {
	var reasons []string
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		var parts []string
		for priority, n := range counts[why] {
			if n > 0 {
				parts = append(parts, fmt.Sprintf("%d at %d", n, priority))
			}
		}
		reasons = append(reasons, printable.Line(why)+" "+strings.Join(parts, ", "))
	}
	return strings.Join(reasons, "; ")
}
