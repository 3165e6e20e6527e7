package conditions

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"railbed/internal/feed"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

// Port is a port of the plan, with its link.
type Port struct {
	spec.Port
	Captured  bool
	Interface *plan.Interface
	Switch    *plan.Switch // nil for a NIC
	filters   []filtering  // of the captures at the port
}

// End returns the port as an end of its link.
func (p *Port) End() plan.End { return plan.End{Node: p.Node, Port: p.Name} }

// Foreseen are the actions that a port can take. Drops has the reasons, as captures record them.
type Foreseen struct {
	Drops        map[string]bool
	Marks, Trims bool
}

// Prover examines one file.
type Prover struct {
	File *spec.Testbed
	Plan *plan.Plan
	// Foresee returns the actions that a port can take under a setting of its link.
	Foresee func(at plan.End, now plan.Direction) Foreseen
	// Programs is set if some steps run programs, which can send any packets, and Faults if some steps
	// add faults.
	Programs, Faults bool
	// Problems are checks that can never pass. Warnings are checks that will probably not pass.
	Problems, Warnings spec.Problems
	// Ports are the ports of the plan, and Capture has the sizes and events of all captures. Both are
	// unset without a capture.
	Ports   []*Port
	Capture *spec.Capture
	step    int   // the index of the first capture
	need    *need // of the examined check
}

// New returns a Prover of a file and its plan.
func New(file *spec.Testbed, p *plan.Plan, foresee func(plan.End, plan.Direction) Foreseen) *Prover {
	l := &Prover{File: file, Plan: p, Foresee: foresee}
	l.Faults = slices.ContainsFunc(file.Steps, func(s spec.Step) bool { return s.Fault != nil })
	l.Programs = slices.ContainsFunc(file.Steps, func(s spec.Step) bool { return s.Traits().Programs })
	l.step = slices.IndexFunc(file.Steps, func(s spec.Step) bool { return s.Capture != nil })
	if l.step >= 0 {
		l.Capture = together(file)
		l.addPorts()
	}
	return l
}

// together returns a capture with all that the captures of a file record: checks are judged from all
// recordings as from one. Each port has its filters.
func together(file *spec.Testbed) *spec.Capture {
	var all *spec.Capture
	for _, step := range file.Steps {
		c := step.Capture
		switch {
		case c == nil:
		case all == nil:
			first := *c
			all = &first
		default:
			all.SnapLen = max(all.SnapLen, c.SnapLen)
			if c.Events != "" {
				all.Events = c.Events
			}
		}
	}
	return all
}

func (l *Prover) addPorts() {
	add := func(node string, interfaces []plan.Interface, sw *plan.Switch) {
		for at := range interfaces {
			p := &Port{Port: spec.Port{Node: node, Name: interfaces[at].Name, NIC: sw == nil},
				Interface: &interfaces[at], Switch: sw}
			for i, step := range l.File.Steps {
				if c := step.Capture; c != nil && slices.ContainsFunc(c.At, p.Selected) {
					p.Captured = true
					p.filters = append(p.filters, filtering{i, c.Filter})
				}
			}
			l.Ports = append(l.Ports, p)
		}
	}
	for i := range l.Plan.Nodes {
		add(l.Plan.Nodes[i].Name, l.Plan.Nodes[i].NICs, nil)
	}
	for i := range l.Plan.Switches {
		add(l.Plan.Switches[i].Name, l.Plan.Switches[i].Ports, &l.Plan.Switches[i])
	}
}

// Matches reports whether a selector selects the port. An empty one selects every port.
func (p *Port) Matches(selector string) bool { return p.Selected(cmp.Or(selector, "all")) }

// Which returns the ports that match a condition.
func (l *Prover) Which(is func(*Port) bool) (found []*Port) {
	for _, p := range l.Ports {
		if is(p) {
			found = append(found, p)
		}
	}
	return found
}

// Never adds a problem: a check can never pass.
func (l *Prover) Never(path, want, what string, args ...any) {
	l.Problems = append(l.Problems, l.File.Source.Problem(path, fmt.Sprintf(what, args...), want))
}

// Hardly adds a warning: a check will probably not pass.
func (l *Prover) Hardly(path, want, what string, args ...any) {
	l.Warnings = append(l.Warnings, l.File.Source.Problem(path, fmt.Sprintf(what, args...), want))
}

// NeverUnlessPrograms is Never, or Hardly if a program of the file may send the missing packets.
func (l *Prover) NeverUnlessPrograms(path, want, what string, args ...any) {
	if l.Programs {
		l.Hardly(path, want, what, args...)
	} else {
		l.Never(path, want, what, args...)
	}
}

// Where returns the position of a key of the first capture.
func (l *Prover) Where(key string) string { return l.whereOf(l.step, key) }

// whereOf returns the position of a key of a capture.
func (l *Prover) whereOf(step int, key string) string {
	return l.File.Source.Pos(fmt.Sprintf("steps[%d].capture.%s", step, key)).String()
}

