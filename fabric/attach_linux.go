package fabric

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"railbed/fabric/kernel"
	softports "railbed/fabric/port"
	"railbed/testbed/plan"
	"railbed/testbed/spec"
)

// Attachment is a node's place in a testbed, as whoever owns another namespace needs
// it to be the node there. It travels as JSON.
type Attachment struct {
	Node     plan.Node `json:"node"` // with one NIC
	Link     plan.Link `json:"link"`
	Dilation uint64    `json:"dilation"`
	// Reach are the prefixes that stand in the main table instead of a default route,
	// which is the other network's; nil keeps the default route.
	Reach []netip.Prefix `json:"reach,omitempty"`
	// Many says that the testbed has more NICs than have ports of their own with the fastest
	// driver, which takes the kernel twice as long to close.
	Many bool `json:"many,omitempty"`
}

// NewAttachment is that of a node with one NIC. DefaultRoute keeps the plan's default
// route.
func NewAttachment(p *plan.Plan, n *plan.Node, defaultRoute bool) *Attachment {
	a := &Attachment{Node: *n, Link: *p.Link(n.NICs[0].Link), Dilation: p.Dilation}
	if !defaultRoute {
		a.Reach = p.Cover()
	}
	nics := 0
	for i := range p.Nodes {
		nics += len(p.Nodes[i].NICs)
	}
	a.Many = nics > mostOwnPorts
	return a
}

// End is the NIC.
func (a *Attachment) End() plan.End { return plan.End{Node: a.Node.Name, Port: a.Node.NICs[0].Name} }

// Addresses are the NIC's.
func (a *Attachment) Addresses() (all []netip.Addr) {
	for _, prefix := range a.Node.NICs[0].Addrs {
		all = append(all, prefix.Addr())
	}
	return all
}

// Main are the routes of the main table.
func (a *Attachment) Main() (all []plan.Route) {
	for _, r := range a.Node.Routes {
		switch {
		case r.Table != 0:
		case r.Dst.Bits() != 0 || a.Reach == nil:
			all = append(all, r)
		default: // a default route, which is the other network's
			for _, reach := range a.Reach {
				if reach.Addr().Is4() == r.Dst.Addr().Is4() {
					r.Dst = reach
					all = append(all, r)
				}
			}
		}
	}
	return all
}

// Attach makes in somebody else's namespace what Build makes in a node's: the NIC under
// a name that the caller chooses, with its settings, shaper, addresses, neighbours,
// routes and rules, read back. It asks for no right outside that namespace. The far end
// of the NIC lies in a namespace that only its port holds, which it returns: when that
// is closed, by whoever has it then, the NIC is gone. What there is already in the
// namespace stays as it is; what would hide it, or be hidden by it, is refused.
func Attach(ctx context.Context, a *Attachment, name string, ns *kernel.Namespace) (way *softports.Handle, err error) {
	far, err := kernel.NewNamespace()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, far.Close()) }() // the port holds it
	f, err := foreign(a, name, ns, far, false)
	if err != nil {
		return nil, err
	}
	if err := f.calibrate(ctx); err != nil {
		return nil, err
	}
	if err := a.Detach(name, ns); err != nil { // of an earlier one, whose caller was killed
		return nil, err
	}
	nobody := func(int) {}
	steps := []func() error{
		func() error {
			return f.each(ctx, f.hosts, func(h *host) error { return f.setSysctls(h, h.early()) }, nobody)
		},
		func() error { return f.makeLinks(ctx, nobody) },
		func() error {
			return f.each(ctx, f.hosts[:1], func(h *host) error { return kernel.SetSysctls(foreignSysctls(name)) }, nobody)
		},
		func() error { return f.eachOn(ctx, 1, f.hosts, f.configure, nobody) },
		func() error {
			return f.each(ctx, f.hosts[:1], func(h *host) error {
				return settleBy(ctx, func() (*differences, error) { return f.compareForeign(h) })
			}, nobody)
		},
		func() error {
			return far.Do(func() (err error) {
				way, err = a.open()
				return err
			})
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, errors.Join(err, a.Detach(name, ns))
		}
	}
	return way, nil
}

// open opens the far end. Whether there will be one container or many is not known, so
// that each has the share of a trunk's NIC in memory.
func (a *Attachment) open() (way *softports.Handle, err error) {
	if a.Many {
		return softports.Open(softports.Packet, softPort(0), softports.Options{MTU: a.Link.MTU, RingBytes: ringShare})
	}
	return openWay(softPort(0), a.Link.MTU, ringBudget/ringShare)
}

