package fabric

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	softports "railbed/fabric/port"
	"railbed/fabric/softswitch/live"
	"railbed/internal/clock"
	"railbed/internal/kernel"
	"railbed/plan"
)

// softPart holds the soft switches of a fabric.
type softPart struct {
	plan    *plan.Plan
	process *live.Process
	links   []*planLink // all links of the plan, in their requested state
	named   map[string]*planLink
	nics    int // of all nodes
	// foreign maps to NICs whose interfaces are in namespaces of other programs.
	foreign map[plan.End]*ForeignNIC
	// backlog is the number of packets that the host's CPUs had dropped when the fabric was made.
	backlog uint64
}

// startSoft opens the far ends of the NICs and starts the soft switches of the plan on them. The
// fabric is the kernel's part of that plan.
func (f *Fabric) startSoft(ctx context.Context, p *plan.Plan) error {
	s := &softPart{plan: p, named: map[string]*planLink{}, foreign: map[plan.End]*ForeignNIC{}}
	var err error
	if s.backlog, err = BacklogDrops(); err != nil {
		return err
	}
	for _, l := range p.Links {
		made := &planLink{Link: l}
		s.links = append(s.links, made)
		s.named[l.Name] = made
	}
	ports := live.Ports{Monitors: len(p.Nodes)}
	var nodes []*kernel.Namespace
	var names []string // of the far ends, by NIC
	for _, h := range f.hosts {
		if !h.node {
			continue
		}
		nodes = append(nodes, h.ns)
		var numbers, indexes []int
		for _, nic := range h.ports {
			far := f.links[nic.link].A
			if nic.atA {
				far = f.links[nic.link].B
			}
			numbers, indexes = append(numbers, len(ports.Ends)), append(indexes, nic.index)
			ports.Ends, names = append(ports.Ends, plan.End{Node: h.name, Port: nic.Name}),
				append(names, far.Port)
			ports.Joined = append(ports.Joined,
				softports.TrunkPort{Index: endIndex(f.first, nic.link, !nic.atA), MTU: nic.MTU})
		}
		ports.NICs, ports.Indexes = append(ports.NICs, numbers), append(ports.Indexes, indexes)
	}
	ports.Monitor = func(hand func(int, *os.File) error) error {
		return openMonitors(ctx, p.Nodes, nodes, hand)
	}
	err = kernel.Each(ctx, []*kernel.Namespace{f.softSide().ns}, 1, func(int) error {
		return openPorts(&ports, names)
	})
	if err != nil {
		for _, h := range ports.Own {
			err = errors.Join(err, h.Close())
		}
		return err
	}
	if ports.Own != nil {
		ports.Joined = nil
	}
	s.nics = len(ports.Ends)
	if s.process, err = live.Start(ctx, p, ports); err != nil {
		return err
	}
	f.soft = s
	if err := f.offerBypass(ctx, p, nodes); err != nil {
		return err
	}
	return f.mirrorNICs(ctx, p, nodes)
}

// offerBypass lets the programs of nodes open queues of their NICs.
func (f *Fabric) offerBypass(ctx context.Context, p *plan.Plan, nodes []*kernel.Namespace) error {
	var numbers []int
	var offered []*kernel.Namespace
	for i := range p.Nodes {
		if p.Nodes[i].Bypass {
			numbers, offered = append(numbers, i), append(offered, nodes[i])
		}
	}
	if len(numbers) == 0 {
		return nil
	}
	return f.soft.process.Offer(ctx, numbers, offered)
}

// Reopen opens the soft switches' sockets in a node's namespace again, after the namespace has become another
// one. One socket measures arrivals, and by the other programs open queues of NICs. Everything else in the
// namespace is for Repair.
func (f *Fabric) Reopen(ctx context.Context, name string) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if !f.built || f.soft == nil {
		return nil
	}
	p := f.soft.plan
	i := slices.IndexFunc(p.Nodes, func(n plan.Node) bool { return n.Name == name })
	at := slices.IndexFunc(f.hosts, func(h *host) bool { return h.name == name })
	spaces := []*kernel.Namespace{f.hosts[at].ns}
	err := openMonitors(ctx, p.Nodes[i:i+1], spaces, func(_ int, file *os.File) error {
		return f.soft.process.MeasureAgain(i, file)
	})
	if p.Nodes[i].Bypass {
		err = errors.Join(err, f.soft.process.Offer(ctx, []int{i}, spaces))
	}
	return err
}

