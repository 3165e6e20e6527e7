package verify

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"railbed/capture/verify/evidence"
	"railbed/capture/verify/roce"
	"railbed/capture/verify/verifytest"
	"railbed/internal/units"
	"railbed/plan/plantest"
	"railbed/plan/spec"
)

// A capture that begins in the middle of the judged traffic gives no FAIL.
func TestLateCaptureAccusesNobody(t *testing.T) {
	for name, play := range map[string]func(*verifytest.Scene, int){"tcp": (*verifytest.Scene).Ring,
		"rd": (*verifytest.Scene).RDRing} {
		s := verifytest.NewScene(t)
		play(s, 4)
		s.Begin(2)
		results, _ := s.Run(NewBytesPerRank(s.Workload, units.Ratio{Num: 2, Den: 100}),
			NewRankNIC(s.Workload), NewConservation("*"))
		for i, r := range results {
			if r.Verdict == fail || i == 0 && r.Verdict != unclear {
				t.Errorf("%s: %v", name, r)
			}
		}
	}
}

// What a link doubles behind a NIC, and what a bridge that does not know an address sends to
// all, is no rank's fault.
func TestRankNICOfLinks(t *testing.T) {
	for _, known := range []bool{true, false} {
		s := verifytest.NewScene(t)
		s.Ring(4)
		link := s.Plan.Link(s.Plan.Nodes[0].NICs[0].Link)
		if known {
			link.AToB.Duplicate = units.Ratio{Num: 1, Den: 100}
		}
		id := s.Packet("h0:eth0", true)
		twin := s.Of(id, "leaf1:p0", false)
		twin.ID, twin.Time = 1<<40, twin.Time+10
		s.Insert(twin)
		twin.Tap, twin.Foreign = "h2:eth0", known
		s.Insert(twin)
		results, _ := s.Run(NewRankNIC(s.Workload))
		if known {
			verifytest.Wants(t, results[0], pass, "0 passed elsewhere")
		} else {
			verifytest.Wants(t, results[0], fail, "received 1 packets at h2:eth0")
			verifytest.Wants(t, results[0], fail,
				"1 packets reached its switch and were not seen to leave its NIC")
		}
	}
}

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
	verifytest.Wants(t, results[0], pass, "50 packets crossed 1 switches, 0 entered and never left")
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

// Bytes of which some could not be read are not counted against what was received.
func TestMissingBytesThatCannotBeRead(t *testing.T) {
	for _, unread := range []uint64{0, 1} {
		b := NewBytesPerRank(evidence.Workload{Ranks: []evidence.Rank{{Missing: new(uint64)}, {}}},
			units.Ratio{})
		b.placed[evidence.RDSpace{}] = &placedBytes{left: 64, received: 1000}
		b.unread[1] = unread
		var f evidence.Finding
		if b.judgeMissing(&f, 0); len(f.Absent) != 1-int(unread) || len(f.Unclear) != int(unread) {
			t.Errorf("%d unread: %+v", unread, f)
		}
	}
}

// More flows than are followed are said, whatever else the packets carry.
func TestMoreFlowsThanAreFollowed(t *testing.T) {
	q := verifytest.NewQP(t, 4)
	q.RD(0, 2, 0, q.Data(q.Base(0, 2, 0, uint32(verifytest.RDLife(0)>>32)), 1, 100, 0))
	q.Write()
	var out bytes.Buffer
	w := pcapgo.NewWriterNanos(&out)
	err := w.WriteFileHeader(65535, golayers.LinkTypeEthernet)
	put := func(frame []byte) {
		if err == nil {
			err = w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, verifytest.Start),
				CaptureLength: len(frame), Length: len(frame)}, frame)
		}
	}
	frame := bytes.Clone(q.Sightings[0].Frame)
	const followed = 1 << 17 // flows
	for i := range uint32(followed) {
		binary.BigEndian.PutUint32(frame[30:], 0x0B000000+i)
		put(frame)
	}
	for _, k := range q.Sightings {
		put(k.Frame)
	}
	if err != nil {
		t.Fatal(err)
	}
	checks := []evidence.Check{thatRD(t, spec.ThatRDPlaced), thatRD(t, spec.ThatRDNeeded),
		NewBytesPerRank(q.Workload, units.Ratio{}),
		NewRankNIC(q.Workload), newLossless(Selection{}, -1), newTrims(Selection{}, nil)}
	for _, name := range everyCheck() {
		if rule, is := strings.CutPrefix(name, "roce "); is {
			check, err := roce.New(&spec.RoCECheck{Rule: rule})
			if err != nil {
				t.Fatal(err)
			}
			checks = append(checks, check)
		}
	}
	results, _, err := evidence.Run(t.Context(), &out, evidence.Options{}, checks...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Verdict != unclear {
			t.Errorf("want INCONCLUSIVE: %v", r)
		}
	}
}

// Where the recorder did not keep up, an acknowledgement may stand before its packet.
func TestUnorderedCaptureAccusesNobody(t *testing.T) {
	for _, sound := range []bool{true, false} {
		s := verifytest.NewScene(t)
		s.RDRing(4)
		slices.SortStableFunc(s.Sightings, func(a, b verifytest.Sighting) int { return int(a.Time - b.Time) })
		i := slices.IndexFunc(s.Sightings, func(k verifytest.Sighting) bool {
			return k.Tap == "h1:eth0" && !k.Out && verifytest.IsData(k)
		})
		late := s.Sightings[i]
		s.Sightings = append(slices.Delete(s.Sightings, i, i+1), late)
		if s.Unsorted = true; sound { // its time is the time of its new place
			s.Sightings[len(s.Sightings)-1].Time = s.Sightings[len(s.Sightings)-2].Time
		}
		results, _ := s.Run(thatRD(t, spec.ThatRDPlaced))
		if sound {
			verifytest.Wants(t, results[0], fail, "acknowledged")
		} else {
			verifytest.Wants(t, results[0], pass, "1 packets stood behind later ones and were sorted")
		}
	}
}
