package verify

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/capture/pcapng"
	"railbed/capture/report"
	"railbed/capture/verify/evidence"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// fidelityFile is a soft switch with two hosts. The link to h1 is fast enough for each copy.
const fidelityFile = `
name: faults
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: 1gbit}}
`

// Times of the scene of fidelity: h0 sends a frame in each interval, which is the rate of its link. What the
// file asks for is in force for the time between the other two.
const (
	frameEvery     = 4 * time.Millisecond
	fidelityFrames = 800
	askedFrom      = int64(400 * time.Millisecond)
	askedTo        = int64(1600 * time.Millisecond)
	hitEvery       = 4                     // frames in that time.
	hitDelay       = 8 * time.Millisecond  // of a delay fault.
	tooFast        = 1.4                   // times the rate that is asked for.
	tooLate        = 30 * time.Millisecond // beyond the limit of 10 ms.
)

// fidelitySpecimens are runs at which the file asks for a fault or a setting. In the broken ones the emulator
// sends above the rate of the link at the same time.
var fidelitySpecimens = map[string]func(*testing.T, bool) (*verifytest.Scene, func() evidence.Check){
	fidelityRow: fidelityOf("", nil),
	fidelityRow + ", a delay": fidelityOf("fault: {where: 'h0:eth0', delay: {by: 8ms, every: 4}}",
		func(s *verifytest.Scene, out, in verifytest.Sighting) {
			in.Time += int64(hitDelay)
			s.Insert(out, struckBy(out, "delay"), in)
		}),
	fidelityRow + ", copies": fidelityOf("fault: {where: 'h0:eth0', duplicate: {every: 4}}",
		func(s *verifytest.Scene, out, in verifytest.Sighting) {
			again := in
			again.Time++
			s.Insert(out, struckBy(out, "duplicate"), in, again)
		}),
	fidelityRow + ", damage": fidelityOf("fault: {where: 'h0:eth0', corrupt: {every: 4}}",
		func(s *verifytest.Scene, out, in verifytest.Sighting) {
			s.Insert(out, struckBy(out, "corrupt"), in)
		}),
	fidelityRow + ", losses": fidelityOf("fault: {where: 'h0:eth0', drop: {every: 4}}",
		func(s *verifytest.Scene, out, _ verifytest.Sighting) {
			drop := struckBy(out, "drop")
			drop.Record = false
			s.Insert(out, drop)
		}),
	fidelityRow + ", copies by the link": fidelityOf(
		"link: {where: 'h0--*', set: {duplicate: 25%}, for: 1200ms}",
		func(s *verifytest.Scene, out, in verifytest.Sighting) {
			again := in
			again.Time++
			s.Insert(out, in, again)
		}),
	fidelityRow + ", another rate": fidelityOf("link: {where: 'h0--*', set: {rate: 4mbit}, for: 1200ms}",
		func(s *verifytest.Scene, out, in verifytest.Sighting) {
			for range 4 {
				s.IDs++
				out.ID, in.ID = s.IDs, s.IDs
				out.Time, in.Time = out.Time+int64(frameEvery)/5, in.Time+int64(frameEvery)/5
				s.Insert(out, in)
			}
		}),
	fidelityRow + ", a NIC that a program took down": fidelityOf(
		"exec: {nodes: [h1], command: [ip, link, set, eth0, down]}",
		func(s *verifytest.Scene, out, in verifytest.Sighting) {
			refused := in
			refused.Tap, refused.Comment = "h1:eth0", "railbed verdict=drop reason=nic-down late=0ns"
			s.Insert(out, in, refused)
		}),
}

const fidelityRow = "fidelity"

func isFidelity(check string) bool { return strings.HasPrefix(check, fidelityRow) }

// struckBy is the record of a fault at the port that sends a packet.
func struckBy(out verifytest.Sighting, effect string) verifytest.Sighting {
	out.Record = true
	out.Comment = fmt.Sprintf("railbed verdict=%s reason=fault name=f late=0ns", effect)
	out.Time += 100
	return out
}

// fidelityOf makes a specimen. A step of the file acts on some of the frames in its time.
func fidelityOf(step string, act func(s *verifytest.Scene, out, in verifytest.Sighting)) func(*testing.T,
	bool) (*verifytest.Scene, func() evidence.Check) {
	return func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		text := fidelityFile
		if step != "" {
			text += "steps:\n- " + step + "\n"
		}
		file, err := spec.Decode("x.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s := verifytest.NewScene(t)
		s.Plan, s.Hits = plantest.Compile(t, text), true
		at := fidelityTraffic(t, s, act)
		if broken {
			hasten(s, func(int64) bool { return true })
		}
		var acts []report.Act
		if strings.HasPrefix(step, "link:") {
			from := verifytest.Start + askedFrom
			acts = []report.Act{{Kind: report.SetKind, Links: []string{at}, From: time.Unix(0, from),
				To: time.Unix(0, verifytest.Start+askedTo)}}
		}
		return s, func() evidence.Check {
			check := NewFidelity(Faithful, HostLoad{Pressure: -1, Steal: -1})
			check.Except(file, s.Plan)
			check.ExceptDuring(acts)
			return check
		}
	}
}

