// Package proof finds, before a run, the checks of a scenario that the scenario's own capture and
// fabric can never prove.
//
// It examines only the file and the plan. A check that can never pass is an error. A check that
// will probably not pass is a warning.
package proof

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"railbed/fabric/softswitch"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

// port is a port of the plan, with its link.
type port struct {
	spec.Port
	captured bool
	filters  []filtering // of the captures at the port
	at       *plan.Interface
	sw       *plan.Switch // nil for a NIC
}

func (p *port) end() plan.End { return plan.End{Node: p.Node, Port: p.Name} }

// prover examines one file.
type prover struct {
	file  *spec.Testbed
	plan  *plan.Plan
	ports []*port
	// capture has the sizes and events of all captures. step is the index of the first.
	capture *spec.Capture
	step    int
	// need has the packets that the examined check needs.
	need *need
	// programs is set if some steps run programs, which can send any packets.
	programs bool
	// faults is set if some steps add faults.
	faults             bool
	problems, warnings spec.Problems
}

// Look returns problems for checks that can never pass. It returns warnings for checks that will
// probably not pass, for settings of switches without effect, and for rings that are slow because they
// leave the rails of their ranks.
func Look(file *spec.Testbed, p *plan.Plan) (problems, warnings spec.Problems) {
	l := &prover{file: file, plan: p}
	l.faults = slices.ContainsFunc(file.Steps, func(s spec.Step) bool { return s.Fault != nil })
	l.programs = slices.ContainsFunc(file.Steps, func(s spec.Step) bool { return s.Traits().Programs })
	l.congestion()
	l.silent()
	l.rails()
	l.step = slices.IndexFunc(file.Steps, func(s spec.Step) bool { return s.Capture != nil })
	checked := slices.ContainsFunc(file.Checks, func(c spec.Check) bool { return c.Packets != nil })
	if l.step >= 0 && checked {
		l.capture = together(file)
		l.addPorts()
		for i, check := range file.Checks {
			if check.Packets != nil {
				l.check(fmt.Sprintf("checks[%d].packets", i), check.Packets)
			}
		}
	}
	return l.problems, l.warnings
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

func (l *prover) addPorts() {
	add := func(node string, interfaces []plan.Interface, sw *plan.Switch) {
		for at := range interfaces {
			p := &port{spec.Port{Node: node, Name: interfaces[at].Name, NIC: sw == nil}, false, nil,
				&interfaces[at], sw}
			for i, step := range l.file.Steps {
				if c := step.Capture; c != nil && slices.ContainsFunc(c.At, p.Selected) {
					p.captured = true
					p.filters = append(p.filters, filtering{i, c.Filter})
				}
			}
			l.ports = append(l.ports, p)
		}
	}
	for i := range l.plan.Nodes {
		add(l.plan.Nodes[i].Name, l.plan.Nodes[i].NICs, nil)
	}
	for i := range l.plan.Switches {
		add(l.plan.Switches[i].Name, l.plan.Switches[i].Ports, &l.plan.Switches[i])
	}
}

// matches reports whether the selector of a check selects the port. An empty one selects every port.
func (p *port) matches(selector string) bool { return p.Selected(cmp.Or(selector, "all")) }

// which returns the ports that match a condition.
func (l *prover) which(is func(*port) bool) (found []*port) {
	for _, p := range l.ports {
		if is(p) {
			found = append(found, p)
		}
	}
	return found
}

func (l *prover) never(path, want, what string, args ...any) {
	l.problems = append(l.problems, l.file.Source.Problem(path, fmt.Sprintf(what, args...), want))
}

func (l *prover) hardly(path, want, what string, args ...any) {
	l.warnings = append(l.warnings, l.file.Source.Problem(path, fmt.Sprintf(what, args...), want))
}

// neverUnlessPrograms is never, or hardly if a program of the file may send the missing packets.
func (l *prover) neverUnlessPrograms(path, want, what string, args ...any) {
	if l.programs {
		l.hardly(path, want, what, args...)
	} else {
		l.never(path, want, what, args...)
	}
}

// where returns the position of a key of the first capture.
func (l *prover) where(key string) string { return l.whereOf(l.step, key) }

// whereOf returns the position of a key of a capture.
func (l *prover) whereOf(step int, key string) string {
	return l.file.Source.Pos(fmt.Sprintf("steps[%d].capture.%s", step, key)).String()
}

// seen checks that the capture includes ports that a check examines. It adds a problem if no port
// is captured. If the check needs all of the ports, it adds a warning when some are missing. It judges the
// filters of the ports too.
func (l *prover) seen(path string, ports []*port, all bool) {
	l.filtered(ports)
	missing := slices.DeleteFunc(slices.Clone(ports), func(p *port) bool { return p.captured })
	switch {
	case len(ports) == 0 || len(missing) == 0:
	case len(missing) == len(ports):
		l.never(path, "want at: [all] there, or "+listed(missing),
			"%s needs ports, and the capture at %s has none of them", key(path), l.where("at"))
	case all:
		l.hardly(path, "want at: [all] there, or add "+listed(missing),
			"%s needs %d ports, and the capture at %s lacks %d of them", key(path), len(ports), l.where("at"),
			len(missing))
	}
}

// key returns the last key of a path.
func key(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// listed returns the first ports of a list, for people.
func listed(ports []*port) string {
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

// demands reports whether the value 0 violates a bound.
func demands(text string, kind spec.BoundKind) bool {
	b, err := spec.ParseBound(text, kind)
	return text != "" && err == nil && !b.Holds(0)
}

// none reports whether only the value 0 satisfies a bound, as in "== 0".
func none(text string, kind spec.BoundKind) bool {
	b, err := spec.ParseBound(text, kind)
	return text != "" && err == nil && b.Upper() && b.Limit == 0
}

// limits reports whether the value 0 satisfies a bound, so that missing observations matter.
func limits(text string, kind spec.BoundKind) bool {
	b, err := spec.ParseBound(text, kind)
	return text != "" && err == nil && b.Holds(0)
}

// settings returns the link settings for the packets that a port sends: at first, and after each
// step that changes them. Without a link there are none.
func (l *prover) settings(p *port) (all []plan.Direction) {
	link := l.plan.Link(p.at.Link)
	if link == nil {
		return nil
	}
	now, words := link.AToB, "a-to-b"
	if p.end() == link.B {
		now, words = link.BToA, "b-to-a"
	}
	all = append(all, now)
	for _, step := range l.file.Steps {
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
func (l *prover) foresee(p *port, now plan.Direction) softswitch.Foreseen {
	can := softswitch.Foresee(l.plan, p.end(), now)
	if now.Flap.Every == 0 && !l.file.TakesDown(p.at.Link) {
		delete(can.Drops, softswitch.LinkDown)
	}
	return can
}

// foreseen returns the possible actions of a port under each setting that steps give its link.
func (l *prover) foreseen(p *port) (found []softswitch.Foreseen) {
	for _, now := range l.settings(p) {
		found = append(found, l.foresee(p, now))
	}
	return found
}

// crossed returns the ports that send packets from one group of nodes to another. A port of a link
// between switches counts only if both groups are all nodes, because it is not known which flows
// cross the link.
func (l *prover) crossed(from, to string) []*port {
	from, to = cmp.Or(from, "*"), cmp.Or(to, "*")
	others := func(pattern, node string) bool {
		return slices.ContainsFunc(l.plan.Nodes, func(n plan.Node) bool {
			return n.Name != node && spec.Match(pattern, n.Name)
		})
	}
	return l.which(func(p *port) bool {
		peer, _, _ := strings.Cut(p.at.Peer, ":")
		switch {
		case p.NIC:
			return spec.Match(from, p.Node) && others(to, p.Node)
		case l.plan.Switch(peer) == nil:
			return spec.Match(to, peer) && others(from, peer)
		}
		return from == "*" && to == "*"
	})
}

// disturbed adds a warning if a check wants no effect of a kind, and a link setting has that
// effect.
func (l *prover) disturbed(
	path string, ports []*port, by func(*port, plan.Direction) bool, does, want string,
) {
	for _, p := range ports {
		// Only the last setting counts: an earlier one may apply while nothing is sent.
		if all := l.settings(p); len(all) > 0 && by(p, all[len(all)-1]) {
			l.hardly(path, want, "%s %s packets that %s sends, because of its settings", p.at.Link, does, p)
			return
		}
	}
}

// lossReasons are the drop reasons that follow only from link settings.
var lossReasons = []softswitch.Reason{softswitch.Loss, softswitch.Burst, softswitch.Nth, softswitch.LinkDown}

// lossless adds a warning if a check wants no loss for a reason, and a link's settings lose packets
// for that reason. An empty reason stands for any.
func (l *prover) lossless(path string, ports []*port, reason string) {
	l.disturbed(path, ports, func(p *port, now plan.Direction) bool {
		drops := l.foresee(p, now).Drops
		// If the whole link is down, packets may take another path.
		if now.Flap.Every == 0 {
			delete(drops, softswitch.LinkDown)
		}
		return slices.ContainsFunc(lossReasons, func(why softswitch.Reason) bool {
			_, can := drops[why]
			return can && (reason == "" || reason == why.String())
		})
	}, "loses", "want a link that loses nothing, or a check of other packets")
}
