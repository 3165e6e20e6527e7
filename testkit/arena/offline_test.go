package arena

import (
	"testing"
	"time"

	"railbed/plan/allocation"
	"railbed/testkit/plantest"
	"railbed/transports/rd/rate"
)

// TestOffline checks the purpose of planned rates, in an all-to-all of equal messages that all
// begin at once. With max-min rates all pairs send at the same time, and no queue is longer than a
// packet of each. With phases without conflicts no queue is longer than a packet. Nothing is sent
// twice, and no time is lost but the headroom and the phases' guards. At line rate buffers
// overflow.
func TestOffline(t *testing.T) {
	const n, size = 8, 100 * 4096
	p := plantest.Compile(t, "name: t\nfabric:\n  topology: single-switch\n  params: {hosts: 8}\n  switch: "+
		"{kind: soft}\n  links: {default: {rate: 10gbit, mtu: 4200}}\n")
	for _, method := range []string{"", allocation.MaxMin, allocation.ConflictFree} {
		o := hosts(fabric(1, 10_000_000_000, 3*time.Microsecond, true), n)
		each := time.Duration(float64(100*(4096+64+frame)) * 8e9 / float64(o.Rate))
		if method != "" {
			file, err := allocation.Compute(p,
				allocation.Options{Pattern: allocation.AllToAll, Method: method})
			if err != nil {
				t.Fatal(err)
			}
			o.Control = func(from, to int) rate.Controller {
				if method == allocation.MaxMin {
					return &rate.Fixed{Rate: uint64(file.From(from, 0)[to])}
				}
				c := &rate.Phased{Each: each*102/100 + 20*time.Microsecond, Guard: 4 * time.Microsecond}
				for k := range file.Phases {
					c.Rates = append(c.Rates, uint64(file.From(from, k)[to]))
				}
				return c
			}
		}
		w := new(o)
		left := n * (n - 1)
		for from, h := range w.Hosts {
			for to := range n {
				if to != from {
					h.Post(to, size, func() { left-- })
				}
			}
		}
		ideal := (n - 1) * each
		w.Run(ideal * 112 / 100)
		deepest, full, again := 0, uint64(0), uint64(0)
		for _, h := range w.Hosts {
			deepest, full, again = max(deepest, h.Port.Deepest), full+h.Port.Full,
				again+h.Engine.Counters().Repeated
		}
		most := map[string]int{allocation.MaxMin: n, allocation.ConflictFree: 1}[method] * (4096 + 64 + frame)
		t.Logf("%q: %d bytes deepest, %d full, %d again, %d left", method, deepest, full, again, left)
		if method == "" && full == 0 {
			t.Error("at line rate nothing is congested")
		}
		if method != "" && (deepest > most || full > 0 || again > 0 || left > 0) {
			t.Errorf("%s: %d bytes deepest, at most %d; %d full, %d again, %d left after %v", method, deepest,
				most, full, again, left, w.Now())
		}
	}
}
