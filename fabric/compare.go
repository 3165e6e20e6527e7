package fabric

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"railbed/fabric/kernelswitch"
	"railbed/fabric/link"
	"railbed/internal/kernel"
)

// Verify reads back everything that the plan requests of the kernel, including later changes by
// SetLink and SetLinkState. It returns all differences, joined.
func (f *Fabric) Verify(ctx context.Context) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if !f.built {
		return errors.New("verify fabric: it is closed")
	}
	found, err := f.compareAll(ctx)
	var errs []error
	for _, d := range found {
		errs = append(errs, d.errors(), d.carrierErrors())
	}
	return errors.Join(append(errs, err)...)
}

// latePatience limits the wait for changes that the kernel makes a moment later.
const latePatience = time.Second

// compareAll compares every host with the requested state; the result is in the order of the hosts. It
// waits for changes that the kernel makes a moment later.
func (f *Fabric) compareAll(ctx context.Context) ([]*differences, error) {
	found := make([]*differences, len(f.hosts))
	position := map[*host]int{}
	for i, h := range f.hosts {
		position[h] = i
		found[i] = &differences{}
	}
	err := f.each(ctx, f.hosts, func(h *host) error {
		deadline := time.Now().Add(latePatience)
		d, err := f.compare(h, true)
		for err == nil && len(d.late) > 0 && ctx.Err() == nil && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
			d, err = f.compare(h, true)
		}
		d.found, d.late = append(d.found, d.late...), nil
		found[position[h]] = d
		return err
	}, func(int) {})
	return found, err
}

// reading is the state of a namespace.
type reading struct {
	links     []kernel.Link
	byIndex   map[int]kernel.Link
	qdiscs    []kernel.Qdisc
	addresses []kernel.Address
	neighbors []kernel.Neighbor
	routes    []kernel.Route      // of all tables but the local one
	local     map[netip.Addr]bool // addresses with a route in the local table
	rules     []kernel.Rule
}

func read(conn *kernel.Conn) (r reading, err error) {
	if r.links, err = conn.Links(false); err != nil {
		return r, err
	}
	r.byIndex = make(map[int]kernel.Link, len(r.links))
	for _, l := range r.links {
		r.byIndex[l.Index] = l
	}
	if r.qdiscs, err = conn.Qdiscs(); err != nil {
		return r, err
	}
	if r.addresses, err = conn.Addresses(); err != nil {
		return r, err
	}
	if r.neighbors, err = conn.Neighbors(); err != nil {
		return r, err
	}
	if r.routes, err = conn.AllRoutes(); err != nil {
		return r, err
	}
	r.local = make(map[netip.Addr]bool, len(r.addresses))
	r.routes = slices.DeleteFunc(r.routes, func(route kernel.Route) bool {
		if route.Table == kernel.LocalTable {
			r.local[route.Dst.Addr()] = true
		}
		return route.Table == kernel.LocalTable
	})
	r.rules, err = conn.AllRules()
	return r, err
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
		f.compareSysctls(h, d)
	}
	got, err := read(conn)
	if err != nil {
		return d, err
	}
	if err := f.compareLinks(h, conn, got, d); err != nil {
		return d, err
	}
	f.compareStack(h, got, d)
	if err := h.compareResolution(conn, d); err != nil {
		return d, err
	}
	return d, f.compareRDMA(h, d)
}

// compareStack compares everything above the links.
func (f *Fabric) compareStack(h *host, got reading, d *differences) {
	f.compareAddresses(h, got, d)
	f.compareLocal(h, got, d)
	f.compareNeighbors(h, got, d)
	f.compareRoutes(h, got, d)
	f.compareConnected(h, got, d)
	compareRules(h, got.rules, d)
}

// cut reports whether SetLinkState or a reboot has set the port's end of its link down.
func (f *Fabric) cut(p port) bool {
	l := f.links[p.link]
	return l.isDown() && p.atA == l.cutAtA()
}

// at names a port in errors.
func (h *host) at(name string) string { return h.name + ":" + name }

