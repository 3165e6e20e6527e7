// Package proof finds the checks of a scenario that its own capture and fabric can never
// prove, before anything runs.
//
// It looks at the file and the plan alone. A check that can never pass is an error; one that
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

// port is a port of the plan, with the link that it is at.
type port struct {
	node, name string
	nic        bool
	captured   bool
	at         *plan.Interface
	sw         *plan.Switch // nil of a NIC
}

func (p *port) String() string { return p.node + ":" + p.name }

func (p *port) end() plan.End { return plan.End{Node: p.node, Port: p.name} }

// prover is one look at a file.
type prover struct {
	file  *spec.Testbed
	plan  *plan.Plan
	ports []*port
	// capture is the first one, from which checks are judged, and step its index.
	capture *spec.Capture
	step    int
	// programs says that steps run programs, which can send anything.
	programs           bool
	problems, warnings spec.Problems
}

// Look finds what can never pass, and what will probably not.
func Look(file *spec.Testbed, p *plan.Plan) (problems, warnings spec.Problems) {
	l := &prover{file: file, plan: p}
	l.programs = slices.ContainsFunc(file.Steps, func(s spec.Step) bool {
		return s.Exec != nil || s.Stack != nil
	})
	l.congestion()
	l.step = slices.IndexFunc(file.Steps, func(s spec.Step) bool { return s.Capture != nil })
	checked := slices.ContainsFunc(file.Checks, func(c spec.Check) bool { return c.Packets != nil })
	if l.step >= 0 && checked {
		l.capture = file.Steps[l.step].Capture
		l.addPorts()
		for i, check := range file.Checks {
			if check.Packets != nil {
				l.check(fmt.Sprintf("checks[%d].packets", i), check.Packets)
			}
		}
	}
	return l.problems, l.warnings
}

func (l *prover) addPorts() {
	add := func(node string, interfaces []plan.Interface, sw *plan.Switch) {
		for i := range interfaces {
			p := &port{node: node, name: interfaces[i].Name, nic: sw == nil, at: &interfaces[i], sw: sw}
			p.captured = slices.ContainsFunc(l.capture.At, p.matches)
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

// matches reports whether a tap's name, pattern or word stands for the port.
func (p *port) matches(tap string) bool {
	switch {
	case tap == "", tap == "all":
		return true
	case tap == "nics":
		return p.nic
	case tap == "switches":
		return !p.nic
	case strings.Contains(tap, ":"):
		return spec.Match(tap, p.String())
	}
	return spec.Match(tap, p.node)
}

// which are the ports of a kind.
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

// neverUnlessPrograms is never where no program of the file can send what is missing.
func (l *prover) neverUnlessPrograms(path, want, what string, args ...any) {
	if l.programs {
		l.hardly(path, want, what, args...)
	} else {
		l.never(path, want, what, args...)
	}
}

// where is the place of the capture's key.
func (l *prover) where(key string) string {
	return l.file.Source.Pos(fmt.Sprintf("steps[%d].capture.%s", l.step, key)).String()
}

// seen holds that the capture has some of the ports that a check looks at. A check that needs
// all of them gets a warning where it has a part.
func (l *prover) seen(path string, ports []*port, all bool) {
	missing := slices.DeleteFunc(slices.Clone(ports), func(p *port) bool { return p.captured })
	switch {
	case len(ports) == 0 || len(missing) == 0:
	case len(missing) == len(ports):
		l.never(path, "want at: [all] there, or "+listed(missing),
			"%s looks at ports of which the capture at %s has none", key(path), l.where("at"))
	case all:
		l.hardly(path, "want at: [all] there, or "+listed(missing)+" besides",
			"%s needs %d ports, and the capture at %s lacks %d of them", key(path), len(ports), l.where("at"),
			len(missing))
	}
}

// key is the last key of a path.
func key(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// listed is the start of a list, for people.
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

// demands reports whether a bound does not hold of nothing.
func demands(text string, kind spec.BoundKind) bool {
	b, err := spec.ParseBound(text, kind)
	return text != "" && err == nil && !b.Holds(0)
}

// none reports whether a bound holds of nothing alone, as "== 0" does.
func none(text string, kind spec.BoundKind) bool {
	b, err := spec.ParseBound(text, kind)
	return text != "" && err == nil && b.Upper() && b.Limit == 0
}

// limits reports whether a bound holds of nothing, so that what was not seen matters.
func limits(text string, kind spec.BoundKind) bool {
	b, err := spec.ParseBound(text, kind)
	return text != "" && err == nil && b.Holds(0)
}

// settings are what the link does to what a port sends: at first, and after each step that
// changes it. Without a link there are none.
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
			made.Loss = units.Ratio{Num: 1, Den: 1} // as Fabric.SetDirectionState does
		}
		all = append(all, made)
	}
	return all
}

// foresee are the reasons for which a port can do something under a setting of its link.
func (l *prover) foresee(p *port, now plan.Direction) softswitch.Foreseen {
	can := softswitch.Foresee(l.plan, p.end(), now)
	if now.Flap.Every == 0 && !l.file.TakesDown(p.at.Link) {
		delete(can.Drops, softswitch.LinkDown)
	}
	return can
}

// foreseen are the reasons for which a port can do something, over all settings that steps give
// its link.
func (l *prover) foreseen(p *port) (found []softswitch.Foreseen) {
	for _, now := range l.settings(p) {
		found = append(found, l.foresee(p, now))
	}
	return found
}

// crossed are the ports that send what crosses from one group of nodes to another. A port of a link
// between switches counts only where the groups are all nodes: which flows cross the link is not known.
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
		case p.nic:
			return spec.Match(from, p.node) && others(to, p.node)
		case l.plan.Switch(peer) == nil:
			return spec.Match(to, peer) && others(from, peer)
		}
		return from == "*" && to == "*"
	})
}

// disturbed warns of a check that wants nothing of what a setting of a link does.
func (l *prover) disturbed(
	path string, ports []*port, by func(*port, plan.Direction) bool, does, want string,
) {
	for _, p := range ports {
		// Of several settings the last one counts: an earlier one may hold while nothing is sent.
		if all := l.settings(p); len(all) > 0 && by(p, all[len(all)-1]) {
			l.hardly(path, want, "%s %s packets that %s sends, by its settings", p.at.Link, does, p)
			return
		}
	}
}

// lossReasons are the reasons of drops that follow from settings of links alone.
var lossReasons = []softswitch.Reason{softswitch.Loss, softswitch.Burst, softswitch.Nth, softswitch.LinkDown}

// lossless warns of a check that wants no loss for a reason, where a link loses packets by its
// settings. An empty reason is any.
func (l *prover) lossless(path string, ports []*port, reason string) {
	l.disturbed(path, ports, func(p *port, now plan.Direction) bool {
		drops := l.foresee(p, now).Drops
		// After all of a link is down, packets may take another path.
		if now.Flap.Every == 0 {
			delete(drops, softswitch.LinkDown)
		}
		return slices.ContainsFunc(lossReasons, func(why softswitch.Reason) bool {
			_, can := drops[why]
			return can && (reason == "" || reason == why.String())
		})
	}, "loses", "want a link that loses nothing, or a check of other packets")
}
