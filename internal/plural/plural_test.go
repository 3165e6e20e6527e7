package plural

import "testing"

func TestText(t *testing.T) {
	for _, c := range []struct {
		want, format string
		operands     []any
	}{
		{"1 switch", "%d switches", []any{1}},
		{"0 switches", "%d switches", []any{0}},
		{"2 switches", "%d switches", []any{uint64(2)}},
		{"1 packet was lost, 2 were not", "%d packets were lost, %d were not", []any{uint8(1), 2}},
		{"2 packets were lost, 1 was not", "%d packets were lost, %d were not", []any{2, int64(1)}},
		{"1 of 1 frame had 1 entry, 3 of 3 frames", "%d of %d frames had %d entries, %d of %d frames",
			[]any{1, 1, 1, 3, 3}},
		{"1 index, 1 pass, 1 PSN has gone", "%d indexes, %d passes, %d PSNs have gone", []any{1, 1, 1}},
		{"50% of 1 packet; packets 1 ns", "%d%% of %d packets; %s %d ns", []any{50, 1, "packets", 1}},
		{"+1.00% of 1 rank as 1 less", "%+.2f%% of %d ranks as %d less", []any{1.0, 1, 1}},
		{"1 queue pair has 1 PFC frame, 1 series", "%d queue pairs have %d PFC frames, %d series",
			[]any{1, 1, 1}},
		{"1 packet does not match, 1 of 1 packet matches", "%d packets do not match, %d of %d packets match",
			[]any{1, 1, 1}},
		{"1 link, 1 queue, 1 link failure", "%d links, %d queues, %d link failures", []any{1, 1, 1}},
		{"1 packet\n  2 ranks", "%d packets\n  %d ranks", []any{1, 2}},
		{"link 1 packets of leaf0", "link %s of %s", []any{"1 packets", "leaf0"}},
	} {
		if got := Text(c.format, c.operands...); got != c.want {
			t.Errorf("Text(%q, %v) = %q, want %q", c.format, c.operands, got, c.want)
		}
	}
	if got := Count(uint64(1), "more switches"); got != "1 more switch" {
		t.Errorf("Count is %q", got)
	}
}
