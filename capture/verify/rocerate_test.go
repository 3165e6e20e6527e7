package verify

import (
	"math/rand/v2"
	"testing"
	"time"

	"railbed/internal/infiniband"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// cnp tells the requester of congestion.
func (q *roceQP) cnp() {
	q.carry(q.answerer, q.asker, &infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.CNP,
		BECN: true, DestQP: q.back}}, 0, wire.NotECT)
}

// marked sends a WRITE that comes with a mark.
func (q *roceQP) marked() {
	q.ecn = wire.CE
	q.next(infiniband.WriteOnly, 100)
	q.ecn = wire.ECT0
}

// wait lets time pass.
func (q *roceQP) wait(d time.Duration) { q.now += int64(d) }

// scenes take 20 us between packets, and the default interval is 50 us.
func TestRoCECNP(t *testing.T) {
	told := func(q *roceQP) { // two marks, one CNP
		q.marked()
		q.cnp()
		q.marked()
		q.wait(time.Millisecond)
	}
	for _, c := range []struct {
		name   string
		run    func(*roceQP)
		within time.Duration
		want   verdict.Verdict
		says   string
	}{
		{"each mark is told", func(q *roceQP) { told(q); told(q) }, 0, pass,
			"4 had a CNP within 50µs, 0 had none"},
		{"a mark that is not told", func(q *roceQP) {
			told(q)
			q.marked()
			q.wait(time.Millisecond)
		}, 0, fail, "1 packets with a mark had no CNP in time"},
		{"a mark that is told late", func(q *roceQP) {
			told(q)
			q.marked()
			q.wait(80 * time.Microsecond)
			q.cnp()
		}, 0, fail, "had no CNP in time"},
		{"a mark that may be told late", func(q *roceQP) {
			told(q)
			q.marked()
			q.wait(80 * time.Microsecond)
			q.cnp()
		}, 200 * time.Microsecond, pass, "within 200µs"},
		{"a mark before the end", func(q *roceQP) {
			told(q)
			q.wait(2 * time.Millisecond)
			q.marked()
			q.marked()
		}, 2 * time.Millisecond, pass, "2 had a CNP"},
		{"a CNP without a mark", func(q *roceQP) {
			told(q)
			q.next(infiniband.WriteOnly, 100)
			q.cnp()
		}, 0, fail, "1 CNPs had no packet with a mark before them"},
		{"nobody tells anything", func(q *roceQP) {
			q.marked()
			q.marked()
			q.wait(time.Millisecond)
		}, 0, unclear, "NOT-APPLICABLE: 2 packets with a mark came to receivers that sent no CNP"},
		{"no mark", func(q *roceQP) {
			q.next(infiniband.WriteOnly, 100)
		}, 0, unclear, "NOT-APPLICABLE: none of 1 ECN-capable packets carried a mark"},
		{"no ECN", func(q *roceQP) {
			q.ecn = wire.NotECT
			q.next(infiniband.WriteOnly, 100)
		}, 0, unclear, "NOT-APPLICABLE: no request of a connection was ECN-capable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := newRoCEScene(t, 4)
			q.ecn = wire.ECT0
			c.run(q)
			results, _ := q.run(newRoCECNP(c.within))
			wants(t, results[0], c.want, c.says)
		})
	}
}

