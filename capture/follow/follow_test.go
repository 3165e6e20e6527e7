package follow_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/capture/follow"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// hop is a record of a packet: its tap, its time in microseconds from the first record, and its lateness.
type hop struct {
	tap      string
	out      bool
	at, late int64
	comment  string
}

const softPair = `
name: pair
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft, pfc: {priorities: [3]}}
  links: {default: {rate: 100mbit, delay: 10us}}
`

// recording writes the records of one segment of 1,000 bytes and follows it.
func recording(t *testing.T, file string, hops ...hop) *follow.Recording {
	t.Helper()
	s := verifytest.NewScene(t)
	s.Plan = plantest.Compile(t, file)
	s.Send("h0", "eth0", segment(s, 0, 1000-54))
	frame := s.Sightings[0].Frame
	s.Sightings = nil
	for _, h := range hops {
		comment := h.comment
		if comment == "" && !strings.HasPrefix(h.tap, "h") {
			comment = fmt.Sprintf("railbed depth=0 late=%dns", h.late*1000)
		}
		s.Insert(verifytest.Sighting{Tap: h.tap, Out: h.out, Time: verifytest.Start + h.at*1000, ID: 1,
			Frame:  frame,
			Length: len(frame), Comment: comment, Queue: 4})
	}
	return read(t, s)
}

func segment(s *verifytest.Scene, seq uint32, payload int) verifytest.TCP {
	return verifytest.TCP{
		Src: netip.AddrPortFrom(verifytest.Loopback(&s.Plan.Nodes[0]), 7000),
		Dst: netip.AddrPortFrom(verifytest.Loopback(&s.Plan.Nodes[1]), 7001), Seq: seq, Payload: payload}
}

