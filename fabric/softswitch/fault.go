package softswitch

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"railbed/capture/display"
	"railbed/capture/pcapng"
	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/forward"
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

// maxFaults is the number of faults that an engine can have in its life. Records have eight bits for the
// number of a fault.
const maxFaults = 255

// faults are the faults of an engine, and memory that the matching of packets reuses.
type faults struct {
	inForce []*fault // in the order in which they began
	names   []string // of all faults so far; the first fault has the number 1
	shown   display.Packet
	raw     pcapng.Packet
	from    pcapng.Interface
}

// fault is a fault in force.
type fault struct {
	spec.Fault
	number        uint8
	filter        *display.Filter // nil matches all packets
	effect        effect          // nil for a reboot
	pick          spec.Pick
	chance, flows draw.Chance
	flowSeed      uint64     // the same at all ports
	until         clock.Time // clock.Never without an end
	began         clock.Time
	places        []*faultPlace
	earlier       FaultState // what it did when it was in force before
}

// faultPlace is a fault at a port.
type faultPlace struct {
	*fault
	port         *port
	seed         uint64
	matched, hit uint64
	messages     *messages // with per: message
	holds        bool      // a reboot holds the port's link down
}

// of returns the port's faults that act where this one does.
func (at *faultPlace) of() *[]*faultPlace {
	if _, before := at.effect.(misrouted); before {
		return &at.port.detours
	}
	return &at.port.faults
}

// AddFault begins a fault at the ports that send the packets. The fault's time (spec.Fault.For) starts now. A
// fault that is over begins again if its name and settings are the same. It then counts packets from 1 again,
// and its state has the sums.
func (e *Engine) AddFault(f spec.Fault, places []plan.End) error {
	if at := slices.IndexFunc(e.faults.inForce, func(of *fault) bool { return of.Name == f.Name }); at >= 0 {
		old := e.faults.inForce[at]
		did := old.state(e.now)
		if err := did.MayRepeat(&f); err != nil {
			return fmt.Errorf("add fault %s: %w", f.Name, err)
		}
		return e.again(old)
	}
	if len(e.faults.names) == maxFaults {
		return fmt.Errorf("add fault %s: the testbed has had %d faults, and can have no more", f.Name,
			maxFaults)
	}
	made, err := e.newFault(f)
	if err != nil {
		return fmt.Errorf("add fault %s: %w", f.Name, err)
	}
	for _, end := range places {
		one := e.byPort[end]
		if one == nil {
			return fmt.Errorf("add fault %s: no soft switch or emulated NIC has the port %s:%s", f.Name,
				end.Node, end.Port)
		}
		made.places = append(made.places, &faultPlace{fault: made, port: one, messages: made.newMessages(),
			seed: draw.Seed(e.plan.Seed, "fault", f.Name, one.name)})
	}
	e.faults.names = append(e.faults.names, f.Name)
	made.number = uint8(len(e.faults.names))
	e.faults.inForce = append(e.faults.inForce, made)
	if f.Reboot {
		return e.reboot(made)
	}
	for _, at := range made.places {
		list := at.of()
		*list = append(*list, at)
	}
	return nil
}

// again lets a fault that is over begin again.
func (e *Engine) again(f *fault) error {
	f.earlier = f.state(e.now)
	f.began, f.until = e.now, e.now.Add(time.Duration(f.For))
	for _, at := range f.places {
		at.matched, at.hit, at.messages = 0, 0, f.newMessages()
	}
	if f.Reboot {
		e.boot(f)
		return e.reboot(f)
	}
	return nil
}

// newMessages returns what counts the messages at a port, or nil if the fault counts packets.
func (f *fault) newMessages() *messages {
	if f.pick.Per != spec.PickMessages {
		return nil
	}
	return new(messages)
}

// newFault returns a fault without places.
func (e *Engine) newFault(f spec.Fault) (*fault, error) {
	made := &fault{Fault: f, began: e.now, until: clock.Never,
		flowSeed: draw.Seed(e.plan.Seed, "fault", f.Name)}
	if f.For > 0 {
		made.until = e.now.Add(time.Duration(f.For))
	}
	_, made.pick = f.Action()
	made.chance, made.flows = draw.NewChance(made.pick.Share), draw.NewChance(made.pick.Flows)
	match, err := e.plan.FaultMatch(&f)
	if err != nil {
		return nil, err
	}
	if match != "" {
		if made.filter, err = display.CompileBytes(match); err != nil {
			return nil, fmt.Errorf("match: %w", err)
		}
	}
	if !f.Reboot {
		made.effect, err = e.effectOf(&f)
	}
	return made, err
}

