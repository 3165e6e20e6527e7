package convert

import (
	"fmt"
	"slices"
	"strings"

	"railbed/plan"
	"railbed/plan/spec"
)

// beside is the name of the network for nodes with a management NIC.
const beside = "management"

// ToCompose converts a testbed and its plan to a Compose file. The file has a service for each
// node, and a network for each part of the fabric in which NICs reach each other. The notes list
// the omissions.
func ToCompose(t *spec.Testbed, p *plan.Plan, image string) ([]byte, spec.Problems, error) {
	e := newExporter(t, p, image)
	parts, names := e.parts()
	var services mapping
	managed := false
	for i := range p.Nodes {
		n := &p.Nodes[i]
		service := e.service(n.Name)
		if len(n.Env) > 0 {
			variables := settings(n.Env)
			for i, v := range variables {
				variables[i].value = literal(v.value.(string))
			}
			service = append(service, entry{"environment", variables})
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
		if made := e.testbed.NodeFor(n.Name); made.Management != nil {
			joined = append(joined, beside)
			if !made.Management.Internet {
				e.note(fmt.Sprintf("nodes[%q]", n.Name), unisolated, "%s", n.Name)
			}
			managed = true
		}
		services = append(services, entry{n.Name, append(service, entry{"networks", joined})})
	}
	var networks mapping
	for _, name := range names {
		networks = append(networks, entry{name, mapping{{"driver", "bridge"}, {"internal", true}}})
	}
	if managed {
		networks = append(networks, entry{beside, mapping{{"driver", "bridge"}}})
	}
	e.note("fabric", class{"the switches, and rates, delays and addresses of links, are left out", "",
		"Compose has networks, but no switches or links"}, "%d links", len(p.Links))
	e.leaveSteps(false)
	text, err := write("Made by: railbed export compose",
		mapping{{"name", t.Name}, {"services", services}, {"networks", networks}})
	return text, e.sorted(), err
}

// service returns the settings of a node in Compose's format.
func (e *exporter) service(name string) mapping {
	made := e.testbed.NodeFor(name)
	var ports mapping
	if made.Management != nil && len(made.Management.Publish) > 0 {
		ports = mapping{{"ports", made.Management.Publish}}
	}
	if made.Runtime != spec.Docker || made.Image == "" && made.Build == "" {
		e.standsIn(made, name)
		return append(mapping{{"image", e.image}, {"hostname", name},
			{"command", []string{"sleep", "infinity"}}, {"init", true},
			{"cap_add", []string{netAdmin, "NET_RAW"}}}, ports...)
	}
	service := append(mapping{{"image", made.Image}, {"hostname", name}}, ports...)
	if made.Build != "" {
		service[0] = entry{"build", made.Build}
	}
	if made.Idle {
		made.Entrypoint = []string{"sleep", "infinity"}
	}
	for _, e := range []struct {
		key  string
		list []string
	}{{"entrypoint", made.Entrypoint}, {"command", made.Command}, {"volumes", relative(made.Binds)},
		{"cap_add", made.Capabilities}, {"devices", made.Devices}} {
		if len(e.list) > 0 {
			service = append(service, entry{e.key, literals(e.list)})
		}
	}
	for _, e := range []entry{{"restart", made.Restart}, {"pull_policy", made.Pull}} {
		if e.value != "" {
			service = append(service, e)
		}
	}
	if made.Health != nil {
		interval, retries := healthOf(made.Health)
		every := fmt.Sprintf("%ds", interval)
		service = append(service, entry{"healthcheck",
			mapping{{"test", append([]string{"CMD"}, literals(made.Health.Command)...)}, {"interval", every},
				{"timeout", every}, {"retries", retries}}})
	}
	var limits mapping
	for _, l := range settings(made.Ulimits) {
		soft, hard, both := strings.Cut(l.value.(string), ":")
		if !both {
			hard = soft
		}
		limits = append(limits, entry{l.key, mapping{{"soft", soft}, {"hard", hard}}})
	}
	if limits != nil {
		service = append(service, entry{"ulimits", limits})
	}
	return service
}

// literal escapes text so that Compose substitutes no variables in it.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

func literals(list []string) []string {
	all := slices.Clone(list)
	for i, text := range all {
		all[i] = literal(text)
	}
	return all
}

// relative returns binds whose sources Compose takes for files. Compose takes a bare name for the
// name of a volume.
func relative(binds []string) []string {
	all := slices.Clone(binds)
	for i, bind := range all {
		if !strings.HasPrefix(bind, "/") && !strings.HasPrefix(bind, ".") {
			all[i] = "./" + bind
		}
	}
	return all
}

// parts maps each link to the name of its network, by the links that the switches connect.
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