func read(t *testing.T, s *verifytest.Scene) *follow.Recording {
	t.Helper()
	r, err := follow.Read(t.Context(), bytes.NewReader(s.Write()), follow.Options{Options: s.Options()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPartsOfHops: a frame of 1,000 bytes takes 80 us at 100 Mbit/s and 10 us on the link.
func TestPartsOfHops(t *testing.T) {
	for _, test := range []struct {
		name string
		hops []hop
		want follow.Account // in microseconds
	}{
		{"on time", []hop{{"h0:eth0", true, 0, 0, ""}, {"leaf1:p0", false, 90, 0, ""}, {"leaf1:p1", true, 90,
			0, ""},
			{"h1:eth0", false, 180, 0, ""}},
			follow.Account{follow.Serialise: 160, follow.Propagate: 20}},
		{"waits in the NIC and in the switch", []hop{{"h0:eth0", true, 0, 0, ""}, {"leaf1:p0", false, 390, 0,
			""},
			{"leaf1:p1", true, 440, 0, ""}, {"h1:eth0", false, 530, 0, ""}},
			follow.Account{follow.Queue: 350, follow.Serialise: 160, follow.Propagate: 20}},
		{"the emulator is late and catches up", []hop{{"h0:eth0", true, 0, 0, ""}, {"leaf1:p0", false, 490,
			400, ""},
			{"leaf1:p1", true, 495, 405, ""}, {"h1:eth0", false, 590, 0, ""}},
			follow.Account{follow.Serialise: 160, follow.Propagate: 20, follow.Emulator: 410}},
		{"a kernel link holds the packet before its tap", []hop{{"h0:eth0", true, 0, 0, "railbed"},
			{"leaf1:p0", false, 1, 0, "railbed"}, {"leaf1:p1", true, 100, 0, "railbed"}, {"h1:eth0", false,
				101, 0, "railbed"}},
			follow.Account{follow.Queue: 10, follow.Serialise: 81, follow.Propagate: 10}},
		{"no tap in the fabric", []hop{{"h0:eth0", true, 0, 0, ""}, {"h1:eth0", false, 700, 0, ""}},
			follow.Account{follow.Unseen: 700}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := recording(t, softPair, test.hops...)
			var found follow.Account
			for _, h := range r.Hops(0) {
				found.Add(&h.Account)
			}
			for i := range test.want {
				test.want[i] *= 1000
			}
			if found != test.want {
				t.Errorf("got %v, want %v", found, test.want)
			}
			took := (test.hops[len(test.hops)-1].at - test.hops[0].at) * 1000
			if m := r.Messages[0]; len(r.Messages) != 1 || m.Placed != 0 || found.Total() != took {
				t.Errorf("%d messages, the first %+v; parts of %d ns, want %d", len(r.Messages), m,
					found.Total(), took)
			}
		})
	}
}

// TestArrivalsOutsideOfNodes: a router has an address of its own, and of another address it is not known
// where it is.
func TestArrivalsOutsideOfNodes(t *testing.T) {
	for _, outside := range []bool{false, true} {
		s := verifytest.NewScene(t)
		s.Plan = plantest.Compile(t, strings.Replace(softPair, "kind: soft, pfc: {priorities: [3]}",
			"kind: router", 1))
		to := s.Plan.Switches[0].Ports[0].Addrs[0].Addr()
		packet := segment(s, 1, 500)
		packet.Src, packet.Dst = netip.AddrPortFrom(s.Plan.Nodes[0].NICs[0].Addrs[0].Addr(), 7000),
			netip.AddrPortFrom(to, 179)
		s.Send("h0", "eth0", packet)
		for i := range s.Sightings {
			s.Sightings[i].Frame[47] |= 0x08 // PSH
			if outside {
				copy(s.Sightings[i].Frame[30:], []byte{192, 0, 2, 7})
			}
		}
		s.Sightings = s.Sightings[:2] // h0's NIC and leaf1's port
		s.Now += 1e9
		r := read(t, s)
		if len(r.Messages) != 1 {
			t.Fatalf("%d messages of %d packets", len(r.Messages), len(r.Packets))
		}
		m := &r.Messages[0]
		if answers := r.Why([]int{0}); m.Placed > 0 == outside || m.Lost > 0 || len(answers) != 1 ||
			answers[0].Unfinished > 0 || len(answers[0].Causes) > 0 {
			t.Errorf("outside %v: %+v, %+v", outside, m, answers)
		}
	}
}

// TestMessagesOfTCP cuts a stream that wraps at segments with PSH. Copies and losses are drawn, and the
// messages have to have the drawn ones.
func TestMessagesOfTCP(t *testing.T) {
	for seed := range uint64(50) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s := verifytest.NewScene(t)
		type part struct {
			message int
			id      uint64
		}
		var sent []part
		again, lost := map[int]int{}, map[int]int{}
		seq := uint32(0xFFFFF000)
		messages := 0
		for messages < 20 {
			payload := 1 + draw.IntN(1400)
			copies := 1 + draw.IntN(5)/3
			ends := draw.IntN(3) == 0
			for copied := range copies {
				from := len(s.Sightings)
				s.Send("h0", "eth0", segment(s, seq, payload))
				for i := range s.Sightings[from:] {
					if ends {
						s.Sightings[from+i].Frame[47] |= 0x08 // PSH
					}
				}
				sent = append(sent, part{messages, s.IDs})
				if copied < copies-1 {
					again[messages]++
					lost[messages]++
					s.Sightings = s.Sightings[:from+1+draw.IntN(len(s.Sightings)-from-1)]
				}
			}
			seq += uint32(payload)
			if ends {
				messages++
			}
		}
		s.Now += 1e9
		r := read(t, s)
		if len(r.Messages) != messages {
			t.Fatalf("seed %d: %d messages, want %d", seed, len(r.Messages), messages)
		}
		for i := range r.Messages {
			m := &r.Messages[i]
			var ids, want []uint64
			repeats := 0
			for _, p := range m.Packets {
				ids = append(ids, r.Packets[p].ID)
				if r.Packets[p].Again {
					repeats++
				}
			}
			for _, p := range sent {
				if p.message == i {
					want = append(want, p.id)
				}
			}
			if !slices.Equal(ids, want) || m.Again != again[i] || repeats != m.Again || m.Lost != lost[i] ||
				m.Placed == 0 ||
				m.Account.Total() != m.Placed-m.Start || (m.Account[follow.Recover] > 0) && again[i] == 0 {
				t.Errorf("seed %d, message %d: packets %v, want %v; %+v, want %d sent again and %d lost",
					seed, i, ids, want,
					m, again[i], lost[i])
			}
		}
	}
}

// TestPausesAreTheirOwn: a frame waits 100 us in a switch, whose port is paused for 60 of them. The first
// of two pauses is renewed, and the second ends early.
func TestPausesAreTheirOwn(t *testing.T) {
	s := verifytest.NewScene(t)
	s.Plan = plantest.Compile(t, softPair)
	s.Send("h0", "eth0", segment(s, 0, 1000-54))
	frame := s.Sightings[0].Frame
	at := func(us int64) int64 { return verifytest.Start + us*1000 }
	pause := func(us int64, quanta byte) verifytest.Sighting {
		control := append([]byte{0x01, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0x08, 0x01, 0x01, 0,
			0x08},
			make([]byte, 42)...)
		control[18+2*3+1] = quanta
		return verifytest.Sighting{Tap: "leaf1:p1", Time: at(us), ID: uint64(100 + us), Frame: control,
			Length:  60,
			Comment: "railbed late=0ns"}
	}
	late := "railbed depth=0 late=0ns"
	s.Sightings = []verifytest.Sighting{
		{Tap: "h0:eth0", Out: true, Time: at(0), ID: 1, Frame: frame, Length: 1000},
		{Tap: "leaf1:p0", Time: at(90), ID: 1, Frame: frame, Length: 1000, Comment: late},
		pause(100, 4), pause(110, 4), pause(150, 200), pause(179, 0),
		{Tap: "leaf1:p1", Out: true, Time: at(190), ID: 1, Frame: frame, Length: 1000, Comment: late,
			Queue: 4},
		{Tap: "h1:eth0", Time: at(280), ID: 1, Frame: frame, Length: 1000},
	}
	r := read(t, s)
	hops := r.Hops(r.PacketOf(1))
	// A quantum is 512 bits: 5.12 us. The first pause is from 100 to 110 + 20.48, the second from 150 to 179.
	const paused = 10_000 + 20_480 + 29_000
	if got := hops[1].Account; got != (follow.Account{follow.Pause: paused, follow.Queue: 100_000 - paused}) {
		t.Errorf("got %v", got)
	}
}

// TestDiagramShowsEachPacket: the diagram is an XML document with a group for each packet, a cross for each
// lost one and a note for the time without packets.
func TestDiagramShowsEachPacket(t *testing.T) {
	s := verifytest.NewScene(t)
	s.Send("h0", "eth0", segment(s, 1, 500))
	lost := len(s.Sightings)
	s.Send("h0", "eth0", segment(s, 501, 500))
	s.Sightings = s.Sightings[:lost+3]
	s.Now += 200_000_000
	s.Send("h0", "eth0", segment(s, 501, 500))
	for i := range s.Sightings {
		if i >= lost {
			s.Sightings[i].Frame[47] |= 0x08 // PSH
		}
	}
	s.Now += 1e9
	r := read(t, s)
	var out bytes.Buffer
	if err := r.Diagram(&out, 0); err != nil {
		t.Fatal(err)
	}
	groups, texts := 0, ""
	for decoder := xml.NewDecoder(&out); ; {
		token, err := decoder.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "g" {
				groups++
			}
		case xml.CharData:
			texts += string(token) + "\n"
		}
	}
	for _, want := range []string{"Message 1: tcp from h0 to h1", "1000 bytes in 3 packets, 1 sent again",
		"ms without a packet", "last seen at leaf1:"} {
		if !strings.Contains(texts, want) {
			t.Errorf("no %q in %s", want, texts)
		}
	}
	if groups != 3 {
		t.Errorf("%d groups, want one for each of 3 packets", groups)
	}
}

