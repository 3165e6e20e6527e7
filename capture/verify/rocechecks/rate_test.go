package rocechecks

import (
	"math/rand/v2"
	"testing"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// scenes take 20 us between packets, and the default interval is 50 us.
func TestRoCECNP(t *testing.T) {
	told := func(q *verifytest.QP) { // two marks, one CNP
		q.Marked()
		q.CNP()
		q.Marked()
		q.Wait(time.Millisecond)
	}
	for _, c := range []struct {
		name   string
		run    func(*verifytest.QP)
		within time.Duration
		want   verdict.Verdict
		says   string
	}{
		{"each mark is told", func(q *verifytest.QP) { told(q); told(q) }, 0, pass,
			"4 had a CNP within 50µs, 0 had none"},
		{"a mark that is not told", func(q *verifytest.QP) {
			told(q)
			q.Marked()
			q.Wait(time.Millisecond)
		}, 0, fail, "1 packet with a mark had no CNP in time"},
		{"a CNP that its node's kernel lost", func(q *verifytest.QP) {
			told(q)
			q.Marked()
			q.Wait(time.Millisecond)
			q.Queues["h2:eth0"] = 1
		}, 0, unclear, "the kernel of h2 dropped 1 packet before the tap of h2:eth0: "},
		{"a mark that is told late", func(q *verifytest.QP) {
			told(q)
			q.Marked()
			q.Wait(80 * time.Microsecond)
			q.CNP()
		}, 0, fail, "had no CNP in time"},
		{"a mark that may be told late", func(q *verifytest.QP) {
			told(q)
			q.Marked()
			q.Wait(80 * time.Microsecond)
			q.CNP()
		}, 200 * time.Microsecond, pass, "within 200µs"},
		{"a mark before the end", func(q *verifytest.QP) {
			told(q)
			q.Wait(2 * time.Millisecond)
			q.Marked()
			q.Marked()
		}, 2 * time.Millisecond, pass, "2 had a CNP"},
		{"a CNP without a mark", func(q *verifytest.QP) {
			told(q)
			q.Next(infiniband.WriteOnly, 100)
			q.CNP()
		}, 0, fail, "1 CNP had no packet with a mark before them"},
		{"no notification", func(q *verifytest.QP) {
			q.Marked()
			q.Marked()
			q.Wait(time.Millisecond)
		}, 0, unclear, "NOT-APPLICABLE: 2 packets with a mark came to receivers that sent no CNP"},
		{"no mark", func(q *verifytest.QP) {
			q.Next(infiniband.WriteOnly, 100)
		}, 0, unclear, "NOT-APPLICABLE: none of 1 ECN-capable packet carried a mark"},
		{"no ECN", func(q *verifytest.QP) {
			q.ECN = wire.NotECT
			q.Next(infiniband.WriteOnly, 100)
		}, 0, unclear, "NOT-APPLICABLE: no request of a connection was ECN-capable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := verifytest.NewQP(t, 4)
			q.ECN = wire.ECT0
			c.run(q)
			results, _ := q.Run(newCNP(c.within))
			verifytest.Wants(t, results[0], c.want, c.says)
		})
	}
}

