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

	"railbed/internal/units"
	"railbed/plan/plantest"
	"railbed/plan/spec"
)

// begin has the capture begin where a packet that left before comes into a switch, behind a part
// of the packets.
func (s *scene) begin(part int) {
	first := s.sightings[len(s.sightings)/part].time
	for _, k := range s.sightings {
		if k.time >= first && !k.out {
			first = k.time
			break
		}
	}
	s.remove(func(k sighting) bool { return k.time < first })
}

// A capture that begins in the middle of the judged traffic gives no FAIL.
func TestLateCaptureAccusesNobody(t *testing.T) {
	for name, play := range map[string]func(*scene, int){"tcp": (*scene).ring, "rd": (*scene).rdRing} {
		s := newScene(t)
		play(s, 4)
		s.begin(2)
		results, _ := s.run(NewBytesPerRank(s.workload, units.Ratio{Num: 2, Den: 100}),
			NewRankNIC(s.workload), NewConservation("*"))
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
		s := newScene(t)
		s.ring(4)
		link := s.plan.Link(s.plan.Nodes[0].NICs[0].Link)
		if known {
			link.AToB.Duplicate = units.Ratio{Num: 1, Den: 100}
		}
		id := s.packet("h0:eth0", true)
		twin := s.of(id, "leaf1:p0", false)
		twin.id, twin.time = 1<<40, twin.time+10
		s.insert(twin)
		twin.tap, twin.foreign = "h2:eth0", known
		s.insert(twin)
		results, _ := s.run(NewRankNIC(s.workload))
		if known {
			wants(t, results[0], pass, "0 passed elsewhere")
		} else {
			wants(t, results[0], fail, "received 1 packets at h2:eth0")
			wants(t, results[0], fail, "1 packets reached its switch and were not seen to leave its NIC")
		}
	}
}

// A packet may wait in a queue for as long as the queue takes, whatever that is.
func TestSlowQueuesLoseNothing(t *testing.T) {
	s := newScene(t)
	s.plan = plantest.Compile(t, "name: b\nfabric:\n  topology: single-switch\n  params: {hosts: 3}\n  "+
		"switch: {kind: bridge}\n")
	sw := s.plan.Switches[0].Name
	for i := range s.plan.Links {
		for _, d := range []*units.Bytes{&s.plan.Links[i].AToB.Queue, &s.plan.Links[i].BToA.Queue} {
			*d = 1 << 20
		}
		s.plan.Links[i].AToB.Rate, s.plan.Links[i].BToA.Rate = 5e6, 5e6
	}
	from, to := s.plan.Nodes[0].NICs[0], s.plan.Nodes[1].NICs[0]
	frame := s.frame(tcp{src: addrPort(Rank{Addr: s.plan.Ranks[0].Addr4}, 1),
		dst: addrPort(Rank{Addr: s.plan.Ranks[1].Addr4}, 1)}, 64, from.MAC, to.MAC)
	const waits = int64(1900 * time.Millisecond)
	for i := range int64(50) {
		at := start + i*int64(200*time.Millisecond)
		s.insert(sighting{tap: sw + ":p0", time: at, id: uint64(i), frame: frame, length: len(frame)})
		s.insert(sighting{tap: sw + ":p1", out: true, time: at + waits, id: uint64(i), frame: frame,
			length: len(frame)})
		s.now = at + waits + int64(20*time.Second)
	}
	results, _ := s.run(NewConservation("*"))
	wants(t, results[0], pass, "50 packets crossed 1 switches, 0 entered and never left")
	s.remove(func(k sighting) bool { return k.id == 7 && k.out })
	results, _ = s.run(NewConservation("*"))
	wants(t, results[0], fail, "1 entered and never left")
}

// The same between NICs.
func TestJourneysThroughSlowQueues(t *testing.T) {
	soft := softScene(t, softFile)
	for i := range soft.plan.Links {
		soft.plan.Links[i].AToB.Rate, soft.plan.Links[i].BToA.Rate = 5e6, 5e6
	}
	const ms = int64(time.Millisecond)
	j := newJourneys(&Capture{Plan: soft.plan, Dilation: 1}, false, nil)
	packet := func(id, at int64) *Packet { return &Packet{ID: uint64(id), Length: int(id), Time: at} }
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
		b := NewBytesPerRank(Workload{Ranks: []Rank{{Missing: new(uint64)}, {}}}, units.Ratio{})
		b.placed[rdPair{}] = &placedBytes{left: 64, received: 1000}
		b.unread[1] = unread
		var f finding
		if b.judgeMissing(&f, 0); len(f.absent) != 1-int(unread) || len(f.unclear) != int(unread) {
			t.Errorf("%d unread: %+v", unread, f)
		}
	}
}

// More flows than are followed are said, whatever else the packets carry.
func TestMoreFlowsThanAreFollowed(t *testing.T) {
	q := newRoCEScene(t, 4)
	q.rd(0, 2, 0, q.data(q.base(0, 2, 0, uint32(rdLife(0)>>32)), 1, 100, 0))
	q.write()
	var out bytes.Buffer
	w := pcapgo.NewWriterNanos(&out)
	err := w.WriteFileHeader(65535, golayers.LinkTypeEthernet)
	put := func(frame []byte) {
		if err == nil {
			err = w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, start),
				CaptureLength: len(frame), Length: len(frame)}, frame)
		}
	}
	frame := bytes.Clone(q.sightings[0].frame)
	const followed = 1 << 17 // flows
	for i := range uint32(followed) {
		binary.BigEndian.PutUint32(frame[30:], 0x0B000000+i)
		put(frame)
	}
	for _, k := range q.sightings {
		put(k.frame)
	}
	if err != nil {
		t.Fatal(err)
	}
	checks := []Check{newPlaced(), newNeeded(), NewBytesPerRank(q.workload, units.Ratio{}),
		NewRankNIC(q.workload), newLossless(Selection{}, -1), newTrims(Selection{}, nil)}
	for _, name := range everyCheck() {
		if rule, is := strings.CutPrefix(name, "roce "); is {
			check, err := newRoCE(&spec.RoCECheck{Rule: rule})
			if err != nil {
				t.Fatal(err)
			}
			checks = append(checks, check)
		}
	}
	results, _, err := Run(t.Context(), &out, Options{}, checks...)
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
		s := newScene(t)
		s.rdRing(4)
		slices.SortStableFunc(s.sightings, func(a, b sighting) int { return int(a.time - b.time) })
		i := slices.IndexFunc(s.sightings, func(k sighting) bool {
			return k.tap == "h1:eth0" && !k.out && isData(k)
		})
		late := s.sightings[i]
		s.sightings = append(slices.Delete(s.sightings, i, i+1), late)
		if s.unsorted = true; sound { // its time is the time of its new place
			s.sightings[len(s.sightings)-1].time = s.sightings[len(s.sightings)-2].time
		}
		results, _ := s.run(newPlaced())
		if sound {
			wants(t, results[0], fail, "acknowledged")
		} else {
			wants(t, results[0], pass, "1 packets stood behind later ones and were sorted")
		}
	}
}
