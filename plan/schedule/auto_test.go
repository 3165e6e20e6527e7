package schedule

import "testing"

// TestChoose checks the rule at its borders, and that the chosen algorithm exists.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		ranks int
		bytes uint64
		rails bool
		want  string
	}{
		{AllReduce, 4, 8 << 10, false, "recursive-doubling"},
		{AllReduce, 4, 8<<10 + 4, false, "ring"},
		{AllReduce, 2, 32 << 10, false, "recursive-doubling"},
		{AllReduce, 2, 32<<10 + 4, false, "ring"},
		{AllReduce, 5, 64 << 10, false, "ring"},
		{AllReduce, 8, 4 << 10, false, "recursive-doubling"},
		{AllReduce, 8, 4<<10 + 4, false, "tree"},
		{AllReduce, 8, 64 << 10, false, "tree"},
		{AllReduce, 8, 64<<10 + 4, false, "ring"},
		{AllReduce, 8, 4 << 10, true, "recursive-doubling"},
		{AllReduce, 8, 64 << 10, true, "hierarchical"},
		{AllGather, 8, 1 << 10, true, "hierarchical"},
		{ReduceScatter, 8, 1 << 10, false, "ring"},
		{Broadcast, 8, 16 << 10, true, "binomial"},
		{Reduce, 2, 16<<10 + 4, true, "ring"},
	} {
		if got := Choose(c.kind, c.ranks, c.bytes, c.rails); got != c.want {
			t.Errorf("%s of %d bytes at %d ranks, rails %v: %s, want %s", c.kind, c.bytes, c.ranks, c.rails,
				got, c.want)
		}
		if _, err := Make(c.kind, c.want, c.ranks, 0); err != nil && c.want != "hierarchical" {
			t.Error(err)
		}
	}
}
