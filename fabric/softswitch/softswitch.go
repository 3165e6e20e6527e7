// Package softswitch is the emulated fabric between the nodes of a testbed: software switches, the
// links between them, and the emulated NICs that connect the nodes.
//
// An Engine has no clock, thread or socket of its own. The caller passes frames from nodes to
// Receive with the time at which they were sent, and moves the time with Advance. The engine passes
// frames that reach a node to Deliver with their due time. Package live runs an Engine in real time
// over the ports of a testbed. Tests run an Engine in virtual time, exactly.
//
// # The model
//
// A link is store and forward. A frame occupies it for its length over the rate, to the bit, and
// arrives as a whole a propagation delay later. Between a node and its switch there is an emulated
// NIC: eight bounded queues, strict by priority. An overflow there has the drop reason nic-overrun
// and is no loss of the fabric. A switch takes no time to decide. A frame that is being sent counts
// as having left its queue and the shared buffer.
//
// An Engine is not safe for concurrent use.
package softswitch

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"railbed/fabric/softswitch/forward"
	"railbed/fabric/softswitch/medium"
	"railbed/fabric/softswitch/packet"
	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

// defaultMemory is the packet memory of a testbed, in bytes, if the plan does not set it.
const defaultMemory = 256 << 20

// Options are the options of New.
type Options struct {
	// Deliver takes over a frame that arrives at a node's NIC. Packet.Due is the time of arrival,
	// at or before the time passed to Advance. The caller must return the packet to Pool.
	Deliver func(nic int, one *packet.Packet)
	// Memory is the packet memory in bytes. Default DefaultMemory.
	Memory int64
	// Observer receives the observations of packets at observed ports. It may be nil.
	Observer Observer
}

// Engine simulates all soft switches, links and emulated NICs of a plan on one timeline.
type Engine struct {
	plan     *plan.Plan
	pool     *packet.Pool
	options  Options
	now      clock.Time
	events   agenda
	ports    []*port
	switches []*station
	nics     []*station
	links    []*link
	byLink   map[string]*link
	byPort   map[plan.End]*port
	totals   Totals // without Dropped, which the ports count
	// signalled are the ports with control frames to send to their far ends.
	signalled []*port
	seen      Observation
	serial    uint64 // of the latest frame
	faults    faults
	// hitting is the number of the fault that is acting, else 0.
	hitting uint8
	watch   watch
}

// station is a switch or an emulated NIC.
type station struct {
	index  int
	name   string // The switch's name, or "node:nic".
	nic    bool
	table  forward.Table // Of a switch.
	memory *queue.Memory // Of a switch.
	flows  *medium.Flows // Of a NIC: numbers the node's packets.
	ports  []*port       // Of a switch, in the plan's order; of a NIC its line side.
	class  [64]uint8     // Priority by DSCP, for packets without a priority tag.
	quanta uint16        // Of a pause that a switch requests.
	// lossless are a switch's priorities with PFC or GFC.
	lossless queue.Mask
	engine   *Engine
	// id is the switch's number in telemetry. Telemetry is set if the switch writes telemetry.
	id        uint32
	telemetry bool
	// allowed bounds the bytes in a NIC of programs that bypass their kernel: see Engine.NICRoom.
	allowed int64
	// departing counts the frames of a NIC's node that have not left yet.
	departing int
	// aggregator adds up the messages of workers, if the switch has a job.
	aggregator *aggregator
}

// link is both directions of a link.
type link struct {
	plan plan.Link
	a, b *port
	up   bool // neither down nor held by a reboot
	down bool // as SetLinkState requested
	// reboots counts the rebooting switches that hold the link down, one for each of its ends.
	reboots int
	// epoch counts changes of state: frames on the link when it went down do not arrive.
	epoch uint32
}

// New returns the engine of a plan. All its switches must be soft.
func New(p *plan.Plan, o Options) (*Engine, error) {
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	longest := 0
	for _, l := range p.Links {
		longest = max(longest, l.MTU)
	}
	pool, err := packet.NewPool(o.Memory, cellSize(longest))
	if err != nil {
		return nil, err
	}
	e := &Engine{plan: p, pool: pool, options: o, byLink: map[string]*link{}, byPort: map[plan.End]*port{}}
	if err := e.makeStations(); err != nil {
		return nil, err
	}
	if err := e.makeLinks(); err != nil {
		return nil, err
	}
	return e, nil
}

// cellSize returns the memory of one packet, in whole cache lines. It holds a tagged Ethernet frame
// of the MTU and the extra bytes that package port requires, and at least a pause frame or an ICMP
// error.
func cellSize(mtu int) int { return max(mtu+20+63, 640) &^ 63 }

func (e *Engine) makeStations() error {
	for i := range e.plan.Switches {
		sw := &e.plan.Switches[i]
		if sw.Kind != spec.Soft {
			return fmt.Errorf("make soft switches: %s has kind %s, want soft", sw.Name, sw.Kind)
		}
		if err := e.makeSwitch(i, sw); err != nil {
			return fmt.Errorf("make switch %s: %w", sw.Name, err)
		}
	}
	for i := range e.plan.Nodes {
		node := &e.plan.Nodes[i]
		for _, nic := range node.NICs {
			e.makeNIC(node, nic)
		}
	}
	return nil
}

