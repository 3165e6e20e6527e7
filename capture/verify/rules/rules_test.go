package rules

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railbed/capture/pcapng"
	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// datagrams sends a datagram each millisecond from h0 to h2, each from a port of its own if apart is set,
// and answers those that answer selects.
func datagrams(t *testing.T, count int, apart bool, answer func(i int) bool) *verifytest.Scene {
	return datagramsOver(t, "kind: soft", count, apart, answer)
}

// datagramsOver does as datagrams does, over switches of a kind.
func datagramsOver(t *testing.T, kind string, count int, apart bool,
	answer func(i int) bool) *verifytest.Scene {
	s := verifytest.NewScene(t)
	s.Plan = plantest.Compile(t, "name: t\nfabric:\n  topology: leaf-spine\n"+
		"  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}\n  switch: {"+kind+"}\n")
	s.Step = 500_000
	src, dst := verifytest.Loopback(&s.Plan.Nodes[0]), verifytest.Loopback(&s.Plan.Nodes[2])
	for i := range count {
		port := uint16(7000)
		if apart {
			port += uint16(i)
		}
		ask := verifytest.TCP{Src: netip.AddrPortFrom(src, port), Dst: netip.AddrPortFrom(dst, 17000),
			Datagram: fmt.Appendf(nil, "%64d", i)}
		s.Send("h0", "eth0", ask)
		if answer(i) {
			s.Send("h2", "eth0", verifytest.TCP{Src: ask.Dst, Dst: ask.Src, Datagram: ask.Datagram[:20]})
		} else {
			s.Now += s.Step
		}
	}
	s.Now += 1_000_000_000
	return s
}

func all(int) bool { return true }

func none(int) bool { return false }