// CheckAttached compares a namespace with what Attach made there, and returns all
// differences, joined.
func CheckAttached(ctx context.Context, a *Attachment, name string, ns *kernel.Namespace) (err error) {
	far, err := kernel.NewNamespace() // stands for the one that nobody can enter any more
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, far.Close()) }()
	f, err := foreign(a, name, ns, far, true)
	if err != nil {
		return err
	}
	if err := f.calibrate(ctx); err != nil {
		return err
	}
	return f.each(ctx, f.hosts[:1], func(h *host) error {
		d, err := f.compareForeign(h)
		return errors.Join(err, d.errors(), d.carrierErrors())
	}, func(int) {})
}

// Detach takes away what Attach made in a namespace, as far as it is there: an interface
// that carries our mark, rules of the NIC's addresses, and the loopback's addresses.
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

// Detach is Detach for an attachment.
func (a *Attachment) Detach(name string, ns *kernel.Namespace) error {
	return Detach(name, a.Addresses(), a.Node.Loopbacks, ns)
}

var errNotAttached = errors.New("no such interface")

// foreign is a fabric of one node in somebody else's namespace and the far end of its
// NIC. There says that Attach made it.
func foreign(a *Attachment, name string, ns, far *kernel.Namespace, there bool) (*Fabric, error) {
	if len(a.Node.NICs) != 1 {
		return nil, fmt.Errorf("attach %s: it has %d NICs, want 1", a.Node.Name, len(a.Node.NICs))
	}
	var links []kernel.Link
	var routes []kernel.Route
	err := ns.Do(func() error {
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		if links, err = conn.Links(false); err == nil {
			routes, err = conn.AllRoutes()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	nic := a.Node.NICs[0].Name
	atA := a.Link.A == plan.End{Node: a.Node.Name, Port: nic}
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
		for slices.ContainsFunc(links, func(l kernel.Link) bool { return l.Index == first+endIndex(0, 0, atA) }) {
			first++
		}
	}
	n := a.as(name, first, links, routes)
	l := a.Link
	if atA {
		l.A.Port = name
	} else {
		l.B.Port = name
	}
	if !there {
		if err := refuseTaken(n, links, routes); err != nil {
			return nil, err
		}
	}
	other := l.A
	if atA {
		other = l.B
	}
	p := &plan.Plan{Dilation: a.Dilation, Nodes: []plan.Node{n}, Links: []plan.Link{l}, Switches: []plan.Switch{{Name: other.Node, Kind: spec.Soft}}}
	f, err := prepare(kernelSide(p), first, map[string]*kernel.Namespace{n.Name: ns, SoftSide: far}, Options{})
	if err != nil {
		return nil, err
	}
	f.hosts[0].sysctls = nil // the namespace's own are somebody else's
	return f, nil
}

// as is the node with its NIC under another name, tables of its own and no default
// route but the other network's.
func (a *Attachment) as(name string, first int, links []kernel.Link, routes []kernel.Route) plan.Node {
	n := a.Node
	n.Runtime = spec.Netns
	n.NICs = slices.Clone(n.NICs)
	n.NICs[0].Name = name
	n.Rules = slices.Clone(n.Rules)
	n.Routes = a.Main()
	for _, r := range a.Node.Routes {
		if r.Table != 0 {
			r.Table += first // one NIC's, of several in the namespace
			n.Routes = append(n.Routes, r)
		}
	}
	for i := range n.Routes {
		n.Routes[i].NextHops = slices.Clone(n.Routes[i].NextHops)
		for j := range n.Routes[i].NextHops {
			n.Routes[i].NextHops[j].Dev = name
		}
	}
	for i := range n.Rules {
		n.Rules[i].Table += first
	}
	// Of several NICs in one namespace the first has the routes of the main table; what
	// is bound to another one's address leaves by that one's own table.
	n.Routes = slices.DeleteFunc(n.Routes, func(r plan.Route) bool {
		other := goesBy(r, links, routes)
		return r.Table == 0 && other != nil && other.Name != name && other.Group == linkGroup
	})
	return n
}

// goesBy is the interface by which a route's destination is reached, by the very same
// destination; nil where there is none.
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

// refuseTaken refuses routes that would take the place of others'.
func refuseTaken(n plan.Node, links []kernel.Link, routes []kernel.Route) error {
	var errs []error
	for _, r := range n.Routes {
		if other := goesBy(r, links, routes); other != nil {
			errs = append(errs, fmt.Errorf("add route %s: the namespace has one to there by %s; give the testbed other addresses, by the key addressing", r.Dst, other.Name))
		}
	}
	return errors.Join(errs...)
}

// foreignSysctls are the settings of a node, for one interface alone.
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

// compareForeign is compare for a node in somebody else's namespace: of what is there it
// sees what the plan asks for. The calling thread is in it.
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
		return have.Index != nic.index || !slices.ContainsFunc(nic.Neighbors, func(n plan.Neighbor) bool { return n.Addr == have.Addr })
	})
	got.routes = slices.DeleteFunc(got.routes, func(have kernel.Route) bool {
		return !have.Kernel && !slices.ContainsFunc(h.routes, func(want kernel.Route) bool { return keyOf(want) == keyOf(have) })
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
