package convert

import (
	"fmt"

	"railbed/testbed/plan"
	"railbed/testbed/spec"
)

// ToCompose makes a Compose file of a testbed and its plan: a service for each
// node, and a network for each part of the fabric in which NICs reach each other.
// The notes are what it leaves out.
func ToCompose(t *spec.Testbed, p *plan.Plan, image string) ([]byte, spec.Problems, error) {
	e := newExporter(t, p, image)
	parts, names := e.parts()
	var services mapping
	for i := range p.Nodes {
		n := &p.Nodes[i]
		service := e.service(n.Name)
		if len(n.Env) > 0 {
			service = append(service, entry{"environment", settings(n.Env)})
		}
		if len(n.Sysctls) > 0 {
			service = append(service, entry{"sysctls", settings(n.Sysctls)})
		}
		if n.CPU > 0 {
			service = append(service, entry{"cpus", n.CPU})
		}
		if n.Memory > 0 {
			service = append(service, entry{"mem_limit", fmt.Sprintf("%db", n.Memory)})
		}
		var joined []string
		seen := map[string]bool{}
		for _, nic := range n.NICs {
			if part := parts[nic.Link]; !seen[part] {
				seen[part] = true
				joined = append(joined, part)
			}
		}
		services = append(services, entry{n.Name, append(service, entry{"networks", joined})})
	}
	var networks mapping
	for _, name := range names {
		networks = append(networks, entry{name, mapping{{"driver", "bridge"}, {"internal", true}}})
	}
	e.note("fabric", "Compose has networks and nothing between them", "the switches, and rates, delays and addresses of %d links, are left out", len(p.Links))
	e.leaveSteps(false)
	text, err := write("Made by: railbed export compose", mapping{{"name", t.Name}, {"services", services}, {"networks", networks}})
	return text, e.sorted(), err
}

// service is what a node is made of, in Compose's words.
func (e *exporter) service(name string) mapping {
	made := e.testbed.NodeFor(name)
	if made.Runtime != spec.Docker || made.Image == "" {
		if made.Runtime != spec.Netns {
			e.note(fmt.Sprintf("nodes[%q]", name), "", "node %s is a container of image %s, not of runtime %s", name, e.image, made.Runtime)
		}
		return mapping{{"image", e.image}, {"hostname", name}, {"command", []string{"sleep", "infinity"}}, {"init", true}, {"cap_add", []string{netAdmin, "NET_RAW"}}}
	}
	service := mapping{{"image", made.Image}, {"hostname", name}}
	if made.Idle {
		made.Entrypoint = []string{"sleep", "infinity"}
	}
	for _, e := range []struct {
		key  string
		list []string
	}{{"entrypoint", made.Entrypoint}, {"command", made.Command}, {"volumes", made.Binds}, {"cap_add", made.Capabilities}, {"devices", made.Devices}} {
		if len(e.list) > 0 {
			service = append(service, entry{e.key, e.list})
		}
	}
	if made.Restart != "" {
		service = append(service, entry{"restart", made.Restart})
	}
	return service
}

// parts gives each link the name of the network that it is in, by what the
// switches join.
func (e *exporter) parts() (map[string]string, []string) {
	parent := map[string]string{}
	var find func(string) string
	find = func(name string) string {
		if up, is := parent[name]; is && up != name {
			parent[name] = find(up)
			return parent[name]
		}
		return name
	}
	isNode := map[string]bool{}
	for _, n := range e.plan.Nodes {
		isNode[n.Name] = true
	}
	for _, l := range e.plan.Links {
		if !isNode[l.A.Node] {
			parent[find(l.A.Node)] = find(l.B.Node)
		}
	}
	of, called := map[string]string{}, map[string]string{}
	var names []string
	for _, l := range e.plan.Links {
		root := find(l.B.Node)
		if called[root] == "" {
			called[root] = fmt.Sprintf("fabric%d", len(names))
			names = append(names, called[root])
		}
		of[l.Name] = called[root]
	}
	return of, names
}
