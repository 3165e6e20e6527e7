package fabric

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"railbed/fabric/kernel"
	"railbed/fabric/kernelswitch"
)

// Verify reads back everything that the plan asks of the kernel, as SetLink and
// SetLinkState have changed it since, and returns all differences, joined.
func (f *Fabric) Verify(ctx context.Context) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if !f.built {
		return errors.New("verify fabric: it is closed")
	}
	found := make([]error, len(f.hosts))
	position := map[*host]int{}
	for i, h := range f.hosts {
		position[h] = i
	}
	err := f.each(ctx, f.hosts, func(h *host) error {
		d, err := f.compare(h, true)
		found[position[h]] = errors.Join(d.errors(), d.carrierErrors())
		return err
	}, func(int) {})
	return errors.Join(append(found, err)...)
}

// differences are what a namespace has and should not, or the other way round.
type differences struct {
	errs    []error
	carrier []error // ports that only wait for the other end
	waiting bool
}

func (d *differences) errors() error        { return errors.Join(d.errs...) }
func (d *differences) carrierErrors() error { return errors.Join(d.carrier...) }

func (d *differences) add(format string, args ...any) {
	d.errs = append(d.errs, fmt.Errorf(format, args...))
}

// compare reads one namespace. The calling thread is in it. Settings are read
// only on request: setting one reads it back.
func (f *Fabric) compare(h *host, sysctls bool) (*differences, error) {
	d := &differences{}
	conn, err := kernel.Open()
	if err != nil {
		return d, err
	}
	defer conn.Close()
	if sysctls {
		if err := kernel.CheckSysctls(h.sysctls); err != nil {
			d.add("set %s: %w", h.name, err)
		}
	}
	links, err := conn.Links(false)
	if err != nil {
		return d, err
	}
	if err := f.compareLinks(h, conn, links, d); err != nil {
		return d, err
	}
	addresses, err := conn.Addresses()
	if err != nil {
		return d, err
	}
	f.compareAddresses(h, addresses, d)
	neighbors, err := conn.Neighbors()
	if err != nil {
		return d, err
	}
	f.compareNeighbors(h, neighbors, d)
	routes, err := conn.Routes()
	if err != nil {
		return d, err
	}
	f.compareRoutes(h, routes, d)
	rules, err := conn.Rules()
	if err != nil {
		return d, err
	}
	compareRules(h, rules, d)
	return d, nil
}

// cut reports whether the port's end of its link is set down by SetLinkState.
func (f *Fabric) cut(p port) bool {
	l := f.links[p.link]
	return l.down && p.atA == l.cutAtA()
}

func (f *Fabric) compareLinks(h *host, conn *kernel.Conn, links []kernel.Link, d *differences) error {
	byIndex := map[int]kernel.Link{}
	for _, l := range links {
		byIndex[l.Index] = l
	}
	if !byIndex[loopbackIndex].Up {
		d.add("set %s:lo up: kernel has it down", h.name)
	}
	if h.bridge {
		compareBridge(h, byIndex[bridgeIndex], d)
	}
	qdiscs, err := conn.Qdiscs()
	if err != nil {
		return err
	}
	for _, p := range h.ports {
		got, exists := byIndex[p.index]
		if !exists || got.Name != p.Name {
			d.add("make %s:%s: kernel has no such interface", h.name, p.Name)
			continue
		}
		f.comparePort(h, p, got, d)
		on, err := conn.OffloadsOn(p.Name)
		if err != nil {
			return err
		}
		if len(on) > 0 {
			d.add("turn off offloads of %s:%s: kernel has %v on", h.name, p.Name, on)
		}
		own := slices.DeleteFunc(slices.Clone(qdiscs), func(q kernel.Qdisc) bool { return q.Index != p.index })
		for _, err := range f.shaping(f.links[p.link], p.atA).Compare(own) {
			d.add("shape %s:%s: %w", h.name, p.Name, err)
		}
	}
	return nil
}

