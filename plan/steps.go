package plan

import (
	"fmt"
	"reflect"
	"slices"

	"railbed/plan/spec"
)

// stepChecks are the checks of steps against the plan, by the types of their actions.
var stepChecks = map[reflect.Type]func(c *compiler, w *words, path string, a spec.Action){}

// checkStep registers a check of a kind of step for which names with the tag "names" are not enough. The file
// of the check calls it when the program starts.
func checkStep[A spec.Action](check func(c *compiler, w *words, path string, a A)) struct{} {
	stepChecks[reflect.TypeFor[A]()] = func(c *compiler, w *words, path string, a spec.Action) {
		check(c, w, path, a.(A))
	}
	return struct{}{}
}

// checkSteps reports steps and checks that name something that does not exist. They would fail in
// the middle of a run, or check nothing.
func (c *compiler) checkSteps() {
	w := c.words()
	defer func() { c.problems = append(c.problems, w.problems...) }()
	for i := range c.t.Steps {
		path := fmt.Sprintf("steps[%d]", i)
		w.check(path, c.t.Steps[i].Names())
		key, action := c.t.Steps[i].Action()
		if check, known := stepChecks[reflect.TypeOf(action)]; known {
			check(c, w, path+"."+key, action)
		}
	}
	c.checkLinkSteps()
	for i, check := range c.t.Checks {
		if check.Packets != nil {
			w.check(fmt.Sprintf("checks[%d].packets", i), check.Packets.Names())
		}
	}
}

var _ = checkStep((*compiler).checkDevices)

// checkDevices reports a benchmark of RDMA in nodes without an RDMA device.
func (c *compiler) checkDevices(_ *words, path string, s *spec.Stack) {
	if s.Kind != spec.Perftest {
		return
	}
	for i := range c.plan.Nodes {
		name := c.plan.Nodes[i].Name
		meant := len(s.Nodes) == 0 || slices.ContainsFunc(s.Nodes, func(pattern string) bool {
			return spec.Match(pattern, name)
		})
		if meant && c.plan.Nodes[i].RDMA == "" {
			c.wrong(path+".kind", "want nodes: {default: {runtime: vm, rdma: rxe}}, or railbed rdma as a "+
				"command, which needs no device", "%s in %s, which has no RDMA device", s.Kind, name)
			return
		}
	}
}
