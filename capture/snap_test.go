package capture

import (
	"fmt"
	"testing"

	"railbed/plan"
	"railbed/plan/spec"
)

// Files may ask for every snap length that captures accept, and for no smaller one. The minimum has
// room for as much telemetry as packets have room for.
func TestLeastSnapLength(t *testing.T) {
	const file = "name: a\nfabric: {topology: single-switch, params: {hosts: 2}}\nsteps: [{capture: {at: " +
		"[all], file: a.pcapng, snaplen: %dB}}]\n"
	for length, want := range map[int]bool{minSnapLen: true, minSnapLen - 1: false} {
		if _, err := spec.Decode("f", fmt.Appendf(nil, file, length)); (err == nil) != want {
			t.Errorf("a file with a snap length of %d: %v", length, err)
		}
	}
	if intRoom != plan.INTRoom {
		t.Errorf("room for %d bytes of telemetry, packets have %d", intRoom, plan.INTRoom)
	}
}