// TestWhyNamesWhoKeptTheOthersWaiting: four messages go in turn, each 50 ms after the one before has arrived.
func TestWhyNamesWhoKeptTheOthersWaiting(t *testing.T) {
	s := verifytest.NewScene(t)
	for i := range 4 {
		k := segment(s, uint32(1+i/2*500), 500)
		if i%2 == 1 {
			k.Src, k.Dst = k.Dst, k.Src
		}
		from := len(s.Sightings)
		s.Send([]string{"h0", "h1"}[i%2], "eth0", k)
		for j := range s.Sightings[from:] {
			s.Sightings[from+j].Frame[47] |= 0x08 // PSH
		}
		s.Now += 50_000_000
	}
	s.Now += 1e9
	r := read(t, s)
	answers := r.Why(r.Select(follow.Selection{}))
	if len(answers) != 1 || len(answers[0].Causes) == 0 {
		t.Fatalf("answers %+v", answers)
	}
	if none := r.WhyIn(r.Select(follow.Selection{}), r.End, r.End); len(none) != 1 ||
		len(none[0].Causes) > 0 ||
		none[0].Messages != 4 {
		t.Errorf("after the last message: %+v", none)
	}
	c := answers[0].Causes[0]
	if c.Part != "host" || c.Messages != 3 || !slices.Equal(c.Where, []string{"h1", "h0"}) ||
		!strings.Contains(c.What, "h1 (67% of this time), h0 (33%)") || c.Extra < 149*time.Millisecond ||
		c.Extra > 151*time.Millisecond {
		t.Errorf("the first cause is %+v", c)
	}
}
