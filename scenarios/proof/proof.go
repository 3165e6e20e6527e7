// Package proof finds the checks of a scenario that its own capture and fabric can never
// prove, before anything runs.
//
// It looks at the file and the plan alone. A check that can never pass is an error; one that
// probably ends INCONCLUSIVE is a warning.
package proof

import (
	"fmt"
	"slices"
	"strings"

	"railbed/fabric/softswitch"
	"railbed/testbed/plan"
	"railbed/testbed/spec"
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
	l.programs = slices.ContainsFunc(file.Steps, func(s spec.Step) bool { return s.Exec != nil || s.Stack != nil })
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
		l.never(path, "want at: [all] there, or "+listed(missing), "%s looks at ports of which the capture at %s has none", key(path), l.where("at"))
	case all:
		l.hardly(path, "want at: [all] there, or "+listed(missing)+" besides", "%s needs %d ports, and the capture at %s lacks %d of them", key(path), len(ports), l.where("at"), len(missing))
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

// limits reports whether a bound holds of nothing, so that what was not seen matters.
func limits(text string, kind spec.BoundKind) bool {
	b, err := spec.ParseBound(text, kind)
	return text != "" && err == nil && b.Holds(0)
}

// foreseen are the reasons for which a port can do something, over all settings that steps give
// its link.
func (l *prover) foreseen(p *port) []softswitch.Foreseen {
	link := l.plan.Link(p.at.Link)
	if link == nil {
		return nil
	}
	end, now, words := plan.End{Node: p.node, Port: p.name}, link.AToB, "a-to-b"
	if end == link.B {
		now, words = link.BToA, "b-to-a"
	}
	found := []softswitch.Foreseen{softswitch.Foresee(l.plan, end, now)}
	for _, step := range l.file.Steps {
		if step.Link == nil || step.Link.Set == nil {
			continue
		}
		if name, direction := step.Link.Target(); spec.Match(name, link.Name) && (direction == "" || direction == words) {
			found = append(found, softswitch.Foresee(l.plan, end, now.Change(link.MTU, *step.Link.Set)))
		}
	}
	return found
}
