package plan

import (
	"slices"
	"strings"

	"railbed/plan/spec"
)

// FaultPlaces returns the ports that a fault names (spec.Fault.Where): the ends of links that send the
// packets to harm. It is empty if nothing has such a name.
func (p *Plan) FaultPlaces(f *spec.Fault) (places []End) {
	name, direction := f.Place()
	add := func(end End) {
		if !slices.Contains(places, end) {
			places = append(places, end)
		}
	}
	nodes := map[string]bool{}
	for i := range p.Nodes {
		nodes[p.Nodes[i].Name] = true
	}
	named := func(end End) bool {
		switch {
		case name == "all":
			return true
		case name == "nics":
			return nodes[end.Node]
		case name == "switches":
			return !nodes[end.Node]
		case strings.Contains(name, ":"):
			return spec.Match(name, end.Node+":"+end.Port)
		}
		return spec.Match(name, end.Node)
	}
	for i := range p.Links {
		l := &p.Links[i]
		// A pattern such as h* names hosts, although the names of their links begin alike.
		ofLink := l.Name == name || strings.Contains(name, "--") && spec.Match(name, l.Name)
		if direction != "b-to-a" && (ofLink || direction == "" && named(l.A)) {
			add(l.A)
		}
		if direction != "a-to-b" && (ofLink || direction == "" && named(l.B)) {
			add(l.B)
		}
	}
	return places
}

// checkFault reports a fault at no place, or where no soft switch can do it.
func (c *compiler) checkFault(path string, f *spec.Fault) {
	if f.Where == "" {
		return
	}
	if len(c.plan.FaultPlaces(f)) == 0 {
		names := slices.Concat([]string{"all", "nics", "switches"}, c.words().links, c.words().nodes,
			c.words().switches)
		name, _ := f.Place()
		c.wrong(path+".where", suggest(name, names, `want a link such as "`+c.plan.Links[0].Name+
			`", node:port, a node, a switch or "all"`), "no port is at %q", f.Where)
	} else if !c.plan.Soft() {
		c.wrong(path, "take fabric: {switch: {kind: soft}}", "a fault needs soft switches")
	}
}
