package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"railbed/fabric/link"
	"railbed/fabric/softswitch"
	"railbed/fabric/softswitch/live"
	"railbed/internal/kernel"
	"railbed/internal/units"
	"railbed/plan"
)

// LinkState is a link's requested state and its state in the kernel.
type LinkState struct {
	Name  string         `json:"name"`
	Class string         `json:"class"`
	MTU   int            `json:"mtu"`
	Up    bool           `json:"up"` // as SetLinkState requested; initially true
	A     EndState       `json:"a"`
	B     EndState       `json:"b"`
	AToB  DirectionState `json:"a_to_b"`
	BToA  DirectionState `json:"b_to_a"`
}

// EndState is one end of a link.
type EndState struct {
	Node string `json:"node"`
	Port string `json:"port"`
	// Index is the interface's index in its namespace, different for every
	// end in the fabric.
	Index     int             `json:"index"`
	Operstate string          `json:"operstate"` // "up", "down", "lowerlayerdown"
	Counters  kernel.Counters `json:"counters"`
	// Downs counts how often the interface lost its carrier, whoever took an end of the link down.
	Downs uint64 `json:"carrier_downs,omitempty"`
	// Soft is the state of the soft switch's port, or of a node's emulated NIC.
	Soft *softswitch.PortState `json:"soft,omitempty"`
}

// DirectionState is one direction of a link: the requested settings, the burst with which this host
// reaches the rate, and the queue in front of the link.
type DirectionState struct {
	plan.Direction
	// Up is false if the link is down or only this direction is cut.
	Up    bool        `json:"up"`
	Burst units.Bytes `json:"burst,omitzero"`
	// Achieved is the rate that the calibration measured with this burst, at the time Calibrated. A
	// direction that the kernel does not shape has none of the three fields. A direction that was
	// not calibrated has only Burst.
	Achieved   units.Rate        `json:"achieved,omitzero"`
	Calibrated time.Time         `json:"calibrated,omitzero"`
	Shaper     kernel.QdiscStats `json:"shaper"`
}

// Links reads the state of all links, in the plan's order.
func (f *Fabric) Links(ctx context.Context) ([]LinkState, error) {
	links, _, err := f.State(ctx)
	return links, err
}

// State reads all links, in the plan's order, and the state of the soft switches. The soft
// switches' ports are only in the links. The second result is nil without soft switches.
func (f *Fabric) State(ctx context.Context) ([]LinkState, *live.State, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if !f.built {
		return nil, nil, errors.New("read links: the fabric is closed")
	}
	states := make([]LinkState, len(f.links))
	for i, l := range f.links {
		states[i] = LinkState{Name: l.Name, Class: l.Class, MTU: l.MTU, Up: !l.down}
	}
	// Each end of a link is written only by the thread that reads its host.
	err := f.each(ctx, f.hosts, func(h *host) error { return f.readEnds(h, states) }, func(int) {})
	if err != nil {
		return nil, nil, fmt.Errorf("read links: %w", err)
	}
	if f.soft != nil {
		return f.soft.fill(states)
	}
	return states, nil, nil
}

func (f *Fabric) readEnds(h *host, states []LinkState) error {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	links, err := conn.Links(true)
	if err != nil {
		return err
	}
	qdiscs, err := conn.Qdiscs()
	if err != nil {
		return err
	}
	byIndex := map[int]kernel.Link{}
	for _, l := range links {
		byIndex[l.Index] = l
	}
	queues := map[int][]kernel.Qdisc{}
	for _, q := range qdiscs {
		queues[q.Index] = append(queues[q.Index], q)
	}
	for _, p := range h.ports {
		got, exists := byIndex[p.index]
		if !exists {
			return fmt.Errorf("%s: kernel has no such interface", p.Name)
		}
		end, direction := &states[p.link].B, &states[p.link].BToA
		if p.atA {
			end, direction = &states[p.link].A, &states[p.link].AToB
		}
		*end = EndState{Node: h.name, Port: p.Name, Index: p.index, Operstate: got.Operstate,
			Counters: got.Counters, Downs: got.Downs}
		shaping := f.shaping(f.links[p.link], p.atA)
		entry := f.bursts[shape{shaping.Rate, shaping.MTU}]
		*direction = DirectionState{
			Direction:  shaping.Direction,
			Burst:      entry.Burst,
			Achieved:   entry.Achieved,
			Calibrated: entry.Measured,
			Up:         !f.links[p.link].isDown() && !f.links[p.link].isCut(p.atA),
			Shaper:     f.queueStats(f.links[p.link], p.atA, queues[p.index]),
		}
	}
	return nil
}

// SetLink changes a link's settings in one direction or both, while it carries traffic, and reads
// them back. If a part fails, the link keeps the settings that the kernel accepted, and Verify
// reports the difference.
func (f *Fabric) SetLink(ctx context.Context, name string, dir Direction, d plan.Direction) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.soft != nil {
		return f.setSoftLink(ctx, name, dir, d)
	}
	return f.setKernelLink(ctx, name, dir, d)
}

// SetDirections is SetLink with separate settings for each direction. At soft switches both change
// at the same time.
func (f *Fabric) SetDirections(ctx context.Context, name string, aToB, bToA plan.Direction) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.soft == nil {
		if err := f.setKernelLink(ctx, name, AToB, aToB); err != nil {
			return err
		}
		return f.setKernelLink(ctx, name, BToA, bToA)
	}
	l, err := f.soft.find(name)
	if err != nil {
		return err
	}
	return f.setSoftLinks(ctx, l, Both, aToB, bToA)
}

