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
		}{{AToB, l.AToB}, {BToA, l.BToA}} {
			for _, s := range side.d.By(spec.Netem) {
				path := c.linkSetting(l, side.name, s)
				if known := byPath[path]; known != nil {
					if known.link != l.Name {
						known.more++
						known.link = l.Name
					}
					continue
				}
				u := &use{path: path, link: l.Name,
					text: fmt.Sprintf("%s %s on %s", s.Key, s.Text(&side.d), l.Name)}
				byPath[path] = u
				uses = append(uses, u)
			}
		}
	}
	for i, step := range c.t.Steps {
		if step.Link == nil || step.Link.Set == nil {
			continue
		}
		set := Direction{}.With(*step.Link.Set)
		for _, s := range set.By(spec.Netem) {
			uses = append(uses, &use{path: fmt.Sprintf("steps[%d].link.set.%s", i, s.Key),
				text: fmt.Sprintf("%s %s on %s", s.Key, s.Text(&set), step.Link.Where)})
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
