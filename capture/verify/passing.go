package verify

import (
	"net/netip"
	"slices"

	"railbed/capture/verify/evidence"
)

// Passing has the packets that passed some ports in a span of time, in nanoseconds since 1970. Packets to
// groups and packets other than IP do not count: kernels send some of them by themselves.
type Passing struct {
	// Ports are the ports at which packets count that the port sends or drops, as "node:port". Beside are
	// ports at which all packets count, and Nodes nodes for which packets count at all ports.
	Ports, Beside, Nodes []string
	From, To             int64 // To is 0 for the end of the recording

	// Known reports whether the recording has all the ports of Ports.
	Known bool
	// During and DuringBeside count packets in the span.
	During, DuringBeside uint64
	// Before and After are the times of the last packet of Ports before the span and of the first one after
	// it, 0 for none.
	Before, After int64
}

// passings is the check that fills Passings. It judges nothing.
type passings struct {
	all     []*Passing
	capture *evidence.Capture
	owners  map[netip.Addr]evidence.Owner
	roles   evidence.Slots[[]passingRole] // by tap, for each of all
}

type passingRole uint8

const (
	roleNone passingRole = iota
	rolePort
	roleBeside
)

// NewPassings returns a check that fills Passings and has no verdict.
func NewPassings(all []*Passing) Check { return &passings{all: all} }

// Begin implements Check.
func (k *passings) Begin(c *evidence.Capture) { k.capture, k.owners = c, evidence.OwnersOf(c.Plan) }

// rolesAt returns what a tap is for each of the Passings.
func (k *passings) rolesAt(tap int) []passingRole {
	name, roles := k.capture.Taps[tap].Name, make([]passingRole, len(k.all))
	for i, one := range k.all {
		switch {
		case slices.Contains(one.Ports, name):
			roles[i] = rolePort
		case slices.Contains(one.Beside, name):
			roles[i] = roleBeside
		}
	}
	return roles
}

// Packet implements Check.
func (k *passings) Packet(p *evidence.Packet) {
	if p.Flow == nil || p.Group || p.Flow.Dst.Addr().IsMulticast() {
		return
	}
	for i, role := range k.roles.Made(p.Tap.Index, k.rolesAt) {
		one := k.all[i]
		within := p.Time >= one.From && (one.To == 0 || p.Time <= one.To)
		switch {
		case within && (role == roleBeside || role == roleNone &&
			slices.Contains(one.Nodes, k.owners[p.Flow.Dst.Addr()].Node)):
			one.DuringBeside++
		case role != rolePort || p.Direction == evidence.In:
		case within:
			one.During++
		case p.Time < one.From:
			one.Before = p.Time
		case one.After == 0:
			one.After = p.Time
		}
	}
}

// Result implements Check.
func (k *passings) Result() Result {
	for _, one := range k.all {
		one.Known = len(one.Ports) > 0 && !slices.ContainsFunc(one.Ports, func(port string) bool {
			return k.capture.TapNamed(port) == nil
		})
	}
	return Result{Name: "passing packets"}
}
