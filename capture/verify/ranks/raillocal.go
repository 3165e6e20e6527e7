package ranks

import (
	"slices"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// railLocal checks that a workload stays on its rails. No packet of the workload enters or leaves a
// switch by a link to another switch. Each packet has then passed the single switch to which both
// NICs are attached. Traffic between ranks within one node passes no tap.
type railLocal struct {
	roles   *evidence.Roles
	capture *evidence.Capture
	sent    []uint64                 // through the rank's NIC, by rank
	passed  evidence.Slots[[]uint64] // at switches' ports, by tap index and rank
}

var _ = evidence.Register(evidence.Kind{Key: "rail-local", Example: "ar", Timed: evidence.Never,
	Conditions: conditions.Conditions{Examine: railLocalConditions},
	Make:       evidence.OfWorkload(NewRailLocal)})

func railLocalConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	between := l.Which(func(p *conditions.Port) bool {
		link := l.Plan.Link(p.Interface.Link)
		return link != nil && link.Class == spec.FabricLink
	})
	if len(between) == 0 {
		l.Never(path, "remove the check", "rail-local needs a link between switches, and there is none")
	}
	l.Seen(path, between, true)
	l.Named(path, p)
}

// NewRailLocal makes the check.
func NewRailLocal(w evidence.Workload) evidence.Check {
	return &railLocal{roles: evidence.NewRoles(w), sent: make([]uint64, len(w.Ranks))}
}

// Begin implements Check.
func (l *railLocal) Begin(c *evidence.Capture) { l.capture = c }

// Packet implements Check.
func (l *railLocal) Packet(p *evidence.Packet) {
	role := l.roles.Of(p)
	if !role.Relevant || role.Rank < 0 || p.Direction == evidence.Unknown {
		return
	}
	if p.Tap.NIC {
		if want := &l.roles.Workload.Ranks[role.Rank]; p.Direction == evidence.Out &&
			want.Uses(p.Tap.Node, p.Tap.Port) {
			l.sent[role.Rank]++
		}
		return
	}
	l.passed.Made(p.Tap.Index, func(int) []uint64 { return make([]uint64, len(l.sent)) })[role.Rank]++
}

// between reports whether a tap is at a switch's port towards another switch. The plan tells, or
// another tap that names the same link.
func (l *railLocal) between(tap *evidence.Tap) bool {
	c := l.capture
	if tap.NIC {
		return false
	}
	if port, _ := c.Interface(tap.Node, tap.Port); port != nil {
		_, nic := c.Interface(spec.SplitPort(port.Peer))
		return !nic
	}
	return tap.Link != "" && slices.ContainsFunc(c.Taps, func(o *evidence.Tap) bool {
		return o != tap && o.Link == tap.Link && !o.NIC
	})
}

// Result implements Check.
func (l *railLocal) Result() evidence.Result {
	r := evidence.Result{Name: "rail-local " + l.roles.Workload.Name, Measured: map[string]float64{}}
	need, f := l.roles.Need(l.capture), evidence.Finding{}
	var total, crossed uint64
	ports := l.capture.Ports(l.between)
	need.Ports, need.AnyOrder = append(need.Ports, ports...), true
	for _, name := range ports {
		tap := l.capture.TapNamed(name)
		for rank := 0; tap != nil && tap.Index < len(l.passed) && rank < len(l.sent); rank++ {
			if count := l.passed[tap.Index][rank]; count > 0 {
				crossed += count
				f.Wrong = append(f.Wrong, plural.Text("%s sent %d packets that passed %s, towards another "+
					"switch", l.roles.Name(rank), count, tap.Name))
			}
		}
	}
	if l.capture.Plan == nil {
		f.Unclear = append(f.Unclear, "without a plan the links between switches are not known")
	}
	if len(ports) == 0 {
		f.Unclear = append(f.Unclear, "there is no link between switches")
	}
	for i, sent := range l.sent {
		if total += sent; sent == 0 {
			f.Unclear = append(f.Unclear, l.roles.Name(i)+": sent no packet of the workload through its NIC")
		}
	}
	if l.roles.Ambiguous > 0 {
		f.Unclear = append(f.Unclear, plural.Text("%d flows may be of several ranks that share an address",
			l.roles.Ambiguous))
	}
	r.Measured["packets"], r.Measured["crossed"] = float64(total), float64(crossed)
	r.Summary = plural.Text("%d packets of %d ranks left; they were seen %d times at %d ports between "+
		"switches", total, len(l.sent), crossed, len(ports))
	l.capture.Conclude(&r, need, f)
	return r
}