// setKernelLink is SetLink for a link of the kernel.
func (f *Fabric) setKernelLink(ctx context.Context, name string, dir Direction, d plan.Direction) error {
	l, err := f.find(name)
	if err != nil {
		return err
	}
	if err := f.burst(ctx, shape{d.Rate, l.MTU}, name); err != nil {
		return err
	}
	sides := dir.sides()
	for _, atA := range sides { // before any change
		trial := *l
		trial.set(atA, d)
		if err := f.check(&trial, atA); err != nil {
			return err
		}
	}
	for _, atA := range sides {
		was := f.shaping(l, atA)
		l.set(atA, d)
		if err := f.reshape(l, atA, was); err != nil {
			return fmt.Errorf("shape %s %s: %w", name, word(atA), err)
		}
	}
	return nil
}

func (f *Fabric) find(name string) (*planLink, error) {
	if !f.built {
		return nil, fmt.Errorf("change link %s: the fabric is closed", name)
	}
	l, known := f.named[name]
	if !known {
		return nil, fmt.Errorf("change link %s: no such link", name)
	}
	return l, nil
}

func (l *planLink) set(atA bool, d plan.Direction) {
	if atA {
		l.AToB = d
	} else {
		l.BToA = d
	}
}

// end returns the host and port at one end.
func (l *planLink) end(atA bool) (*host, port) {
	h, name := l.b, l.B.Port
	if atA {
		h, name = l.a, l.A.Port
	}
	return h, h.ports[slices.IndexFunc(h.ports, func(p port) bool { return p.Name == name })]
}

func (f *Fabric) reshape(l *planLink, atA bool, was link.Shaping) error {
	h, p := l.end(atA)
	conn, err := kernel.OpenIn(h.ns)
	if err != nil {
		return err
	}
	defer conn.Close()
	want := f.shaping(l, atA)
	batch := kernel.NewBatch(h.name, f.options.Trace)
	switch {
	case !l.isCut(atA):
		want.Apply(batch, p.Name, p.index, &was)
	case was.MaxSegments() != want.MaxSegments(): // the rest follows when the direction is restored
		batch.SetMaxSegments(p.Name, p.index, want.MaxSegments())
	}
	if err := conn.Do(batch); err != nil {
		return err
	}
	qdiscs, err := conn.Qdiscs()
	if err != nil {
		return err
	}
	return errors.Join(f.compareQueues(l, atA, queuesOf(qdiscs, p.index))...)
}

// cutAtA reports which end SetLinkState sets down. It is the switch's end, or B's if both are
// switches. So a node sees the same as with a pulled cable.
func (l *planLink) cutAtA() bool { return l.b.node && !l.a.node }

// SetLinkState takes a link down or brings it up, in both directions. A link that is down has one
// end administratively down; the other end has no carrier, as a node sees it. The kernel forgets
// IPv6 addresses, neighbours and routes of the end that went down. SetLinkState sets them again
// when it brings the link up, and then also restores directions that were cut. While a switch
// reboots, its links stay down.
func (f *Fabric) SetLinkState(ctx context.Context, name string, up bool) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.soft != nil {
		return f.setSoftState(ctx, name, up)
	}
	return f.setKernelState(ctx, name, up)
}

// setKernelState is SetLinkState for a link of the kernel.
func (f *Fabric) setKernelState(ctx context.Context, name string, up bool) error {
	l, err := f.find(name)
	if err != nil {
		return err
	}
	if err := f.setState(ctx, l, up); err != nil {
		return fmt.Errorf("set link %s: %w", name, err)
	}
	return nil
}

// setState needs the lock.
func (f *Fabric) setState(ctx context.Context, l *planLink, up bool) error {
	l.down = !up
	if err := f.applyStates(ctx, []*planLink{l}); err != nil || !up {
		return err
	}
	for _, atA := range Both.sides() {
		if err := f.setCut(l, atA, false); err != nil {
			return fmt.Errorf("%s: %w", word(atA), err)
		}
	}
	return nil
}

// applyStates sets the ends of links up or down in the kernel, as isDown has it, and waits until the other
// ends have followed.
func (f *Fabric) applyStates(ctx context.Context, links []*planLink) error {
	batches := map[*host]*kernel.Batch{}
	var hosts, both []*host
	for _, l := range links {
		h, p := l.end(l.cutAtA())
		if batches[h] == nil {
			batches[h] = kernel.NewBatch(h.name, f.options.Trace)
			hosts = append(hosts, h)
		}
		f.applyState(batches[h], h, p, !l.isDown())
		for _, one := range []*host{l.a, l.b} {
			if !slices.Contains(both, one) {
				both = append(both, one)
			}
		}
	}
	for _, h := range hosts {
		if err := doIn(h, batches[h]); err != nil {
			return err
		}
	}
	return f.each(ctx, both, func(h *host) error { return f.settle(ctx, h) }, func(int) {})
}

// applyState sets a port up, with its routes, or down.
func (f *Fabric) applyState(batch *kernel.Batch, h *host, p port, up bool) {
	if !up {
		batch.SetUp(p.Name, p.index, false)
		return
	}
	h.portUp(batch, p)
	for _, r := range h.routes {
		if slices.ContainsFunc(r.Hops, func(hop kernel.NextHop) bool { return hop.Index == p.index }) {
			batch.AddRoute(f.alive(h, r))
		}
	}
}

// alive returns a route without the next hops over other links that are down, which the kernel
// would refuse.
func (f *Fabric) alive(h *host, r kernel.Route) kernel.Route {
	r.Hops = slices.DeleteFunc(slices.Clone(r.Hops), func(hop kernel.NextHop) bool {
		return slices.ContainsFunc(h.ports, func(p port) bool { return p.index == hop.Index && f.cut(p) })
	})
	return r
}
