package fabricchecks

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// TestLosslessByTheSendersSwitch has two leaves that map one DSCP to two
// priorities. A packet is of the priority that the switch of its sender makes of
// it, whichever switch comes first in the plan and wherever the packet goes.
func TestLosslessByTheSendersSwitch(t *testing.T) {
	file := strings.Replace(verifytest.SoftFile, "  links:",
		"  switches: {leaf2: {priorities: {24: 5}}}\n  links:", 1)
	played := func(from, to int, lose bool) *verifytest.Scene {
		s := verifytest.SoftScene(t, file)
		s.Sightings, s.Now = nil, verifytest.Start
		src, dst := &s.Plan.Nodes[from], &s.Plan.Nodes[to]
		for n := range 10 {
			s.Send(src.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(src), 7000),
				Dst: netip.AddrPortFrom(verifytest.Loopback(dst), 7001), Seq: uint32(n), Payload: 1000})
		}
		s.Now += 1_000_000_000
		s.Change(func(verifytest.Sighting) bool {
			return true
		}, func(k *verifytest.Sighting) { k.Frame[15] = 24 << 2 })
		if lose {
			id := s.Packet(src.Name+":eth0", true)
			s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Tap == dst.Name+":eth0" })
		}
		return s
	}
	lossless := func(priority int) evidence.Check {
		return NewLossless(&spec.LosslessCheck{Priority: new(priority)})
	}
	const leaf1, leaf2 = 0, 2 // the first host of each
	verifytest.Judge(t, played(leaf1, leaf2, false), lossless(3), pass, "10 packets left: 10 arrived")
	verifytest.Judge(t, played(leaf1, leaf2, true), lossless(3), fail,
		"10 packets left: 9 arrived, 1 was lost")
	verifytest.Judge(t, played(leaf1, leaf2, true), lossless(5), unclear, "no packet left")
	verifytest.Judge(t, played(leaf2, leaf1, false), lossless(5), pass, "10 packets left: 10 arrived")
	verifytest.Judge(t, played(leaf2, leaf1, true), lossless(5), fail,
		"10 packets left: 9 arrived, 1 was lost")
	verifytest.Judge(t, played(leaf2, leaf1, true), lossless(3), unclear, "no packet left")

	// A tag without a VLAN says the priority, and one with a VLAN does not.
	tagged := func(tci byte, vlan byte) *verifytest.Scene {
		s := played(leaf1, leaf2, false)
		s.Change(func(verifytest.Sighting) bool { return true }, func(k *verifytest.Sighting) {
			k.Frame = slices.Concat(k.Frame[:12], []byte{0x81, 0, tci, vlan}, k.Frame[12:])
			k.Length += 4
		})
		return s
	}
	verifytest.Judge(t, tagged(6<<5, 0), lossless(6), pass, "10 packets left: 10 arrived")
	verifytest.Judge(t, tagged(6<<5, 0), lossless(3), unclear, "no packet left")
	verifytest.Judge(t, tagged(6<<5, 9), lossless(3), pass, "10 packets left: 10 arrived")
}

// TestWrongHeadersAreNotCutOff: a fault may break the header of a packet whose end the capture cut off. That
// is no cut within the header.
func TestWrongHeadersAreNotCutOff(t *testing.T) {
	for length, want := range map[int]verdict.Verdict{60: unclear, 400: pass} {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		id := s.Packet("h0:eth0", true)
		s.Change(func(k verifytest.Sighting) bool { return k.ID == id && k.Tap == "h2:eth0" },
			func(k *verifytest.Sighting) {
				k.Frame = slices.Clone(k.Frame)[:length]
				k.Frame[14] = 0x44 // a header of 16 bytes
			})
		verifytest.Judge(t, s, NewDrops(&spec.DropsCheck{Count: "== 0"}), want, "0 packets were dropped")
	}
}

// TestFaultsMark: a port marks a packet if a fault marks it there.
func TestFaultsMark(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	for _, k := range slices.Clone(s.Sightings) {
		if k.Tap == "leaf1:p0" && k.ID%4 == 1 {
			k.Record, k.Time, k.Comment = true, k.Time+1, "railbed verdict=mark reason=fault name=f"
			s.Insert(k)
		}
	}
	for at, count := range map[string]string{"leaf1": "100", "leaf2": "0"} {
		verifytest.Judge(t, s, NewMarks(&spec.MarksCheck{At: at, Count: "== " + count}), pass,
			count+" were marked here")
	}
}

// TestPacketsForALinkThatWasDown: the kernel of a node lost packets before the tap of its NIC. They are in no
// recording, so that no check may hold beside them.
func TestPacketsForALinkThatWasDown(t *testing.T) {
	lossless := func(from string) evidence.Check { return NewLossless(&spec.LosslessCheck{From: from}) }
	outage := func(from string) evidence.Check {
		return NewOutage(&spec.OutageCheck{From: from, Longest: "<= 1h"})
	}
	none := func(k spec.DropsCheck) evidence.Check {
		k.Count = "== 0"
		return NewDrops(&k)
	}
	const says = "h0:eth0 lost 7 packets"
	for _, c := range []struct {
		counted string // by the NIC of a soft switch or of a router, or by the queue of a link that was cut
		check   evidence.Check
		want    verdict.Verdict
		says    string
	}{
		{"soft", lossless(""), unclear, says},
		{"soft", lossless("h0"), unclear, says},
		{"soft", lossless("h1"), pass, ""},
		{"soft", outage(""), unclear, says},
		{"soft", outage("h1"), pass, ""},
		{"soft", none(spec.DropsCheck{}), fail, "7 packets were dropped"},
		{"soft", none(spec.DropsCheck{Reason: linkDown}), fail, "7 packets were dropped"},
		{"soft", none(spec.DropsCheck{Reason: "tail"}), pass, ""},
		{"soft", none(spec.DropsCheck{At: "h1"}), pass, ""},
		{"soft", none(spec.DropsCheck{From: "h0"}), unclear, "links that were down dropped another 7"},
		{"router", lossless(""), unclear, says},
		{"router", outage(""), unclear, says},
		{"router", none(spec.DropsCheck{}), fail, "7 packets were dropped"},
		{"queue", lossless(""), unclear, says},
		{"queue", lossless("h1"), pass, ""},
		{"queue", outage("h0"), unclear, says},
	} {
		kind := strings.Replace(c.counted, "queue", "router", 1)
		s := verifytest.NewScene(t)
		s.Plan = plantest.Compile(t, strings.Replace(verifytest.ClusterFile, "topology:",
			"switch: {kind: "+kind+"}\n  topology:", 1))
		for range 10 {
			for from := range 2 {
				src, dst := &s.Plan.Nodes[from], &s.Plan.Nodes[1-from]
				s.Send(src.Name, "eth0", verifytest.TCP{Datagram: make([]byte, 99),
					Src: netip.AddrPortFrom(verifytest.Loopback(src), 7000),
					Dst: netip.AddrPortFrom(verifytest.Loopback(dst), 7001)})
			}
			s.Now += 1_000_000
		}
		s.Now += 1_000_000_000
		if c.counted == "queue" {
			s.Queues["h0:eth0"] = 7
			s.Interrupted = func(link string) bool { return strings.HasPrefix(link, "h0--") }
		} else {
			s.Lost = map[string]uint64{"h0:eth0": 7}
		}
		t.Run(c.counted, func(t *testing.T) { verifytest.Judge(t, s, c.check, c.want, c.says) })
	}
}
