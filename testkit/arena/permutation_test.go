package arena

import (
	"testing"
	"time"

	"railbed/transports/rd/engine"
	"railbed/transports/rd/rate"
)

// permutation runs messages of n hosts to as many others, over one uplink of the rate of a host. It returns
// the counts of all hosts, and the packets that found a queue full.
func permutation(t *testing.T, o Options, n int) (all engine.Counters, full uint64, w *World) {
	t.Helper()
	o.Hosts, o.Uplink = 2*n, true
	w = new(o)
	left := 0
	for from := range n {
		for range 4 {
			left++
			w.Hosts[from].Post(n+from, 1<<18, func() { left-- })
		}
	}
	for range 1000 {
		if w.Run(100 * time.Microsecond); left == 0 {
			break
		}
	}
	if left > 0 {
		t.Fatalf("%d messages have not arrived after %v", left, w.Now())
	}
	w.Run(10 * time.Millisecond) // the last acknowledgements
	full = w.Spine.Full
	for _, h := range w.Hosts {
		c := h.Engine.Counters()
		all.Add(&c)
		full += h.Port.Full
	}
	return all, full, w
}

// TestPermutationOverOneSpine lets four hosts send at line rate over one uplink. Each packet that they send
// again was lost or trimmed at a full queue, and the counts give this cause. NSCC prevents most losses.
func TestPermutationOverOneSpine(t *testing.T) {
	for _, trim := range []bool{true, false} {
		for seed := range uint64(5) {
			o := testOptions(seed, trim)
			o.Jitter = 5 * time.Microsecond
			c, full, _ := permutation(t, o, 4)
			r := c.Repeats
			if c.Repeated != full || c.Repeated < c.Sent/4 || r.Needless != 0 || c.Duplicates != 0 ||
				r.Trimmed+r.Late+r.Probed+r.Refused != c.Repeated || r.Bytes != c.Repeated*uint64(4096) {
				t.Errorf("trim %v, seed %d: %d packets found a queue full, %+v", trim, seed, full, c)
			}
			if trim && r.Trimmed != full || !trim && (r.Trimmed != 0 || r.Late == 0) {
				t.Errorf("trim %v, seed %d: %d packets found a queue full, %+v", trim, seed, full, r)
			}
			o.Control = func(int, int) rate.Controller {
				return rate.NewNSCC(rate.NSCCOptions{Rate: o.Rate, Trimming: trim, RoundTrip: o.RoundTrip()})
			}
			if c, _, w := permutation(t, o, 4); c.Repeats.Needless != 0 || c.Repeated > c.Sent/5 {
				t.Errorf("trim %v, seed %d with NSCC: %+v; %+v", trim, seed, c, w.Spine)
			}
		}
	}
}