func TestRoCERate(t *testing.T) {
	send := func(q *roceQP, packets int, every time.Duration) {
		q.step = int64(every)
		for range packets {
			q.next(infiniband.WriteOnly, 200)
		}
	}
	for _, c := range []struct {
		name   string
		run    func(*roceQP)
		window time.Duration
		want   verdict.Verdict
		says   string
	}{
		{"half the rate", func(q *roceQP) {
			send(q, 100, 10*time.Microsecond)
			q.cnp()
			send(q, 100, 20*time.Microsecond)
		}, 0, pass, "after 1 of 1 CNPs"},
		{"no packets at all", func(q *roceQP) {
			send(q, 100, 10*time.Microsecond)
			q.cnp()
			q.wait(2 * time.Millisecond)
		}, 0, pass, "at 0% of its rate"},
		{"the same rate", func(q *roceQP) {
			send(q, 100, 10*time.Microsecond)
			q.cnp()
			send(q, 120, 10*time.Microsecond)
		}, 0, fail, "1 of 1 CNPs were without effect"},
		{"as many packets", func(q *roceQP) {
			send(q, 100, 10*time.Microsecond)
			q.cnp()
			send(q, 99, 10*time.Microsecond)
			q.wait(2 * time.Millisecond)
		}, 0, fail, "27126 bytes left in the 1ms before"},
		{"a higher rate, told again and again", func(q *roceQP) {
			send(q, 100, 20*time.Microsecond)
			q.cnp()
			send(q, 30, 10*time.Microsecond)
			q.cnp()
			send(q, 120, 10*time.Microsecond)
		}, 0, fail, "without effect"},
		{"a cut that is short", func(q *roceQP) {
			send(q, 100, 10*time.Microsecond)
			q.cnp()
			send(q, 10, 20*time.Microsecond)
			send(q, 100, 10*time.Microsecond)
		}, 200 * time.Microsecond, pass, "over 200µs"},
		{"one of three CNPs without effect", func(q *roceQP) {
			for i := range 3 {
				send(q, 100, 10*time.Microsecond)
				if q.cnp(); i < 2 {
					send(q, 40, 20*time.Microsecond)
				} else {
					send(q, 110, 10*time.Microsecond)
				}
				q.wait(3 * time.Millisecond)
			}
		}, 0, fail, "1 of 3 CNPs were without effect"},
		{"a CNP behind another", func(q *roceQP) {
			send(q, 100, 10*time.Microsecond)
			q.cnp()
			q.cnp()
			send(q, 100, 20*time.Microsecond)
		}, 0, pass, "; 1 could not"},
		{"a CNP that came damaged", func(q *roceQP) {
			send(q, 100, 10*time.Microsecond)
			q.cnp()
			q.change(func(k sighting) bool { return k.tap == "h0:eth0" && k.id == q.ids }, flip(-5))
			send(q, 120, 10*time.Microsecond)
		}, 0, unclear, "NOT-APPLICABLE: 0 CNPs came"},
		{"an idle sender", func(q *roceQP) {
			send(q, 5, 10*time.Microsecond)
			q.cnp()
			send(q, 100, 20*time.Microsecond)
		}, 0, unclear, "NOT-APPLICABLE: 1 CNPs came: 0 behind others, 1 to queue pairs"},
		{"a sender that rested", func(q *roceQP) {
			send(q, 30, 10*time.Microsecond)
			q.wait(400 * time.Microsecond)
			send(q, 30, 10*time.Microsecond)
			q.cnp()
			send(q, 100, 10*time.Microsecond)
		}, 0, unclear, "1 to queue pairs that sent less than 8 packets in 1ms, or rested"},
		{"the end of the capture", func(q *roceQP) {
			send(q, 300, 10*time.Microsecond)
			q.cnp()
			send(q, 5, 20*time.Microsecond)
		}, 3 * time.Millisecond, unclear, "1 at the end"},
		{"no CNP", func(q *roceQP) {
			send(q, 100, 10*time.Microsecond)
		}, 0, unclear, "NOT-APPLICABLE: 0 CNPs came"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := newRoCEScene(t, 4)
			c.run(q)
			results, _ := q.run(newRoCERate(c.window))
			wants(t, results[0], c.want, c.says)
		})
	}
}

// The check distinguishes two queue pairs of the same hosts: by their PSNs, or by the messages that
// connected them.
func TestRoCEPairs(t *testing.T) {
	for name, c := range map[string]struct {
		apart   int // PSNs
		connect bool
		want    verdict.Verdict
	}{
		"by PSN":                     {1 << 22, false, pass},
		"not by PSN":                 {0, false, unclear},
		"by the messages of rdma_cm": {0, true, pass},
	} {
		a := newRoCEScene(t, 4)
		b := *a
		b.to, b.back, b.psn, b.msn = 0x21, 0x22, a.psn.Add(c.apart), 0
		if c.connect {
			a.connect(1)
			b.connect(2)
		}
		for range 3 {
			a.write()
			b.write()
			a.ack(a.psn.Add(-1), 1)
			b.ack(b.psn.Add(-1), 1)
		}
		results, _ := a.run(rules(t, "acks")...)
		if r := results[0]; r.Verdict != c.want || c.want == pass && r.Measured["flows"] != 2 {
			t.Errorf("%s: want %s: %v", name, c.want, r)
		}
	}
}

