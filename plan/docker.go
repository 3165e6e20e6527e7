package plan

import (
	"slices"

	"railbed/plan/spec"
)

// dockerEngine is the host feature that containers need.
const dockerEngine = "docker"

// HasDocker reports whether any node is a container of an engine.
func (p *Plan) HasDocker() bool {
	for i := range p.Nodes {
		if p.Nodes[i].Container != nil {
			return true
		}
	}
	return false
}

// checkDocker reports settings that have no effect on a node, and a container without contents.
func (c *compiler) checkDocker(name string, settings spec.Node) {
	if settings.Runtime == spec.Docker {
		if len(settings.Sources()) == 0 {
			path := c.nodeSetting(name, "runtime", func(n spec.Node) bool { return n.Runtime != "" })
			c.once(path, "add image: NAME, build: FOLDER or rootfs: ARCHIVE",
				"the container of node %s has no image, build or rootfs", name)
		}
		if settings.BuildNetwork != "" && settings.Build == "" {
			path := c.nodeSetting(name, "build-network", func(n spec.Node) bool {
				return n.BuildNetwork != ""
			})
			c.once(path, "add build: FOLDER, or remove build-network",
				"node %s has build-network without build", name)
		}
		if settings.RDMA == spec.RXE {
			path := c.nodeSetting(name, "rdma", func(n spec.Node) bool { return n.RDMA != "" })
			c.once(path, "want runtime: vm or netns",
				"node %s is a container, and containers have no RDMA devices", name)
		}
		return
	}
	for _, key := range settings.Container.Keys() {
		path := c.nodeSetting(name, key, func(n spec.Node) bool {
			return slices.Contains(n.Container.Keys(), key)
		})
		c.once(path, "add runtime: docker, or remove "+key,
			"%s is only for containers, and node %s is no container", key, name)
	}
}

// requireDocker adds the requirements of containers, at the first container, and records where the
// file defines containers.
func (c *compiler) requireDocker() {
	for i := range c.plan.Nodes {
		n := &c.plan.Nodes[i]
		if n.Container == nil {
			continue
		}
		if c.plan.Containers == nil {
			path := c.nodeSetting(n.Name, "runtime", func(n spec.Node) bool { return n.Runtime != "" })
			c.require(dockerEngine, "node "+n.Name+" is a container", path)
			c.plan.Containers = map[string]string{}
		}
		path := c.nodeSetting(n.Name, n.Container.Sources()[0], func(n spec.Node) bool {
			return len(n.Sources()) > 0
		})
		c.plan.Containers[n.Name] = c.t.Source.Pos(path).String()
	}
}