func compareBridge(h *host, got kernel.Link, d *differences) {
	if got.Name != kernelswitch.BridgeName || got.Bridge == nil {
		d.add("make bridge %s:%s: kernel has none", h.name, kernelswitch.BridgeName)
		return
	}
	if *got.Bridge != (kernel.BridgeState{}) {
		d.add("make bridge %s:%s: kernel has stp %d, forward delay %d, multicast snooping %t, want 0, 0, false", h.name, got.Name,
			got.Bridge.STP, got.Bridge.ForwardDelay, got.Bridge.McastSnooping)
	}
	if !got.Up {
		d.add("set %s:%s up: kernel has it down", h.name, got.Name)
	}
}

func (f *Fabric) comparePort(h *host, p port, got kernel.Link, d *differences) {
	name := h.name + ":" + p.Name
	if got.MTU != p.MTU {
		d.add("set MTU of %s: kernel has %d, want %d", name, got.MTU, p.MTU)
	}
	if got.MAC != kernel.MAC(p.MAC) {
		d.add("set MAC of %s: kernel has %s, want %s", name, kernel.MACText(got.MAC), kernel.MACText(kernel.MAC(p.MAC)))
	}
	if want := f.shaping(f.links[p.link], p.atA).MaxSegments(); got.MaxSegments != want {
		d.add("bound segmentation of %s: kernel has gso_max_segs %d, want %d", name, got.MaxSegments, want)
	}
	if master := map[bool]int{true: bridgeIndex}[h.bridge]; got.Master != master {
		d.add("set master of %s: kernel has index %d, want %d", name, got.Master, master)
	}
	if peer := endIndex(p.link, !p.atA); got.PeerIndex != peer {
		d.add("make %s: its peer has index %d, want %d", name, got.PeerIndex, peer)
	}
	down := f.links[p.link].down
	switch {
	case got.Up == f.cut(p):
		d.add("set %s: kernel has up %t, want %t", name, got.Up, !f.cut(p))
	case !down && (!got.Carrier || got.Operstate != "up"):
		d.waiting = true
		d.carrier = append(d.carrier, fmt.Errorf("set %s up: kernel has state %s", name, got.Operstate))
	case down && (got.Carrier || got.Operstate == "up"):
		d.waiting = true
		d.carrier = append(d.carrier, fmt.Errorf("set %s down: kernel has state %s", name, got.Operstate))
	}
	f.compareSettings(h, p, got, d)
}

func (f *Fabric) compareAddresses(h *host, got []kernel.Address, d *differences) {
	want := map[kernel.Address]bool{}
	for _, a := range h.loopbacks {
		want[a] = true
	}
	for _, p := range h.ports {
		for _, prefix := range p.Addrs {
			if !f.cut(p) || prefix.Addr().Is4() { // the kernel drops IPv6 addresses of an interface that goes down
				want[kernel.Address{Index: p.index, Prefix: prefix}] = true
			}
		}
	}
	for _, a := range got {
		if a.Tentative {
			d.add("add address %s to %s:%s: kernel has it tentative", a.Prefix, h.name, h.portName(a.Index))
		}
		a.Tentative = false
		if !want[a] && !a.Prefix.Addr().IsLoopback() {
			d.add("add address to %s:%s: kernel has %s, which nobody asked for", h.name, h.portName(a.Index), a.Prefix)
		}
		delete(want, a)
	}
	for a := range want {
		d.add("add address %s to %s:%s: kernel has it not", a.Prefix, h.name, h.portName(a.Index))
	}
}

func (h *host) portName(index int) string {
	for name, i := range h.portIndex {
		if i == index {
			return name
		}
	}
	return fmt.Sprintf("if%d", index)
}

