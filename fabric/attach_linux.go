package fabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	softports "railbed/fabric/port"
	"railbed/internal/clock"
	"railbed/internal/kernel"
	"railbed/plan"
	"railbed/plan/spec"
)

// Attach creates a node's NIC in a namespace that another program owns. The NIC has the name that
// the caller chooses and, as from Build, the node's settings, shaper, addresses, neighbours, routes
// and rules; all are read back. Attach needs no right outside that namespace. The far end of the
// NIC is in a new namespace that only the returned ForeignNIC holds. When the ForeignNIC is closed, by any
// process that has it then, the NIC is deleted. Existing objects in the namespace stay unchanged.
// Attach returns an error if one of them would conflict with a new one. The path is the owner's
// path of the namespace.
func Attach(ctx context.Context, a *Attachment, name, path string,
	ns *kernel.Namespace) (*ForeignNIC, error) {
	far, err := kernel.NewNamespace()
	if err != nil {
		return nil, err
	}
	nic := &ForeignNIC{far: far}
	if err := a.attach(ctx, nic, name, path, ns); err != nil {
		return nil, errors.Join(err, nic.Close())
	}
	return nic, nil
}

func (a *Attachment) attach(ctx context.Context, nic *ForeignNIC, name, path string,
	ns *kernel.Namespace) error {
	far := nic.far
	f, err := foreign(a, name, ns, far, false)
	if err != nil {
		return err
	}
	if err := f.calibrate(ctx); err != nil {
		return err
	}
	if err := a.detach(name, ns); err != nil { // of an earlier Attach whose caller was killed
		return err
	}
	nobody := func(int) {}
	steps := []func() error{
		func() error {
			return f.each(ctx, f.hosts, func(h *host) error { return f.setSysctls(h, h.early()) }, nobody)
		},
		func() error { return f.makeLinks(ctx, nobody) },
		func() error {
			return f.each(ctx, f.hosts[:1], func(h *host) error {
				return kernel.SetSysctls(foreignSysctls(name))
			}, nobody)
		},
		func() error { return f.eachOn(ctx, 1, f.hosts, f.configure, nobody) },
		func() error {
			return f.each(ctx, f.hosts[:1], func(h *host) error {
				return kernel.SetSysctls(a.lateSysctls(name))
			}, nobody)
		},
		func() error {
			return f.each(ctx, f.hosts[:1], func(h *host) error {
				return settleBy(ctx, func() (*differences, error) { return f.compareForeign(h) })
			}, nobody)
		},
		func() error {
			return far.Do(func() (err error) {
				nic.port, err = a.open()
				return err
			})
		},
		func() error {
			first := f.hosts[0].ports[0]
			nic.inside = foreignInterface{name, first.index, f.shaping(f.links[0], first.atA).Direction}
			return nic.watchHome(path, ns)
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return errors.Join(err, a.detach(name, ns), a.Yield(ns))
		}
	}
	return nil
}

// open opens the port at the far end. The number of containers is not known here, so each port gets
// the ring size of one NIC of a trunk.
func (a *Attachment) open() (*softports.Handle, error) {
	if a.Many {
		return softports.Open(softports.Packet, softPort(0),
			softports.Options{MTU: a.Link.MTU, RingBytes: ringShare})
	}
	return openNIC(softPort(0), a.Link.MTU, ringBudget/ringShare)
}

// CheckAttached compares a namespace with the result of Attach there, and returns all differences,
// joined.
func CheckAttached(ctx context.Context, a *Attachment, name string, ns *kernel.Namespace) (err error) {
	far, err := kernel.NewNamespace() // stands in for the far namespace, which cannot be entered any more
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, far.Close()) }()
	f, err := foreign(a, name, ns, far, true)
	if err != nil {
		return err
	}
	f.links[0].down = a.Down
	if err := f.calibrate(ctx); err != nil {
		return err
	}
	return f.each(ctx, f.hosts[:1], func(h *host) error {
		d, err := f.compareForeign(h)
		return errors.Join(err, d.errors(), d.carrierErrors())
	}, func(int) {})
}

