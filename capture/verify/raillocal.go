package verify

import (
	"fmt"
	"slices"
)

// RailLocal holds that a workload stays on its rails: no packet of it enters or leaves a
// switch by a link to another one, so that each has passed the one switch to which both
// NICs belong. What ranks of one node send to each other within it passes no tap.
type RailLocal struct {
	roles   *roles
	capture *Capture
	sent    []uint64   // through the rank's NIC, by rank
	passed  [][]uint64 // switches' ports, by tap index and rank
}

// NewRailLocal makes the check.
func NewRailLocal(w Workload) *RailLocal {
	return &RailLocal{roles: newRoles(w), sent: make([]uint64, len(w.Ranks))}
}

// Begin implements Check.
func (l *RailLocal) Begin(c *Capture) { l.capture = c }

// Packet implements Check.
func (l *RailLocal) Packet(p *Packet) {
	role := l.roles.of(p)
	if !role.relevant || role.rank < 0 || p.Direction == Unknown {
		return
	}
	if p.Tap.NIC {
		if want := &l.roles.workload.Ranks[role.rank]; p.Direction == Out && p.Tap.Port == want.NIC && p.Tap.Node == want.Node {
			l.sent[role.rank]++
		}
		return
	}
	for len(l.passed) <= p.Tap.Index {
		l.passed = append(l.passed, make([]uint64, len(l.sent)))
	}
	l.passed[p.Tap.Index][role.rank]++
}

// between says that a tap is at a switch's port towards another switch: by the plan, or by
// the other tap that names the same link.
func (c *Capture) between(tap *Tap) bool {
	if tap.NIC {
		return false
	}
	if port, _ := c.port(tap.Node, tap.Port); port != nil {
		_, nic := c.port(splitPort(port.Peer))
		return !nic
	}
	return tap.Link != "" && slices.ContainsFunc(c.Taps, func(o *Tap) bool { return o != tap && o.Link == tap.Link && !o.NIC })
}

// Result implements Check.
func (l *RailLocal) Result() Result {
	r := Result{Name: "rail-local " + l.roles.workload.Name, Measured: map[string]float64{}}
	taps, unclear := l.roles.taps(l.capture)
	var wrong []string
	var total, crossed uint64
	ports := 0
	for _, tap := range l.capture.Taps {
		if !l.capture.between(tap) {
			continue
		}
		ports++
		taps = append(taps, tap)
		for rank := 0; tap.Index < len(l.passed) && rank < len(l.sent); rank++ {
			if count := l.passed[tap.Index][rank]; count > 0 {
				crossed += count
				wrong = append(wrong, fmt.Sprintf("%s sent %d packets that passed %s, towards another switch", l.roles.name(rank), count, tap.Name))
			}
		}
	}
	if ports == 0 {
		unclear = append(unclear, "no link between switches was captured")
	}
	for i, sent := range l.sent {
		if total += sent; sent == 0 {
			unclear = append(unclear, l.roles.name(i)+": sent no packet of the workload through its NIC")
		}
	}
	if l.roles.ambiguous > 0 {
		unclear = append(unclear, fmt.Sprintf("%d flows may be of several ranks that share an address", l.roles.ambiguous))
	}
	r.Measured["packets"], r.Measured["crossed"] = float64(total), float64(crossed)
	r.Summary = fmt.Sprintf("of %d packets of %d ranks %d passed one of %d ports between switches", total, len(l.sent), crossed, ports)
	l.capture.conclude(&r, taps, wrong, unclear)
	return r
}
