package stacks

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"railbed/capture/report"
	"railbed/plan"
)

const (
	// firstLook is the time of the first look at connections and processes. Each following interval
	// is twice as long, but at most lookEvery.
	firstLook = 400 * time.Millisecond
	lookEvery = 5 * time.Second
	// A rank is slow if its least round trip takes at least slowTimes as long as the others', and
	// at least slowBy longer. An emulated hop takes some 0.1 ms, and several times that on a busy
	// machine.
	slowTimes = 2
	slowBy    = time.Millisecond
)

// trips holds the least round trips between nodes, from the kernels' TCP connections. It is safe
// for concurrent use.
type trips struct {
	mu    sync.Mutex
	least map[[2]string]time.Duration // by pair, in order
	nodes map[netip.Addr]string
}

func newTrips(nodes []*plan.Node) *trips {
	t := &trips{least: map[[2]string]time.Duration{}, nodes: map[netip.Addr]string{}}
	for _, n := range nodes {
		for _, own := range n.Loopbacks {
			t.nodes[own.Addr()] = n.Name
		}
		for _, nic := range n.NICs {
			for _, own := range nic.Addrs {
				t.nodes[own.Addr()] = n.Name
			}
		}
	}
	return t
}

// read adds the output of ss in a node: a line for each connection.
func (t *trips) read(node, said string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, line := range lines(said) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		peer, err := netip.ParseAddrPort(fields[4])
		other := t.nodes[peer.Addr().Unmap()]
		if err != nil || other == "" || other == node {
			continue
		}
		for _, field := range fields[5:] {
			value, found := strings.CutPrefix(field, "minrtt:")
			if !found {
				continue
			}
			if ms, err := figure(value); err == nil {
				pair := [2]string{min(node, other), max(node, other)}
				took := time.Duration(ms * float64(time.Millisecond))
				if least, known := t.least[pair]; !known || took < least {
					t.least[pair] = took
				}
			}
		}
	}
}

// slow returns the rank whose round trips all take longer than those among the others. It returns
// nil if no rank stands out or too few connections were seen.
func (t *trips) slow(ranks []plan.Rank) *report.FarRank {
	t.mu.Lock()
	defer t.mu.Unlock()
	var slowest *report.FarRank
	for i, rank := range ranks {
		var own, others []time.Duration
		for pair, took := range t.least {
			if slices.Contains(pair[:], rank.Node) {
				own = append(own, took)
			} else {
				others = append(others, took)
			}
		}
		if len(own) == 0 || len(others) < 2 {
			continue
		}
		slices.Sort(others)
		least, usual := slices.Min(own), others[len(others)/2]
		if least >= slowTimes*usual && least-usual >= slowBy &&
			(slowest == nil || least.Seconds() > slowest.Trip) {
			slowest = &report.FarRank{Rank: i, Node: rank.Node, Trip: least.Seconds(),
				Others: usual.Seconds()}
		}
	}
	return slowest
}

// watch looks at the connections and processes of all nodes at increasing intervals, until ctx
// ends.
func (r *run) watch(ctx context.Context) {
	for wait := firstLook; ; wait = min(2*wait, lookEvery) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		r.readKernels(ctx)
	}
}

// readKernels reads the kernels' data of all nodes. The connections of a node without ss are unknown. With
// two nodes, neither can be identified as the slow one.
func (r *run) readKernels(ctx context.Context) {
	if printed, err := r.processes(ctx, accountScript); err == nil {
		r.account.read(printed)
	}
	if len(r.Nodes) <= 2 {
		return
	}
	for _, node := range r.Nodes {
		said, err := r.testbed.Node(node.Name).Command(ctx, "ss", "-tinHO").Output()
		if err == nil {
			r.trips.read(node.Name, string(said))
		}
	}
}

// slowText formats slow after a separator. It is empty if no rank stands out.
func (r *run) slowText() string {
	if slow := r.trips.slow(r.ranks); slow != nil {
		return fmt.Sprintf("; %v", slow)
	}
	return ""
}
