package fabricchecks

import (
	"testing"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/units"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// A packet may wait in a queue for as long as the queue takes, whatever that is.
func TestSlowQueuesLoseNothing(t *testing.T) {
	s := verifytest.NewScene(t)
	s.Plan = plantest.Compile(t, "name: b\nfabric:\n  topology: single-switch\n  params: {hosts: 3}\n  "+
		"switch: {kind: bridge}\n")
	sw := s.Plan.Switches[0].Name
	for i := range s.Plan.Links {
		for _, d := range []*units.Bytes{&s.Plan.Links[i].AToB.Queue, &s.Plan.Links[i].BToA.Queue} {
			*d = 1 << 20
		}
		s.Plan.Links[i].AToB.Rate, s.Plan.Links[i].BToA.Rate = 5e6, 5e6
	}
	from, to := s.Plan.Nodes[0].NICs[0], s.Plan.Nodes[1].NICs[0]
	frame := s.Frame(verifytest.TCP{Src: verifytest.AddrPort(evidence.Rank{Addr: s.Plan.Ranks[0].Addr4}, 1),
		Dst: verifytest.AddrPort(evidence.Rank{Addr: s.Plan.Ranks[1].Addr4}, 1)}, 64, from.MAC, to.MAC)
	const waits = int64(1900 * time.Millisecond)
	for i := range int64(50) {
		at := verifytest.Start + i*int64(200*time.Millisecond)
		s.Insert(verifytest.Sighting{Tap: sw + ":p0", Time: at, ID: uint64(i), Frame: frame,
			Length: len(frame)})
		s.Insert(verifytest.Sighting{Tap: sw + ":p1", Out: true, Time: at + waits, ID: uint64(i),
			Frame: frame, Length: len(frame)})
		s.Now = at + waits + int64(20*time.Second)
	}
	results, _ := s.Run(NewConservation("*"))
	verifytest.Wants(t, results[0], pass, "50 packets crossed 1 switch, and none was lost or added")
	s.Remove(func(k verifytest.Sighting) bool { return k.ID == 7 && k.Out })
	results, _ = s.Run(NewConservation("*"))
	verifytest.Wants(t, results[0], fail, "1 entered and never left")
}

// The same between NICs.
func TestJourneysThroughSlowQueues(t *testing.T) {
	soft := verifytest.SoftScene(t, verifytest.SoftFile)
	for i := range soft.Plan.Links {
		soft.Plan.Links[i].AToB.Rate, soft.Plan.Links[i].BToA.Rate = 5e6, 5e6
	}
	const ms = int64(time.Millisecond)
	j := newJourneys(&evidence.Capture{Plan: soft.Plan, Dilation: 1}, false, nil)
	packet := func(id, at int64) *evidence.Packet {
		return &evidence.Packet{ID: uint64(id), Length: int(id), Time: at}
	}
	for id := range int64(31) {
		j.start(packet(id, id*100*ms), journey{})
	}
	if _, known := j.arrive(packet(0, 3000*ms)); !known || j.lost > 0 {
		t.Errorf("after 3 s of %v: known %t, %d lost", time.Duration(j.linger), known, j.lost)
	}
	j.finish(60_000 * ms)
	if j.lost != 30 {
		t.Errorf("%d were lost in the end", j.lost)
	}
}
