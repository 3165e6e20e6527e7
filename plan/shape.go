package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"railbed/internal/nearest"
	"railbed/plan/spec"
	"railbed/plan/topology"
)

// shape builds the graph of the fabric, by a generator or from the explicit links of the file.
func (c *compiler) shape() {
	f := &c.t.Fabric
	if f.Topology == spec.Explicit {
		c.explicitShape()
		return
	}
	params := map[string]int{}
	for _, p := range f.Params {
		params[p.Key] = p.Value
	}
	graph, err := topology.Generate(f.Topology, params)
	for _, e := range joined(err) {
		var p *topology.ParamError
		if !errors.As(e, &p) {
			c.wrong("fabric.topology", "", "%v", e)
			continue
		}
		c.wrongParam(p)
	}
	c.graph = graph
}

func (c *compiler) wrongParam(p *topology.ParamError) {
	path := fmt.Sprintf("fabric.params[%q]", p.Param)
	generator, _ := topology.Find(p.Topology)
	switch {
	case p.Missing && !c.t.Source.Has("fabric.params"):
		c.wrong("fabric.topology", p.Want, "%s", p.What)
	case p.Missing:
		c.wrong("fabric.params", p.Want, "%s", p.What)
	case slices.ContainsFunc(generator.Params, func(g topology.Param) bool { return g.Name == p.Param }):
		c.wrong(path, p.Want, "%s", p.What)
	default:
		c.wrongKey(path, suggest(p.Param, generator.ParamNames(), p.Want), "%s", p.What)
	}
}

func (c *compiler) explicitShape() {
	f := &c.t.Fabric
	w := topology.Wiring{Hosts: f.Hosts, Connect: f.Connect}
	for _, entry := range f.Switches {
		if entry.Key != spec.DefaultKey && !spec.IsGlob(entry.Key) {
			w.Switches = append(w.Switches, entry.Key)
		}
	}
	if len(f.Hosts) == 0 && len(f.Switches) == 0 {
		c.wrong("fabric", `want hosts: [a, b], switches: {s: {}} and connect: ["a -- s", "b -- s"]`,
			"topology explicit has no hosts and no switches")
		return
	}
	if len(f.Hosts) == 0 {
		c.checkStepsWithoutHosts()
	}
	graph, err := topology.Explicit(w)
	for _, e := range joined(err) {
		var wrong *topology.WiringError
		if !errors.As(e, &wrong) {
			c.wrong("fabric", "", "%v", e)
			continue
		}
		want := wrong.Want
		if wrong.Unknown != "" {
			want = suggest(wrong.Unknown, append(slices.Clone(w.Hosts), w.Switches...), want)
		}
		if wrong.List == "switches" {
			c.wrongKey(fmt.Sprintf("fabric.switches[%q]", w.Switches[wrong.Index]), want, "%s", wrong.What)
		} else {
			c.wrong(fmt.Sprintf("fabric.%s[%d]", wrong.List, wrong.Index), want, "%s", wrong.What)
		}
	}
	c.graph = graph
}

// checkStepsWithoutHosts reports steps that need nodes, in a fabric of switches alone.
func (c *compiler) checkStepsWithoutHosts() {
	for i := range c.t.Steps {
		key, action := c.t.Steps[i].Action()
		switch action.(type) {
		case *spec.Workload, *spec.Training, *spec.Messages, *spec.Traffic, *spec.Probe, *spec.Stack:
			c.wrong(fmt.Sprintf("steps[%d].%s", i, key), `want hosts: [a] and connect: ["a -- SWITCH"]`,
				"a step of %s in a fabric without hosts", key)
		}
	}
}

// joined returns the errors that errors.Join joined.
func joined(err error) []error {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// suggest asks whether a near name was meant. Without one it returns want.
func suggest(name string, candidates []string, want string) string {
	if a, b, isLink := strings.Cut(name, "--"); isLink && slices.Contains(candidates, b+"--"+a) {
		return fmt.Sprintf("did you mean %q? The end nearer to the servers comes first", b+"--"+a)
	}
	if near := nearest.Word(name, candidates); near != "" && !spec.IsGlob(name) {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return want
}