func (f *Fabric) compareLinks(h *host, conn *kernel.Conn, got reading, d *differences) error {
	f.compareLoopback(h, got.byIndex[loopbackIndex], d)
	f.compareStrangers(h, got, d)
	if h.bridge {
		compareBridge(h, got.byIndex[bridgeIndex], d)
	}
	for _, p := range h.ports {
		l := got.byIndex[p.index]
		if peer := endIndex(f.first, p.link, !p.atA); l.Kind != "veth" || l.PeerIndex != peer {
			d.broken = append(d.broken, p.link)
			if l.Name != p.Name {
				d.add(h.at(p.Name), nil, "make %s:%s: kernel has no such interface", h.name, p.Name)
			} else {
				d.add(h.at(p.Name), nil, "make %s:%s: kernel has a %s whose peer has index %d, want a veth "+
					"and %d", h.name, p.Name, l.Kind, l.PeerIndex, peer)
			}
			continue
		}
		if l.Name != p.Name {
			d.add(h.at(p.Name), rename(got, l, p.Name),
				"make %s:%s: kernel has no such interface, its name is %s now", h.name, p.Name, l.Name)
		}
		f.comparePort(h, p, l, d)
		if err := f.compareOffloads(h, p, l, conn, d); err != nil {
			return err
		}
		f.compareShaping(h, p, got.qdiscs, d)
	}
	f.compareMirrors(h, got, d)
	return nil
}

// compareStrangers finds interfaces of other programs that have the name of a planned one, or the
// bridge's index. An interface that has a port's index is deleted with the broken link.
func (f *Fabric) compareStrangers(h *host, got reading, d *differences) {
	ours := func(index int) bool {
		for _, planned := range h.portIndex {
			if planned == index {
				return true
			}
		}
		return false
	}
	for _, l := range got.links {
		_, planned := h.portIndex[l.Name]
		noBridge := h.bridge && l.Index == bridgeIndex && l.Bridge == nil
		if planned && !ours(l.Index) || noBridge {
			away := request(passClear, func(b *kernel.Batch) { b.DeleteLink(l.Name, l.Index) })
			d.add(h.at(l.Name), []fix{away},
				"make %s:%s: kernel has an interface of kind %q there, want none", h.name,
				l.Name, l.Kind)
		}
	}
}

// rename restores the name of one of our interfaces. Two interfaces with each other's name need a
// third name.
func rename(got reading, l kernel.Link, name string) []fix {
	var fixes []fix
	if slices.ContainsFunc(got.links, func(other kernel.Link) bool { return other.Name == name }) {
		l.Name = fmt.Sprintf("if%d", l.Index)
		fixes = append(fixes, renamed(passClear, l, l.Name))
	}
	return append(fixes, renamed(passName, l, name))
}

// renamed is a fix that renames an interface. Older kernels do that only while it is down; the next
// check finds it down and sets it up.
func renamed(at pass, l kernel.Link, name string) fix {
	return fix{at, func(m *repairer) error {
		m.batch.SetName(l.Name, l.Index, name)
		err := m.send()
		if errors.Is(err, syscall.EBUSY) {
			m.batch.SetUp(l.Name, l.Index, false)
			m.batch.SetName(l.Name, l.Index, name)
			err = m.send()
		}
		return err
	}}
}

func compareBridge(h *host, got kernel.Link, d *differences) {
	const name = kernelswitch.BridgeName
	up := request(passPort, func(b *kernel.Batch) { b.SetUp(name, bridgeIndex, true) })
	if got.Bridge == nil {
		add := request(passName, func(b *kernel.Batch) { b.AddBridge(name, bridgeIndex, linkGroup) })
		d.add(h.at(name), []fix{add, up}, "make bridge %s:%s: kernel has none", h.name, name)
		return
	}
	if got.Name != name {
		d.add(h.at(name), []fix{renamed(passName, got, name)},
			"make bridge %s:%s: kernel has none, its name is %s now", h.name, name, got.Name)
	}
	if *got.Bridge != (kernel.BridgeState{}) {
		set := request(passPort, func(b *kernel.Batch) { b.SetBridge(name, bridgeIndex) })
		d.add(h.at(name), []fix{set}, "make bridge %s:%s: kernel has stp %d, forward delay %d, multicast "+
			"snooping %t, want 0, 0, false", h.name, name,
			got.Bridge.STP, got.Bridge.ForwardDelay, got.Bridge.McastSnooping)
	}
	if !got.Up {
		d.add(h.at(name), []fix{up}, "set %s:%s up: kernel has it down", h.name, name)
	}
}