// Detach removes from a namespace what Attach created there and still exists: an interface in
// Railbed's link group, rules for the NIC's addresses, and the loopback's addresses.
func Detach(name string, nic []netip.Addr, loopbacks []netip.Prefix, ns *kernel.Namespace) error {
	return ns.Do(func() error {
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		links, err := conn.Links(false)
		if err != nil {
			return err
		}
		rules, err := conn.AllRules()
		if err != nil {
			return err
		}
		batch := kernel.NewBatch("", nil)
		for _, l := range links {
			if l.Name == name && l.Group == linkGroup {
				batch.DeleteLink(l.Name, l.Index)
			}
		}
		for _, r := range rules {
			if r.From.IsSingleIP() && slices.Contains(nic, r.From.Addr()) {
				batch.DeleteAnyRule(r)
			}
		}
		for _, address := range loopbacks {
			batch.DeleteAddress("lo", loopbackIndex, address)
		}
		return kernel.IgnoreMissing(conn.Do(batch))
	})
}

// detach is Detach for an attachment. The node's other NICs share the loopback's addresses, so
// these stay while other NICs remain.
func (a *Attachment) detach(name string, ns *kernel.Namespace) error {
	loopbacks := a.Node.Loopbacks
	if len(a.Beside) > 0 {
		loopbacks = nil
	}
	return Detach(name, a.Addresses(), loopbacks, ns)
}

// Yield moves the main table's routes that used a NIC to the node's other NICs in the namespace.
// The kernel deletes a route with a single next hop completely when its interface goes.
func (a *Attachment) Yield(ns *kernel.Namespace) error {
	if len(a.Beside) == 0 {
		return nil
	}
	s, err := stackOf(ns)
	if err != nil {
		return err
	}
	h := &host{name: a.Node.Name, ns: ns, portIndex: map[string]int{}}
	h.addInterfaces(s.links, a.Beside)
	err = h.setRouting(nil, a.free(a.main(a.present(s.links)), "", s.links, s.routes), nil)
	if err != nil {
		return err
	}
	h.dilate(clock.Dilation(a.Dilation))
	batch := kernel.NewBatch(h.name, nil)
	for _, r := range h.routes {
		batch.AddRoute(r)
	}
	return doIn(h, batch)
}

// present returns the NICs of Beside that still have their interfaces.
func (a *Attachment) present(links []kernel.Link) map[string]string {
	present := map[string]string{}
	for nic, name := range a.Beside {
		if slices.ContainsFunc(links, func(l kernel.Link) bool {
			return l.Name == name && l.Group == linkGroup
		}) {
			present[nic] = name
		}
	}
	return present
}

// addInterfaces allows routes through interfaces that are not the host's own.
func (h *host) addInterfaces(links []kernel.Link, names map[string]string) {
	for _, l := range links {
		for _, name := range names {
			if l.Name == name {
				h.portIndex[name] = l.Index
			}
		}
	}
}

// stack is the state of a namespace's network stack.
type stack struct {
	links     []kernel.Link
	routes    []kernel.Route
	addresses []kernel.Address
}

func stackOf(ns *kernel.Namespace) (s stack, err error) {
	err = ns.Do(func() error {
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		if s.links, err = conn.Links(false); err != nil {
			return err
		}
		if s.routes, err = conn.AllRoutes(); err != nil {
			return err
		}
		s.addresses, err = conn.Addresses()
		return err
	})
	return s, err
}

var errNotAttached = errors.New("no such interface")