// Seen checks that the capture includes ports that a check examines. It adds a problem if no port
// is captured. If the check needs all of the ports, it adds a warning when some are missing. It judges the
// filters of the ports too.
func (l *Prover) Seen(path string, ports []*Port, all bool) {
	l.filtered(ports)
	missing := slices.DeleteFunc(slices.Clone(ports), func(p *Port) bool { return p.Captured })
	switch {
	case len(ports) == 0 || len(missing) == 0:
	case len(missing) == len(ports):
		l.Never(path, "want at: [all] there, or "+Listed(missing),
			"%s needs ports, and the capture at %s has none of them", key(path), l.Where("at"))
	case all:
		l.Hardly(path, "want at: [all] there, or add "+Listed(missing),
			"%s needs %d ports, and the capture at %s lacks %d of them", key(path), len(ports), l.Where("at"),
			len(missing))
	}
}

// key returns the last key of a path.
func key(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// Listed returns the first ports of a list, for people.
func Listed(ports []*Port) string {
	const most = 4
	var words []string
	for _, p := range ports[:min(len(ports), most)] {
		words = append(words, p.String())
	}
	text := strings.Join(words, ", ")
	if more := len(ports) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Demands reports whether the value 0 violates a bound.
func Demands(text string, kind spec.BoundKind) bool {
	b, err := spec.ParseBound(text, kind)
	return text != "" && err == nil && !b.Holds(0)
}

// None reports whether only the value 0 satisfies a bound, as in "== 0".
func None(text string, kind spec.BoundKind) bool {
	b, err := spec.ParseBound(text, kind)
	return text != "" && err == nil && b.Upper() && b.Limit == 0
}

// Limits reports whether the value 0 satisfies a bound, so that missing observations matter.
func Limits(text string, kind spec.BoundKind) bool {
	b, err := spec.ParseBound(text, kind)
	return text != "" && err == nil && b.Holds(0)
}

// Settings returns the link settings for the packets that a port sends: at first, and after each
// step that changes them. Without a link there are none.
func (l *Prover) Settings(p *Port) (all []plan.Direction) {
	link := l.Plan.Link(p.Interface.Link)
	if link == nil {
		return nil
	}
	now, words := link.AToB, plan.AToB
	if p.End() == link.B {
		now, words = link.BToA, plan.BToA
	}
	all = append(all, now)
	for _, step := range l.File.Steps {
		if step.Link == nil {
			continue
		}
		name, direction := step.Link.Target()
		if !spec.Match(name, link.Name) || direction != "" && direction != words {
			continue
		}
		if step.Link.Set != nil {
			now = now.Change(link.MTU, *step.Link.Set)
		}
		made := now
		if direction != "" && step.Link.State == "down" {
			made.Loss = units.Ratio{Num: 1, Den: 1} // as in Fabric.SetDirectionState
		}
		all = append(all, made)
	}
	return all
}

// foresee returns the actions of a port, with their reasons, that are possible under a link
// setting.
func (l *Prover) foresee(p *Port, now plan.Direction) Foreseen {
	can := l.Foresee(p.End(), now)
	if now.Flap.Every == 0 && !l.File.TakesDown(p.Interface.Link) {
		delete(can.Drops, linkDown)
	}
	return can
}

// foreseen returns the possible actions of a port under each setting that steps give its link.
func (l *Prover) foreseen(p *Port) (found []Foreseen) {
	for _, now := range l.Settings(p) {
		found = append(found, l.foresee(p, now))
	}
	return found
}

// Crossed returns the ports that send packets from one group of nodes to another. A port of a link
// between switches counts only if both groups are all nodes, because it is not known which flows
// cross the link.
func (l *Prover) Crossed(from, to string) []*Port {
	from, to = cmp.Or(from, "*"), cmp.Or(to, "*")
	others := func(pattern, node string) bool {
		return slices.ContainsFunc(l.Plan.Nodes, func(n plan.Node) bool {
			return n.Name != node && spec.Match(pattern, n.Name)
		})
	}
	return l.Which(func(p *Port) bool {
		peer, _, _ := strings.Cut(p.Interface.Peer, ":")
		switch {
		case p.NIC:
			return spec.Match(from, p.Node) && others(to, p.Node)
		case l.Plan.Switch(peer) == nil:
			return spec.Match(to, peer) && others(from, peer)
		}
		return from == "*" && to == "*"
	})
}

// Disturbed adds a warning if a check wants no effect of a kind, and a link setting has that
// effect.
func (l *Prover) Disturbed(
	path string, ports []*Port, by func(*Port, plan.Direction) bool, does, want string,
) {
	for _, p := range ports {
		// Only the last setting counts: an earlier one may apply while nothing is sent.
		if all := l.Settings(p); len(all) > 0 && by(p, all[len(all)-1]) {
			l.Hardly(path, want, "%s %s packets that %s sends, because of its settings", p.Interface.Link,
				does, p)
			return
		}
	}
}

const linkDown = "link-down"

// lossReasons are the drop reasons that follow only from link settings.
var lossReasons = append(feed.LossReasons(), linkDown)

// Lossless adds a warning if a check wants no loss for a reason, and a link's settings lose packets
// for that reason. An empty reason stands for any.
func (l *Prover) Lossless(path string, ports []*Port, reason string) {
	l.Disturbed(path, ports, func(p *Port, now plan.Direction) bool {
		drops := l.foresee(p, now).Drops
		// If the whole link is down, packets may take another path.
		if now.Flap.Every == 0 {
			delete(drops, linkDown)
		}
		return slices.ContainsFunc(lossReasons, func(why string) bool {
			return drops[why] && (reason == "" || reason == why)
		})
	}, "loses", "want a link that loses nothing, or a check of other packets")
}
