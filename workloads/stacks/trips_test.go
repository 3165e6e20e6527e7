package stacks

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"railbed/plan"
)

// What ss 6.1 prints with -tinHO of a connection, shortened.
const ssSays = `ESTAB 0      0       10.0.0.2:57942 10.0.0.1:5201 reno wscale:10,10 rto:204 rtt:0.353/0.18 mss:1428 cwnd:10 minrtt:0.059 snd_wnd:64512
ESTAB 0      1022448 [::ffff:10.0.0.2]:57952 [::ffff:10.0.0.1]:5201 reno rtt:2.97/0.133 minrtt:0.035 snd_wnd:16456704
LISTEN 0 128 0.0.0.0:5201 0.0.0.0:*
ESTAB 0      0       127.0.0.1:1 127.0.0.1:2 reno minrtt:0.001
`

// A rank is named if it is far from all others, but not if it is far only from some.
func TestFarRank(t *testing.T) {
	var nodes []*plan.Node
	for i := range 4 {
		nodes = append(nodes, &plan.Node{Name: fmt.Sprintf("h%d", i),
			Loopbacks: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/32", i))}})
	}
	ranks, _ := ranksOn("h0", "h1", "h2", "h3")
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	pair := func(a, b int) [2]string { return [2]string{nodes[a].Name, nodes[b].Name} }
	for _, test := range []struct {
		name  string
		least map[[2]string]time.Duration
		want  string
	}{
		{"all alike", map[[2]string]time.Duration{pair(0, 1): ms(0.1), pair(0, 2): ms(0.2),
			pair(1, 3): ms(0.3), pair(2, 3): ms(0.1)}, ""},
		{"far from all", map[[2]string]time.Duration{pair(0, 1): ms(4.1), pair(0, 2): ms(0.2),
			pair(1, 3): ms(4.3), pair(2, 3): ms(0.1)},
			"rank 1 (h1) is slow to reach: its shortest round trip takes 4.1ms, the others' 200us"},
		{"far from one", map[[2]string]time.Duration{pair(0, 1): ms(4.1), pair(0, 2): ms(0.2),
			pair(1, 3): ms(0.3), pair(2, 3): ms(0.1)}, ""},
		{"slow, but on a busy machine",
			map[[2]string]time.Duration{pair(0, 1): ms(0.9), pair(0, 2): ms(0.2), pair(2, 3): ms(0.1)}, ""},
		{"nobody else to compare with", map[[2]string]time.Duration{pair(0, 1): ms(4.1), pair(0, 2): ms(0.2)},
			""},
	} {
		seen := newTrips(nodes)
		seen.least = test.least
		got := ""
		if slow := seen.slow(ranks); slow != nil {
			got = slow.String()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	seen := newTrips(nodes)
	seen.read("h2", ssSays)
	if len(seen.least) != 1 || seen.least[pair(1, 2)] != 35*time.Microsecond {
		t.Errorf("read %v, want 35us between h1 and h2", seen.least)
	}
}
