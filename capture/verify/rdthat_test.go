package verify

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/internal/wire"
)

// at does something at a time of the scene.
func (s *scene) atTime(at int64, do func()) {
	now := s.now
	s.now = at - s.step
	do()
	s.now = now
}

// datagramOf is the reliable datagram of a frame over IPv4.
func datagramOf(frame []byte) wire.RD {
	b := frame[42:]
	if len(b) > 0 && b[0] < 0x80 {
		b = b[wire.INT(b).Len():]
	}
	return b
}

// first is the id of rank 0's data packet with a PSN, counted from its first, on
// engine 0, and when it left.
func (s *scene) first(psn uint32) (id uint64, left int64) {
	for _, k := range s.sightings {
		if k.tap == "h0:eth0" && k.out && isData(k) {
			if b := datagramOf(k.frame).Base(); b.Type == wire.RDData && b.PSN == psn+0xFFFFFF00 &&
				b.Source == 32 {
				return k.id, k.time
			}
		}
	}
	s.t.Fatalf("no packet with PSN %d", psn)
	return 0, 0
}

// vanish is that it is lost behind the leaf.
func (s *scene) vanish(psn uint32) (left int64) {
	id, left := s.first(psn)
	s.remove(func(k sighting) bool { return k.id == id && k.time > left+1000 })
	return left
}

// dataAgain sends a packet of rank 0 once more, so long after it left.
func (s *scene) dataAgain(psn uint32, after int64) {
	_, left := s.first(psn)
	base := s.base(0, 1, 0, psn+0xFFFFFF00)
	base.Flags = wire.RDRepeat
	s.atTime(left+after, func() {
		s.rd(0, 1, 5, s.data(base, uint32(rdLife(0))+psn/7, rdMessageBytes, psn%7*rdPayloadBytes))
	})
}

// say has rank 1 acknowledge what rank 0 sent, so long after a packet left.
func (s *scene) say(psn uint32, after int64, change func(*wire.RDAckFields), cumulative uint32,
	words ...uint64) {
	_, left := s.first(psn)
	f := wire.RDAckFields{Room: 24}
	if change != nil {
		change(&f)
	}
	d := make(wire.RD, wire.RDAckBytes(len(words), 0))
	d.EncodeAck(s.base(1, 0, 0, cumulative+0xFFFFFF00), &f, words, nil)
	s.atTime(left+after, func() { s.rd(1, 0, 0, d) })
}

// extra has rank 0 send a packet after all others, whose PSN follows theirs, and
// rank 1 acknowledge it.
func (s *scene) extra(message, total, position uint32, flags uint8) {
	psn := s.lastPSN()
	base := s.base(0, 1, 0, psn)
	base.Flags = flags
	s.rd(0, 1, 5, s.data(base, message, total, position))
	s.rdAck(1, 0, 0, psn+1)
}

// skip has rank 0 skip a packet of a message, which ends it.
func (s *scene) skip(psn, message, total uint32) {
	d := make(wire.RD, wire.RDSkipLen)
	d.EncodeSkip(s.base(0, 1, 0, psn), &wire.RDSkipFields{Count: 1, Message: message, Total: total})
	s.rd(0, 1, 0, d)
}

// skipExtra skips a packet that nothing else had, and rank 1 acknowledges it.
func (s *scene) skipExtra(message, total uint32) {
	psn := s.lastPSN()
	s.skip(psn, message, total)
	s.rdAck(1, 0, 0, psn+1)
}

func (s *scene) lastPSN() (next uint32) {
	next = 0xFFFFFF00
	for _, k := range s.sightings {
		if k.tap == "h0:eth0" && k.out && isData(k) {
			if b := datagramOf(k.frame).Base(); b.Type == wire.RDData && b.Source == 32 &&
				int32(b.PSN-next) >= 0 {
				next = b.PSN + 1
			}
		}
	}
	return next
}

// nack is rank 1's answer to a packet.
func (s *scene) nack(psn uint32, after int64, reason wire.RDReason) {
	_, left := s.first(psn)
	d := make(wire.RD, wire.RDNackLen)
	d.EncodeNack(s.base(1, 0, 0, psn+0xFFFFFF00), &wire.RDNackFields{Reason: reason})
	s.atTime(left+after, func() { s.rd(1, 0, 0, d) })
}