// fidelityTraffic sends the frames, and returns the name of the link that they fill.
func fidelityTraffic(t *testing.T, s *verifytest.Scene,
	act func(s *verifytest.Scene, out, in verifytest.Sighting)) (name string) {
	src, dst := &s.Plan.Nodes[0], &s.Plan.Nodes[1]
	s.Send(src.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(src), 7000),
		Dst: netip.AddrPortFrom(verifytest.Loopback(dst), 17000), Datagram: make([]byte, 958)})
	hops := s.Sightings
	link := s.Plan.Link(src.NICs[0].Link)
	bits := float64(len(hops[0].Frame)+int(link.AToB.Overhead)) * 8
	rate := units.Rate(bits / frameEvery.Seconds())
	link.AToB.Rate, link.BToA.Rate = rate, rate
	s.Sightings = nil
	for n := range int64(fidelityFrames) {
		now := n * int64(frameEvery)
		s.IDs++
		var frame []verifytest.Sighting
		for _, hop := range hops {
			hop.ID, hop.Time = s.IDs, hop.Time-hops[0].Time+verifytest.Start+now
			if hop.Out && !strings.HasPrefix(hop.Tap, "h") {
				hop.Comment, hop.Queue = "railbed depth=0 late=0ns", 1
			}
			frame = append(frame, hop)
		}
		if act == nil || now < askedFrom || now >= askedTo || n%hitEvery != 1 {
			s.Insert(frame...)
			continue
		}
		act(s, frame[0], frame[1])
	}
	s.Now = verifytest.Start + fidelityFrames*int64(frameEvery)
	return link.Name
}

// hasten makes the packets of some times leave above the rate of their links: the time between two of them is
// shorter.
func hasten(s *verifytest.Scene, in func(at int64) bool) {
	for i := range s.Sightings {
		s.Sightings[i].Time = hastened(s.Sightings[i].Time, in)
	}
}

// hastened returns the time of a packet that is sent too fast, if its time is one of some times.
func hastened(at int64, in func(at int64) bool) int64 {
	from := verifytest.Start
	for _, part := range []int64{0, askedFrom, askedTo} {
		if at >= verifytest.Start+part {
			from = verifytest.Start + part
		}
	}
	if !in(at - verifytest.Start) {
		return at
	}
	return from + int64(float64(at-from)/tooFast)
}

// overloads are alterations of the emulator's timing, so that no recording is of a faithful run any more.
var overloads = []sabotage{
	{name: "links above their rates", of: isFidelity, breaks: true,
		amount: fmt.Sprintf("packets follow each other %.1f times as fast, in all of the time", tooFast),
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.hasten(func(int64) bool { return true })
		}},
	{name: "links above their rates during the fault", of: isFaultOfPackets, breaks: true,
		amount: "as before, while a fault of packets is in force",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.hasten(inAsked)
		}},
	{name: "frames late during the fault", of: isFidelity, breaks: true,
		amount: fmt.Sprintf("the switches send them %v after they are due, and record it", tooLate),
		do:     func(c *tape, _ *evidence.Options, _ *rand.Rand) { c.delay(inAsked) }},
	{name: "frames late outside of the fault", of: isFidelity, breaks: true,
		amount: "as before, but before and after the fault",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.delay(func(at int64) bool { return !inAsked(at) })
		}},
}

// isFaultOfPackets reports whether the file of a row of fidelity asks for a fault of packets.
func isFaultOfPackets(check string) bool {
	return slices.Contains([]string{"fidelity, a delay", "fidelity, copies", "fidelity, damage",
		"fidelity, losses"}, check)
}

// inAsked reports whether a time after the start is in the time of the file's fault.
func inAsked(at int64) bool { return at >= askedFrom && at < askedTo }

func (c *tape) hasten(in func(at int64) bool) {
	for i := range c.packets {
		c.packets[i].Time = hastened(c.packets[i].Time, in)
	}
	c.sort()
}

// delay makes the switches send packets late from the ports to which they forward them.
func (c *tape) delay(in func(at int64) bool) {
	late := map[uint64]bool{}
	for i := range c.packets {
		p := &c.packets[i]
		note, noted := firstAnnotation(p)
		switch {
		case noted && note.HasDepth && note.Name == "" && in(p.Time-verifytest.Start):
			note.Late = tooLate
			p.Comments = [][]byte{note.AppendTo(nil)}
			late[p.ID] = true
		case !late[p.ID]:
			continue
		}
		p.Time += int64(tooLate)
	}
	c.sort()
}

func firstAnnotation(p *pcapng.Packet) (note pcapng.Annotation, noted bool) {
	for _, comment := range p.Comments {
		if note, noted = pcapng.ParseAnnotation(comment); noted {
			return note, true
		}
	}
	return note, false
}

func (c *tape) sort() {
	slices.SortStableFunc(c.packets, func(a, b pcapng.Packet) int { return cmp.Compare(a.Time, b.Time) })
}

func init() {
	maps.Copy(specimens, fidelitySpecimens)
	sabotages = append(sabotages, overloads...)
}

// brokenVerdict is the verdict on a run that breaks a check.
func brokenVerdict(check string) verdict.Verdict {
	if isFidelity(check) {
		return verdict.Overloaded
	}
	return fail
}
