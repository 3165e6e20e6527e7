package runner

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"railbed/capture/pcapng"
	"railbed/testkit/hosttest"
)

// flooded sends more than the ring between a NIC and the soft switches holds while
// these stand still.
const flooded = `
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: 1gbit}}
steps:
  - capture: {at: [all], file: run.pcapng, snaplen: 400B}
  - traffic: {name: load, from: [h0], to: [h1], rate: 60mbit, size: 200B, for: 3s}
`

// TestVanishedPacketsAreCounted stops the soft switches for a second. The packets that
// left the node's NIC meanwhile, and that the ring before the switch had no room for,
// are in the capture's counts, to the packet.
func TestVanishedPacketsAreCounted(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	for try := 1; ; try++ {
		left, entered, lost, counted := countVanished(t)
		if lost > 0 && try < hostTries {
			t.Logf("the taps themselves lost %d packets", lost)
			continue
		}
		if left-entered != counted || counted == 0 {
			t.Errorf("%d packets left h0, %d entered leaf1, %d are counted in between, and the taps lost %d",
				left, entered, counted, lost)
		}
		return
	}
}

func countVanished(t *testing.T) (left, entered, lost, counted uint64) {
	t.Helper()
	o := options(t, flooded)
	stopped := make(chan error, 1)
	begun := false
	o.Progress = func(u Update) {
		if begun || !strings.Contains(u.Phase, "traffic load") {
			return
		}
		begun = true
		go func() { stopped <- pauseAfter(t.Context(), o.File.Name, 100, time.Second) }()
	}
	runAll(t, t.Context(), o)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	r := openRecording(t, filepath.Join(o.Out, "run.pcapng"))
	for {
		p, err := r.Next()
		if err != nil {
			break
		}
		direction := p.Flags & pcapng.DirectionMask
		switch name := r.Interfaces()[p.Interface].Name; {
		case name == "h0:eth0" && direction == pcapng.Outbound && len(p.Comments) == 0:
			left++
		case name == "leaf1:p0" && direction == pcapng.Inbound:
			entered++
		}
	}
	for _, s := range r.Statistics() {
		lost += s.Dropped
		if s.OSDropped > 0 && r.Interfaces()[s.Interface].Name != "h0:eth0" {
			t.Errorf("%d packets are counted at %s", s.OSDropped, r.Interfaces()[s.Interface].Name)
		}
		counted += s.OSDropped
	}
	return left, entered, lost, counted
}
