package follow_test

import (
	"slices"
	"strings"
	"testing"

	golayers "github.com/google/gopacket/layers"

	"railbed/capture/follow"
	"railbed/internal/wire"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// routed is a scene at a router of the kernel with 20 segments from h0 to h1. The tenth does not leave the
// router.
func routed(t *testing.T, comment string) (s *verifytest.Scene, lost uint64) {
	s = verifytest.NewScene(t)
	s.Plan = plantest.Compile(t, strings.Replace(softPair, "{kind: soft, pfc: {priorities: [3]}}",
		"{kind: router}", 1))
	for i := range uint32(20) {
		id := pass(s, false, unhindered(int64(i)*20_000), golayers.TCP{Seq: 1 + i*946, ACK: true, PSH: true},
			true)
		if i == 10 {
			lost = id
		}
	}
	s.Remove(func(k verifytest.Sighting) bool {
		return k.ID == lost && (k.Tap == "leaf1:p1" || k.Tap == "h1:eth0")
	})
	s.Change(func(verifytest.Sighting) bool { return true }, func(k *verifytest.Sighting) { k.Comment = "" })
	if comment != "" {
		one := s.Of(lost, "leaf1:p0", false)
		one.Tap, one.Record, one.Time, one.Comment = "leaf1:p1", true, one.Time+2000, comment
		s.Insert(one)
	}
	return s, lost
}

// TestWhyNamesKernelFaults: a fault at a port of a router changes a packet before the port sends it.
func TestWhyNamesKernelFaults(t *testing.T) {
	for comment, want := range map[string][2]string{
		"railbed verdict=corrupt reason=fault name=f1": {
			"recover at leaf1:p1: corrupted packets: fault f1\n",
			"corrupted: fault f1 at leaf1:p1, record "},
		"railbed verdict=truncate reason=fault name=f1": {
			"recover at leaf1:p1: truncated packets: fault f1\n",
			"truncated: fault f1 at leaf1:p1, record "},
		"railbed verdict=mark reason=fault name=f1": {
			"recover at leaf1:p1: packets arrived and were not seen again", "last seen at leaf1:p1"},
		"": {"recover at leaf1:p0: packets arrived and were not seen again", "last seen at leaf1:p0"},
	} {
		s, _ := routed(t, comment)
		_, texts := causes(t, s)
		wantFirst(t, texts, want[0])
		r := read(t, s)
		for _, m := range r.Select(follow.Selection{From: "h0"}) {
			life := r.MessageLife(m, true)
			if got := life.Lives[0].Outcome; got != "arrived" && !strings.HasPrefix(got, want[1]) {
				t.Errorf("outcome %q, want %q", got, want[1])
			}
		}
	}
}

// TestWhyNamesWrongHeaders: a router refuses a packet that comes with a wrong checksum.
func TestWhyNamesWrongHeaders(t *testing.T) {
	s, lost := routed(t, "")
	s.Change(func(k verifytest.Sighting) bool { return k.ID == lost }, func(k *verifytest.Sighting) {
		k.Frame = slices.Clone(k.Frame)
		wire.IPv4(k.Frame[14:])[8] ^= 1
	})
	_, texts := causes(t, s)
	wantFirst(t, texts, "recover at leaf1:p0: packets came with a wrong IP header, and were not seen again")
}
