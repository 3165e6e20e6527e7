package verify

import (
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"railbed/capture/pcapng"
	"railbed/capture/verify/evidence"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// onewaySpecimens are latencies of other transports than plain datagrams. Packets of TCP go one way only, and
// those of rd are acknowledged.
var onewaySpecimens = map[string]func(*testing.T, bool) (*verifytest.Scene, func() evidence.Check){
	"latency, TCP one way": specimen(`latency: {from: h0, per: flow, p99: "<= 1ms"}`, softRun, lateAtH2),
	"latency, rd":          specimen(`latency: {to: h2, p99: "<= 1ms"}`, rdSpecimen, lateAtH2),
}

// lateAtH2 makes one in 20 packets arrive late at h2.
func lateAtH2(s *verifytest.Scene) {
	n := 0
	s.Change(func(k verifytest.Sighting) bool {
		return k.Tap == "h2:eth0" && !k.Out
	}, func(k *verifytest.Sighting) {
		if n++; n%20 == 7 {
			k.Time += 3_500_000
		}
	})
}

// limitedSpecimens are checks that are limited to the time of a fault, or to the time outside of it. In all
// of the runs, packets of the other time break the check.
var limitedSpecimens = map[string]func(*testing.T, bool) (*verifytest.Scene, func() evidence.Check){
	"rule never" + whileFault: limitedSpecimen(`rule: {never: "ip.ttl > 30", at: h0}`, "during",
		func(s *verifytest.Scene) { rewriteTTL(s, true, 64) }),
	"rule never" + besideFault: limitedSpecimen(`rule: {never: "ip.ttl < 30", at: h0}`, "outside",
		func(s *verifytest.Scene) { rewriteTTL(s, false, 9) }),
	"throughput" + whileFault: limitedSpecimen(`throughput: {from: h0, rate: "<= 4.5mbit"}`, "during",
		func(s *verifytest.Scene) {
			from := verifytest.Loopback(&s.Plan.Nodes[0])
			for _, k := range s.Sightings {
				if verifytest.SrcOf(k) == from && inFault(k.Time) {
					k.ID += 1 << 32
					k.Time += 300_000
					s.Insert(k)
				}
			}
		}),
	"latency" + whileFault: limitedSpecimen(`latency: {from: h0, max: "<= 1ms"}`, "during",
		func(s *verifytest.Scene) {
			s.Change(func(k verifytest.Sighting) bool {
				return k.Tap == "h2:eth0" && inFault(k.Time) && k.Time < verifytest.Start+inForce+20_000_000
			}, func(k *verifytest.Sighting) { k.Time += 3_500_000 })
		}),
}

const whileFault, besideFault = ", during a fault", ", outside of a fault"

func isWhileFault(check string) bool { return strings.HasSuffix(check, whileFault) }

// inFault reports whether the fault of limitedScene is in force.
func inFault(at int64) bool {
	return at >= verifytest.Start+inForce && at < verifytest.Start+ending
}

// limitedSpecimen is a check of the scene that is limited in time. Outside of the fault, packets arrive late.
func limitedSpecimen(check, when string, spoil func(*verifytest.Scene)) func(*testing.T,
	bool) (*verifytest.Scene, func() evidence.Check) {
	return func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := limitedScene(t)
		s.Change(func(k verifytest.Sighting) bool {
			return k.Tap == "h2:eth0" && k.Time < verifytest.Start+begun-10_000_000
		}, func(k *verifytest.Sighting) { k.Time += 3_500_000 })
		if broken {
			spoil(s)
		}
		active := evidence.Active{Begun: verifytest.Start + begun, From: verifytest.Start + inForce,
			To: verifytest.Start + ending, Ended: verifytest.Start + ended}
		asked, _, err := spec.ParsePacketsCheck("check", "{"+check+", "+when+": f}")
		if err != nil {
			t.Fatal(err)
		}
		return s, func() evidence.Check {
			made, err := New(asked, Sources{Active: func(string) ([]evidence.Active, string, error) {
				return []evidence.Active{active}, "", nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
	}
}

// rewriteTTL changes a packet of h0 at its NIC, in the time of the fault or after it.
func rewriteTTL(s *verifytest.Scene, in bool, ttl byte) {
	changed := uint64(0)
	s.Change(func(k verifytest.Sighting) bool {
		match := k.Tap == "h0:eth0" && k.Out && (changed == 0 || changed == k.ID) &&
			(in && inFault(k.Time) || !in && k.Time > verifytest.Start+ended)
		if match {
			changed = k.ID
		}
		return match
	}, func(k *verifytest.Sighting) {
		k.Frame = append([]byte(nil), k.Frame...)
		k.Frame[22] = ttl
	})
}

// TestLimitedSpecimens: without its limit in time, each check of the sound runs fails.
func TestLimitedSpecimens(t *testing.T) {
	for name, check := range map[string]string{
		"rule never" + whileFault:  `rule: {never: "ip.ttl > 30", at: h0}`,
		"rule never" + besideFault: `rule: {never: "ip.ttl < 30", at: h0}`,
		"throughput" + whileFault:  `throughput: {from: h0, rate: "<= 4.5mbit"}`,
		"latency" + whileFault:     `latency: {from: h0, max: "<= 1ms"}`,
	} {
		s, limited := limitedSpecimens[name](t, false)
		results, _ := s.Run(limited(), writtenCheck(t, check)())
		if results[0].Verdict != pass || results[1].Verdict != fail {
			t.Errorf("%s: %v; without the limit %v", name, results[0], results[1])
		}
	}
}

// partsOfTimes are recordings of a part of the time, which has the whole time of the fault or not.
var partsOfTimes = []sabotage{
	{name: "recorded during the fault", of: isWhileFault, harmless: true,
		amount: "the recording begins right before the fault and ends right after it",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.recorded(verifytest.Start+begun+500_000, verifytest.Start+ended-500_000)
		}},
	{name: "recorded from the middle of the fault on", of: isWhileFault, total: true,
		amount: "the recording begins when half of the time of the fault is over",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.recorded(verifytest.Start+(inForce+ending)/2+500_000, verifytest.Start+ended-500_000)
		}},
	{name: "the middle of the fault is lost", of: isWhileFault, total: true,
		amount: "a half of the packets in the time of the fault are removed; counts stay",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			const quarter = (ending - inForce) / 4
			c.only(func(p *pcapng.Packet) bool {
				at := p.Time - verifytest.Start
				return at < inForce+quarter || at >= ending-quarter
			}, false)
		}},
}

// recorded keeps the packets of a time, as a recording that began and ended then.
func (c *tape) recorded(from, to int64) {
	c.only(func(p *pcapng.Packet) bool { return p.Time >= from && p.Time < to }, true)
	for i := range c.counts {
		c.counts[i].Start, c.counts[i].End = from, to
	}
}

func init() {
	maps.Copy(specimens, onewaySpecimens)
	maps.Copy(specimens, limitedSpecimens)
	sabotages = append(sabotages, partsOfTimes...)
}
