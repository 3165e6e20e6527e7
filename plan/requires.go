package plan

import (
	"fmt"
	"slices"

	"railbed/plan/spec"
)

// Netem is the host feature that delays, loses and changes packets.
const Netem = "netem"

// addRequirements adds the host features that the file names, and one requirement for each value of
// the file that needs netem.
func (c *compiler) addRequirements() {
	for i, feature := range c.t.Requires {
		c.require(feature, "the file requires it", fmt.Sprintf("requires[%d]", i))
		c.plan.Requires[len(c.plan.Requires)-1].Inside = !spec.RequiredFile(feature) && c.inside(feature)
	}
	c.requireGuests()
	c.requireDocker()
	c.requireRDMA()
	if r := c.t.Fabric.Routing; r != nil {
		c.require(r.Daemon, "routers find their routes with it", "fabric.routing.daemon")
	}
	if c.plan.Soft() {
		return // soft switches' links delay, lose and change packets themselves
	}
	type use struct {
		path, text, link string
		more             int
	}
	var uses []*use
	byPath := map[string]*use{}
	for _, l := range c.plan.Links {
		for _, side := range []struct {
			name string
			d    Direction
		}{{"a-to-b", l.AToB}, {"b-to-a", l.BToA}} {
			if !side.d.NeedsNetem() {
				continue
			}
			for _, f := range netemFields(side.d) {
				path := c.linkSetting(l, side.name, f.name, f.has)
				if known := byPath[path]; known != nil {
					if known.link != l.Name {
						known.more++
						known.link = l.Name
					}
					continue
				}
				u := &use{path: path, text: fmt.Sprintf("%s %s on %s", f.name, f.value, l.Name), link: l.Name}
				byPath[path] = u
				uses = append(uses, u)
			}
		}
	}
	for i, step := range c.t.Steps {
		if step.Link == nil || step.Link.Set == nil {
			continue
		}
		set := Direction{Delay: step.Link.Set.Delay, Jitter: step.Link.Set.Jitter, Loss: step.Link.Set.Loss,
			Duplicate: step.Link.Set.Duplicate, Corrupt: step.Link.Set.Corrupt}
		for _, f := range netemFields(set) {
			uses = append(uses, &use{path: fmt.Sprintf("steps[%d].link.set.%s", i, f.name),
				text: fmt.Sprintf("%s %s on %s", f.name, f.value, step.Link.Where)})
		}
	}
	for _, u := range uses {
		reason := u.text
		if u.more > 0 {
			reason += fmt.Sprintf(" and %d more", u.more)
		}
		c.require(Netem, reason, u.path)
	}
}

// inside reports whether only containers run a program: all nodes of the steps that name it are containers.
// If no step names the program, any node may run it.
func (c *compiler) inside(program string) bool {
	var users []string
	for i := range c.t.Steps {
		if command, nodes := c.t.Steps[i].Command(); spec.Names(command, program) {
			users = append(users, nodes...)
			if len(nodes) == 0 {
				users = append(users, "*")
			}
		}
	}
	if len(users) == 0 {
		users = []string{"*"}
	}
	of := func(n *Node) bool {
		return slices.ContainsFunc(users, func(pattern string) bool { return spec.Match(pattern, n.Name) })
	}
	containers := false
	for i := range c.plan.Nodes {
		if n := &c.plan.Nodes[i]; of(n) && n.Container == nil {
			return false
		} else if of(n) {
			containers = true
		}
	}
	return containers
}

func (c *compiler) require(feature, reason, path string) {
	c.plan.Requires = append(c.plan.Requires,
		Requirement{Feature: feature, Reason: reason, Where: c.t.Source.Pos(path).String()})
}

// netemField is a field of a direction that only netem can implement.
type netemField struct {
	name  string
	value fmt.Stringer
	has   func(spec.Direction) bool
}

// netemFields returns the fields that the direction sets.
func netemFields(d Direction) []netemField {
	all := []struct {
		netemField
		set bool
	}{
		{netemField{"delay", d.Delay, func(s spec.Direction) bool { return s.Delay != 0 }}, d.Delay != 0},
		{netemField{"jitter", d.Jitter, func(s spec.Direction) bool { return s.Jitter != 0 }}, d.Jitter != 0},
		{netemField{"loss", d.Loss, func(s spec.Direction) bool {
			return !s.Loss.IsZero()
		}}, !d.Loss.IsZero()},
		{netemField{"duplicate", d.Duplicate, func(s spec.Direction) bool {
			return !s.Duplicate.IsZero()
		}}, !d.Duplicate.IsZero()},
		{netemField{"corrupt", d.Corrupt, func(s spec.Direction) bool {
			return !s.Corrupt.IsZero()
		}}, !d.Corrupt.IsZero()},
	}
	var fields []netemField
	for _, f := range all {
		if f.set {
			fields = append(fields, f.netemField)
		}
	}
	return fields
}
