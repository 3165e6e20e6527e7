package runner

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/reporting"
	"railbed/testkit/hosttest"
)

// covered is a file of two leaves and four spines with steps of each kind of flow.
const covered = `
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 4, hosts-per-leaf: 2}
  switch: {kind: soft}
  links: {default: {rate: 100mbit, delay: 50us}}
nodes: {default: {ranks: 1}}
steps:
  - traffic: {name: udp, from: [h0], to: [h2, h3], flows: 3, rate: 1mbit, size: 200B, for: 200ms}
  - workload: {name: reduce, kind: all-reduce, algorithm: ring, transport: tcp, size: 40KiB}
  - workload: {name: quick, kind: all-reduce, algorithm: ring, transport: quic, size: 40KiB}
  - workload: {name: datagrams, kind: all-reduce, algorithm: ring, transport: rd, size: 4KiB}
`

// decoded is a file's text as options without a folder for results.
func decoded(t *testing.T, text string) Options {
	t.Helper()
	file, err := spec.Decode("test.yaml", []byte("name: t\n"+strings.TrimPrefix(text, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return Options{File: file, Plan: p, Path: "test.yaml"}
}

// TestFlows: the words for flows, and the flows that they name.
func TestFlows(t *testing.T) {
	ring := func(step string) (names []string) { // in both directions
		for _, pair := range strings.Fields("h0->h1 h0->h3 h1->h0 h1->h2 h2->h1 h2->h3 h3->h0 h3->h2") {
			names = append(names, step+" "+pair)
		}
		return names
	}
	o := decoded(t, covered)
	for _, c := range []struct{ words, want []string }{
		{[]string{"h0->h3"}, []string{"h0->h3"}},
		{[]string{"h0->h[12]", "h0->h1"}, []string{"h0->h1", "h0->h2"}},
		{[]string{"h1:eth0->h0:*"}, []string{"h1:eth0->h0:eth0"}},
		{[]string{"h3->*"}, []string{"h3->h0", "h3->h1", "h3->h2"}},
		{[]string{"reduce"}, ring("reduce")},
		{[]string{"tcp"}, ring("reduce")},
		{[]string{"datagrams"}, ring("datagrams")},
		{[]string{"udp"}, []string{"udp h0->h2 port 20000 to 17000", "udp h0->h2 port 20002 to 17000",
			"udp h0->h2 port 20004 to 17000", "udp h0->h3 port 20001 to 17000",
			"udp h0->h3 port 20003 to 17000", "udp h0->h3 port 20005 to 17000"}},
	} {
		flows, err := Flows(o, c.words)
		if err != nil {
			t.Errorf("%q: %v", c.words, err)
			continue
		}
		var names []string
		for _, f := range flows {
			if f.Node != o.Plan.Node(f.Node).Name || f.Dst == f.Src || !f.Dst.IsValid() {
				t.Errorf("%q: %+v", c.words, f)
			}
			names = append(names, f.Name)
		}
		if slices.Sort(names); !slices.Equal(names, c.want) {
			t.Errorf("%q name %q, want %q", c.words, names, c.want)
		}
	}
	if all, err := Flows(o, []string{AllFlows}); err != nil || len(all) != 12 {
		t.Errorf("all are %d flows, %v, want 12", len(all), err)
	}
	want := []string{"all", "datagrams", "quic", "quick", "rd", "reduce", "tcp", "udp"}
	if words := FlowWords(o); !slices.Equal(words, want) {
		t.Errorf("the words are %q, want %q", words, want)
	}
}

// TestWordsThatNameNoFlows: the errors name words that would be right.
func TestWordsThatNameNoFlows(t *testing.T) {
	adding := strings.Replace(covered, "kind: soft", "kind: soft, aggregation: {}", 1)
	o := decoded(t, adding+"  - exec: {name: program, nodes: [h0], command: [true]}\n"+
		"  - workload: {name: adds, kind: all-reduce, algorithm: in-network, "+
		"transport: in-switch, size: 4KiB}\n")
	for word, want := range map[string]string{
		"h9->h0":      `no node or NIC is named "h9", want a name such as h0 or h0:eth0`,
		"h0->h1:eth7": `no node or NIC is named "h1:eth7"`,
		"h0->h0":      "the sender is the receiver",
		"roce":        "no step of the file uses this transport",
		"program":     "want SRC->DST",
		"adds":        "no switch adds up",
		"other":       "a transport, a step or all: all, datagrams, quic, ",
	} {
		flows, err := Flows(o, []string{"h0->h1", word})
		if !errors.Is(err, ErrFlows) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), fmt.Sprintf("%q", word)) {
			t.Errorf("%s: %v, %v, want %q", word, flows, err, want)
		}
	}
}

// TestCover chooses points of a small fabric for which the answers are known.
func TestCover(t *testing.T) {
	o := decoded(t, covered)
	for name, c := range map[string]struct {
		with    CoverOptions
		points  []string
		notSeen int
		want    string // of an error
	}{
		"one sender": {CoverOptions{Flows: []string{"h0->*"}}, []string{"h0:eth0"}, 0, ""},
		"one receiver": {CoverOptions{Flows: []string{"h[12]->h0", "h3->h0"}}, []string{"leaf1:p0"},
			0, ""},
		"uplinks": {CoverOptions{Flows: []string{"h[01]->h[23]"}, At: []string{"leaf1"}, Exact: true},
			[]string{"leaf1:p2", "leaf1:p3", "leaf1:p4", "leaf1:p5"}, 0, ""},
		"two places": {CoverOptions{Flows: []string{"h[01]->h2"}, At: []string{"nics", "spine*"}},
			[]string{"h0:eth0", "h1:eth0"}, 0, ""},
		"limit": {CoverOptions{Flows: []string{"h0->*", "h1->h2"}, At: []string{"nics"}, Max: 1},
			[]string{"h0:eth0"}, 1, ""},
		"within the limit": {CoverOptions{Flows: []string{"h0->*"}, Max: 3}, []string{"h0:eth0"}, 0, ""},
		"blind": {CoverOptions{Flows: []string{"h0->h2"}, At: []string{"spine1"}}, nil, 0,
			"allow more places"},
		"blind, a limit": {CoverOptions{Flows: []string{"h0->h*"}, At: []string{"leaf1"}, Max: 1},
			[]string{"leaf1:p1"}, 2, ""},
		"nowhere": {CoverOptions{Flows: []string{"h0->h2"}, At: []string{"h9"}}, nil, 0,
			`no port is at "h9"`},
		"no flows": {CoverOptions{Flows: []string{"h9->h2"}}, nil, 0, "h9"},
	} {
		got, err := Cover(o, c.with)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var points []string
		for i, p := range got.Points {
			points = append(points, p.Point)
			if text := got.Faults[i]; !strings.Contains(text, p.Point) {
				t.Errorf("%s: the fault at %s is %s", name, p.Point, text)
			}
		}
		if slices.Sort(points); !slices.Equal(points, c.points) || len(got.NotSeen) != c.notSeen ||
			!got.Optimal {
			t.Errorf("%s: %+v, want %q, and %d flows not seen", name, got, c.points, c.notSeen)
		}
	}
	bridges := decoded(t, "fabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: router}}")
	if _, err := Cover(bridges, CoverOptions{Flows: []string{"all"}}); !errors.Is(err, ErrCover) ||
		!strings.Contains(err.Error(), "kind: soft") {
		t.Errorf("of kernel switches: %v", err)
	}
}

// TestCoverSeesThePackets runs the steps with faults at the points that Cover chose among NICs, and among
// the ports of the spines. Both choices see all flows, and no packet passes two points of a choice. So the
// faults of both match the same number of packets.
func TestCoverSeesThePackets(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	head, steps, _ := strings.Cut(
		strings.Replace(covered, "hosts-per-leaf: 2", "hosts-per-leaf: 1", 1), "steps:\n")
	steps = strings.Replace(steps, "to: [h2, h3]", "to: [h1]", 1)
	plain := options(t, head+"steps:\n"+steps) // as below, because hashes depend on the testbed's name
	var faults strings.Builder
	points := map[string]int{} // by name of the faults, without their number
	names := []string{"udp", "reduce", "quick", "datagrams"}
	for _, step := range names {
		match := map[string]string{"udp": "udp.dstport == 17000", "datagrams": "rd"}[step]
		if match == "" { // the ports of the receivers: what comes from there is another flow
			flows, err := Flows(plain, []string{step})
			if err != nil || len(flows) != 2 || flows[0].Protocol == 0 {
				t.Fatalf("%s: %+v, %v", step, flows, err)
			}
			protocol := map[uint8]string{wire.ProtocolTCP: "tcp", wire.ProtocolUDP: "udp"}[flows[0].Protocol]
			// An ICMP error holds the header of the packet that it is about, and takes a way of its own.
			match = fmt.Sprintf("%s.dstport in {%d, %d} && !icmp && !icmpv6", protocol, flows[0].DstPort,
				flows[1].DstPort)
		}
		for kind, at := range map[string]string{"nics": "nics", "spines": "spine*"} {
			c, err := Cover(plain, CoverOptions{Flows: []string{step}, At: []string{at}})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range c.Points {
				name := step + "-" + kind
				points[name]++
				fmt.Fprintf(&faults, "  - fault: {name: %s-%d, where: %q, match: %q, delay: {by: 1us}}\n",
					name, points[name], p.Point, match)
			}
		}
	}
	if known, unknown := points["reduce-spines"], points["datagrams-spines"]; known != 2 || unknown != 8 {
		t.Errorf("%d and %d ports of spines see two flows with known and with unknown ports, want 2 and 8",
			known, unknown)
	}
	r := runAll(t, t.Context(), options(t, head+"steps:\n"+faults.String()+steps+
		"  - sleep: 300ms\n"+ // for the last packets
		"checks:\n  - workload: {name: reduce, correct: true}\n"))
	matched := map[string]uint64{}
	for _, f := range r.Faults {
		matched[f.Name[:strings.LastIndex(f.Name, "-")]] += f.Matched
	}
	for _, step := range names {
		if n, s := matched[step+"-nics"], matched[step+"-spines"]; n == 0 || n != s {
			var text strings.Builder
			reporting.WriteText(&text, r, reporting.TextOptions{})
			t.Errorf("%s: %d packets at the NICs, %d at the spines\n%s", step, n, s, &text)
		}
	}
}
