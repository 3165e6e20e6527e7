package worker

import (
	"maps"
	"testing"

	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/collective"
)

// TestWantedByHand compares the expected traffic of small jobs with numbers worked out by hand. Each job has
// three operations. A pair of ranks that a row does not name exchanges nothing.
func TestWantedByHand(t *testing.T) {
	type pairs = map[[2]int][2]uint64 // bytes and messages by sender and receiver
	for name, c := range map[string]struct {
		kind, algorithm string
		ranks           int
		size            units.Bytes
		want            pairs
	}{
		// Chunks of 4, 3 and 3 elements. A rank sends all but its own as partial sums, and all but the next
		// as results: 13, 14 and 13 elements. It permits the rank before it to send, once.
		"short all-reduce": {spec.AllReduce, schedule.Ring, 3, 40, pairs{
			{0, 1}: {3 * 52, 12}, {1, 2}: {3 * 56, 12}, {2, 0}: {3 * 52, 12},
			{0, 2}: {0, 1}, {1, 0}: {0, 1}, {2, 1}: {0, 1}}},
		// Chunks of 50,001, 50,000 and 50,000 elements, each in four messages. A rank sends all elements and
		// its own chunk once more. It permits each operation.
		"all-reduce": {spec.AllReduce, schedule.Ring, 3, 600_004, pairs{
			{0, 1}: {3 * 4 * (150_001 + 50_001), 48}, {1, 2}: {3 * 4 * (150_001 + 50_000), 48},
			{2, 0}: {3 * 4 * (150_001 + 50_000), 48}, {0, 2}: {0, 3}, {1, 0}: {0, 3}, {2, 1}: {0, 3}}},
		// The chunk after a rank's own ends there.
		"all-gather": {string(schedule.AllGather), schedule.Ring, 3, 40, pairs{
			{0, 1}: {3 * 28, 6}, {1, 2}: {3 * 28, 6}, {2, 0}: {3 * 24, 6},
			{0, 2}: {0, 1}, {1, 0}: {0, 1}, {2, 1}: {0, 1}}},
		// A rank's own chunk ends there.
		"reduce-scatter": {string(schedule.ReduceScatter), schedule.Ring, 3, 40, pairs{
			{0, 1}: {3 * 24, 6}, {1, 2}: {3 * 28, 6}, {2, 0}: {3 * 28, 6},
			{0, 2}: {0, 1}, {1, 0}: {0, 1}, {2, 1}: {0, 1}}},
		// Blocks of 4, 3 and 3 elements by receiver: a message and a permission for each pair and operation.
		"all-to-all": {spec.AllToAll, schedule.Direct, 3, 40, pairs{
			{0, 1}: {36, 6}, {0, 2}: {36, 6}, {1, 0}: {48, 6}, {1, 2}: {36, 6}, {2, 0}: {48, 6},
			{2, 1}: {36, 6}}},
		// Equal short blocks need one permission for all operations.
		"short all-to-all": {spec.AllToAll, schedule.Direct, 3, 48, pairs{
			{0, 1}: {48, 4}, {0, 2}: {48, 4}, {1, 0}: {48, 4}, {1, 2}: {48, 4}, {2, 0}: {48, 4},
			{2, 1}: {48, 4}}},
		// One element, for rank 0. Rank 1 gets nothing, and permits nothing.
		"one element": {spec.AllToAll, schedule.Pairwise, 2, 4, pairs{{1, 0}: {12, 3}, {0, 1}: {0, 3}}},
	} {
		j := job(c.ranks, c.size)
		j.Kind, j.Algorithm = c.kind, c.algorithm
		wanted, err := j.Wanted()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := pairs{}
		for from, row := range wanted.To {
			for to, amount := range row {
				if amount != (collective.Amount{}) {
					got[[2]int{from, to}] = [2]uint64{amount.Bytes, amount.Messages}
				}
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