// connect makes a connection, with messages of rdma_cm. What goes back starts at another PSN.
func (q *roceQP) connect(comm uint32) {
	m := make(infiniband.MAD, infiniband.MADLen)
	m.EncodeCM(infiniband.AttributeREQ, uint64(comm))
	infiniband.REQ(m.CM()).Encode(&infiniband.REQFields{LocalComm: comm, QPN: q.back, PSN: q.psn.Add(-100)})
	q.manage(q.asker, q.answerer, m)
	q.accept(q.answerer, comm)
}

// accept sends the reply of a rank that accepts a connection.
func (q *roceQP) accept(rank int, comm uint32) {
	m := make(infiniband.MAD, infiniband.MADLen)
	m.EncodeCM(infiniband.AttributeREP, uint64(comm))
	infiniband.REP(m.CM()).Encode(
		&infiniband.REPFields{LocalComm: comm + 100, RemoteComm: comm, QPN: q.to, PSN: q.psn})
	q.manage(rank, q.asker, m)
}

// disconnect asks to end the connection.
func (q *roceQP) disconnect(comm uint32) {
	m := make(infiniband.MAD, infiniband.MADLen)
	m.EncodeCM(infiniband.AttributeDREQ, uint64(comm))
	infiniband.DREQ(m.CM()).Encode(
		&infiniband.DREQFields{Comm: infiniband.Comm{Local: comm, Remote: comm + 100}, QPN: q.to})
	q.manage(q.asker, q.answerer, m)
}

// manage sends a message of rdma_cm from one rank to another.
func (q *roceQP) manage(from, to int, m infiniband.MAD) {
	gsi := infiniband.Fields{
		BTH: infiniband.BTHFields{Opcode: infiniband.UDSendOnly, PKey: infiniband.PKey,
			DestQP: infiniband.GSI},
		DETH: infiniband.DETHFields{QKey: infiniband.GSIQKey, SrcQP: infiniband.GSI},
	}
	ranks := q.workload.Ranks
	p := make(infiniband.Packet, infiniband.Len(infiniband.UDSendOnly, len(m)))
	p.Encode(&gsi, len(m))
	copy(p.Payload(), m)
	q.send(ranks[from].Node, ranks[from].NIC,
		tcp{src: addrPort(ranks[from], q.port), dst: addrPort(ranks[to], infiniband.Port), datagram: p})
}

// Times are the testbed's own, whatever it is dilated by.
func TestRoCEDilated(t *testing.T) {
	cnp, rate := newRoCECNP(0), newRoCERate(0)
	cnp.Begin(&Capture{Dilation: 4})
	rate.Begin(&Capture{Dilation: 4})
	if cnp.interval != 200_000 || cnp.shown() != DefaultCNPInterval || rate.window != 4_000_000 ||
		rate.shown() != DefaultRateWindow {
		t.Errorf("%d ns, which are %v, and %d ns, which are %v", cnp.interval, cnp.shown(), rate.window,
			rate.shown())
	}
}

