package arena

import (
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports/rd/rate"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

// outcome holds the results that a comparison uses.
type outcome struct {
	goodput  float64 // share of the bottleneck's rate, payload and headers
	repeated float64 // packets sent again for each that was sent once
	deepest  int
	mean     int
	full     uint64
	fair     float64 // Jain's index over senders
}

// incast is senders with messages without end to host 0.
func incast(o Options, senders int, d time.Duration) outcome {
	o.Hosts = senders + 1
	w := new(o)
	for n := 1; n <= senders; n++ {
		w.Hosts[n].Stream(0, 1<<18, 1<<20, 2, nil)
	}
	w.Run(d / 2)
	w.Forget()
	w.Run(d)
	port := &w.Hosts[0].Port
	share := float64(w.Payload) / float64(w.Payload+64+frame)
	r := outcome{deepest: port.Deepest, mean: port.Mean(), full: port.Full}
	r.goodput = float64(port.Bytes) * 8 / d.Seconds() / float64(w.Rate) / share
	var sum, squares float64
	var sent, again uint64
	for _, h := range w.Hosts[1:] {
		c := h.Engine.Counters()
		sent, again = sent+c.Sent, again+c.Repeated
		sum += float64(c.SentBytes)
		squares += float64(c.SentBytes) * float64(c.SentBytes)
	}
	r.repeated = float64(again) / float64(sent)
	r.fair = sum * sum / squares / float64(senders)
	return r
}

// testOptions are a switch as the Ultra Ethernet specification would set it: marks
// from 0.2 to 0.8 of the bandwidth-delay product on, a buffer of 5.
func testOptions(seed uint64, trim bool) Options {
	o := Options{Seed: seed, Rate: 10_000_000_000, Delay: 3 * time.Microsecond, Trim: trim}
	o.MarkFrom, o.MarkAll, o.Buffer = o.BDP()/5, o.BDP()*4/5, 5*o.BDP()
	return o
}

// TestIncast checks NSCC's purpose, with eight senders into one port. In steady state the queue
// stays well below its buffer size. Little is sent twice, at no cost in goodput. Line rate keeps
// the buffer full and sends packets several times.
func TestIncast(t *testing.T) {
	for _, trim := range []bool{true, false} {
		for seed := range uint64(5) {
			o := testOptions(seed, trim)
			line := incast(o, 8, 10*time.Millisecond)
			o.Control = func(int, int) rate.Controller {
				return rate.NewNSCC(rate.NSCCOptions{Rate: o.Rate, Trimming: trim, RoundTrip: o.RoundTrip()})
			}
			nscc := incast(o, 8, 10*time.Millisecond)
			if line.repeated < 1.5 || line.deepest < o.Buffer-o.Payload-200 {
				t.Errorf("trim %v, seed %d: line rate without congestion: %+v", trim, seed, line)
			}
			if nscc.goodput < 0.95 || nscc.repeated > 0.02 || nscc.deepest > 3*o.BDP() ||
				nscc.mean > 3*o.BDP()/2 || nscc.full > 0 || nscc.fair < 0.7 {
				t.Errorf("trim %v, seed %d, BDP %d: %+v, at line rate %+v", trim, seed, o.BDP(), nscc, line)
			}
		}
	}
}