// TestRules judges scenes by rules. Frames of offenders are named in the details.
func TestRules(t *testing.T) {
	quiet := func(t *testing.T) *verifytest.Scene { return datagrams(t, 40, false, none) }
	asked := func(t *testing.T) *verifytest.Scene { return datagrams(t, 40, true, all) }
	for name, c := range map[string]struct {
		scene func(*testing.T) *verifytest.Scene
		rule  string
		want  verdict.Verdict
		says  string
	}{
		"never, nothing there": {quiet, `never: tcp`, pass, "0 of 320 packets match"},
		"never, in nothing":    {quiet, `never: ip, where: arp`, unclear, `no packet matches "arp"`},
		"never, at no tap's":   {quiet, `never: udp, at: h3`, unclear, "no packet at h3"},
		"always":               {quiet, `always: udp, where: ip`, pass, "0 of 320 packets do not match"},
		"always, broken": {asked, `always: 'udp.dstport == 17000', at: h0`, fail,
			"frame 16 at h0:eth0, 0.000503 s: 10.0.0.5:17000 > 10.0.0.1:7000 UDP"},
		"count":          {quiet, `count: udp, at: "h2:eth0", is: "== 40"`, pass, "40 of 40 packets match"},
		"count, too few": {quiet, `count: udp, at: h2, is: ">= 41"`, fail, "packets: 40, want >= 41"},
		"count, not equal": {quiet, `count: udp, at: h2, is: "== 2*20+1"`,
			fail, "packets: 40, want == 2*20+1"},
		"count, equal to less": {quiet, `count: udp, at: h2, is: "== 39"`, fail, "packets: 40, want == 39"},
		"count, tolerated":     {quiet, `count: udp, at: h2, is: "== 41", tolerance: 5%`, pass, "40 of 40"},
		"count, not tolerated": {quiet, `count: udp, at: h2, is: "== 50", tolerance: 5%`, fail,
			"packets: 40, want == 50 ± 5%"},
		"count of flows": {asked, `count: udp, at: h2, per: flow, is: "== 1"`, pass, "in 80 flows"},
		"count of a pair without": {asked, `count: 'udp.dstport == 17000', at: h2, per: pair, is: ">= 1"`,
			fail, "packets of h2 > h0: 0, want >= 1"},
		"count of many flows": {asked, `count: udp, at: h2, per: flow, is: "== 0"`, fail,
			"and 74 more\nframe 8 at h2:eth0"},
		"count of ports": {quiet, `count: udp, at: leaf1, per: port, is: "<= 40"`,
			pass, "80 of 80 packets"},
		"count of messages that are none": {quiet, `count: udp, at: h2, per: message, is: "<= 1"`, unclear,
			"none of 40 packets belongs to a message"},
		"count in a window": {quiet, `count: udp, at: h2, window: 3ms, is: "<= 3"`,
			pass, "3 of them within 3ms"},
		"count in a longer window": {quiet, `count: udp, at: h2, window: 3.1ms, is: "<= 3"`, fail,
			"37 packets came within 3.1ms of 3 others before them, want <= 3"},
		"count below in a window": {quiet, `count: udp, at: h2, window: 3ms, is: "< 3"`, fail,
			"38 packets came within 3ms of 2 others"},
		"none in a window": {quiet, `count: udp, at: h2, window: 3ms, is: "== 0"`, fail, "40 packets came"},
		"share": {asked, `share: 'udp.dstport == 17000', at: h0, is: "== 50%"`,
			pass, "50% of packets"},
		"share, broken": {asked, `share: 'udp.dstport == 17000', at: h0, is: "< 50%"`, fail, "want < 50%"},
		"share of ports": {asked, `share: 'udp.dstport == 17000', at: h0, is: ">= 51%", per: port`, fail,
			"share at h0:eth0: 50%, 40 of 80, want >= 51%"},
		"sum":            {quiet, `sum: udp.length, at: h2, is: "== 40*(64+8)"`, pass, "udp.length is 2880"},
		"sum, broken":    {quiet, `sum: udp.length, at: h2, is: "<= 2.8KB"`, fail, "sum of udp.length: 2880"},
		"sum of nothing": {quiet, `sum: tcp.len, at: h2, is: "<= 1"`, unclear, "no packet has tcp.len"},
		"after": {asked, `after: 'udp.dstport == 17000', expect: 'udp.srcport == 17000', within: 1ms, at: h0,
			same: [udp.srcport=udp.dstport, ip.src=ip.dst]`, pass, "40 of 40 packets were followed"},
		"after, too late": {asked, `after: 'udp.dstport == 17000', expect: 'udp.srcport == 17000', at: h0,
			within: 300us, same: [udp.srcport=udp.dstport]`, fail,
			"nothing followed 40 packets within 300µs"},
		"after, others": {asked, `after: 'udp.dstport == 17000', expect: 'udp.srcport == 17000', within: 1ms,
			same: [udp.srcport], at: h0`, fail, "nothing followed 40 packets"},
		"after nothing": {asked, `after: tcp, expect: ip, within: 1ms`, unclear, `no packet matches "tcp"`},
		"after, no end": {asked, `after: 'udp.srcport == 17000', expect: arp, within: 10s, at: h0`, unclear,
			"the capture ended less than 10s after 40 packets"},
		"in order": {asked, `in-order: udp.dstport, per: pair, at: h0`, pass, "in 2 pairs at ports"},
		"not in order": {asked, `in-order: udp.dstport, per: port, at: h0`, fail,
			"40 packets have a smaller udp.dstport"},
		"in order, one": {asked, `in-order: udp.dstport, per: flow, at: h0`, unclear,
			"no two packets of a flow at a port have udp.dstport"},
		"records where there are none": {func(t *testing.T) *verifytest.Scene {
			return datagramsOver(t, "kind: router", 40, false, none)
		}, `never: 'railbed.verdict == "drop"'`, unclear, "no soft switch is at"},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.scene(t)
			results, _ := s.Run(ruleOf(t, c.rule))
			verifytest.Wants(t, results[0], c.want, c.says)
		})
	}
}