// foreign returns a fabric of one node in a namespace that another program owns, with the far end
// of one of its NICs. There is true if Attach has already created the NIC.
func foreign(a *Attachment, name string, ns, far *kernel.Namespace, there bool) (*Fabric, error) {
	s, err := stackOf(ns)
	if err != nil {
		return nil, err
	}
	links, routes := s.links, s.routes
	atA := a.Link.A == a.End()
	at := slices.IndexFunc(links, func(l kernel.Link) bool { return l.Name == name })
	first := firstIndex
	switch {
	case there && at < 0:
		return nil, fmt.Errorf("find %s: %w", name, errNotAttached)
	case there:
		first = links[at].Index - endIndex(0, 0, atA)
	case at >= 0:
		return nil, fmt.Errorf("make %s: the namespace has an interface of this name", name)
	default:
		for slices.ContainsFunc(links, func(l kernel.Link) bool {
			return l.Index == first+endIndex(0, 0, atA)
		}) {
			first++
		}
	}
	l, other := a.Link, a.Link.A
	if atA {
		l.A.Port, other = name, l.B
	} else {
		l.B.Port = name
	}
	n := a.as(name, first)
	interfaces := a.present(links)
	interfaces[a.Interface().Name] = name
	main := a.free(a.main(interfaces), name, links, routes)
	if !there {
		err := errors.Join(refuseTaken(main, links, routes, interfaces), a.refuseAddresses(s))
		if err != nil {
			return nil, err
		}
	}
	p := &plan.Plan{Dilation: a.Dilation, Nodes: []plan.Node{n}, Links: []plan.Link{l},
		Switches: []plan.Switch{{Name: other.Node, Kind: spec.Soft}}}
	f, err := prepare(kernelSide(p), first, map[string]*kernel.Namespace{n.Name: ns, SoftSide: far},
		Options{})
	if err != nil {
		return nil, err
	}
	h := f.hosts[0]
	h.sysctls = nil // another program owns the namespace's own settings
	h.addInterfaces(links, a.Beside)
	if err := h.setRouting(nil, main, nil); err != nil {
		return nil, err
	}
	h.dilate(clock.Dilation(a.Dilation))
	return f, nil
}

// ownTable is the number of a NIC's routing table, before its position among the NICs is added.
const ownTable = 1000

// as returns the node with only this NIC, under another name and with a routing table of its own.
func (a *Attachment) as(name string, first int) plan.Node {
	n, nic := a.Node, *a.Interface()
	n.Runtime, n.Routes, n.Rules = spec.Netns, nil, nil
	for _, r := range a.Node.Routes {
		if r.Table != 0 && r.NextHops[0].Dev == nic.Name {
			r.Table = ownTable + first // each NIC in the namespace has its own
			r.NextHops = slices.Clone(r.NextHops)
			r.NextHops[0].Dev = name
			n.Routes = append(n.Routes, r)
		}
	}
	for _, r := range a.Node.Rules {
		if slices.Contains(a.Addresses(), r.From.Addr()) {
			r.Table = ownTable + first
			n.Rules = append(n.Rules, r)
		}
	}
	nic.Name = name
	n.NICs = []plan.Interface{nic}
	return n
}

// free removes routes that another node already has in the namespace. Of several nodes in a
// namespace the first one has the routes of the main table. Packets bound to another node's address
// leave by the routing table of that node.
func (a *Attachment) free(main []plan.Route, name string, links []kernel.Link,
	routes []kernel.Route) []plan.Route {
	return slices.DeleteFunc(main, func(r plan.Route) bool {
		other := goesBy(r, links, routes)
		if other == nil || other.Name == name || other.Group != linkGroup {
			return false
		}
		for _, beside := range a.Beside {
			if other.Name == beside {
				return false
			}
		}
		return true
	})
}

// goesBy returns the interface of an existing route with exactly the same destination and table, or
// nil if there is none.
func goesBy(r plan.Route, links []kernel.Link, routes []kernel.Route) *kernel.Link {
	want := keyOf(kernel.Route{Dst: r.Dst, Table: r.Table})
	for _, have := range routes {
		if keyOf(have) != want || len(have.Hops) == 0 {
			continue
		}
		for i := range links {
			if links[i].Index == have.Hops[0].Index {
				return &links[i]
			}
		}
	}
	return nil
}

// refuseTaken refuses routes that would replace existing routes of other programs.
func refuseTaken(main []plan.Route, links []kernel.Link, routes []kernel.Route,
	ours map[string]string) error {
	var errs []error
	for _, r := range main {
		other := goesBy(r, links, routes)
		if other != nil && !slices.Contains(slices.Collect(maps.Values(ours)), other.Name) {
			errs = append(errs, fmt.Errorf("add route %s: the namespace already has a route there "+
				"through %s; give the testbed other addresses (key addressing)", r.Dst, other.Name))
		}
	}
	return errors.Join(errs...)
}

