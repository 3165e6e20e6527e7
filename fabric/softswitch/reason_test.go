package softswitch

import "testing"

// TestReasonNames: each constant has its own name, since the names are in another package.
func TestReasonNames(t *testing.T) {
	want := map[Reason]string{None: "none", Tail: "tail", Buffer: "buffer", Headroom: "headroom",
		NICOverrun: "nic-overrun", Express: "express", Loss: "loss", Burst: "burst", Nth: "nth",
		LinkDown: "link-down", FromFault: "fault", NoRoute: "no-route", TTLExceeded: "ttl-exceeded",
		Malformed: "malformed", NotForUs: "not-for-us", TooBig: "too-big", Martian: "martian",
		Unsupported: "unsupported", Reserved: "reserved", Hairpin: "hairpin", FloodLimit: "flood-limit",
		Memory: "memory", Aggregation: "aggregation", RED: "red", ECNSharp: "ecn-sharp", PFC: "pfc",
		GFC: "gfc", Refused: "refused"}
	if len(want) != int(reasons) || len(names) != int(reasons) {
		t.Fatalf("%d constants, %d names, %d in the test", reasons, len(names), len(want))
	}
	for r, name := range want {
		if r.String() != name {
			t.Errorf("reason %d is %q, want %q", r, r, name)
		}
	}
}
