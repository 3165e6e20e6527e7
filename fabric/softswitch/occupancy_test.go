package softswitch

import (
	"testing"
	"time"
)

// TestOccupancy: bytes that a node has sent and that are not on the link yet are reported, frame by
// frame, and are 0 in the end.
func TestOccupancy(t *testing.T) {
	var seen []int64
	r := newRig(t, single(2, "  switch: {kind: soft, priorities: {26: 3}}\n  links: {default: {rate: "+
		"100mbit}}\n"))
	r.engine.options.Occupancy = func(nic int, priority uint8, bytes int64) {
		if nic != 0 || priority != 3 {
			t.Errorf("told of NIC %d at priority %d, want 0 and 3", nic, priority)
		}
		seen = append(seen, bytes)
	}
	for range 3 {
		r.send(0, flow{from: 0, to: 1, dscp: 26}, 1000)
	}
	r.drain(time.Second)
	// The first is put in and leaves at once, the others wait for the link.
	want := []int64{1000, 0, 1000, 2000, 1000, 0}
	if len(seen) != len(want) {
		t.Fatalf("told %v, want %v", seen, want)
	}
	for i := range want {
		if seen[i] != want[i] {
			t.Fatalf("told %v, want %v", seen, want)
		}
	}
}