// refuseAddresses refuses addresses that an interface of the namespace already has. On the loopback
// the node's own addresses may already exist: from its other NICs, or from an Attach whose caller
// was killed.
func (a *Attachment) refuseAddresses(s stack) error {
	var errs []error
	refuse := func(prefixes []netip.Prefix, besides int) {
		for _, prefix := range prefixes {
			for _, have := range s.addresses {
				if have.Prefix.Addr() != prefix.Addr() || have.Index == besides {
					continue
				}
				at := slices.IndexFunc(s.links, func(l kernel.Link) bool { return l.Index == have.Index })
				if at < 0 {
					continue // it has disappeared meanwhile
				}
				errs = append(errs, fmt.Errorf(
					"add address %s: the namespace already has it on %s; give the testbed other addresses "+
						"(key addressing)",
					prefix, s.links[at].Name))
			}
		}
	}
	refuse(a.Interface().Addrs, 0)
	refuse(a.Node.Loopbacks, loopbackIndex)
	return errors.Join(errs...)
}

// foreignSysctls returns the settings of a node, for one interface only.
func foreignSysctls(name string) []kernel.Sysctl {
	v4, v6 := "net/ipv4/conf/"+name+"/", "net/ipv6/conf/"+name+"/"
	return []kernel.Sysctl{
		{Path: v4 + "rp_filter", Value: "0"},
		{Path: v4 + "forwarding", Value: "0"},
		{Path: v4 + "arp_ignore", Value: "1"},
		{Path: v4 + "arp_announce", Value: "2"},
		{Path: v6 + "accept_dad", Value: "0", Optional: true},
		{Path: v6 + "addr_gen_mode", Value: "1", Optional: true},
		{Path: v6 + "disable_ipv6", Value: "0", Optional: true},
		{Path: v6 + "forwarding", Value: "0", Optional: true},
	}
}

// lateSysctls returns the settings for routes over several NICs: a path whose link has lost its
// carrier is not used.
func (a *Attachment) lateSysctls(name string) []kernel.Sysctl {
	if len(a.Node.NICs) == 1 {
		return nil
	}
	return []kernel.Sysctl{
		{Path: "net/ipv4/conf/" + name + "/ignore_routes_with_linkdown", Value: "1"},
		{Path: "net/ipv6/conf/" + name + "/ignore_routes_with_linkdown", Value: "1", Optional: true},
	}
}

// compareForeign is compare for a node in a namespace that another program owns. It ignores objects
// that the plan does not request. The calling thread is in the namespace.
func (f *Fabric) compareForeign(h *host) (*differences, error) {
	d := &differences{}
	conn, err := kernel.Open()
	if err != nil {
		return d, err
	}
	defer conn.Close()
	got, err := read(conn)
	if err != nil {
		return d, err
	}
	nic := h.ports[0]
	wanted := f.addresses(h)
	got.addresses = slices.DeleteFunc(got.addresses, func(have kernel.Address) bool {
		have.Tentative = false
		return !slices.Contains(wanted, have)
	})
	got.neighbors = slices.DeleteFunc(got.neighbors, func(have kernel.Neighbor) bool {
		return have.Index != nic.index || !slices.ContainsFunc(nic.Neighbors, func(n plan.Neighbor) bool {
			return n.Addr == have.Addr
		})
	})
	got.routes = slices.DeleteFunc(got.routes, func(have kernel.Route) bool {
		return !have.Kernel && !slices.ContainsFunc(h.routes, func(want kernel.Route) bool {
			return keyOf(want) == keyOf(have)
		})
	})
	got.rules = slices.DeleteFunc(got.rules, func(have kernel.Rule) bool {
		return !slices.Contains(h.rules, have) && !slices.Contains(kernel.DefaultRules(), have)
	})
	if err := f.compareLinks(h, conn, got, d); err != nil {
		return d, err
	}
	f.compareStack(h, got, d)
	return d, nil
}
