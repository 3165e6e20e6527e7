package runner

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/capture/layers"
	"railbed/capture/pcapng"
	"railbed/testkit/hosttest"
)

// alike sends IPv6 datagrams that are equal in every byte, in a row and in bursts. A link
// drops some of them and doubles others.
const alike = `
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links:
    default: {rate: 20mbit}
    "h0--*": {a-to-b: {drop-list: [5, 50, 77, 78, 150]}}
    "h1--*": {b-to-a: {duplicate: 10%%}}
steps:
  - capture: {%s, file: run.pcapng}
  - exec: {name: t, nodes: [h0], command: [bash, -c, "exec 3>/dev/udp/fd00:a1::2/7777; for i in {1..200}; do until echo hi >&3; do :; done; [ $((i %% 50)) -lt 25 ] || sleep 0.005; done; true"]}
`

// TestEqualPacketsAreToldApart follows packets that agree in every byte by their ids:
// what left and did not arrive is exactly what has a drop record.
func TestEqualPacketsAreToldApart(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed)
	const inSwitch = " leaf1:p0 in leaf1:p1 out"
	for options, crossed := range map[string]string{
		"at: [all]": inSwitch, "at: [all], filter: udp port 7777, snaplen: 400B": inSwitch, "at: [nics]": "",
		"at: [all], events: all": inSwitch,
	} {
		t.Run(options, func(t *testing.T) { tellApart(t, options, crossed) })
	}
}

func tellApart(t *testing.T, options, crossed string) {
	for try := 1; ; try++ {
		seen, lost := followAlike(t, options)
		if lost > 0 && try < hostTries {
			t.Logf("the taps lost %d packets", lost)
			continue
		}
		var dropped, doubled, sent int
		for id, steps := range seen {
			slices.Sort(steps)
			switch got := strings.Join(steps, " "); got {
			case "h0:eth0 drop h0:eth0 out":
				sent, dropped = sent+1, dropped+1
			case "h0:eth0 out h1:eth0 in" + crossed:
				sent++
			case "h0:eth0 out h1:eth0 in h1:eth0 in" + crossed:
				sent, doubled = sent+1, doubled+1
			default:
				t.Errorf("packet %#x has the records %s", id, got)
			}
		}
		// After a refusal of h1's stack, bash sends again.
		if sent != 200 || dropped != 5 || doubled == 0 {
			t.Errorf("%d packets were sent, %d dropped and %d doubled; want 200, 5 and some", sent,
				dropped, doubled)
		}
		return
	}
}

// followAlike runs the scenario, and returns the records of each datagram by its id.
func followAlike(t *testing.T, capture string) (seen map[uint64][]string, lost uint64) {
	t.Helper()
	o := options(t, fmt.Sprintf(alike, capture))
	runAll(t, t.Context(), o)
	r := openRecording(t, filepath.Join(o.Out, "run.pcapng"))
	seen = map[uint64][]string{}
	kinds := map[uint64]bool{}
	const udp = 17
	for {
		p, err := r.Next()
		if err != nil {
			break
		}
		if len(p.Data) < 14+40+8 || p.Data[14]>>4 != 6 || p.Data[20] != udp || p.Data[56] != 7777>>8 ||
			p.Data[57] != 7777&0xFF {
			continue
		}
		kinds[layers.Identity(p.Data, p.Length)] = true
		what := "in"
		switch p.Flags & pcapng.DirectionMask {
		case pcapng.Outbound:
			what = "out"
		case 0: // an event in a queue
			continue
		}
		for _, comment := range p.Comments {
			if a, ok := pcapng.ParseAnnotation(comment); ok && a.Verdict == "drop" {
				what = "drop"
			}
		}
		seen[p.ID] = append(seen[p.ID], r.Interfaces()[p.Interface].Name+" "+what)
	}
	if len(kinds) != 1 {
		t.Errorf("%d kinds of packets, want all alike", len(kinds))
	}
	for _, s := range r.Statistics() {
		lost += s.Dropped + s.OSDropped
	}
	return seen, lost
}