// makeSwitch makes a switch with its ports.
func (e *Engine) makeSwitch(index int, sw *plan.Switch) error {
	if sw.Soft == nil {
		return errors.New("the plan has no soft switch settings")
	}
	s := &station{index: index, name: sw.Name, engine: e, class: sw.Soft.Priorities, id: sw.ID,
		telemetry: sw.Soft.INT}
	if sw.Soft.PFC != nil {
		s.quanta = sw.Soft.PFC.Quanta
		s.lossless |= queue.MaskOf(sw.Soft.PFC.Priorities...)
	}
	if sw.Soft.GFC != nil {
		s.lossless |= queue.MaskOf(sw.Soft.GFC.Priorities...)
	}
	e.switches = append(e.switches, s)
	var err error
	if s.memory, err = queue.NewMemory(sw, s); err != nil {
		return err
	}
	for i, planned := range sw.Ports {
		end := plan.End{Node: sw.Name, Port: planned.Name}
		one := e.addPort(s, end, s.memory.NewPort(i))
		one.mac = wire.MAC(planned.MAC)
	}
	if s.table, err = forward.New(e.plan, sw, e.pool, s); err != nil {
		return err
	}
	s.aggregator, err = newAggregator(s, e.plan, sw)
	return err
}

// Waiting implements forward.Depths.
func (s *station) Waiting(out int) int64 { return s.ports[out].egress.Bytes() }

// makeNIC makes an emulated NIC, which sorts packets into priorities in the same way as its switch.
func (e *Engine) makeNIC(node *plan.Node, nic plan.Interface) {
	s := &station{index: len(e.nics), name: node.Name + ":" + nic.Name, nic: true, engine: e,
		allowed: int64(node.NICQueue) / 2,
		flows:   medium.NewFlows(e.plan.Seed, node.Name, nic.Name, nil)}
	if sw := e.plan.Switch(peerOf(nic)); sw != nil && sw.Soft != nil {
		s.class = sw.Soft.Priorities
	}
	e.nics = append(e.nics, s)
	end := plan.End{Node: node.Name, Port: nic.Name}
	e.addPort(s, end, queue.NewNIC(int64(node.NICQueue))).mac = wire.MAC(nic.MAC)
}

// peerOf returns the name of the station at the far end of an interface.
func peerOf(i plan.Interface) string {
	name, _, _ := strings.Cut(i.Peer, ":")
	return name
}

// addPort adds a port to a station.
func (e *Engine) addPort(s *station, end plan.End, egress *queue.Port) *port {
	one := &port{
		index:   len(e.ports),
		number:  len(s.ports),
		end:     end,
		name:    end.Node + ":" + end.Port,
		station: s,
		egress:  egress,
		engine:  e,
		dropped: newTally(None, Aggregation),
		marked:  newTally(RED, ECNSharp),
		trimmed: newTally(None, Express),
	}
	e.ports = append(e.ports, one)
	s.ports = append(s.ports, one)
	e.byPort[end] = one
	return one
}

func (e *Engine) makeLinks() error {
	for _, planned := range e.plan.Links {
		l := &link{plan: planned, a: e.byPort[planned.A], b: e.byPort[planned.B], up: true}
		if l.a == nil || l.b == nil {
			return fmt.Errorf("make link %s: the plan has no NIC or switch port at one end", planned.Name)
		}
		if err := errors.Join(medium.Check(planned.AToB), medium.Check(planned.BToA)); err != nil {
			return fmt.Errorf("make link %s: %w", planned.Name, err)
		}
		l.a.join(l, l.b, medium.New(planned.AToB, medium.Seed(e.plan.Seed, planned.Name, true)))
		l.b.join(l, l.a, medium.New(planned.BToA, medium.Seed(e.plan.Seed, planned.Name, false)))
		e.links = append(e.links, l)
		e.byLink[planned.Name] = l
	}
	for _, one := range e.ports {
		if one.far == nil {
			return fmt.Errorf("make port %s: no link ends here", one.name)
		}
	}
	e.events = newAgenda(len(e.ports))
	for _, s := range e.switches {
		s.keepPlanned()
	}
	return nil
}

// Pool returns the engine's packet memory.
func (e *Engine) Pool() *packet.Pool { return e.pool }

// Now returns the time that the engine has reached.
func (e *Engine) Now() clock.Time { return e.now }

// NICs returns the number of emulated NICs, which are numbered in the order of the plan's nodes and
// their NICs.
func (e *Engine) NICs() int { return len(e.nics) }

// NICRoom returns how many more bytes programs that bypass their kernel may have in an emulated NIC. In all
// they may have half of the size of a priority's queue. The NIC leaves the others in their queues, so that
// nothing overflows.
func (e *Engine) NICRoom(nic int) int64 {
	s := e.nics[nic]
	return s.allowed - s.ports[0].egress.Bytes()
}