func (f *Fabric) compareNeighbors(h *host, got []kernel.Neighbor, d *differences) {
	type key struct {
		index int
		addr  netip.Addr
	}
	have := map[key]kernel.MAC{}
	for _, n := range got {
		have[key{n.Index, n.Addr}] = n.MAC
	}
	for _, p := range h.ports {
		for _, n := range p.Neighbors {
			mac, exists := have[key{p.index, n.Addr}]
			switch {
			case f.cut(p): // the kernel forgets them when an interface goes down
			case !exists:
				d.add("add neighbour %s to %s:%s: kernel has it not", n.Addr, h.name, p.Name)
			case mac != kernel.MAC(n.MAC):
				d.add("add neighbour %s to %s:%s: kernel has %s, want %s", n.Addr, h.name, p.Name, kernel.MACText(mac), kernel.MACText(kernel.MAC(n.MAC)))
			}
			delete(have, key{p.index, n.Addr})
		}
	}
	for k := range have {
		if k.index != loopbackIndex && k.index != bridgeIndex && !k.addr.IsMulticast() {
			d.add("add neighbour to %s:%s: kernel has %s, which nobody asked for", h.name, h.portName(k.index), k.addr)
		}
	}
}

func (f *Fabric) compareRoutes(h *host, got []kernel.Route, d *differences) {
	type key struct {
		dst   netip.Prefix
		table int
	}
	have := map[key]kernel.Route{}
	for _, r := range got {
		if k := (key{r.Dst, mainTable(r.Table)}); !r.Kernel || have[k].Hops == nil {
			have[k] = r
		}
	}
	for _, want := range h.routes {
		k := key{want.Dst.Masked(), mainTable(want.Table)}
		r, exists := have[k]
		switch {
		case f.crossesCut(h, want): // gone, or without the path that is down
		case !exists:
			d.add("add route %s to %s: kernel has it not", want, h.name)
		case !sameRoute(r, want):
			d.add("add route to %s: kernel has %s, want %s", h.name, h.named(r), want)
		}
		delete(have, k)
	}
	for _, r := range have {
		if !r.Kernel {
			d.add("add route to %s: kernel has %s, which nobody asked for", h.name, h.named(r))
		}
	}
}

func mainTable(table int) int {
	if table == 0 {
		return kernel.MainTable
	}
	return table
}

func (f *Fabric) crossesCut(h *host, r kernel.Route) bool {
	return slices.ContainsFunc(h.ports, func(p port) bool {
		return f.cut(p) && slices.ContainsFunc(r.Hops, func(hop kernel.NextHop) bool { return hop.Index == p.index })
	})
}

// named fills in the interface names of a route that was read.
func (h *host) named(r kernel.Route) kernel.Route {
	r.Hops = slices.Clone(r.Hops)
	for i := range r.Hops {
		r.Hops[i].Dev = h.portName(r.Hops[i].Index)
	}
	return r
}

// sameRoute ignores the order of next hops: IPv6 keeps its own.
func sameRoute(got, want kernel.Route) bool {
	sorted := func(hops []kernel.NextHop) []kernel.NextHop {
		hops = slices.Clone(hops)
		for i := range hops {
			hops[i].Dev = ""
		}
		slices.SortFunc(hops, func(a, b kernel.NextHop) int {
			if a.Index != b.Index {
				return a.Index - b.Index
			}
			return a.Via.Compare(b.Via)
		})
		return hops
	}
	return got.Unicast() && (got.Src == want.Src || !want.Src.IsValid() && got.Kernel) && slices.Equal(sorted(got.Hops), sorted(want.Hops))
}

func compareRules(h *host, got []kernel.Rule, d *differences) {
	for _, want := range h.rules {
		if i := slices.Index(got, want); i >= 0 {
			got = slices.Delete(got, i, i+1)
		} else {
			d.add("add rule from %s lookup %d to %s: kernel has it not", want.From, want.Table, h.name)
		}
	}
	for _, r := range got {
		d.add("add rule to %s: kernel has priority %d from %s lookup %d, which nobody asked for", h.name, r.Priority, r.From, r.Table)
	}
}
