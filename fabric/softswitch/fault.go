package softswitch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"railbed/capture/display"
	"railbed/capture/pcapng"
	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/packet"
	"railbed/fabric/softswitch/queue"
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
	number uint8
	filter *display.Filter // nil matches all packets
	pick   spec.Pick
	chance draw.Chance
	until  clock.Time // clock.Never without an end
	began  clock.Time
	places []*faultPlace
}

// faultPlace is a fault at a port.
type faultPlace struct {
	*fault
	port         *port
	seed         uint64
	matched, hit uint64
}

// harm is the effect of faults on a packet on a link, apart from changes to its bytes.
type harm struct {
	dropped bool // the packet's memory is free again
	copies  int  // that arrive besides the packet
	delay   time.Duration
}

// AddFault begins a fault at the ports that send the packets. The fault's time (spec.Fault.For) starts now.
func (e *Engine) AddFault(f spec.Fault, places []plan.End) error {
	if slices.ContainsFunc(e.faults.inForce, func(of *fault) bool { return of.Name == f.Name }) {
		return fmt.Errorf("add fault %s: a fault of this name is in force; clear it first", f.Name)
	}
	if len(e.faults.names) == maxFaults {
		return fmt.Errorf("add fault %s: the testbed has had %d faults, and can have no more", f.Name,
			maxFaults)
	}
	made := &fault{Fault: f, began: e.now, until: clock.Never}
	if f.For > 0 {
		made.until = e.now.Add(time.Duration(f.For))
	}
	match := f.Match
	if f.Partition != nil {
		if match = e.plan.PartitionMatch(&f); match == "" {
			return fmt.Errorf("add fault %s: the partition has nodes in less than two sets", f.Name)
		}
		if f.Match != "" {
			match = "(" + match + ") && (" + f.Match + ")"
		}
	}
	if match != "" {
		filter, err := display.CompileBytes(match)
		if err != nil {
			return fmt.Errorf("add fault %s: match: %w", f.Name, err)
		}
		made.filter = filter
	}
	_, made.pick = f.Action()
	made.chance = draw.NewChance(made.pick.Share)
	for _, end := range places {
		one := e.byPort[end]
		if one == nil {
			return fmt.Errorf("add fault %s: no soft switch or emulated NIC has the port %s:%s", f.Name,
				end.Node, end.Port)
		}
		made.places = append(made.places, &faultPlace{fault: made, port: one,
			seed: draw.Seed(e.plan.Seed, "fault", f.Name, one.name)})
	}
	e.faults.names = append(e.faults.names, f.Name)
	made.number = uint8(len(e.faults.names))
	e.faults.inForce = append(e.faults.inForce, made)
	for _, at := range made.places {
		at.port.faults = append(at.port.faults, at)
	}
	return nil
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
			for _, at := range f.places {
				of := at.port
				of.faults = slices.DeleteFunc(of.faults, func(p *faultPlace) bool { return p == at })
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
	Over   bool              `json:"over,omitempty"`
	Places []FaultPlaceState `json:"places"`
}

// FaultPlaceState is the state of a fault at a port. Ports at which no packet matched are left out.
type FaultPlaceState struct {
	Port    string `json:"port"`
	Matched uint64 `json:"matched"`
	Hit     uint64 `json:"hit"`
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
	s := FaultState{Fault: f.Fault, Over: now >= f.until, Places: []FaultPlaceState{}}
	for _, at := range f.places {
		s.Matched += at.matched
		s.Hit += at.hit
		if at.matched > 0 {
			s.Places = append(s.Places, FaultPlaceState{at.port.name, at.matched, at.hit})
		}
	}
	return s
}

// harm applies the port's faults to a packet on the line. Drops and changes of bytes happen at once. The
// caller makes the delay and the duplicate that harm returns.
func (p *port) harm(one *packet.Packet) (h harm) {
	e := p.engine
	for _, at := range p.faults {
		if e.now >= at.until || !e.faults.matches(at.filter, one) {
			continue
		}
		at.matched++
		if !at.picks(one) || !at.can(one) {
			continue
		}
		at.hit++
		verdict := Nothing
		switch {
		case at.Drop != nil || at.Partition != nil:
			e.hitting = at.number
			e.drop(p, one, FromFault, 0)
			e.hitting = 0
			h.dropped = true
			return h
		case at.Delay != nil:
			verdict = Delayed
			h.delay += time.Duration(at.Delay.By)
		case at.Duplicate != nil:
			verdict = Duplicated
			h.copies++
		case at.Corrupt != nil:
			verdict = Corrupted
		case at.Truncate != nil:
			verdict = Truncated
		case at.Mark != nil:
			verdict = Marked
		}
		if p.observed {
			e.observe(Observation{Port: p.index, Kind: Harmed, Time: e.now, Packet: one, Verdict: verdict,
				Reason: FromFault, Queue: one.Priority, Fault: at.number})
		}
		at.change(one)
	}
	return h
}

// matches reports whether a filter matches a packet. A nil filter matches all packets.
func (f *faults) matches(filter *display.Filter, one *packet.Packet) bool {
	if filter == nil {
		// Pauses come at times that no file knows. A filter such as macc chooses them.
		return one.Headers.EtherType != wire.EtherTypeMACControl
	}
	f.from.LinkType = pcapng.LinkEthernet
	f.raw.Data, f.raw.Length = one.Data, len(one.Data)
	f.shown.Set(&f.raw, &f.from, 1, 0)
	return filter.Match(&f.shown)
}

// picks reports whether the fault picks a packet that matched. The packet is already counted in matched.
func (at *faultPlace) picks(one *packet.Packet) bool {
	switch {
	case len(at.pick.Nth) > 0:
		_, found := slices.BinarySearch(at.pick.Nth, int(at.matched))
		return found
	case at.pick.Every > 0:
		return at.matched%uint64(at.pick.Every) == 0
	case !at.pick.Share.IsZero():
		return at.chance.Happens(at.drawn(one, forFault))
	}
	return true
}

// Purposes of a fault's draws. The numbers are part of the meaning of a seed.
const (
	forFault    = 1
	forFaultBit = 2
)

// drawn returns a random number for a packet. It depends on the packet's flow and on the packet's number in
// the flow, but not on other flows. For a packet without such a number it depends on the count of matching
// packets.
func (at *faultPlace) drawn(one *packet.Packet, purpose uint64) uint64 {
	return draw.Nth(draw.Nth(draw.Pair(at.seed, one.Flow), cmp.Or(one.Ordinal, at.matched)), purpose)
}

// can reports whether the action has an effect on the packet.
func (at *faultPlace) can(one *packet.Packet) bool {
	switch {
	case at.Corrupt != nil:
		return uint64(len(one.Data)) > max(ethernetHeader, uint64(at.Corrupt.At))
	case at.Truncate != nil:
		return uint64(len(one.Data)) > uint64(at.Truncate.To)
	case at.Mark != nil:
		return one.Headers.ECN == wire.ECT0 || one.Headers.ECN == wire.ECT1
	}
	return true
}

// ethernetHeader is the length of the Ethernet header. A randomly drawn bit is after it.
const ethernetHeader = 14

// change changes the bytes of a packet, if the fault's action does.
func (at *faultPlace) change(one *packet.Packet) {
	switch {
	case at.Corrupt != nil && at.Corrupt.At > 0:
		one.Data[at.Corrupt.At] ^= byte(at.Corrupt.Bits)
		one.Parse()
	case at.Corrupt != nil:
		bit := draw.Within(at.drawn(one, forFaultBit), uint64(len(one.Data)-ethernetHeader)*8)
		one.Data[ethernetHeader+bit/8] ^= 1 << (bit % 8)
		one.Parse()
	case at.Truncate != nil:
		one.Data = one.Data[:at.Truncate.To]
		one.Parse()
	case at.Mark != nil:
		queue.MarkCE(one)
	}
}