// Departing returns the number of frames for an emulated NIC whose time to leave the node has not come.
func (e *Engine) Departing(nic int) int { return e.nics[nic].departing }

// Receive takes over a frame that a node sent by a NIC at a time; its Data is set. If the time is
// before the engine's, the frame was noticed late. It is still sent from its own time on, as far as
// that is not in the engine's past.
func (e *Engine) Receive(nic int, one *packet.Packet, at clock.Time) {
	e.totals.Received++
	one.Born, one.Due = at, at
	if at <= e.now {
		e.fromNode(e.nics[nic], one)
		e.settle()
		return
	}
	e.nics[nic].departing++
	e.events.push(event{at: at, kind: nodeSends, port: int32(e.nics[nic].ports[0].index), packet: one})
}

// Advance processes everything due until now. It returns the time of the next event, or clock.Never
// if there is none.
func (e *Engine) Advance(now clock.Time) clock.Time {
	var due event
	for {
		next := e.events.next()
		if next > now {
			e.now = max(e.now, now)
			return next
		}
		e.events.pop(&due)
		e.now = max(e.now, due.at)
		e.handle(&due)
	}
}

func (e *Engine) handle(due *event) {
	one := e.ports[due.port]
	switch due.kind {
	case nodeSends:
		one.station.departing--
		e.fromNode(one.station, due.packet)
	case arrives:
		one.arrive(due.packet, due.epoch)
	case lineFree:
		one.waking = false
		one.kick()
	case pauseEnds:
		one.pauseEnds()
	case pauseRefresh:
		one.refreshPause()
	case reports:
		one.station.memory.Report(e.now)
	case shrinks:
		one.shrink()
	case looks:
		e.findCycles()
	case overdue:
		one.releaseOverdue()
	case boots:
		e.bootDue()
	}
	e.settle()
}

// fromNode puts a frame into the emulated NIC's queue.
func (e *Engine) fromNode(nic *station, one *packet.Packet) {
	line := nic.ports[0]
	one.Length, one.Serial = len(one.Data), e.NextSerial()
	if line.observed {
		e.observe(Observation{Port: line.index, Kind: Entered, Time: one.Born, Packet: one})
	}
	one.Parse()
	switch length := len(one.Data); {
	case length < wire.EthernetLen:
		e.drop(line, one, Malformed, 0)
		return
	case length > line.link.plan.MTU+wire.EthernetLen+wire.TagLen:
		e.drop(line, one, TooBig, 0) // no link accepts it, whatever device delivered it
		return
	}
	nic.flows.Mark(one)
	one.Ingress = -1
	one.Priority = nic.priorityOf(one)
	line.offer(one)
}

// priorityOf returns the priority of a packet. If its tag has no VLAN, the tag sets the priority,
// which is the only use of such a tag (IEEE 802.1Q-2018, 6.9). Otherwise the station maps its DSCP.
// The tag stays on the frame, so its priority is the same on the whole path.
func (s *station) priorityOf(one *packet.Packet) uint8 {
	if one.Headers.PriorityTagged() {
		return one.Headers.PCP()
	}
	return s.class[one.Headers.DSCP]
}

// toNode passes a frame to the node.
func (e *Engine) toNode(nic *station, one *packet.Packet) {
	e.totals.Delivered++
	e.options.Deliver(nic.index, one)
}

// drop drops a packet.
func (e *Engine) drop(at *port, one *packet.Packet, why Reason, depth int64) {
	at.dropped.add(why, one.Priority)
	if at.observed {
		kind := Dropped
		if why >= Loss && why <= FromFault || at.station.nic {
			kind = Lost
		}
		e.observe(Observation{Port: at.index, Kind: kind, Time: e.now, Packet: one, Reason: why,
			Queue: one.Priority, Depth: depth, Fault: e.hitting})
	}
	e.pool.Put(one)
}

// Totals counts packets of the whole fabric. Packets appear as Received or Made, and end as
// Delivered, Consumed or Dropped. The others are in queues and on links (Engine.Held).
type Totals struct {
	Received  uint64 `json:"received"`  // from nodes
	Made      uint64 `json:"made"`      // replies, pauses, duplicates and copies made by the fabric
	Delivered uint64 `json:"delivered"` // to nodes
	Consumed  uint64 `json:"consumed"`  // frames for the fabric itself: pauses, and requests that it answered
	Dropped   uint64 `json:"dropped"`   // for any reason
}

// Totals returns the current counts.
func (e *Engine) Totals() Totals {
	t := e.totals
	for _, one := range e.ports {
		t.Dropped += one.dropped.total()
	}
	return t
}

// Held returns the number of packets in queues and on links, counted there.
func (e *Engine) Held() (total int) {
	for _, one := range e.ports {
		total += one.egress.Packets() + len(one.held)
	}
	return total + e.events.packets()
}

// quantum returns the duration of a number of pause quanta of 512 bit times (IEEE 802.3 31B.2).
func quantum(quanta uint16, rate uint64) time.Duration {
	if rate == 0 {
		return 0
	}
	return time.Duration(uint64(quanta) * 512 * uint64(time.Second) / rate)
}