func TestRoCERate(t *testing.T) {
	send := func(q *verifytest.QP, packets int, every time.Duration) {
		q.Step = int64(every)
		for range packets {
			q.Next(infiniband.WriteOnly, 200)
		}
	}
	for _, c := range []struct {
		name   string
		run    func(*verifytest.QP)
		window time.Duration
		want   verdict.Verdict
		says   string
	}{
		{"half the rate", func(q *verifytest.QP) {
			send(q, 100, 10*time.Microsecond)
			q.CNP()
			send(q, 100, 20*time.Microsecond)
		}, 0, pass, "after 1 of 1 CNP"},
		{"no packets at all", func(q *verifytest.QP) {
			send(q, 100, 10*time.Microsecond)
			q.CNP()
			q.Wait(2 * time.Millisecond)
		}, 0, pass, "at 0% of its rate"},
		{"the same rate", func(q *verifytest.QP) {
			send(q, 100, 10*time.Microsecond)
			q.CNP()
			send(q, 120, 10*time.Microsecond)
		}, 0, fail, "1 of 1 CNP was without effect"},
		{"as many packets", func(q *verifytest.QP) {
			send(q, 100, 10*time.Microsecond)
			q.CNP()
			send(q, 99, 10*time.Microsecond)
			q.Wait(2 * time.Millisecond)
		}, 0, fail, "27126 bytes left in the 1ms before"},
		{"a higher rate, told again and again", func(q *verifytest.QP) {
			send(q, 100, 20*time.Microsecond)
			q.CNP()
			send(q, 30, 10*time.Microsecond)
			q.CNP()
			send(q, 120, 10*time.Microsecond)
		}, 0, fail, "without effect"},
		{"a cut that is short", func(q *verifytest.QP) {
			send(q, 100, 10*time.Microsecond)
			q.CNP()
			send(q, 10, 20*time.Microsecond)
			send(q, 100, 10*time.Microsecond)
		}, 200 * time.Microsecond, pass, "over 200µs"},
		{"one of three CNPs without effect", func(q *verifytest.QP) {
			for i := range 3 {
				send(q, 100, 10*time.Microsecond)
				if q.CNP(); i < 2 {
					send(q, 40, 20*time.Microsecond)
				} else {
					send(q, 110, 10*time.Microsecond)
				}
				q.Wait(3 * time.Millisecond)
			}
		}, 0, fail, "1 of 3 CNPs were without effect"},
		{"a CNP behind another", func(q *verifytest.QP) {
			send(q, 100, 10*time.Microsecond)
			q.CNP()
			q.CNP()
			send(q, 100, 20*time.Microsecond)
		}, 0, pass, "; 1 could not"},
		{"a CNP that came damaged", func(q *verifytest.QP) {
			send(q, 100, 10*time.Microsecond)
			q.CNP()
			q.Change(func(k verifytest.Sighting) bool {
				return k.Tap == "h0:eth0" && k.ID == q.IDs
			}, verifytest.Flip(-5))
			send(q, 120, 10*time.Microsecond)
		}, 0, unclear, "NOT-APPLICABLE: 0 CNPs came"},
		{"an idle sender", func(q *verifytest.QP) {
			send(q, 5, 10*time.Microsecond)
			q.CNP()
			send(q, 100, 20*time.Microsecond)
		}, 0, unclear, "NOT-APPLICABLE: 1 CNP came: 0 behind others, 1 to queue pairs"},
		{"a sender that rested", func(q *verifytest.QP) {
			send(q, 30, 10*time.Microsecond)
			q.Wait(400 * time.Microsecond)
			send(q, 30, 10*time.Microsecond)
			q.CNP()
			send(q, 100, 10*time.Microsecond)
		}, 0, unclear, "1 to queue pairs that sent fewer than 8 packets in 1ms, or rested"},
		{"the end of the capture", func(q *verifytest.QP) {
			send(q, 300, 10*time.Microsecond)
			q.CNP()
			send(q, 5, 20*time.Microsecond)
		}, 3 * time.Millisecond, unclear, "1 at the end"},
		{"no CNP", func(q *verifytest.QP) {
			send(q, 100, 10*time.Microsecond)
		}, 0, unclear, "NOT-APPLICABLE: 0 CNPs came"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := verifytest.NewQP(t, 4)
			c.run(q)
			results, _ := q.Run(newRate(c.window))
			verifytest.Wants(t, results[0], c.want, c.says)
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
		a := verifytest.NewQP(t, 4)
		b := *a
		b.To, b.Back, b.PSN, b.MSN = 0x21, 0x22, a.PSN.Add(c.apart), 0
		if c.connect {
			a.Connect(1)
			b.Connect(2)
		}
		for range 3 {
			a.Write()
			b.Write()
			a.Ack(a.PSN.Add(-1), 1)
			b.Ack(b.PSN.Add(-1), 1)
		}
		results, _ := a.Run(rules(t, "acks")...)
		if r := results[0]; r.Verdict != c.want || c.want == pass && r.Measured["flows"] != 2 {
			t.Errorf("%s: want %s: %v", name, c.want, r)
		}
	}
}

// Times are the testbed's own, whatever it is dilated by.
func TestRoCEDilated(t *testing.T) {
	cnp, rate := newCNP(0), newRate(0)
	cnp.Begin(&evidence.Capture{Dilation: 4})
	rate.Begin(&evidence.Capture{Dilation: 4})
	if cnp.interval != 200_000 || cnp.shown() != defaultCNPInterval || rate.window != 4_000_000 ||
		rate.shown() != defaultRateWindow {
		t.Errorf("%d ns, which are %v, and %d ns, which are %v", cnp.interval, cnp.shown(), rate.window,
			rate.shown())
	}
}

// A capture in which thousands of queue pairs leave thousands of PSNs out takes no more
// memory than one in which they do not.
func TestRoCEMemory(t *testing.T) {
	k := newPSN(nil)
	c := &evidence.Capture{Dilation: 1, Taps: []*evidence.Tap{{Name: "a", NIC: true}}}
	k.Begin(c)
	const queuePairs = 300
	for i := range 2 * queuePairs {
		p := make(infiniband.Packet, infiniband.Len(infiniband.WriteOnly, 0))
		p.Encode(&infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.WriteOnly,
			DestQP: infiniband.QPN(i / 2), PSN: infiniband.PSN(i % 2 * (maxSent - 2))}}, 0)
		packet := &evidence.Packet{Tap: c.Taps[0], Direction: evidence.Out, Time: int64(i), IP: 4,
			Flow: new(evidence.Flow)}
		roceOf(packet, p)
		k.Packet(packet)
	}
	reads := newWrites()
	reads.Begin(c)
	for i := range 2 * maxReads {
		p := make(infiniband.Packet, infiniband.Len(infiniband.ReadRequest, 0))
		p.Encode(&infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.ReadRequest,
			PSN: infiniband.PSN(i)}}, 0)
		packet := &evidence.Packet{Tap: c.Taps[0], Direction: evidence.Out, Time: int64(i), IP: 4,
			Flow: new(evidence.Flow)}
		roceOf(packet, p)
		reads.Packet(packet)
	}
	if n := len(reads.ordered[0].own.reads); n != maxReads || reads.partial != maxReads {
		t.Errorf("%d READs wait for their answers, and %d were given up", n, reads.partial)
	}
	sum := 0
	for _, f := range k.ordered {
		sum += len(f.sent)
	}
	if k.left != queuePairs*(maxSent-3) || sum != k.remembered || sum < mostSent ||
		sum > mostSent+queuePairs*leastSent {
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
		c := &evidence.Capture{Dilation: 1, Taps: []*evidence.Tap{{Name: "a", NIC: len(b)%2 == 0}}}
		var checks []evidence.Check
		for _, rule := range roceRules {
			check, err := New(&spec.RoCECheck{Rule: rule})
			if err != nil {
				t.Fatal(err)
			}
			check.Begin(c)
			checks = append(checks, check)
		}
		// Four bytes are a packet: opcode, PSN near the wrap, length, and the rest.
		flow := &evidence.Flow{}
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
			packet := &evidence.Packet{Tap: c.Taps[0], Direction: evidence.Direction(1 + rest>>6&1),
				Time: int64(at) * 1000, IP: 4, ECN: wire.ECN(rest >> 5 & 3), Flow: flow, Length: len(p) + 42}
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
func roceOf(p *evidence.Packet, b infiniband.Packet) {
	if !b.Valid() {
		p.RoCEFault = evidence.RoCEDamaged
		return
	}
	p.RoCE = &evidence.RoCE{Fields: b.Fields(), Bytes: b, Payload: b.PayloadLen(len(b)), Whole: true}
}