// mostOwnPorts is the largest number of NICs that get ports of their own, with the fastest driver.
// The kernel takes 40 ms to close such a port when the testbed is killed, and a killed testbed must
// be gone within two seconds. So more NICs share a trunk.
const mostOwnPorts = 8

// trunkReason returns one line on why this number of NICs cannot use the fastest driver.
func trunkReason(nics int) string {
	return fmt.Sprintf("%d NICs share one ring; AF_XDP, which sends faster, is used for at most %d NICs: "+
		"the kernel takes 40 ms to close each NIC's sockets, "+
		"and a killed testbed must be gone within two seconds", nics, mostOwnPorts)
}

// openPorts opens the far ends of NICs. The calling thread is in their namespace.
func openPorts(w *live.Ports, names []string) (err error) {
	if len(names) > mostOwnPorts {
		mtu := 0
		for _, joined := range w.Joined {
			mtu = max(mtu, joined.MTU)
		}
		if w.Trunk, err = softports.OpenTrunk(mtu, min(ringBudget, len(names)*ringShare)); err == nil {
			w.Trunk.Description.Reason = trunkReason(len(names))
		}
		return err
	}
	for i, name := range names {
		h, err := openNIC(name, w.Joined[i].MTU, len(names))
		if err != nil {
			return fmt.Errorf("join %s:%s to the soft switches: %w", w.Ends[i].Node, w.Ends[i].Port, err)
		}
		w.Own = append(w.Own, h)
	}
	return nil
}

// openNIC opens the far end of a NIC that has a port of its own, one of nics.
func openNIC(name string, mtu, nics int) (*softports.Handle, error) {
	h, err := softports.OpenBest(name,
		softports.Options{MTU: mtu, RingBytes: min(ringBudget/nics, largestRing)})
	return h, err
}

// rejoin passes the far end of a recreated link to the soft switches. With a trunk they already
// have it.
func (f *Fabric) rejoin(l *planLink) error {
	far, near := l.A, l.B
	if l.b.name == SoftSide {
		far, near = l.B, l.A
	}
	if far.Node != SoftSide || f.soft.nics > mostOwnPorts || f.soft.foreign[near] != nil {
		return nil
	}
	h, err := f.openFar(near, far.Port, l.MTU)
	if err != nil {
		return err
	}
	return f.soft.process.ReplacePort(near, h)
}