// TestRecordsOfKernelFaults: ports of the kernel record what faults do, and none of their own drops.
func TestRecordsOfKernelFaults(t *testing.T) {
	for rule, want := range map[string]verdict.Verdict{
		`never: 'railbed.verdict == "drop"', at: h0`:                          unclear,
		`never: 'railbed.verdict == "drop"'`:                                  unclear,
		`count: 'railbed.fault == "f" || railbed.reason == "tail"', is: <= 9`: unclear,
		`count: 'railbed.fault == "f" && railbed.depth > 0', is: <= 9`:        unclear,
		`never: '!(railbed.fault == "f")', where: 'railbed.fault == "f"'`:     unclear,
		`count: 'udp && railbed.fault == "f"', is: == 4`:                      pass,
		`count: 'railbed.fault in {"f", "g"}', is: == 1`:                      fail,
		`never: 'railbed.fault == "g"'`:                                       pass,
	} {
		s := datagramsOver(t, "kind: router", 40, false, func(int) bool { return false })
		s.Hits = true
		seen := map[string]bool{}
		for _, k := range slices.Clone(s.Sightings) {
			if k.Out && !seen[k.Tap] {
				seen[k.Tap], k.Record, k.Comment = true, true, "railbed verdict=mark reason=fault name=f"
				s.Insert(k)
			}
		}
		results, _ := s.Run(ruleOf(t, rule))
		if results[0].Verdict != want {
			t.Errorf("%s: want %s, %v", rule, want, results[0])
		}
	}
}

// TestLackingEvidence holds that a rule which nothing breaks is INCONCLUSIVE, if the capture may not show
// what breaks it.
func TestLackingEvidence(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*verifytest.Scene)
		rule  string
		says  string
	}{
		"a port is not recorded": {func(s *verifytest.Scene) { s.Untapped["spine1:p0"] = true }, `never: tcp`,
			"not recorded: spine1:p0"},
		"a port lost packets": {func(s *verifytest.Scene) { s.Drops["leaf1:p0"] = 3 }, `never: tcp`,
			"tap leaf1:p0 lost 3 packets"},
		"cut before TCP": {func(s *verifytest.Scene) { s.Snap = 36 }, `never: tcp`,
			"320 packets, of which frame 1 is the first, were cut off before a field that the rule reads"},
		"cut before bytes": {func(s *verifytest.Scene) { s.Snap = 60 }, `never: 'frame contains "nosuch"'`,
			"320 packets, of which frame 1 is the first, were cut off"},
		"cut before a sum": {func(s *verifytest.Scene) { s.Snap = 36 }, `sum: udp.length, is: "<= 1MB"`,
			"were cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			s := datagrams(t, 40, false, none)
			if results, _ := s.Run(ruleOf(t, c.rule)); results[0].Verdict != pass &&
				!strings.Contains(c.rule, "contains") { // the scene keeps 200 bytes of a packet
				t.Fatalf("before: %v", results[0])
			}
			c.spoil(s)
			results, _ := s.Run(ruleOf(t, c.rule))
			verifytest.Wants(t, results[0], unclear, c.says)
		})
	}
	s := datagrams(t, 40, false, none)
	s.Snap = 60
	results, _ := s.Run(ruleOf(t, `never: 'udp.srcport == 9'`))
	verifytest.Wants(t, results[0], pass, "0 of 320 packets match") // the header of UDP is there
}

// TestMessages counts the packets of each message of RoCEv2.
func TestMessages(t *testing.T) {
	q := verifytest.NewQP(t, 4)
	for range 3 {
		q.Next(infiniband.WriteFirst, 1024, verifytest.Length(3000))
		q.Next(infiniband.WriteMiddle, 1024)
		q.Next(infiniband.WriteLast, 952)
	}
	q.Now += 1_000_000_000
	results, _ := q.Run(ruleOf(t, `count: infiniband, per: message, at: "h0:eth0", is: "== 3"`),
		ruleOf(t, `count: infiniband, per: message, at: "h0:eth0", is: "<= 2"`))
	verifytest.Wants(t, results[0], pass, "9 of 9 packets match, in 3 messages")
	verifytest.Wants(t, results[1], fail, "packets of message")
	q = verifytest.NewQP(t, 4)
	q.Next(infiniband.WriteMiddle, 1024) // its message began before
	q.Next(infiniband.WriteLast, 952)
	q.Next(infiniband.WriteOnly, 952)
	q.Now += 1_000_000_000
	results, _ = q.Run(ruleOf(t, `count: infiniband, per: message, at: "h0:eth0", is: "<= 1"`))
	verifytest.Wants(t, results[0], unclear,
		"2 packets are encrypted, cut off or of a message that began before")
}