// A capture in which thousands of queue pairs leave thousands of PSNs out takes no more
// memory than one in which they do not.
func TestRoCEMemory(t *testing.T) {
	k := NewRoCEPSN(nil)
	c := &Capture{Dilation: 1, Taps: []*Tap{{Name: "a", NIC: true}}}
	k.Begin(c)
	const queuePairs = 300
	for i := range 2 * queuePairs {
		p := make(infiniband.Packet, infiniband.Len(infiniband.WriteOnly, 0))
		p.Encode(&infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.WriteOnly,
			DestQP: infiniband.QPN(i / 2), PSN: infiniband.PSN(i % 2 * (maxRoCESent - 2))}}, 0)
		packet := &Packet{Tap: c.Taps[0], Direction: Out, Time: int64(i), IP: 4, Flow: new(Flow)}
		roceOf(packet, p)
		k.Packet(packet)
	}
	reads := NewRoCEWrites()
	reads.Begin(c)
	for i := range 2 * maxRoCEReads {
		p := make(infiniband.Packet, infiniband.Len(infiniband.ReadRequest, 0))
		p.Encode(&infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.ReadRequest,
			PSN: infiniband.PSN(i)}}, 0)
		packet := &Packet{Tap: c.Taps[0], Direction: Out, Time: int64(i), IP: 4, Flow: new(Flow)}
		roceOf(packet, p)
		reads.Packet(packet)
	}
	if n := len(reads.ordered[0].own.reads); n != maxRoCEReads || reads.partial != maxRoCEReads {
		t.Errorf("%d READs wait for their answers, and %d were given up", n, reads.partial)
	}
	sum := 0
	for _, f := range k.ordered {
		sum += len(f.sent)
	}
	if k.left != queuePairs*(maxRoCESent-3) || sum != k.remembered || sum < mostRoCESent ||
		sum > mostRoCESent+queuePairs*leastRoCESent {
		t.Errorf("%d PSNs were left out, %d are remembered, and counted %d", k.left, sum, k.remembered)
	}
}

// The checks take any packets in any order.
func FuzzRoCEChecks(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 8 {
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &Capture{Dilation: 1, Taps: []*Tap{{Name: "a", NIC: len(b)%2 == 0}}}
		var checks []Check
		for _, rule := range roceRules {
			check, err := newRoCE(&spec.RoCECheck{Rule: rule})
			if err != nil {
				t.Fatal(err)
			}
			check.Begin(c)
			checks = append(checks, check)
		}
		// Four bytes are a packet: opcode, PSN near the wrap, length, and the rest.
		flow := &Flow{}
		for at := 0; at+4 <= len(b); at += 4 {
			o, rest := infiniband.Opcode(b[at]), b[at+3]
			if o > 0x40 && o.Service() != infiniband.UD {
				o &= 0x1F
			}
			if rest&1 != 0 {
				o = infiniband.CNP
			}
			if !o.Known() {
				continue
			}
			payload := 0
			if o.HasPayload() {
				payload = int(b[at+2]) * 16
			}
			fields := infiniband.Fields{
				BTH: infiniband.BTHFields{Opcode: o, DestQP: infiniband.QPN(rest >> 1 & 1),
					PSN:    infiniband.MaxPSN.Add(int(int8(b[at+1])) * (1 + int(rest>>2&1)*4000)),
					AckReq: rest&8 != 0},
				RETH: infiniband.RETHFields{Length: uint32(b[at+2]) << (rest >> 4)},
				AETH: infiniband.AETHFields{Syndrome: infiniband.Syndrome(rest), MSN: uint32(b[at+1])},
			}
			p := make(infiniband.Packet, infiniband.Len(o, payload))
			p.Encode(&fields, payload)
			packet := &Packet{Tap: c.Taps[0], Direction: Direction(1 + rest>>6&1), Time: int64(at) * 1000,
				IP: 4, ECN: wire.ECN(rest >> 5 & 3), Flow: flow, Length: len(p) + 42}
			packet.Addresses.Src[15], packet.Addresses.Dst[15] = rest>>7, 1-rest>>7
			roceOf(packet, p)
			for _, check := range checks {
				check.Packet(packet)
			}
			c.Last, c.End = packet.Time, packet.Time
		}
		for _, check := range checks {
			if result := check.Result(); result.Verdict == "" || result.Name == "" {
				t.Fatalf("%+v", result)
			}
		}
	})
}

// roceOf makes a packet carry a RoCEv2 packet.
func roceOf(p *Packet, b infiniband.Packet) {
	if !b.Valid() {
		p.RoCEFault = RoCEDamaged
		return
	}
	p.RoCE = &RoCE{Fields: b.Fields(), Bytes: b, Payload: b.PayloadLen(len(b)), whole: true}
}
