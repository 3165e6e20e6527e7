package rdchecks

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/testkit/verifytest"
)

// thatMutations are runs that are broken on purpose, with the verdicts of "every rd message is
// placed exactly once" and "no rd packet is sent again without need". A packet takes 2.2 us between
// NICs, and ranks send one every 80 us.
var thatMutations = []struct {
	name   string
	mutate func(*verifytest.Scene)
	want   [2]verdict.Verdict
	says   string
}{
	{"nothing", func(*verifytest.Scene) {}, [2]verdict.Verdict{pass, pass},
		"444 of 444 messages came whole, 2880000 bytes"},
	{"a packet vanishes", func(s *verifytest.Scene) { s.Vanish(8) }, [2]verdict.Verdict{fail, pass},
		"1 message did not come whole"},
	{"a packet vanishes and is acknowledged", func(s *verifytest.Scene) {
		s.Vanish(8)
	}, [2]verdict.Verdict{fail, pass},
		"packets were acknowledged that had not come whole"},
	{"a packet comes damaged", func(s *verifytest.Scene) {
		id, left := s.First(8)
		s.Change(func(k verifytest.Sighting) bool {
			return k.ID == id && k.Time > left
		}, func(k *verifytest.Sighting) {
			k.Frame = bytes.Clone(k.Frame)
			verifytest.DatagramOf(k.Frame)[30] ^= 1
		})
	}, [2]verdict.Verdict{fail, pass}, "1 damaged"},
	{"a packet vanishes and is sent again", func(s *verifytest.Scene) {
		s.Vanish(8)
		s.DataAgain(8, verifytest.Another)
	},
		[2]verdict.Verdict{pass, pass}, "1 was retransmitted: 1 because every earlier copy was lost"},
	{"it vanishes twice", func(s *verifytest.Scene) {
		s.Vanish(8)
		s.DataAgain(8, verifytest.Another)
		s.Remove(func(k verifytest.Sighting) bool {
			return k.ID == s.IDs && !strings.HasPrefix(k.Tap, "h0:")
		})
		s.DataAgain(8, verifytest.Another+1000)
	}, [2]verdict.Verdict{pass, pass}, "2 were retransmitted: 2 because every earlier copy was lost"},
	{"a packet is trimmed and sent again", func(s *verifytest.Scene) {
		s.Head(8, "railbed verdict=trim reason=tail")
		s.NACK(8, 5000, wire.RDTrimmed)
		s.DataAgain(8, verifytest.Another)
	},
		[2]verdict.Verdict{pass, pass}, "1 trimmed"},
	{"a packet is trimmed and not sent again", func(s *verifytest.Scene) { s.Head(8, "") },
		[2]verdict.Verdict{fail, pass}, "1 trimmed"},
	{"an immediate has no room", func(s *verifytest.Scene) {
		s.NACK(8, 5000, wire.RDBusy)
		s.DataAgain(8, verifytest.Another)
	},
		[2]verdict.Verdict{pass, pass}, "1 because every earlier copy was lost"},
	{"a packet is sent again that has come", func(s *verifytest.Scene) {
		s.DataAgain(8, verifytest.Another)
	}, [2]verdict.Verdict{pass, fail}, "1 packet was sent again, although the first copy had come"},
	{"a packet is sent again that was acknowledged", func(s *verifytest.Scene) {
		s.DataAgain(8, 5_000_000)
	}, [2]verdict.Verdict{pass, fail}, "1 packet was sent again though their acknowledgement had come"},
	{"a packet is sent again that a bitmap acknowledged", func(s *verifytest.Scene) {
		s.Say(8, 5000, nil, 7, 1<<63)
		s.DataAgain(8, verifytest.Another)
	},
		[2]verdict.Verdict{pass, fail}, "1 packet was sent again though their acknowledgement had come"},
	{"a packet is sent again that is under way", func(s *verifytest.Scene) {
		id, left := s.First(8)
		s.Change(func(k verifytest.Sighting) bool {
			return k.ID == id && k.Time > left+1000
		}, func(k *verifytest.Sighting) { k.Time += 2 * verifytest.Another })
		s.DataAgain(8, verifytest.Another)
	}, [2]verdict.Verdict{pass, fail}, "1 packet was sent again while they were under way, and came"},
	{"a packet is dropped by a leaf and sent again", func(s *verifytest.Scene) {
		id, left := s.First(8)
		s.Vanish(8)
		s.Change(func(k verifytest.Sighting) bool {
			return k.ID == id && k.Time > left
		}, func(k *verifytest.Sighting) { k.Comment = "railbed verdict=drop reason=tail" })
		s.DataAgain(8, verifytest.Another)
	}, [2]verdict.Verdict{pass, pass}, "1 because every earlier copy was lost"},
	{"a fault changes a packet, which comes and is sent again", func(s *verifytest.Scene) {
		id, left := s.First(8)
		s.Insert(verifytest.Sighting{Tap: "leaf1:p0", Time: left + 1, ID: id, Record: true,
			Frame: s.Of(id, "h0:eth0", true).Frame, Length: s.Of(id, "h0:eth0", true).Length,
			Comment: "railbed verdict=corrupt reason=fault name=f"})
		s.DataAgain(8, verifytest.Another)
	}, [2]verdict.Verdict{pass, pass}, "1 because every earlier copy was lost"},
	{"a fault drops a packet before it leaves, and it is sent again", func(s *verifytest.Scene) {
		id, _ := s.First(8)
		s.DataAgain(8, verifytest.Another)
		one := s.Of(id, "h0:eth0", true)
		s.Remove(func(k verifytest.Sighting) bool { return k.ID == id })
		one.Comment = "railbed verdict=drop reason=fault name=f"
		s.Insert(one)
	}, [2]verdict.Verdict{pass, pass}, "1 because every earlier copy was lost"},
	{"a packet comes and its receiver has no room for it", func(s *verifytest.Scene) {
		s.Say(9, 5000, nil, 8, 1<<63)
		s.DataAgain(8, 80_000+verifytest.Another)
	},
		[2]verdict.Verdict{pass, pass}, "1 because every earlier copy was lost"},
	{"a probe's answer lacks a packet that came", func(s *verifytest.Scene) {
		probe := make(wire.RD, wire.RDProbeLen)
		probe.EncodeProbe(s.Base(0, 1, 0, 0xFFFFFF09), 4711)
		_, left := s.First(8)
		s.AtTime(left+3000, func() { s.RD(0, 1, 0, probe) })
		s.Say(8, 9000, func(f *wire.RDAckFields) { f.Timestamp = 4711 }, 8)
		s.DataAgain(8, verifytest.Another)
	}, [2]verdict.Verdict{pass, pass}, "1 because every earlier copy was lost"},
	{"the acknowledgement is dropped", func(s *verifytest.Scene) {
		s.Say(8, 5000, nil, 9)
		s.Change(func(k verifytest.Sighting) bool {
			return k.ID == s.IDs && k.Tap == "leaf1:p1"
		}, func(k *verifytest.Sighting) { k.Comment = "railbed verdict=drop reason=tail" })
		s.Remove(func(k verifytest.Sighting) bool {
			return k.ID == s.IDs && (k.Tap == "h0:eth0" || k.Tap == "leaf1:p0")
		})
		s.DataAgain(8, verifytest.Another)
	}, [2]verdict.Verdict{pass, pass}, "1 because acknowledgements were lost"},
	{"an acknowledgement comes too soon", func(s *verifytest.Scene) {
		s.Say(8, 5000, nil, 20)
	}, [2]verdict.Verdict{fail, pass}, "PSN 4294967049 is acknowledged"},
	{"a bitmap claims what has not come", func(s *verifytest.Scene) {
		s.Vanish(8)
		s.Say(8, 5000, nil, 8, 1<<62)
		s.DataAgain(8, verifytest.Another)
	},
		[2]verdict.Verdict{fail, pass}, "PSN 4294967050 is acknowledged"},
	{"an acknowledgement of what was never sent", func(s *verifytest.Scene) {
		s.RDAck(1, 0, 0, s.LastPSN()+1)
	}, [2]verdict.Verdict{fail, pass}, "but only PSNs before"},
	{"a receiver counts a packet twice", func(s *verifytest.Scene) {
		s.DataAgain(8, verifytest.Another)
		// 8 packets, of them one with 500 bytes, and one of them again
		s.Say(8, verifytest.Another+5000, func(f *wire.RDAckFields) { f.Received = 9500 }, 8)
	}, [2]verdict.Verdict{fail, fail}, "1 acknowledgement counted more bytes than came"},
	{"a receiver counts each packet once", func(s *verifytest.Scene) {
		s.Say(8, 5000, func(f *wire.RDAckFields) { f.Received = 8500 }, 9)
	}, [2]verdict.Verdict{pass, pass}, ""},
	{"two packets carry the same bytes", func(s *verifytest.Scene) {
		s.Extra(5000, 2000, 0, 0)
		s.Extra(5000, 2000, 500, 0)
	}, [2]verdict.Verdict{fail, pass},
		"carries bytes 500 to 1500 of message 5000, which another packet carries"},
	{"a packet of a message that was whole", func(s *verifytest.Scene) {
		s.Extra(uint32(verifytest.RDLife(0)), verifytest.RDMessageBytes, 0, 0)
	},
		[2]verdict.Verdict{fail, pass}, "which was over"},
	{"a packet goes beyond its message", func(s *verifytest.Scene) {
		base := s.Base(0, 1, 0, s.LastPSN())
		d := s.Data(base, 5000, 2000, 1000)
		base.Length = 1000
		d.EncodeData(base, &wire.RDDataFields{Message: 5000, Total: 2000, Position: 1500})
		s.RD(0, 1, 0, d)
	}, [2]verdict.Verdict{fail, pass}, "goes to byte 2500 of message 5000, which has 2000"},
	{"a PSN is sent again with another piece", func(s *verifytest.Scene) {
		s.Vanish(8)
		_, left := s.First(8)
		s.AtTime(left+verifytest.Another, func() {
			s.RD(0, 1, 5, s.Data(s.Base(0, 1, 0, 0xFFFFFF08), uint32(verifytest.RDLife(0))+1,
				verifytest.RDMessageBytes, 3*verifytest.RDPayloadBytes))
		})
	}, [2]verdict.Verdict{fail, pass}, "was sent again with another part of a message"},
	{"packets of a message contradict each other", func(s *verifytest.Scene) {
		s.Extra(5000, 2000, 0, 0)
		s.Extra(5000, 2500, 1000, 0)
	}, [2]verdict.Verdict{fail, pass}, "contradicts earlier packets about message 5000"},
	{"a message is canceled when a part has come", func(s *verifytest.Scene) {
		s.Extra(5000, 3000, 0, 0)
		s.SkipExtra(5000, 3000)
	}, [2]verdict.Verdict{pass, pass},
		"444 of 445 messages came whole, 2881000 bytes, 0 with holes, 1 canceled"},
	{"a message is canceled, and its lost packet skipped", func(s *verifytest.Scene) {
		s.Extra(5000, 3000, 0, 0)
		s.Extra(5000, 3000, 1000, 0)
		lost := s.LastPSN() - 1
		s.Vanish(lost - 0xFFFFFF00)
		s.Remove(func(k verifytest.Sighting) bool { return k.ID == s.IDs }) // its acknowledgement
		s.Skip(lost, 5000, 3000)
		s.SkipExtra(5000, 3000)
	}, [2]verdict.Verdict{pass, pass}, "1 canceled"},
	{"a message is not canceled, and its packet lost", func(s *verifytest.Scene) {
		s.Extra(5000, 2000, 0, 0)
		s.Extra(5000, 2000, 1000, 0)
		s.Vanish(s.LastPSN() - 1 - 0xFFFFFF00)
		s.Remove(func(k verifytest.Sighting) bool { return k.ID == s.IDs })
		s.Extra(5001, 2000, 0, 0)
		s.SkipExtra(5001, 2000)
	}, [2]verdict.Verdict{fail, pass}, "1 message did not come whole"},
	{"a canceled message's receiver is not told", func(s *verifytest.Scene) {
		s.Extra(5000, 3000, 0, 0)
		s.SkipExtra(5000, 3000)
		s.Remove(func(k verifytest.Sighting) bool {
			return k.ID == s.IDs || k.ID == s.IDs-1 && k.Tap != "h0:eth0"
		})
	}, [2]verdict.Verdict{fail, pass}, "1 message did not come whole"},
	{"data of a message that was canceled", func(s *verifytest.Scene) {
		s.Extra(5000, 3000, 0, 0)
		s.SkipExtra(5000, 3000)
		s.Remove(func(k verifytest.Sighting) bool { return k.ID == s.IDs })
		base := s.Base(0, 1, 0, s.LastPSN()+1)
		s.RD(0, 1, 5, s.Data(base, 5000, 3000, 2000))
	}, [2]verdict.Verdict{fail, pass}, "of message 5000, which was over"},
	{"a message is refused", func(s *verifytest.Scene) {
		s.Extra(5000, 2000, 0, 0)
		d := make(wire.RD, wire.RDNackLen)
		d.EncodeNack(s.Base(1, 0, 0, s.LastPSN()-1),
			&wire.RDNackFields{Reason: wire.RDNotWritable, Message: 5000})
		s.RD(1, 0, 0, d)
		s.SkipExtra(5000, 2000)
	}, [2]verdict.Verdict{fail, pass}, "message 5000 was refused and given up"},
	{"a message is refused when all of it came, and again", func(s *verifytest.Scene) {
		s.Extra(5000, 1000, 0, 0)
		for range 2 {
			d := make(wire.RD, wire.RDNackLen)
			d.EncodeNack(s.Base(1, 0, 0, s.LastPSN()-1),
				&wire.RDNackFields{Reason: wire.RDNotWritable, Message: 5000})
			s.RD(1, 0, 0, d)
		}
	}, [2]verdict.Verdict{fail, pass}, "444 of 445 messages came whole"},
	{"a message is canceled before it began", func(s *verifytest.Scene) {
		s.SkipExtra(5000, 2000)
	}, [2]verdict.Verdict{pass, pass}, "444 of 444 messages came whole"},
	{"a packet does not come and the next one twice", func(s *verifytest.Scene) {
		s.Vanish(8)
		id, _ := s.First(9)
		again := s.Of(id, "h1:eth0", false)
		again.Time += 900
		s.Insert(again)
	}, [2]verdict.Verdict{fail, pass}, "1 message did not come whole"},
	{"a packet is dropped and sent again at the end", func(s *verifytest.Scene) {
		s.Extra(5000, 1000, 0, 0)
		s.Remove(func(k verifytest.Sighting) bool {
			return k.ID == s.IDs || k.ID == s.IDs-1 && k.Tap != "h0:eth0" && k.Tap != "leaf1:p0"
		})
		s.Change(func(k verifytest.Sighting) bool {
			return k.ID == s.IDs-1 && k.Tap == "leaf1:p0"
		}, func(k *verifytest.Sighting) { k.Comment = "railbed verdict=drop reason=tail" })
		base := s.Base(0, 1, 0, s.LastPSN()-1)
		base.Flags = wire.RDRepeat
		s.RD(0, 1, 5, s.Data(base, 5000, 1000, 0))
		s.Now -= 100_000_000
	}, [2]verdict.Verdict{pass, pass}, "1 was retransmitted: 1 because every earlier copy was lost"},
	{"a packet is sent again at the end", func(s *verifytest.Scene) {
		s.Extra(5000, 1000, 0, 0)
		s.Remove(func(k verifytest.Sighting) bool {
			return k.ID == s.IDs || k.ID == s.IDs-1 && k.Tap != "h0:eth0" && k.Tap != "leaf1:p0"
		})
		base := s.Base(0, 1, 0, s.LastPSN()-1)
		base.Flags = wire.RDRepeat
		s.RD(0, 1, 5, s.Data(base, 5000, 1000, 0))
		s.Now -= 100_000_000
	}, [2]verdict.Verdict{pass, unclear},
		"1 packet was sent again whose first copies were under way at the end"},
	{"a message has a hole that it may have", func(s *verifytest.Scene) {
		s.Extra(5000, 2000, 0, wire.RDDroppable)
		s.Extra(5000, 2000, 1000, wire.RDDroppable)
		s.Remove(func(k verifytest.Sighting) bool {
			return (k.ID == s.IDs || k.ID == s.IDs-1) && !strings.HasPrefix(k.Tap, "h0:")
		})
		base := s.Base(0, 1, 0, s.LastPSN()-1)
		base.Flags = wire.RDDroppable
		skip := make(wire.RD, wire.RDSkipLen)
		skip.EncodeSkip(base, &wire.RDSkipFields{Count: 1, Message: 5000, Total: 2000, Bytes: 1000})
		s.RD(0, 1, 0, skip)
		s.RDAck(1, 0, 0, s.LastPSN())
	}, [2]verdict.Verdict{pass, pass}, "1 with holes"},
	{"a message without bytes", func(s *verifytest.Scene) {
		s.Extra(5000, 0, 0, wire.RDImm)
	}, [2]verdict.Verdict{pass, pass}, "445 of 445 messages"},
	{"the capture ends within a message", func(s *verifytest.Scene) {
		s.Extra(5000, 2000, 0, 0)
		s.Now -= 100_000_000
	}, [2]verdict.Verdict{unclear, pass}, "1 message was under way at the end"},
	{"a sender stops within a message", func(s *verifytest.Scene) {
		s.Extra(5000, 2000, 0, 0)
	}, [2]verdict.Verdict{fail, pass}, "of 2000 bytes of message 5000 only 1000 came"},
	{"packets are duplicated under way", func(s *verifytest.Scene) {
		for _, k := range slices.Clone(s.Sightings) {
			if k.Tap == "h1:eth0" && !k.Out && k.ID%3 == 0 {
				k.Time += 900
				s.Insert(k)
			}
		}
	}, [2]verdict.Verdict{pass, pass}, ""},
	{"packets come out of order", func(s *verifytest.Scene) {
		for psn := range uint32(6) {
			id, left := s.First(psn)
			s.Change(func(k verifytest.Sighting) bool {
				return k.ID == id && k.Time > left
			}, func(k *verifytest.Sighting) { k.Time += int64(5-psn) * 81_000 })
		}
	}, [2]verdict.Verdict{pass, pass}, ""},
	{"a NIC's tap loses packets", func(s *verifytest.Scene) {
		s.Vanish(8)
		s.DataAgain(9, verifytest.Another)
		s.Drops["h3:eth0"] = 3
	}, [2]verdict.Verdict{unclear, unclear}, "tap h3:eth0 lost 3 packets"},
	{"a NIC is not captured", func(s *verifytest.Scene) {
		s.Vanish(8)
		s.DataAgain(9, verifytest.Another)
		s.Untapped["h3:eth0"] = true
	}, [2]verdict.Verdict{unclear, unclear}, "not recorded: h3:eth0"},
	{"the capture is too short for the headers", func(s *verifytest.Scene) {
		s.Vanish(8)
		s.DataAgain(9, verifytest.Another)
		s.Snap = 120
	}, [2]verdict.Verdict{unclear, unclear}, "cannot be read"},
	{"it began within", func(s *verifytest.Scene) {
		_, left := s.First(301)
		s.Remove(func(k verifytest.Sighting) bool { return k.Time < left })
	}, [2]verdict.Verdict{unclear, pass}, ""},
	{"nobody sends", func(s *verifytest.Scene) { s.Sightings = nil }, [2]verdict.Verdict{unclear, unclear},
		"no message left a node"},
	{"the counts at the end are missing", func(s *verifytest.Scene) { s.NoCounts = true },
		[2]verdict.Verdict{unclear, unclear}, "the capture is truncated"},
}

func TestThatAgainstMutations(t *testing.T) {
	for _, m := range thatMutations {
		t.Run(m.name, func(t *testing.T) {
			verifytest.JudgeRing(t, m.mutate, 100_000_000, m.want[:], m.says,
				func(*verifytest.Scene) []evidence.Check {
					return []evidence.Check{newPlaced(), newNeeded()}
				})
		})
	}
}