// head makes a packet come to rank 1 trimmed.
func (s *scene) head(psn uint32, comment string) {
	id, left := s.first(psn)
	s.change(func(k sighting) bool { return k.id == id && k.time > left+1100 }, func(k *sighting) {
		d := datagramOf(k.frame)
		size := len(k.frame) - len(d) + wire.RDDataLen
		k.frame = bytes.Clone(k.frame[:size])
		k.length = size
		wire.IPv4(k.frame[14:]).RewriteTotalLength(uint16(size - 14))
		wire.UDP(k.frame[34:]).SetLength(uint16(size - 34))
		if k.tap == "leaf1:p1" {
			k.comment = comment
		}
	})
}

const another = int64(40_000) // ns, before the next packet but one of a rank

// thatMutations are runs that are broken on purpose, with the verdicts of "every rd message is
// placed exactly once" and "no rd packet is sent again without need". A packet takes 2.2 us between
// NICs, and ranks send one every 80 us.
var thatMutations = []rdMutation{
	{"nothing", func(*scene) {}, [2]verdict.Verdict{pass, pass},
		"444 of 444 messages came whole, 2880000 bytes"},
	{"a packet vanishes", func(s *scene) { s.vanish(8) }, [2]verdict.Verdict{fail, pass},
		"1 messages did not come whole"},
	{"a packet vanishes and is acknowledged", func(s *scene) { s.vanish(8) }, [2]verdict.Verdict{fail, pass},
		"packets were acknowledged that had not come whole"},
	{"a packet comes damaged", func(s *scene) {
		id, left := s.first(8)
		s.change(func(k sighting) bool { return k.id == id && k.time > left }, func(k *sighting) {
			k.frame = bytes.Clone(k.frame)
			datagramOf(k.frame)[30] ^= 1
		})
	}, [2]verdict.Verdict{fail, pass}, "1 damaged"},
	{"a packet vanishes and is sent again", func(s *scene) { s.vanish(8); s.dataAgain(8, another) },
		[2]verdict.Verdict{pass, pass}, "1 were retransmitted: 1 because every earlier copy was lost"},
	{"it vanishes twice", func(s *scene) {
		s.vanish(8)
		s.dataAgain(8, another)
		s.remove(func(k sighting) bool { return k.id == s.ids && !strings.HasPrefix(k.tap, "h0:") })
		s.dataAgain(8, another+1000)
	}, [2]verdict.Verdict{pass, pass}, "2 were retransmitted: 2 because every earlier copy was lost"},
	{"a packet is trimmed and sent again", func(s *scene) {
		s.head(8, "railbed verdict=trim reason=tail")
		s.nack(8, 5000, wire.RDTrimmed)
		s.dataAgain(8, another)
	},
		[2]verdict.Verdict{pass, pass}, "1 trimmed"},
	{"a packet is trimmed and not sent again", func(s *scene) { s.head(8, "") },
		[2]verdict.Verdict{fail, pass}, "1 trimmed"},
	{"an immediate has no room", func(s *scene) { s.nack(8, 5000, wire.RDBusy); s.dataAgain(8, another) },
		[2]verdict.Verdict{pass, pass}, "1 because every earlier copy was lost"},
	{"a packet is sent again that has come", func(s *scene) {
		s.dataAgain(8, another)
	}, [2]verdict.Verdict{pass, fail}, "1 packets were sent again though they had come"},
	{"a packet is sent again that was acknowledged", func(s *scene) {
		s.dataAgain(8, 5_000_000)
	}, [2]verdict.Verdict{pass, fail}, "1 packets were sent again though their acknowledgement had come"},
	{"a packet is sent again that a bitmap acknowledged", func(s *scene) {
		s.say(8, 5000, nil, 7, 1<<63)
		s.dataAgain(8, another)
	},
		[2]verdict.Verdict{pass, fail}, "1 packets were sent again though their acknowledgement had come"},
	{"a packet is sent again that is under way", func(s *scene) {
		id, left := s.first(8)
		s.change(func(k sighting) bool {
			return k.id == id && k.time > left+1000
		}, func(k *sighting) { k.time += 2 * another })
		s.dataAgain(8, another)
	}, [2]verdict.Verdict{pass, fail}, "1 packets were sent again while they were under way, and came"},
	{"a packet is dropped by a leaf and sent again", func(s *scene) {
		id, left := s.first(8)
		s.vanish(8)
		s.change(func(k sighting) bool {
			return k.id == id && k.time > left
		}, func(k *sighting) { k.comment = "railbed verdict=drop reason=tail" })
		s.dataAgain(8, another)
	}, [2]verdict.Verdict{pass, pass}, "1 because every earlier copy was lost"},
	{"a packet comes and its receiver has no room for it", func(s *scene) {
		s.say(9, 5000, nil, 8, 1<<63)
		s.dataAgain(8, 80_000+another)
	},
		[2]verdict.Verdict{pass, pass}, "1 because every earlier copy was lost"},
	{"a probe's answer lacks a packet that came", func(s *scene) {
		probe := make(wire.RD, wire.RDProbeLen)
		probe.EncodeProbe(s.base(0, 1, 0, 0xFFFFFF09), 4711)
		_, left := s.first(8)
		s.atTime(left+3000, func() { s.rd(0, 1, 0, probe) })
		s.say(8, 9000, func(f *wire.RDAckFields) { f.Timestamp = 4711 }, 8)
		s.dataAgain(8, another)
	}, [2]verdict.Verdict{pass, pass}, "1 because every earlier copy was lost"},
	{"the acknowledgement is dropped", func(s *scene) {
		s.say(8, 5000, nil, 9)
		s.change(func(k sighting) bool {
			return k.id == s.ids && k.tap == "leaf1:p1"
		}, func(k *sighting) { k.comment = "railbed verdict=drop reason=tail" })
		s.remove(func(k sighting) bool {
			return k.id == s.ids && (k.tap == "h0:eth0" || k.tap == "leaf1:p0")
		})
		s.dataAgain(8, another)
	}, [2]verdict.Verdict{pass, pass}, "1 because acknowledgements were lost"},
	{"an acknowledgement comes too soon", func(s *scene) {
		s.say(8, 5000, nil, 20)
	}, [2]verdict.Verdict{fail, pass}, "PSN 4294967049 is acknowledged"},
	{"a bitmap claims what has not come", func(s *scene) {
		s.vanish(8)
		s.say(8, 5000, nil, 8, 1<<62)
		s.dataAgain(8, another)
	},
		[2]verdict.Verdict{fail, pass}, "PSN 4294967050 is acknowledged"},
	{"an acknowledgement of what was never sent", func(s *scene) {
		s.rdAck(1, 0, 0, s.lastPSN()+1)
	}, [2]verdict.Verdict{fail, pass}, "what left ends before"},
	{"a receiver counts a packet twice", func(s *scene) {
		s.dataAgain(8, another)
		// 8 packets, of them one with 500 bytes, and one of them again
		s.say(8, another+5000, func(f *wire.RDAckFields) { f.Received = 9500 }, 8)
	}, [2]verdict.Verdict{fail, fail}, "acknowledgements count more bytes than came"},
	{"a receiver counts each packet once", func(s *scene) {
		s.say(8, 5000, func(f *wire.RDAckFields) { f.Received = 8500 }, 9)
	}, [2]verdict.Verdict{pass, pass}, ""},
	{"two packets carry the same bytes", func(s *scene) {
		s.extra(5000, 2000, 0, 0)
		s.extra(5000, 2000, 500, 0)
	}, [2]verdict.Verdict{fail, pass},
		"carries bytes 500 to 1500 of message 5000, which another packet carries"},
	{"a packet of a message that was whole", func(s *scene) {
		s.extra(uint32(rdLife(0)), rdMessageBytes, 0, 0)
	},
		[2]verdict.Verdict{fail, pass}, "which was over"},
	{"a packet goes beyond its message", func(s *scene) {
		base := s.base(0, 1, 0, s.lastPSN())
		d := s.data(base, 5000, 2000, 1000)
		base.Length = 1000
		d.EncodeData(base, &wire.RDDataFields{Message: 5000, Total: 2000, Position: 1500})
		s.rd(0, 1, 0, d)
	}, [2]verdict.Verdict{fail, pass}, "goes to byte 2500 of message 5000, which has 2000"},
	{"a PSN is sent again with another piece", func(s *scene) {
		s.vanish(8)
		_, left := s.first(8)
		s.atTime(left+another, func() {
			s.rd(0, 1, 5, s.data(s.base(0, 1, 0, 0xFFFFFF08), uint32(rdLife(0))+1, rdMessageBytes,
				3*rdPayloadBytes))
		})
	}, [2]verdict.Verdict{fail, pass}, "was sent again with another piece"},
	{"packets of a message contradict each other", func(s *scene) {
		s.extra(5000, 2000, 0, 0)
		s.extra(5000, 2500, 1000, 0)
	}, [2]verdict.Verdict{fail, pass}, "says something else of message 5000"},
	{"a message is canceled when a part has come", func(s *scene) {
		s.extra(5000, 3000, 0, 0)
		s.skipExtra(5000, 3000)
	}, [2]verdict.Verdict{pass, pass},
		"444 of 445 messages came whole, 2881000 bytes, 0 with holes, 1 canceled"},
	{"a message is canceled, and its lost packet skipped", func(s *scene) {
		s.extra(5000, 3000, 0, 0)
		s.extra(5000, 3000, 1000, 0)
		lost := s.lastPSN() - 1
		s.vanish(lost - 0xFFFFFF00)
		s.remove(func(k sighting) bool { return k.id == s.ids }) // its acknowledgement
		s.skip(lost, 5000, 3000)
		s.skipExtra(5000, 3000)
	}, [2]verdict.Verdict{pass, pass}, "1 canceled"},
	{"a message is not canceled, and its packet lost", func(s *scene) {
		s.extra(5000, 2000, 0, 0)
		s.extra(5000, 2000, 1000, 0)
		s.vanish(s.lastPSN() - 1 - 0xFFFFFF00)
		s.remove(func(k sighting) bool { return k.id == s.ids })
		s.extra(5001, 2000, 0, 0)
		s.skipExtra(5001, 2000)
	}, [2]verdict.Verdict{fail, pass}, "1 messages did not come whole"},
	{"a canceled message's receiver is not told", func(s *scene) {
		s.extra(5000, 3000, 0, 0)
		s.skipExtra(5000, 3000)
		s.remove(func(k sighting) bool { return k.id == s.ids || k.id == s.ids-1 && k.tap != "h0:eth0" })
	}, [2]verdict.Verdict{fail, pass}, "1 messages did not come whole"},
	{"data of a message that was canceled", func(s *scene) {
		s.extra(5000, 3000, 0, 0)
		s.skipExtra(5000, 3000)
		s.remove(func(k sighting) bool { return k.id == s.ids })
		base := s.base(0, 1, 0, s.lastPSN()+1)
		s.rd(0, 1, 5, s.data(base, 5000, 3000, 2000))
	}, [2]verdict.Verdict{fail, pass}, "of message 5000, which was over"},
	{"a message is refused", func(s *scene) {
		s.extra(5000, 2000, 0, 0)
		d := make(wire.RD, wire.RDNackLen)
		d.EncodeNack(s.base(1, 0, 0, s.lastPSN()-1),
			&wire.RDNackFields{Reason: wire.RDNotWritable, Message: 5000})
		s.rd(1, 0, 0, d)
		s.skipExtra(5000, 2000)
	}, [2]verdict.Verdict{fail, pass}, "message 5000 was refused and given up"},
	{"a message is refused when all of it came, and again", func(s *scene) {
		s.extra(5000, 1000, 0, 0)
		for range 2 {
			d := make(wire.RD, wire.RDNackLen)
			d.EncodeNack(s.base(1, 0, 0, s.lastPSN()-1),
				&wire.RDNackFields{Reason: wire.RDNotWritable, Message: 5000})
			s.rd(1, 0, 0, d)
		}
	}, [2]verdict.Verdict{fail, pass}, "444 of 445 messages came whole"},
	{"a message is canceled before it began", func(s *scene) {
		s.skipExtra(5000, 2000)
	}, [2]verdict.Verdict{pass, pass}, "444 of 444 messages came whole"},
	{"a packet does not come and the next one twice", func(s *scene) {
		s.vanish(8)
		id, _ := s.first(9)
		again := s.of(id, "h1:eth0", false)
		again.time += 900
		s.insert(again)
	}, [2]verdict.Verdict{fail, pass}, "1 messages did not come whole"},
	{"a packet is dropped and sent again at the end", func(s *scene) {
		s.extra(5000, 1000, 0, 0)
		s.remove(func(k sighting) bool {
			return k.id == s.ids || k.id == s.ids-1 && k.tap != "h0:eth0" && k.tap != "leaf1:p0"
		})
		s.change(func(k sighting) bool {
			return k.id == s.ids-1 && k.tap == "leaf1:p0"
		}, func(k *sighting) { k.comment = "railbed verdict=drop reason=tail" })
		base := s.base(0, 1, 0, s.lastPSN()-1)
		base.Flags = wire.RDRepeat
		s.rd(0, 1, 5, s.data(base, 5000, 1000, 0))
		s.now -= 100_000_000
	}, [2]verdict.Verdict{pass, pass}, "1 were retransmitted: 1 because every earlier copy was lost"},
	{"a packet is sent again at the end", func(s *scene) {
		s.extra(5000, 1000, 0, 0)
		s.remove(func(k sighting) bool {
			return k.id == s.ids || k.id == s.ids-1 && k.tap != "h0:eth0" && k.tap != "leaf1:p0"
		})
		base := s.base(0, 1, 0, s.lastPSN()-1)
		base.Flags = wire.RDRepeat
		s.rd(0, 1, 5, s.data(base, 5000, 1000, 0))
		s.now -= 100_000_000
	}, [2]verdict.Verdict{pass, unclear},
		"1 packets were sent again whose first copies were under way at the end"},
	{"a message has a hole that it may have", func(s *scene) {
		s.extra(5000, 2000, 0, wire.RDDroppable)
		s.extra(5000, 2000, 1000, wire.RDDroppable)
		s.remove(func(k sighting) bool {
			return (k.id == s.ids || k.id == s.ids-1) && !strings.HasPrefix(k.tap, "h0:")
		})
		base := s.base(0, 1, 0, s.lastPSN()-1)
		base.Flags = wire.RDDroppable
		skip := make(wire.RD, wire.RDSkipLen)
		skip.EncodeSkip(base, &wire.RDSkipFields{Count: 1, Message: 5000, Total: 2000, Bytes: 1000})
		s.rd(0, 1, 0, skip)
		s.rdAck(1, 0, 0, s.lastPSN())
	}, [2]verdict.Verdict{pass, pass}, "1 with holes"},
	{"a message without bytes", func(s *scene) {
		s.extra(5000, 0, 0, wire.RDImm)
	}, [2]verdict.Verdict{pass, pass}, "445 of 445 messages"},
	{"the capture ends within a message", func(s *scene) {
		s.extra(5000, 2000, 0, 0)
		s.now -= 100_000_000
	}, [2]verdict.Verdict{unclear, pass}, "1 messages were under way at the end"},
	{"a sender stops within a message", func(s *scene) {
		s.extra(5000, 2000, 0, 0)
	}, [2]verdict.Verdict{fail, pass}, "of 2000 bytes of message 5000 came 1000"},
	{"packets are duplicated under way", func(s *scene) {
		for _, k := range slices.Clone(s.sightings) {
			if k.tap == "h1:eth0" && !k.out && k.id%3 == 0 {
				k.time += 900
				s.insert(k)
			}
		}
	}, [2]verdict.Verdict{pass, pass}, ""},
	{"packets come out of order", func(s *scene) {
		for psn := range uint32(6) {
			id, left := s.first(psn)
			s.change(func(k sighting) bool {
				return k.id == id && k.time > left
			}, func(k *sighting) { k.time += int64(5-psn) * 81_000 })
		}
	}, [2]verdict.Verdict{pass, pass}, ""},
	{"a NIC's tap loses packets", func(s *scene) {
		s.vanish(8)
		s.dataAgain(9, another)
		s.drops["h3:eth0"] = 3
	}, [2]verdict.Verdict{unclear, unclear}, "tap h3:eth0 lost 3 packets"},
	{"a NIC is not captured", func(s *scene) {
		s.vanish(8)
		s.dataAgain(9, another)
		s.untapped["h3:eth0"] = true
	}, [2]verdict.Verdict{unclear, unclear}, "not recorded: h3:eth0"},
	{"the capture is too short for the headers", func(s *scene) {
		s.vanish(8)
		s.dataAgain(9, another)
		s.snap = 120
	}, [2]verdict.Verdict{unclear, unclear}, "cannot be read"},
	{"it began within", func(s *scene) {
		_, left := s.first(301)
		s.remove(func(k sighting) bool { return k.time < left })
	}, [2]verdict.Verdict{unclear, pass}, ""},
	{"nobody sends", func(s *scene) { s.sightings = nil }, [2]verdict.Verdict{unclear, unclear},
		"no message left a node"},
	{"the counts at the end are missing", func(s *scene) { s.noCounts = true },
		[2]verdict.Verdict{unclear, unclear}, "the capture is truncated"},
}

func TestThatAgainstMutations(t *testing.T) {
	mutate(t, thatMutations, 100_000_000, func(*scene) []Check { return []Check{newPlaced(), newNeeded()} })
}
