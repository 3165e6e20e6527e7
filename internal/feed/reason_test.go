package feed

import (
	"slices"
	"testing"
)

// TestReasonNames has the names that captures, counters and checks show.
func TestReasonNames(t *testing.T) {
	want := map[Reason]string{None: "none", Tail: "tail", Buffer: "buffer", Headroom: "headroom",
		NICOverrun: "nic-overrun", Express: "express", Loss: "loss", Burst: "burst", Nth: "nth",
		BitError: "bit-error", LinkDown: "link-down", FromFault: "fault", NoRoute: "no-route",
		TTLExceeded: "ttl-exceeded",
		Malformed:   "malformed", NotForUs: "not-for-us", TooBig: "too-big", Martian: "martian",
		Unsupported: "unsupported", Reserved: "reserved", Hairpin: "hairpin", FloodLimit: "flood-limit",
		Memory: "memory", Aggregation: "aggregation", RED: "red", ECNSharp: "ecn-sharp", PFC: "pfc",
		GFC: "gfc", Refused: "refused"}
	if len(want) != len(reasons) {
		t.Fatalf("%d names, %d in the test", len(reasons), len(want))
	}
	for r, name := range want {
		if r.String() != name || Reasons()[r] != name {
			t.Errorf("reason %d is %q, want %q", r, r, name)
		}
	}
	if got := Reason(len(reasons)).String(); got != "unknown" {
		t.Errorf("a reason without a name is %q", got)
	}
	if got, want := LossReasons(), []string{"loss", "burst", "nth", "bit-error"}; !slices.Equal(got, want) {
		t.Errorf("links lose packets for the reasons %q, want %q", got, want)
	}
}
