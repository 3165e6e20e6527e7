package verify

import (
	"fmt"
	"slices"
)

// railLocal checks that a workload stays on its rails. No packet of the workload enters or leaves a
// switch by a link to another switch. Each packet has then passed the single switch to which both
// NICs are attached. Traffic between ranks within one node passes no tap.
type railLocal struct {
	roles   *roles
	capture *Capture
	sent    []uint64   // through the rank's NIC, by rank
	passed  [][]uint64 // at switches' ports, by tap index and rank
}

// newRailLocal makes the check.
func newRailLocal(w Workload) *railLocal {
	return &railLocal{roles: newRoles(w), sent: make([]uint64, len(w.Ranks))}
}

// Begin implements Check.
func (l *railLocal) Begin(c *Capture) { l.capture = c }

// Packet implements Check.
func (l *railLocal) Packet(p *Packet) {
	role := l.roles.of(p)
	if !role.relevant || role.rank < 0 || p.Direction == Unknown {
		return
	}
	if p.Tap.NIC {
		if want := &l.roles.workload.Ranks[role.rank]; p.Direction == Out && p.Tap.Port == want.NIC &&
			p.Tap.Node == want.Node {
			l.sent[role.rank]++
		}
		return
	}
	for len(l.passed) <= p.Tap.Index {
		l.passed = append(l.passed, make([]uint64, len(l.sent)))
	}
	l.passed[p.Tap.Index][role.rank]++
}

// between reports whether a tap is at a switch's port towards another switch. The plan tells, or
// another tap that names the same link.
func (l *railLocal) between(tap *Tap) bool {
	c := l.capture
	if tap.NIC {
		return false
	}
	if port, _ := c.port(tap.Node, tap.Port); port != nil {
		_, nic := c.port(splitPort(port.Peer))
		return !nic
	}
	return tap.Link != "" && slices.ContainsFunc(c.Taps, func(o *Tap) bool {
		return o != tap && o.Link == tap.Link && !o.NIC
	})
}

// Result implements Check.
func (l *railLocal) Result() Result {
	r := Result{Name: "rail-local " + l.roles.workload.Name, Measured: map[string]float64{}}
	need, f := l.roles.need(l.capture), finding{}
	var total, crossed uint64
	ports := l.capture.portsOf(l.between)
	need.Ports, need.AnyOrder = append(need.Ports, ports...), true
	for _, name := range ports {
		tap := l.capture.tapNamed(name)
		for rank := 0; tap != nil && tap.Index < len(l.passed) && rank < len(l.sent); rank++ {
			if count := l.passed[tap.Index][rank]; count > 0 {
				crossed += count
				f.wrong = append(f.wrong, fmt.Sprintf("%s sent %d packets that passed %s, towards another "+
					"switch", l.roles.name(rank), count, tap.Name))
			}
		}
	}
	if l.capture.Plan == nil {
		f.unclear = append(f.unclear, "without a plan the links between switches are not known")
	}
	if len(ports) == 0 {
		f.unclear = append(f.unclear, "there is no link between switches")
	}
	for i, sent := range l.sent {
		if total += sent; sent == 0 {
			f.unclear = append(f.unclear, l.roles.name(i)+": sent no packet of the workload through its NIC")
		}
	}
	if l.roles.ambiguous > 0 {
		f.unclear = append(f.unclear, fmt.Sprintf("%d flows may be of several ranks that share an address",
			l.roles.ambiguous))
	}
	r.Measured["packets"], r.Measured["crossed"] = float64(total), float64(crossed)
	r.Summary = fmt.Sprintf("%d packets of %d ranks left; they were seen %d times at %d ports between "+
		"switches", total, len(l.sent), crossed, len(ports))
	l.capture.conclude(&r, need, f)
	return r
}
