package verify

import (
	"fmt"
	"strings"
	"testing"

	"railbed/capture/verify/fabricchecks"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// kernelScene is a recording of kernel switches of a kind, in which some packets enter a leaf and never
// leave.
func kernelScene(t *testing.T, kind string, vanished int) *verifytest.Scene {
	s := verifytest.NewScene(t)
	s.Plan = plantest.Compile(t,
		strings.Replace(verifytest.ClusterFile, "topology:", "switch: {kind: "+kind+"}\n  topology:", 1))
	s.Ring(4)
	for range vanished {
		harm(s, lose)
	}
	return s
}

// harm does something to a packet of h1 behind the port at which it enters a leaf.
func harm(s *verifytest.Scene, do func(*verifytest.Scene, uint64, int64)) {
	id := s.Packet("h1:eth0", true)
	do(s, id, s.Of(id, "leaf1:p1", false).Time)
	shorten(s, id)
}

// TestDropsOfKernels: what interfaces and routers' stacks lost are drops, and packets that no counter has
// keep the check from passing.
func TestDropsOfKernels(t *testing.T) {
	for name, c := range map[string]struct {
		vanished int
		queues   uint64            // drops that the queue of leaf1:p0 counts
		lost     map[string]uint64 // Options.Lost
		at       string
		change   func(s *verifytest.Scene)
		want     verdict.Verdict
		says     string
	}{
		"nothing": {want: pass},
		"a queue counts all": {vanished: 2, queues: 2, want: fail,
			says: "kernel queues at the chosen ports counted 2 drops"},
		"the stack counts all": {vanished: 2, lost: map[string]uint64{"leaf1": 2}, want: fail,
			says: "the stack of leaf1 dropped 2 packets"},
		"an interface": {lost: map[string]uint64{"leaf1:p0": 3}, want: fail,
			says: "leaf1:p0 lost 3 packets"},
		"an interface of a node": {lost: map[string]uint64{"h0:eth0": 3}, want: fail,
			says: "h0:eth0 lost 3 packets"},
		"another switch": {lost: map[string]uint64{"leaf1": 2}, at: "leaf2", want: pass},
		"nobody counts": {vanished: 2, want: unclear,
			says: "leaf1: 2 packets entered and never left"},
		"nobody counts, elsewhere": {vanished: 2, at: "leaf2", want: pass},
		"some are counted":         {vanished: 3, queues: 1, want: fail},
		"the link was down for once": {at: "leaf1", change: down, want: unclear,
			says: "the link was down for a time"},
	} {
		t.Run(name, func(t *testing.T) {
			s := kernelScene(t, "router", c.vanished)
			s.Queues["leaf1:p0"], s.Lost = c.queues, c.lost
			if c.change != nil {
				c.change(s)
			}
			results, _ := s.Run(fabricchecks.NewDrops(&spec.DropsCheck{At: c.at, Count: "== 0"}))
			r := results[0]
			text := fmt.Sprint(r.Summary, r.Lacking, r.Details)
			if r.Verdict != c.want || !strings.Contains(text, c.says) {
				t.Errorf("%v %s, want %s and %q", r.Verdict, text, c.want, c.says)
			}
		})
	}
}

func down(s *verifytest.Scene) { s.Interrupted = func(string) bool { return true } }

// TestBridgesDropLargeFrames: a bridge frees a frame that is larger than the MTU of its next port, and counts
// it nowhere.
func TestBridgesDropLargeFrames(t *testing.T) {
	for _, c := range []struct {
		mtu  int // of another port of the bridge
		want verdict.Verdict
	}{{1500, pass}, {900, unclear}} {
		s := verifytest.NewScene(t)
		s.Plan = plantest.Compile(t, strings.Replace(verifytest.ClusterFile, "topology:",
			"switch: {kind: router}\n  topology:", 1))
		s.Ring(4)
		sw := s.Plan.Switch("leaf1")
		sw.Kind, sw.Ports[1].MTU = spec.Bridge, c.mtu
		results, _ := s.Run(fabricchecks.NewDrops(&spec.DropsCheck{At: "leaf1", Count: "== 0"}))
		if results[0].Verdict != c.want {
			t.Errorf("mtu %d: %v, want %s", c.mtu, results[0], c.want)
		}
	}
}

// TestConservationAddsUp: each packet that entered a switch, and each that left it, is in one part of the
// line.
func TestConservationAddsUp(t *testing.T) {
	soft := strings.Replace(verifytest.ClusterFile, "  links:", "  switch: {kind: soft}\n  links:", 1)
	for name, change := range map[string]func(s *verifytest.Scene){
		"whole": func(*verifytest.Scene) {},
		"began in the middle of it": func(s *verifytest.Scene) {
			begun := s.Now - 4_000_000
			s.Remove(func(k verifytest.Sighting) bool { return k.Time < begun })
		},
		"lost":    func(s *verifytest.Scene) { harm(s, lose) },
		"changed": func(s *verifytest.Scene) { harm(s, hit(spoil, "corrupt")) },
		"copied":  func(s *verifytest.Scene) { harm(s, hit(double, "duplicate")) },
		"trimmed": func(s *verifytest.Scene) { s.Cut(59) },
		"dropped": func(s *verifytest.Scene) { s.Lose("railbed verdict=drop reason=tail depth=40320") },
	} {
		s := verifytest.NewScene(t)
		if name == "trimmed" || name == "dropped" {
			s = verifytest.SoftScene(t, verifytest.SoftFile)
		} else {
			s.Plan = plantest.Compile(t, soft)
			s.Ring(4)
		}
		change(s)
		results, _ := s.Run(fabricchecks.NewConservation("*"))
		lines := 0
		for _, line := range results[0].Details {
			var node string
			head, rest, is := strings.Cut(line, " ports: ")
			if !is {
				continue
			}
			var in, ports, out, sumIn, sumOut uint64
			first, second, _ := strings.Cut(rest, "; ")
			node, head, _ = strings.Cut(head, ": ")
			_, err := fmt.Sscanf(head, "%d in on %d", &in, &ports)
			left, parts, _ := strings.Cut(second, " out: ")
			if _, err2 := fmt.Sscan(left, &out); err != nil || err2 != nil {
				t.Fatalf("%s: %q: %v %v", name, line, err, err2)
			}
			sumIn, sumOut = sumOf(first), sumOf(parts)
			if lines++; sumIn != in || sumOut != out || in == 0 {
				t.Errorf("%s: %s: %d in, parts are %d; %d out, parts are %d: %s", name, node, in, sumIn, out,
					sumOut, line)
			}
		}
		if lines == 0 {
			t.Errorf("%s: no line of a switch in %q", name, results[0].Details)
		}
	}
}

// sumOf adds the numbers with which the parts of a text begin.
func sumOf(text string) (sum uint64) {
	for part := range strings.SplitSeq(text, ", ") {
		var n uint64
		if _, err := fmt.Sscan(part, &n); err == nil {
			sum += n
		}
	}
	return sum
}