// TestOtherLinkTypes judges a capture of raw IP, of which checks see nothing.
func TestOtherLinkTypes(t *testing.T) {
	var out bytes.Buffer
	w, err := pcapng.NewWriter(&out, pcapng.Section{})
	if err != nil {
		t.Fatal(err)
	}
	for i, linkType := range []uint16{pcapng.LinkEthernet, 101} {
		_, err := w.AddInterface(pcapng.Interface{Name: fmt.Sprint("tap", i), LinkType: linkType})
		if err == nil {
			err = w.WritePacket(&pcapng.Packet{Interface: i, Time: 1, Data: make([]byte, 60), Length: 60})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	results, _, err := evidence.Run(t.Context(), &out, evidence.Options{}, ruleOf(t, `never: tcp`))
	if err != nil {
		t.Fatal(err)
	}
	verifytest.Wants(t, results[0], unclear,
		"tap tap1 has another link type than Ethernet, and 1 packet")
}

// TestFormulasHaveNumbersOfWorkloads computes what a ring all-reduce sends: 2(n-1)/n of the size.
func TestFormulasHaveNumbersOfWorkloads(t *testing.T) {
	s := verifytest.NewScene(t)
	s.Ring(4)
	s.Now += 100_000_000
	size := 0.0
	for _, broken := range []string{"", "other size", "silent rank"} {
		switch size = 480_000; broken {
		case "other size":
			size = 500_000
		case "silent rank":
			s.Remove(func(k verifytest.Sighting) bool {
				return k.Tap == "h1:eth0" && k.Out && verifytest.SrcOf(k) == s.Workload.Ranks[1].Addr
			})
		}
		text := `rule: {sum: tcp.len, workload: ar, at: nics, where: frame.packet_flags_direction == 2, ` +
			`per: rank, is: "== 2*(n-1)/n*size"}`
		asked, _, err := spec.ParsePacketsCheck("rule", text)
		if err != nil {
			t.Fatal(err)
		}
		check, err := New(asked.Rule, &s.Workload, func(string) (map[string]float64, error) {
			numbers := s.Workload.Numbers()
			numbers["size"] = size
			return numbers, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		results, _ := s.Run(check)
		switch broken {
		case "":
			verifytest.Wants(t, results[0], pass, "in 4 ranks")
		case "other size":
			verifytest.Wants(t, results[0], fail, "want == 2*(n-1)/n*size = 750000")
		case "silent rank":
			verifytest.Wants(t, results[0], fail, "sum of tcp.len of rank 1 (h1:eth0): 0, want")
		}
	}
}

// TestOffendersHaveNeighbours reads the excerpt of a rule that two packets break.
func TestOffendersHaveNeighbours(t *testing.T) {
	s := datagrams(t, 40, true, all)
	results, _ := s.Run(ruleOf(t, `never: 'udp.srcport == 7010 || udp.srcport == 7011', at: "h0:eth0"`))
	verifytest.Wants(t, results[0], fail, "2 packets match")
	var file bytes.Buffer
	if err := results[0].Offenders.WriteExcerpt(&file, "two"); err != nil {
		t.Fatal(err)
	}
	whole, err := pcapng.NewReader(bytes.NewReader(s.Write()))
	if err != nil {
		t.Fatal(err)
	}
	var at []pcapng.Packet // of the tap
	for {
		p, err := whole.Next()
		if err != nil {
			break
		}
		if whole.Interfaces()[p.Interface].Name == "h0:eth0" {
			q := *p
			q.Data = bytes.Clone(p.Data)
			at = append(at, q)
		}
	}
	in, err := pcapng.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	first, count, marked := 20-5, 0, 0 // packets 20 and 22 of the tap break the rule
	for {
		p, err := in.Next()
		if err != nil {
			break
		}
		want := at[first+count]
		if !bytes.Equal(p.Data, want.Data) || p.Time != want.Time || p.ID != want.ID {
			t.Errorf("packet %d differs from packet %d of the tap", count, first+count)
		}
		count++
		if slices.ContainsFunc(p.Comments, frameOf.Match) {
			marked++
		}
	}
	if count != 13 || marked != 2 || len(in.Interfaces()) != 1 {
		t.Errorf("%d packets of %d taps, %d of them break the rule; want 13, 1 and 2", count,
			len(in.Interfaces()), marked)
	}
}

// TestProblemsHavePositions compiles rules with an error, whose place a caret marks in the line below.
func TestProblemsHavePositions(t *testing.T) {
	for _, text := range []string{`
rules:
  - rule: {never: 'tcp && ip.scr == 10.0.0.1'}
                          ^`, `
rules:
  - rule: {never: "railbed.verdict == \"drop\" && ip.scr"}
                                                  ^`, `
rules:
  - rule: {always: ip, where: udp.port == x}
                                          ^`, `
rules:
  - rule:
      count: >-
        tcp
        && nosuch
           ^
      is: "<= 1"`, `
rules:
  - rule:
      count: tcp
        && nosuch
           ^
      is: "<= 1"`, `
rules:
  - rule: {after: ip, expect: ip, within: 1s, same: [ip.src, ip.src=udp.port]}
                                                                    ^`, `
rules:
  - rule: {sum: ip.src, is: "<= 1"}
                ^`, `
rules:
  - rule: {count: ip, is: "<= 3*(m-1)"}
                                 ^`, `
rules:
  - rule: {in-order: rd.psm}
                     ^`, `
rules:
  - rule: {never: ip && run.message == 7}
                        ^`, `
rules:
  - rule: {in-order: run.rank}
                     ^`,
	} {
		var lines []string
		want := ""
		for _, line := range strings.Split(text, "\n") {
			if column := strings.Index(line, "^"); column >= 0 && strings.TrimSpace(line) == "^" {
				want = fmt.Sprintf("f:%d:%d: ", len(lines), column+1)
				continue
			}
			lines = append(lines, line)
		}
		asked, source, err := spec.ParseRules("f", []byte(strings.Join(lines, "\n")))
		for i := range asked {
			if err == nil {
				err = Check(source, spec.RulesPath(i)+".rule", asked[i].Rule, nil)
			}
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want a problem at %s, got %v:%s", want, err, text)
		}
	}
}

// TestKeysAreBounded counts flows beyond the bound.
func TestKeysAreBounded(t *testing.T) {
	k, err := newKeyer(&spec.Rule{Per: spec.PerFlow})
	if err != nil {
		t.Fatal(err)
	}
	states := newTable[uint64](&k)
	p := &evidence.Packet{Tap: &evidence.Tap{}}
	for i := range keysMost + 10 {
		p.Flow = &evidence.Flow{Index: i}
		if (states.of(p) == nil) != (i >= keysMost) {
			t.Fatalf("flow %d", i)
		}
	}
	if k.forgotten != 10 || len(states.keys) != keysMost {
		t.Errorf("%d forgotten, %d kept", k.forgotten, len(states.keys))
	}
}

// TestWaitingIsBounded has more packets wait than a rule remembers.
func TestWaitingIsBounded(t *testing.T) {
	var out bytes.Buffer
	w, err := pcapng.NewWriter(&out, pcapng.Section{})
	if err == nil {
		_, err = w.AddInterface(pcapng.Interface{Name: "h0:eth0", LinkType: pcapng.LinkEthernet})
	}
	for i := range waitingMost + 10 {
		if err == nil {
			err = w.WritePacket(&pcapng.Packet{Time: int64(i), Data: make([]byte, 60), Length: 60})
		}
	}
	if err = errors.Join(err, w.Flush()); err != nil {
		t.Fatal(err)
	}
	results, _, err := evidence.Run(t.Context(), &out, evidence.Options{},
		ruleOf(t, `after: eth, expect: arp, within: 1s`))
	if err != nil {
		t.Fatal(err)
	}
	verifytest.Wants(t, results[0], unclear, "10 packets were not judged: at most 65536 can wait at a time")
}

// TestOrderWraps compares numbers as RFC 1982 does, section 3.2.
func TestOrderWraps(t *testing.T) {
	for _, c := range []struct {
		value, other uint64
		bits         int
		before       bool
	}{{1, 2, 24, true}, {2, 1, 24, false}, {1, 1, 24, false}, {0xFFFFFF, 0, 24, true},
		{0, 0xFFFFFF, 24, false},
		{0xFFFFFFF0, 5, 32, true}, {5, 0xFFFFFFFFFFFFFFFF, 64, true}} {
		if got := before(c.value, c.other, c.bits); got != c.before {
			t.Errorf("%d before %d of %d bits: %t", c.value, c.other, c.bits, got)
		}
	}
}