func (f *Fabric) comparePort(h *host, p port, got kernel.Link, d *differences) {
	name := h.at(p.Name)
	differs := func(ask func(*kernel.Batch), format string, args ...any) {
		d.add(name, []fix{request(passPort, ask)}, format, args...)
	}
	if got.MTU != p.MTU {
		differs(func(b *kernel.Batch) {
			b.SetMTU(p.Name, p.index, p.MTU)
		}, "set MTU of %s: kernel has %d, want %d", name, got.MTU, p.MTU)
	}
	if mac := kernel.MAC(p.MAC); got.MAC != mac {
		differs(func(b *kernel.Batch) { b.SetMAC(p.Name, p.index, mac) },
			"set MAC of %s: kernel has %s, want %s", name, kernel.MACText(got.MAC), kernel.MACText(mac))
	}
	if want := f.shaping(f.links[p.link], p.atA).MaxSegments(); got.MaxSegments != want {
		differs(func(b *kernel.Batch) { b.SetMaxSegments(p.Name, p.index, want) },
			"bound segmentation of %s: kernel has gso_max_segs %d, want %d", name, got.MaxSegments, want)
	}
	switch {
	case h.bridge && got.Master != bridgeIndex:
		differs(func(b *kernel.Batch) {
			b.SetMasterUp(p.Name, p.index, bridgeIndex, kernelswitch.BridgeName)
		},
			"set master of %s: kernel has index %d, want %d", name, got.Master, bridgeIndex)
	case !h.bridge && got.Master != 0:
		differs(func(b *kernel.Batch) {
			b.SetNoMaster(p.Name, p.index)
		}, "set master of %s: kernel has index %d, want 0", name, got.Master)
	}
	f.compareState(h, p, got, d)
	f.compareSettings(h, p, got, d)
}

// compareState checks whether a port is up and has its carrier.
func (f *Fabric) compareState(h *host, p port, got kernel.Link, d *differences) {
	name, down, want := h.at(p.Name), f.links[p.link].isDown(), !f.cut(p)
	switch {
	case got.Up != want:
		set := request(passPort, func(b *kernel.Batch) { b.SetUp(p.Name, p.index, want) })
		d.add(name, []fix{set}, "set %s: kernel has up %t, want %t", name, got.Up, want)
	case !down && (!got.Carrier || got.Operstate != "up"):
		d.waiting = true
		d.carrier = append(d.carrier, fmt.Errorf("set %s up: kernel has state %s", name, got.Operstate))
	case down && (got.Carrier || got.Operstate == "up"):
		d.waiting = true
		d.carrier = append(d.carrier, fmt.Errorf("set %s down: kernel has state %s", name, got.Operstate))
	}
}

// compareOffloads uses the port's current name.
func (f *Fabric) compareOffloads(h *host, p port, got kernel.Link, conn *kernel.Conn, d *differences) error {
	on, err := conn.OffloadsOn(got.Name)
	if err != nil || len(on) == 0 {
		return err
	}
	off := fix{passPort, func(m *repairer) error {
		if f.options.Trace != nil {
			f.options.Trace(kernel.OffloadsOffLine(h.name, p.Name))
		}
		return m.conn.TurnOffloadsOff(p.Name)
	}}
	d.add(h.at(p.Name), []fix{off}, "turn off offloads of %s:%s: kernel has %v on", h.name, p.Name, on)
	return nil
}

func (f *Fabric) compareShaping(h *host, p port, qdiscs []kernel.Qdisc, d *differences) {
	l := f.links[p.link]
	qdiscs = queuesOf(qdiscs, p.index)
	if whole := len(qdiscs); l.harmed(p.atA).ready {
		if qdiscs = withoutIngress(qdiscs); len(qdiscs) == whole {
			attach := fix{passPort, func(*repairer) error { return f.reattach(l, p.atA) }}
			d.add(h.at(p.Name), []fix{attach}, "harm %s:%s: kernel has no clsact for the programs of faults",
				h.name, p.Name)
		}
	}
	again := func(b *kernel.Batch) { reshapeAnew(b, p, f.shaping(l, p.atA), qdiscs) }
	if l.isCut(p.atA) {
		again = func(b *kernel.Batch) { cutAnew(b, p, qdiscs) }
	}
	fixes := []fix{request(passPort, again)}
	for _, err := range f.compareQueues(l, p.atA, qdiscs) {
		d.add(h.at(p.Name), fixes, "shape %s:%s: %w", h.name, p.Name, err)
		fixes = nil // the first difference has the fix
	}
}

// reshapeAnew shapes a port whatever its disciplines are. If only settings differ, it changes them
// in place, so that queued packets stay queued.
func reshapeAnew(b *kernel.Batch, p port, want link.Shaping, qdiscs []kernel.Qdisc) {
	if !want.SameTree(qdiscs) {
		deleteQueues(b, p, qdiscs)
	}
	want.Apply(b, p.Name, p.index, nil)
}

func deleteQueues(b *kernel.Batch, p port, qdiscs []kernel.Qdisc) {
	for _, q := range qdiscs {
		switch q.Parent {
		case kernel.Root:
			b.DeleteQdisc(p.Name, p.index)
		case kernel.Ingress:
			b.DeleteIngress(p.Name, p.index)
		}
	}
}
