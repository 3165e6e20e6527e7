package verify

import (
	"math"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// limitedCheck makes a check that is limited to the time of the fault f of limitedScene, or to other times.
func limitedCheck(t *testing.T, text string, active ...evidence.Active) evidence.Check {
	t.Helper()
	if active == nil {
		active = []evidence.Active{{Begun: verifytest.Start + begun, From: verifytest.Start + inForce,
			To: verifytest.Start + ending, Ended: verifytest.Start + ended}}
	}
	asked, _, err := spec.ParsePacketsCheck("x", "{"+text+"}")
	if err != nil {
		t.Fatal(err)
	}
	check, err := New(asked, Sources{Active: func(string) ([]evidence.Active, string, error) {
		return active, "", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return check
}

// lossy returns a recording that counts lost packets at all taps.
func (c *tape) lossy() *tape {
	d := c.clone()
	for i := range d.counts {
		d.counts[i].Dropped++
		d.counts[i].Accepted++
		d.counts[i].Received++
	}
	return d
}

// TestNeedOfLimitedChecks: a check that is limited in time needs the packets of that time, at the taps that
// it reads. Where they lack, it does not pass. Times are in milliseconds of the scene. The traffic takes 300,
// and the fault is in force from 110 to 190. Packets may be under way for 50 to 60.
func TestNeedOfLimitedChecks(t *testing.T) {
	const (
		never   = `rule: {never: "ip.ttl > 30", at: h0}, during: f`
		outside = `rule: {never: "ip.ttl < 30", at: h0}, outside: f`
		count   = `rule: {count: "ip.ttl == 9", at: h0, is: ">= 1"}, during: f`
		pairs   = `rule: {count: ip, at: h2, per: pair, is: ">= 1"}, during: f`
		latency = `latency: {max: "<= 1s"}, during: f`
		fast    = `throughput: {to: h2, rate: ">= 1mbit"}, during: f`
		slow    = `throughput: {to: h2, rate: "<= 1gbit"}, during: f`
		again   = `rule: {count: tcp.analysis.retransmission, where: ip, at: h0, is: "== 0"}, during: f`
		follows = `rule: {after: ip.ttl == 9, expect: ip, within: 30ms, at: h0}, during: f`
		bytes   = `link-bytes: {link: h0--leaf1, is: "<= 1GB"}, during: f`
	)
	scenes := map[string]*verifytest.Scene{"kernel": limited(verifytest.NewScene(t)),
		"soft": limitedScene(t)}
	type part struct {
		from, to int64  // 0 is the begin or the end
		tap      string // "" is all taps, "-x" all but x
		lossy    bool
	}
	for _, c := range []struct {
		check string
		parts []part
		want  verdict.Verdict
		says  string
	}{
		{never, []part{{from: 50}}, pass, ""},
		{never, []part{{from: 109, to: 191}}, pass, ""},
		{never, []part{{from: 120}}, unclear, "the capture began 10ms after the begin of the time during f"},
		{never, []part{{to: 180}}, unclear, "the capture ended 10ms before the end of the time during f"},
		{bytes, []part{{from: 109, to: 191}}, pass, ""},
		{bytes, []part{{from: 120}}, unclear, "the capture began 10ms after"},
		{slow, []part{{from: 109, to: 191}}, pass, ""},
		{slow, []part{{from: 109, to: 180}}, unclear, "the capture ended 10ms before"},
		{latency, []part{{from: 45, to: 255}}, pass, ""},
		{latency, []part{{from: 105}}, unclear, "ms around it"},
		{latency, []part{{to: 195}}, unclear, "ms around it"},
		{follows, []part{{from: 75, to: 225}}, pass, ""},
		{follows, []part{{from: 75, to: 215}}, unclear, "the end of the time during f, with 30ms around it"},
		{again, []part{{}}, pass, ""},
		{again, []part{{from: 50}}, unclear, "the capture began 50ms after"},
		{outside, []part{{}}, pass, ""},
		{outside, []part{{from: 50}}, unclear, "began 50ms after the begin of the time outside f"},
		{outside, []part{{from: 150}}, unclear, "after the begin of the time outside f"},
		{outside, []part{{to: 150}}, unclear, "before the end of the time outside f"},
		// A packet that was seen proves that there is one.
		{count, []part{{from: 120, to: 180}}, pass, ""},

		{never, []part{{to: 20}, {from: 60}}, pass, ""},
		{never, []part{{to: 120}, {from: 140}}, unclear,
			"for up to 20ms of the time during f, no recording has the packets of h0:eth0"},
		{never, []part{{to: 120}, {from: 120}}, pass, ""},
		{latency, []part{{to: 20}, {from: 40}}, pass, ""},
		{latency, []part{{to: 195}, {from: 200}}, unclear, "for up to 5ms of the time during f"},
		{follows, []part{{to: 225}, {from: 240}}, pass, ""},
		{follows, []part{{to: 195}, {from: 200}}, unclear, "for up to 5ms of the time during f, with 30ms"},
		{outside, []part{{to: 101}, {from: 199}}, pass, ""},
		{outside, []part{{to: 95}, {from: 199}}, unclear, "for up to 5ms of the time outside f"},
		{outside, []part{{to: 101}, {from: 250}}, unclear, "for up to 50ms of the time outside f"},
		{count, []part{{to: 120}, {from: 140}}, pass, ""},

		// Another tap may lack the time, except where the check needs to know who sent.
		{never, []part{{tap: "-h1:eth0"}, {tap: "h1:eth0", to: 100}}, pass, ""},
		{never, []part{{tap: "-h0:eth0"}, {tap: "h0:eth0", to: 100}}, unclear, "of h0:eth0"},
		{slow, []part{{tap: "-h1:eth0"}, {tap: "h1:eth0", to: 100}}, pass, ""},
		{slow, []part{{tap: "-h2:eth0"}, {tap: "h2:eth0", from: 150}}, unclear, "of h2:eth0"},
		{fast, []part{{}, {to: 100}}, pass, ""},
		{fast, []part{{tap: "-h1:eth0"}, {tap: "h1:eth0", to: 100}}, unclear,
			"not recorded: 1 NIC of senders, such as h1:eth0"},
		{pairs, []part{{}, {to: 100}}, pass, ""},
		{pairs, []part{{tap: "-h1:eth0"}, {tap: "h1:eth0", to: 100}}, unclear,
			"not recorded: 1 NIC of senders, such as h1:eth0"},

		{never, []part{{to: 60, lossy: true}, {from: 60}}, pass, ""},
		{never, []part{{to: 120, lossy: true}, {from: 60}}, pass, ""},
		{never, []part{{to: 120, lossy: true}, {from: 115}}, unclear, "lost 1 packet"},
		{outside, []part{{to: 105}, {from: 105, to: 195, lossy: true}, {from: 195}}, pass, ""},
		{outside, []part{{to: 95}, {from: 95, to: 195, lossy: true}, {from: 195}}, unclear, "lost 1 packet"},
	} {
		for kind, s := range scenes {
			whole := readTape(t, s.Write())
			at := func(ms int64) int64 {
				if ms == 0 {
					return 0
				}
				return verifytest.Start + ms*1_000_000
			}
			var tapes []*tape
			for _, p := range c.parts {
				name, except := strings.CutPrefix(p.tap, "-")
				of := whole.between(func(i int) bool {
					return p.tap == "" || (whole.interfaces[i].Name == name) != except
				}, at(p.from), at(p.to))
				if p.lossy {
					of = of.lossy()
				}
				tapes = append(tapes, of)
			}
			o := s.Options()
			o.From, o.To = verifytest.Start, at(300)
			r := judgeTapes(t, o, tapes, limitedCheck(t, c.check))
			if text := verifytest.Text(r); r.Verdict != c.want || !strings.Contains(text, c.says) {
				t.Errorf("%s, %s, %+v: got %s\nwant %s with %q", kind, c.check, c.parts, text, c.want,
					c.says)
			}
		}
	}
}

// A fault that lasts to the end of the run needs the packets up to the end of the traffic.
func TestNeedToTheEndOfARun(t *testing.T) {
	s := limitedScene(t)
	whole := readTape(t, s.Write())
	check := func() evidence.Check {
		return limitedCheck(t, `rule: {never: "ip.ttl == 77", at: h0}, during: f`, evidence.Active{
			Begun: verifytest.Start + begun, From: verifytest.Start + inForce, To: math.MaxInt64,
			Ended: math.MaxInt64})
	}
	const ms = 1_000_000
	o := s.Options()
	o.From, o.To = verifytest.Start, verifytest.Start+300*ms
	for _, c := range []struct {
		from, to int64
		want     verdict.Verdict
	}{{105, 301, pass}, {115, 301, unclear}, {105, 290, unclear}} {
		part := whole.between(nil, verifytest.Start+c.from*ms, verifytest.Start+c.to*ms)
		if r := judgeTapes(t, o, []*tape{part}, check()); r.Verdict != c.want {
			t.Errorf("%d to %d: %s", c.from, c.to, verifytest.Text(r))
		}
	}
}