// ClearFaults ends the faults with the given names, or all faults if there are no names. It returns the final
// state of these faults. If a name is unknown, no fault ends.
func (e *Engine) ClearFaults(names ...string) ([]FaultState, error) {
	for _, name := range names {
		if !slices.ContainsFunc(e.faults.inForce, func(f *fault) bool { return f.Name == name }) {
			return nil, fmt.Errorf("clear fault %s: no fault of this name is in force", name)
		}
	}
	var ended []FaultState
	goes := func(f *fault) bool { return len(names) == 0 || slices.Contains(names, f.Name) }
	for _, f := range e.faults.inForce {
		if goes(f) {
			ended = append(ended, f.state(e.now))
			e.boot(f)
			for _, at := range f.places {
				list := at.of()
				*list = slices.DeleteFunc(*list, func(p *faultPlace) bool { return p == at })
			}
		}
	}
	e.faults.inForce = slices.DeleteFunc(e.faults.inForce, goes)
	return ended, nil
}

// FaultState is a fault with the number of packets that it has matched and hit so far.
type FaultState struct {
	spec.Fault
	Matched uint64 `json:"matched"`
	Hit     uint64 `json:"hit"`
	// Over is true after the fault's time has ended.
	Over bool `json:"over,omitempty"`
	// Joined is the number of matches at kernel links that were several packets of a connection in one.
	// Refused is the number of packets there that the kernel did not let the fault change. Soft switches have
	// none.
	Joined  uint64            `json:"joined,omitempty"`
	Refused uint64            `json:"refused,omitempty"`
	Places  []FaultPlaceState `json:"places"`
}

// ErrInForce is the error of a fault whose name another fault has.
var ErrInForce = errors.New("a fault of this name is in force; clear it first")

// MayRepeat returns an error unless a fault of the same name can begin again: it has the same settings, and
// is over or repeatable.
func (s *FaultState) MayRepeat(f *spec.Fault) error {
	if !s.Over && !f.Repeatable() || !reflect.DeepEqual(&s.Fault, f) {
		return ErrInForce
	}
	return nil
}

// Add adds counts at a place. A place without matches gets no entry in Places.
func (s *FaultState) Add(at FaultPlaceState) {
	s.Matched, s.Hit = s.Matched+at.Matched, s.Hit+at.Hit
	i := slices.IndexFunc(s.Places, func(of FaultPlaceState) bool { return of.Port == at.Port })
	switch {
	case i >= 0:
		of := &s.Places[i]
		of.Matched, of.Hit, of.Killed = of.Matched+at.Matched, of.Hit+at.Hit, of.Killed+at.Killed
	case at.Matched > 0:
		s.Places = append(s.Places, at)
	}
}

// FaultPlaceState is the state of a fault at a port, or of a fault of nodes at a node. Ports at which no
// packet matched are left out.
type FaultPlaceState struct {
	Port    string `json:"port"`
	Matched uint64 `json:"matched"`
	Hit     uint64 `json:"hit"`
	// Killed is the number of processes that a limit of a node's memory killed.
	Killed uint64 `json:"killed,omitempty"`
}

// Faults returns the faults that were added and not cleared, in the order in which they began.
func (e *Engine) Faults() []FaultState {
	var all []FaultState
	for _, f := range e.faults.inForce {
		all = append(all, f.state(e.now))
	}
	return all
}

// FaultNames returns the names of all faults so far. In records, the first fault has the number 1.
func (e *Engine) FaultNames() []string { return e.faults.names }

func (f *fault) state(now clock.Time) FaultState {
	s := f.earlier
	s.Fault, s.Over, s.Places = f.Fault, now >= f.until, append([]FaultPlaceState{}, s.Places...)
	for _, at := range f.places {
		s.Add(FaultPlaceState{Port: at.port.name, Matched: at.matched, Hit: at.hit})
	}
	return s
}

