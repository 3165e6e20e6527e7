package fabric

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// TestNeighborsAreFoundWhenNeeded: in a subnet of many nodes, a node has a permanent entry for each
// neighbour that it has sent to, and no others. No frame asks for a hardware address.
func TestNeighborsAreFoundWhenNeeded(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Ping)
	p := plantest.Compile(t, "name: t\nfabric: {"+crowded+", links: {default: {rate: 100mbit}}}\n")
	f, ns := build(t, p)
	frames := tap(t, ns["h0"], f.hosts[0].ports[0].index)
	var want []kernel.Neighbor
	nic := p.Nodes[16].NICs[0]
	for _, a := range nic.Addrs {
		if out, ok := ping(t, ns["h0"], "-c3", "-i0.01", a.Addr().String()); !ok {
			t.Errorf("h0 does not reach %s:\n%s", a.Addr(), out)
		}
		want = append(want, kernel.Neighbor{Index: f.hosts[0].ports[0].index, Addr: a.Addr(),
			MAC: kernel.MAC(nic.MAC)})
	}
	conn, err := kernel.OpenIn(ns["h0"])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	all, err := conn.Neighbors()
	if err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(all, func(n kernel.Neighbor) bool {
		return n.Index == loopbackIndex || n.Addr.IsMulticast()
	})
	slices.SortFunc(got, func(a, b kernel.Neighbor) int { return a.Addr.Compare(b.Addr) })
	if !slices.Equal(got, want) {
		t.Errorf("h0 has the neighbours %v, want %v", got, want)
	}
	if asked := solicitations(t, frames); asked != 0 {
		t.Errorf("%d frames asked for hardware addresses, want 0", asked)
	}
	if err := f.Verify(context.Background()); err != nil {
		t.Error(err)
	}
}

// solicitations drains a tap and counts ARP and neighbour discovery.
func solicitations(t *testing.T, tap int) (count int) {
	t.Helper()
	const header, next, kind = wire.EthernetLen, wire.EthernetLen + 6, wire.EthernetLen + wire.IPv6Len
	for frame := make([]byte, 2048); ; {
		n, _, err := unix.Recvfrom(tap, frame, 0)
		if errors.Is(err, unix.EAGAIN) {
			return count
		}
		if err != nil {
			t.Fatal(err)
		}
		switch binary.BigEndian.Uint16(frame[header-2:]) {
		case unix.ETH_P_ARP:
			count++
		case unix.ETH_P_IPV6:
			if n > kind && frame[next] == unix.IPPROTO_ICMPV6 && wire.ICMPv6(frame[kind:n]).IsNeighbor() {
				count++
			}
		}
	}
}

// TestFirstPacketsWait: packets to a neighbour wait until its address is found, even if they are
// more than the kernel keeps by default. Without the resolver, the node finds the address by ARP.
func TestFirstPacketsWait(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	p := plantest.Compile(t, "name: t\nfabric: {"+crowded+
		", links: {default: {rate: 1gbit, mtu: 9000, queue: 4MiB}}}\n")
	f, ns := build(t, p)
	if err := f.resolvers.close(); err != nil {
		t.Fatal(err)
	}
	f.resolvers.all = nil
	const datagrams, length = 100, 8000
	flows(t, ns["h0"], p.Nodes[1].NICs[0].Addrs[0].Addr(), datagrams, length)
	hosttest.Eventually(t, fmt.Sprintf("%d bytes at h1", datagrams*length), func() error {
		arrived := linkState(t, f, p.Nodes[1].NICs[0].Link).A.Counters.RxBytes // the node's end
		if arrived < datagrams*length {
			return fmt.Errorf("%d have arrived", arrived)
		}
		return nil
	})
}

// TestChangesOfTheHostAreLinear counts the requests for namespaces of twice as many nodes.
func TestChangesOfTheHostAreLinear(t *testing.T) {
	for _, sw := range []string{"kind: router", "kind: bridge", "kind: soft, forwarding: l2"} {
		count := func(leaves int) (changes int) {
			p := plantest.Compile(t, fmt.Sprintf("name: t\nfabric: {topology: leaf-spine, params: {leaves: "+
				"%d, spines: 1, hosts-per-leaf: 16}, switch: {%s}}\n", leaves, sw))
			ns := map[string]*kernel.Namespace{}
			for _, name := range Namespaces(p) {
				ns[name] = &kernel.Namespace{}
			}
			f, err := prepare(kernelSide(p), firstIndex, ns, Options{})
			if err != nil {
				t.Fatal(err)
			}
			f.setResolved(p)
			for _, h := range f.hosts {
				changes += f.requests(h).Len()
			}
			return changes
		}
		few, many := count(4), count(8)
		t.Logf("%s: %d changes for 64 nodes, %d for 128", sw, few, many)
		if many > 2*few+few/10 {
			t.Errorf("%s: %d changes for 64 nodes and %d for 128, want at most 2.1 times as many", sw, few,
				many)
		}
	}
}
