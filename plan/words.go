package plan

import (
	"fmt"
	"slices"
	"strings"

	"railbed/plan/spec"
)

// words holds the names that steps and checks can use, and the problems found with the names that
// they use.
type words struct {
	source   *spec.Source
	problems spec.Problems
	// nodes, switches and links are nil if only ports are known.
	nodes, switches, links []string
	ports                  []string // node:port
}

// CheckWords checks that each name in a check of packets matches something in the plan. The path is
// the path of the check in the source. The error is a spec.Problems, or nil.
func (p *Plan) CheckWords(source *spec.Source, path string, check *spec.PacketsCheck) error {
	w := p.words(source)
	w.check(path, check.Names())
	return w.problems.Err()
}

// CheckPorts checks that each name in a check of packets matches one of the ports of a capture
// without a plan. The error is a spec.Problems, or nil.
func CheckPorts(ports []string, source *spec.Source, path string, check *spec.PacketsCheck) error {
	w := &words{source: source, ports: ports}
	w.check(path, check.Names())
	return w.problems.Err()
}

// Ports returns the ends of all links, as "node:port".
func (p *Plan) Ports() []string { return p.words(nil).ports }

// CheckPort returns an error that says why a name is not a port of the plan, and suggests one. It
// returns nil for a port.
func (p *Plan) CheckPort(name string) error {
	if ports := p.Ports(); !slices.Contains(ports, name) {
		return fmt.Errorf("%q is no port of the plan; %s", name,
			suggest(name, ports, "want a port such as "+ports[0]))
	}
	return nil
}

func (c *compiler) words() *words { return c.plan.words(c.t.Source) }

func (p *Plan) words(source *spec.Source) *words {
	w := &words{source: source, links: make([]string, 0, len(p.Links)),
		ports: make([]string, 0, 2*len(p.Links))}
	for i := range p.Nodes {
		w.nodes = append(w.nodes, p.Nodes[i].Name)
	}
	for i := range p.Switches {
		w.switches = append(w.switches, p.Switches[i].Name)
	}
	for i := range p.Links {
		l := &p.Links[i]
		w.links = append(w.links, l.Name)
		w.ports = append(w.ports, l.A.Node+":"+l.A.Port, l.B.Node+":"+l.B.Port)
	}
	return w
}

func (w *words) wrong(path, want, what string, args ...any) {
	w.problems = append(w.problems, w.source.Problem(path, fmt.Sprintf(what, args...), want))
}

// check checks every name of a port, a node, a switch or a link in a check of packets or a step at a path.
func (w *words) check(path string, names []spec.Name) {
	for _, n := range names {
		at := path + "." + n.Path
		switch n.Kind {
		case spec.NamesPort:
			if n.Text != "" {
				w.tap(at, n.Text)
			}
		case spec.NamesNode:
			w.name(at, n.Text, "node", w.nodes)
		case spec.NamesSwitch:
			w.name(at, n.Text, "switch", w.switches)
		case spec.NamesLink:
			link, _ := spec.LinkTarget(n.Text)
			w.name(at, link, "link", w.links)
		}
	}
}

// name reports a name or pattern that matches none of the names. If only ports are known it reports
// nothing.
func (w *words) name(path, name, kind string, names []string) {
	if name == "" || w.nodes == nil || slices.ContainsFunc(names, func(n string) bool {
		return spec.Match(name, n)
	}) {
		return
	}
	w.wrong(path, wantName(name, kind, names), "%q is no %s", name, kind)
}

// wantName suggests a correct name in place of a name that does not exist.
func wantName(name, kind string, names []string) string {
	if len(names) == 0 {
		return "the testbed has none"
	}
	return suggest(name, names, fmt.Sprintf("want the name of a %s or a pattern that matches one, such as %q",
		kind, names[0]))
}

// maxShown bounds the names in a message.
const maxShown = 20

// tap reports a name or pattern that matches no port.
func (w *words) tap(path, tap string) {
	if w.matches(tap) {
		return
	}
	what, names, want := "%q is no tap", w.ports, ""
	switch {
	case len(w.ports) == 0:
		want = "no tap has a name NODE:PORT"
	case w.nodes == nil:
		what, want = "%q is no tap of the capture",
			"want one of "+strings.Join(w.ports[:min(len(w.ports), maxShown)], ", ")
	case strings.Contains(tap, ":"):
		want = fmt.Sprintf("want node:port, such as %q", w.ports[0])
	default:
		names, want = slices.Concat(spec.PortWords, w.nodes, w.switches), "want "+spec.PortForm
		if len(w.switches) > 0 {
			want += "; the switches are " + few(w.switches)
		}
	}
	w.wrong(path, suggest(tap, names, want), what, tap)
}

// matches reports whether a tap's name or pattern matches any port. Patterns do not match the words
// for several taps, which are no names.
func (w *words) matches(tap string) bool {
	if slices.Contains(spec.PortWords, tap) {
		return tap != "switches" || w.nodes == nil || len(w.switches) > 0
	}
	return slices.ContainsFunc(w.ports, func(name string) bool {
		node, port := spec.SplitPort(name)
		return spec.Port{Node: node, Name: port}.Selected(tap)
	})
}
