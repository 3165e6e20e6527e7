package convert

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"railbed/plan/spec"
)

// wired is a link in the testbed's terms.
type wired struct {
	a, b string // names
	from labLink
}

// addLinks adds the links. A link between two servers gets a switch in the middle, because each
// link of a testbed has a switch at one end at least.
func (i *importer) addLinks() spec.Problems {
	f := &i.testbed.Fabric
	var all []wired
	var problems spec.Problems
	wires := 0
	for _, l := range i.lab.links {
		known := true
		for _, end := range l.ends {
			if _, is := i.nodes[end.node]; !is {
				problems = append(problems, spec.Problem{File: i.file, Line: end.at.line,
					Column: end.at.column, What: fmt.Sprintf("there is no node %q", end.node),
					Want: "want a name of topology.nodes"})
				known = false
			}
		}
		if !known {
			continue
		}
		if i.roles[l.ends[0].node] == left || i.roles[l.ends[1].node] == left {
			i.add(l.at, "", "link %s:%s -- %s:%s is left out with its node", l.ends[0].node, l.ends[0].port,
				l.ends[1].node, l.ends[1].port)
			continue
		}
		a, b := i.names.given[l.ends[0].node], i.names.given[l.ends[1].node]
		left, right := a+i.port(l.ends[0]), b+i.port(l.ends[1])
		if i.roles[l.ends[0].node] == server && i.roles[l.ends[1].node] == server {
			wires++
			wire := i.names.give(wirePrefix + strconv.Itoa(wires))
			i.add(l.at, "", "switch %[3]s is added between %[1]s and %[2]s", a, b, wire)
			f.Switches = append(f.Switches, spec.Entry[spec.Switch]{Key: wire})
			f.Connect = append(f.Connect, left+" -- "+wire, right+" -- "+wire)
			all = append(all, wired{a, wire, l}, wired{b, wire, l})
			continue
		}
		f.Connect = append(f.Connect, left+" -- "+right)
		all = append(all, wired{a, b, l})
	}
	if len(f.Hosts)+len(f.Switches) == 0 && len(problems) == 0 {
		problems = append(problems, spec.Problem{File: i.file, Line: 1, Column: 1,
			What: "no node of the topology has a link to another", Want: "want links between nodes"})
	}
	if len(problems) > 0 {
		return problems
	}
	problems = i.addLinkSettings(all)
	i.readRouters()
	i.findAddresses()
	i.chooseSwitches()
	return problems
}

// addLinkSettings converts the settings of links: their label or, without one, their MTU.
func (i *importer) addLinkSettings(all []wired) spec.Problems {
	f := &i.testbed.Fabric
	var problems spec.Problems
	least := math.MaxInt
	mtus := make([]int, len(all))
	for n, w := range all {
		mtus[n] = defaultMTU
		if text := w.from.mtu; text.value != "" {
			value, err := strconv.Atoi(text.value)
			if err != nil {
				problems = append(problems, spec.Problem{File: i.file, Line: text.at.line,
					Column: text.at.column, What: fmt.Sprintf("invalid mtu %q", text.value),
					Want: "want a number of bytes"})
				continue
			}
			mtus[n] = value
		}
		l, own := label(w.from.labels, labelLink)
		if !own {
			least = min(least, mtus[n])
			continue
		}
		settings, err := spec.ParsePart[spec.Link](labelLink, l.value)
		if err != nil {
			problems = append(problems, i.ofLabel(labelLink, l, err)...)
			continue
		}
		settings.MTU = mtus[n]
		f.Links = append(f.Links, spec.Entry[spec.Link]{Key: i.linkName(all, n), Value: settings})
	}
	if len(problems) > 0 || least == math.MaxInt {
		return problems
	}
	f.Links = append(f.Links, spec.Entry[spec.Link]{Key: spec.DefaultKey, Value: spec.Link{MTU: least}})
	for n, w := range all {
		if _, own := label(w.from.labels, labelLink); own || mtus[n] == least {
			continue
		}
		if !i.oneMTU && i.hasRouters() {
			f.Links = append(f.Links,
				spec.Entry[spec.Link]{Key: i.linkName(all, n), Value: spec.Link{MTU: mtus[n]}})
			continue
		}
		i.add(w.from.at, "bridges, and links that the packets of wider links cross, have the smallest mtu",
			"the mtu of link %s--%s is %d", w.a, w.b, least)
	}
	for _, w := range all {
		i.leaveLabels(definition{labels: w.from.labels})
	}
	return nil
}

// hasRouters reports whether some node routes. All links of bridges have one MTU.
func (i *importer) hasRouters() bool {
	return slices.Contains(slices.Collect(maps.Values(i.roles)), router)
}

// linkName returns the plan's name of a link.
func (i *importer) linkName(all []wired, n int) string {
	same := 0
	for _, w := range all {
		if w.a == all[n].a && w.b == all[n].b || w.a == all[n].b && w.b == all[n].a {
			same++
		}
	}
	left, right, _ := strings.Cut(i.testbed.Fabric.Connect[n], " -- ")
	if slices.Contains(i.testbed.Fabric.Hosts, all[n].b) {
		left, right = right, left
	}
	if same == 1 {
		left, _, _ = strings.Cut(left, ":")
		right, _, _ = strings.Cut(right, ":")
	}
	return left + "--" + right
}