// harm applies the port's faults to a packet on the line. Drops and changes of bytes happen at once. The
// caller does what harm returns.
func (p *port) harm(one *packet.Packet) (h harm) {
	h.copies = p.copies[:0]
	for _, at := range p.faults {
		if at.hits(one, &h) && h.dropped {
			return h
		}
	}
	p.copies = h.copies
	return h
}

// hits counts a packet that matches, and acts on it if the fault picks it. It reports whether it acted.
func (at *faultPlace) hits(one *packet.Packet, h *harm) bool {
	e := at.port.engine
	if e.now >= at.until {
		return false
	}
	matches := e.faults.matches(at.filter, one)
	number := at.matched + 1
	if at.messages != nil {
		number = at.messages.numberOf(one, matches)
		matches = number > 0
	}
	if !matches {
		return false
	}
	at.matched++
	if !at.picks(one, number) || !at.effect.on(at, one, h) {
		return false
	}
	at.hit++
	return true
}

// matches reports whether a filter matches a packet. A nil filter matches all packets.
func (f *faults) matches(filter *display.Filter, one *packet.Packet) bool {
	if filter == nil {
		// The times of pauses cannot be predicted. A filter such as macc chooses them.
		return one.Headers.EtherType != wire.EtherTypeMACControl
	}
	return filter.Match(f.show(one))
}

// show returns a packet as display filters see it. It is valid until the next call.
func (f *faults) show(one *packet.Packet) *display.Packet {
	f.from.LinkType = pcapng.LinkEthernet
	f.raw.Data, f.raw.Length = one.Data, len(one.Data)
	f.shown.Set(&f.raw, &f.from, 1, 0)
	return &f.shown
}

// picks reports whether the fault picks a packet that matched, by its number or that of its message. The
// packet is already counted in matched.
func (at *faultPlace) picks(one *packet.Packet, number uint64) bool {
	switch {
	case len(at.pick.Nth) > 0:
		_, found := slices.BinarySearch(at.pick.Nth, int(number))
		return found
	case at.pick.Every > 0:
		return number%uint64(at.pick.Every) == 0
	case !at.pick.Share.IsZero() && at.messages != nil:
		return at.chance.Happens(draw.Nth(draw.Nth(at.seed, number), draw.FaultHit))
	case !at.pick.Share.IsZero():
		return at.chance.Happens(at.drawn(one, draw.FaultHit))
	case !at.pick.Flows.IsZero():
		return at.flows.Happens(draw.Nth(draw.Pair(at.flowSeed, one.Flow), draw.FaultFlow))
	}
	return true
}

// drawn returns a random number for a packet. It depends on the packet's flow and on the packet's number in
// the flow, but not on other flows. For a packet without such a number it depends on the count of matching
// packets.
func (at *faultPlace) drawn(one *packet.Packet, purpose uint64) uint64 {
	return draw.Nth(draw.Nth(draw.Pair(at.seed, one.Flow), cmp.Or(one.Ordinal, at.matched)), purpose)
}

// ethernetHeader is the length of the Ethernet header. A randomly drawn bit is after it.
const ethernetHeader = 14

// reboot takes the links of the fault's switches down and empties the switches' tables. What waits in their
// queues is lost on the links that are down.
func (e *Engine) reboot(f *fault) error {
	for _, at := range f.places {
		p := at.port
		at.matched = 1
		if p.link.up {
			at.hit = 1
		}
		at.holds = true
		p.link.reboots++
		e.applyState(p.link)
		e.events.push(event{at: f.until, kind: boots, port: int32(p.index)})
	}
	for _, sw := range e.switches {
		if !slices.ContainsFunc(f.places, func(at *faultPlace) bool { return at.port.station == sw }) {
			continue
		}
		table, err := forward.New(e.plan, &e.plan.Switches[sw.index], e.pool, sw)
		if err != nil {
			return err
		}
		for i, p := range sw.ports {
			table.SetPortUp(i, p.link.up)
		}
		sw.table = table
	}
	return nil
}

// bootDue ends the reboots whose time is over.
func (e *Engine) bootDue() {
	for _, f := range e.faults.inForce {
		if e.now >= f.until {
			e.boot(f)
		}
	}
}

// boot releases the links that a reboot holds down.
func (e *Engine) boot(f *fault) {
	for _, at := range f.places {
		if at.holds {
			at.holds = false
			at.port.link.reboots--
			e.applyState(at.port.link)
		}
	}
}