// openFar opens the far end of a NIC again.
func (f *Fabric) openFar(near plan.End, far string, mtu int) (h *softports.Handle, err error) {
	err = kernel.Each(context.Background(), []*kernel.Namespace{f.softSide().ns}, 1, func(int) (err error) {
		h, err = openNIC(far, mtu, f.soft.nics)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("join %s:%s to the soft switches again: %w", near.Node, near.Port, err)
	}
	return h, nil
}

// softSide returns the host of the far ends, or nil without soft switches.
func (f *Fabric) softSide() *host {
	if i := slices.IndexFunc(f.hosts, func(h *host) bool { return h.name == SoftSide }); i >= 0 {
		return f.hosts[i]
	}
	return nil
}

// openMonitors opens the packet sockets that measure arrivals, one in the namespace of each node, and hands
// them over.
func openMonitors(ctx context.Context, nodes []plan.Node, spaces []*kernel.Namespace,
	hand func(int, *os.File) error) error {
	return kernel.Each(ctx, spaces, 2, func(node int) error {
		file, err := live.OpenMonitor(0)
		if err == nil {
			err = hand(node, file)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", nodes[node].Name, err)
		}
		return nil
	})
}

// ringBudget is the kernel memory for the receive rings of all NICs together. It is the size of a
// trunk's ring. Otherwise each NIC has a ring of ringShare, or of up to largestRing if there are
// few NICs. A stalled switch loses frames that find no room there: 4 MiB hold the frames of 5 ms at
// half a million a second.
const (
	ringBudget  = 64 << 20
	ringShare   = 1 << 20
	largestRing = 4 << 20
)

// fill adds the soft switches' state to the states of the kernel's links, and adds the links
// between soft switches. It returns the other state of the soft switches without their ports.
func (s *softPart) fill(kernelSide []LinkState) ([]LinkState, *live.State, error) {
	state, err := s.process.State()
	if err != nil {
		return nil, nil, err
	}
	if err := s.fillBacklog(state.NICs, kernelSide); err != nil {
		return nil, nil, err
	}
	of := map[string]LinkState{}
	for _, l := range kernelSide {
		of[l.Name] = l
	}
	ports := map[string]int{}
	for i, p := range state.Ports {
		ports[p.Port] = i
	}
	all := make([]LinkState, len(s.links))
	for i, l := range s.links {
		have := of[l.Name]
		one := LinkState{Name: l.Name, Class: l.Class, MTU: l.MTU, Up: !l.down, A: have.A, B: have.B,
			AToB: have.AToB, BToA: have.BToA}
		one.AToB.Direction, one.BToA.Direction = l.AToB, l.BToA
		one.AToB.Up, one.BToA.Up = !l.isDown() && !l.cutAToB, !l.isDown() && !l.cutBToA
		for _, side := range []struct {
			planned plan.End
			end     *EndState
		}{{l.A, &one.A}, {l.B, &one.B}} {
			soft := state.Ports[ports[side.planned.Node+":"+side.planned.Port]]
			if side.end.Node != side.planned.Node || s.foreign[side.planned] != nil {
				// the far end, or an end that the kernel does not have
				*side.end = EndState{Node: side.planned.Node, Port: side.planned.Port, Operstate: "down"}
				if soft.Up {
					side.end.Operstate = "up"
				}
				count := soft.Counters
				side.end.Counters = kernel.Counters{
					RxPackets: count.Received.Packets,
					RxBytes:   count.Received.Bytes,
					TxPackets: count.Sent.Packets,
					TxBytes:   count.Sent.Bytes,
				}
				side.end.Counters.TxDropped = soft.Drops.Total()
			}
			side.end.Soft = &soft
		}
		softQueue(&one.AToB, one.A)
		softQueue(&one.BToA, one.B)
		all[i] = one
	}
	state.Ports = nil
	return all, state, nil
}

func (s *softPart) dilation() clock.Dilation { return clock.Dilation(s.plan.Dilation) }

// find returns a link of the soft switches.
func (s *softPart) find(name string) (*planLink, error) {
	l, known := s.named[name]
	if !known {
		return nil, fmt.Errorf("change link %s: no such link", name)
	}
	return l, nil
}

// setSoftLink is SetLink for soft switches.
func (f *Fabric) setSoftLink(ctx context.Context, name string, dir Direction, d plan.Direction) error {
	l, err := f.soft.find(name)
	if err != nil {
		return err
	}
	return f.setSoftLinks(ctx, l, dir, d, d)
}

// setSoftLinks sets one direction or both of a link of the soft switches. The node's shaper follows
// the rate; if the soft switches refuse the change, the shaper is reset.
func (f *Fabric) setSoftLinks(ctx context.Context, l *planLink, dir Direction, aToB,
	bToA plan.Direction) error {
	changed := *l
	for _, atA := range dir.sides() {
		if atA {
			changed.AToB = aToB
		} else {
			changed.BToA = bToA
		}
	}
	if err := f.shapeNodes(ctx, &changed, dir); err != nil {
		return err
	}
	if err := f.soft.process.SetLink(l.Name, changed.withCuts(true), changed.withCuts(false)); err != nil {
		return errors.Join(err, f.shapeNodes(ctx, l, dir))
	}
	*l = changed
	return nil
}

// shapeNodes sets the shapers of the nodes at the ends of a link of the soft switches.
func (f *Fabric) shapeNodes(ctx context.Context, l *planLink, dir Direction) error {
	side, joined := f.named[l.Name]
	if !joined {
		return nil
	}
	for _, atA := range dir.sides() {
		if h, _ := side.end(atA); !h.node {
			continue
		}
		only := BToA
		if atA {
			only = AToB
		}
		was := f.shaping(side, atA)
		if err := f.setKernelLink(ctx, l.Name, only,
			nodeSide(l.Direction(atA), f.soft.dilation())); err != nil {
			return err
		}
		end := side.Link.A
		if !atA {
			end = side.Link.B
		}
		if nic := f.soft.foreign[end]; nic != nil {
			if err := nic.reshape(end, f.shaping(side, atA), was); err != nil {
				return errors.Join(err, f.setKernelLink(ctx, l.Name, only, was.Direction))
			}
		}
	}
	return nil
}

// setSoftState is SetLinkState for soft switches. A node loses its carrier.
func (f *Fabric) setSoftState(ctx context.Context, name string, up bool) error {
	l, err := f.soft.find(name)
	if err != nil {
		return err
	}
	was := *l
	if l.down = !up; l.isDown() != was.isDown() {
		if err := f.setForeignCarriers(ctx, l); err != nil {
			*l = was
			return err
		}
	}
	if err := f.soft.process.SetLinkState(name, up); err != nil {
		*l = was
		return err
	}
	if up && (l.cutAToB || l.cutBToA) {
		l.cutAToB, l.cutBToA = false, false
		if err := f.soft.process.SetLink(name, l.AToB, l.BToA); err != nil {
			return err
		}
	}
	if _, joined := f.named[name]; joined {
		return f.setKernelState(ctx, name, up)
	}
	return nil
}

// setForeignCarriers turns the carriers of the link's ForeignNICs on or off, as isDown has it.
func (f *Fabric) setForeignCarriers(ctx context.Context, l *planLink) error {
	for _, end := range []plan.End{l.A, l.B} {
		if nic := f.soft.foreign[end]; nic != nil {
			if err := nic.setCarrier(ctx, end, !l.isDown()); err != nil {
				return err
			}
		}
	}
	return nil
}

// softQueue adds the queued bytes and the drops of a soft port to the counts of the kernel's shaper
// before it.
func softQueue(d *DirectionState, sender EndState) {
	d.Shaper.Drops += sender.Soft.Drops.Total()
	d.Shaper.BacklogBytes += uint64(sender.Soft.Waiting())
}

// Epoch returns the real time of virtual time 0, or the zero time without soft switches.
func (f *Fabric) Epoch() time.Time {
	if f.soft == nil {
		return time.Time{}
	}
	return f.soft.process.Epoch()
}

// SoftEnded is closed when the soft switches end by themselves, which is a failure: frames no
// longer cross the fabric. Close closes it, too. It is nil without soft switches.
func (f *Fabric) SoftEnded() <-chan struct{} {
	if f.soft == nil {
		return nil
	}
	return f.soft.process.Exited()
}

// SoftEnd describes how the soft switches ended, once SoftEnded is closed.
func (f *Fabric) SoftEnd() string { return f.soft.process.Ended() }

// SoftSilent is closed when the process of the soft switches is alive but does not answer
// (live.Process.Silent). It is nil without soft switches.
func (f *Fabric) SoftSilent() <-chan struct{} {
	if f.soft == nil {
		return nil
	}
	return f.soft.process.Silent()
}

// Feed is a source of records for a recording.
type Feed struct {
	File *os.File // the feed already has its writer
	// Serials is set if the records give each packet its number (feed.Record). Otherwise they are of packets
	// that faults hit.
	Serials bool
	end     func() error
}

// Close ends the feed.
func (f *Feed) Close() error { return errors.Join(f.end(), f.File.Close()) }

// Record starts writing packets at ports into a feed. A tap's number is the port's index in the list. With
// soft switches these are the packets at their ports, otherwise those that faults hit. In the second case the
// error is a *verdict.UnsupportedError if the kernel does not allow such faults either.
func (f *Fabric) Record(ports []plan.End, o live.RecordOptions) (*Feed, error) {
	if f.soft == nil {
		return f.hits.record(ports)
	}
	one, err := f.soft.process.Record(ports, o)
	if err != nil {
		return nil, err
	}
	return &Feed{File: one.File, Serials: true, end: one.End}, nil
}
