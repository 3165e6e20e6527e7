package spec

import (
	"cmp"

	"railbed/internal/element"
	"railbed/internal/units"
)

// SetDefaults fills in values that the file omits: the seed, the dilation, the address pools, and
// the optional settings of captures, workloads, commands and checks. It leaves settings of nodes,
// switches and links as they are. Their defaults apply after all overrides: NodeFor, SwitchFor and
// LinkFor add them. Decode has called SetDefaults. A second call changes nothing.
func (t *Testbed) SetDefaults() {
	t.Seed = cmp.Or(t.Seed, defaultSeed)
	t.Dilation = cmp.Or(t.Dilation, defaultDilation)
	a := &t.Addressing
	a.Loopbacks4 = cmp.Or(a.Loopbacks4, DefaultLoopbacks4)
	a.Links4 = cmp.Or(a.Links4, DefaultLinks4)
	a.Loopbacks6 = cmp.Or(a.Loopbacks6, DefaultLoopbacks6)
	a.Links6 = cmp.Or(a.Links6, DefaultLinks6)
	if t.Fabric.Routing != nil {
		t.Fabric.Routing.setDefaults()
	}
	for i := range t.Steps {
		t.Steps[i].setDefaults()
	}
	t.faultNames()
	names := t.workloads()
	for i := range t.Checks {
		if p := t.Checks[i].Packets; p != nil && len(names) == 1 {
			p.setDefaults(names[0])
		}
	}
}

func (c *Capture) setDefaults() {
	c.SnapLen = cmp.Or(c.SnapLen, defaultSnapLen)
	c.Limit = cmp.Or(c.Limit, defaultLimit)
	if c.Last > 0 {
		c.LastBytes = cmp.Or(c.LastBytes, defaultLastBytes)
	}
}

func (w *Workload) setDefaults() {
	iterations, warmup := defaultIterations, defaultWarmup
	if w.Kind == KindSGD {
		w.SGD = cmp.Or(w.SGD, &SGD{})
		w.SGD.setDefaults()
		iterations, warmup = defaultSGDIterations, 0
	}
	w.Algorithm = cmp.Or(w.Algorithm, defaultAlgorithm(w.Collective()))
	w.Transport = w.transport()
	if w.MoE != nil {
		w.MoE.setDefaults()
	}
	if w.Kind != KindSGD && w.Kind != KindMoE {
		w.Type = cmp.Or(w.Type, string(element.Float32))
	}
	w.Op = cmp.Or(w.Op, defaultOp(w.Kind))
	if w.Sizes != nil {
		w.Sizes.Factor = cmp.Or(w.Sizes.Factor, defaultFactor)
	}
	w.Iterations = cmp.Or(w.Iterations, iterations)
	w.Warmup = over(w.Warmup, warmup, w.Zero&ZeroWarmup != 0)
	w.Carriage.setDefaults()
	w.Timeout = cmp.Or(w.Timeout, defaultWorkloadTimeout)
}

func (e *Exec) setDefaults() {
	e.Timeout = cmp.Or(e.Timeout, defaultExecTimeout)
	if e.Expect == nil {
		e.Expect = new(int)
	}
}

const (
	defaultSeed       = 1
	defaultDilation   = 1
	defaultIterations = 5
	defaultWarmup     = 1
	defaultFactor     = 2
	// The longest packet of rd without payload has 526 bytes: an encrypted ACK over IPv6 with a
	// tag.
	defaultSnapLen         = units.Bytes(576)
	defaultLastBytes       = units.Bytes(256 << 20)
	defaultLimit           = units.Bytes(2 << 30)
	defaultWorkloadTimeout = units.Duration(2 * 60e9)
	defaultExecTimeout     = units.Duration(60e9)
)
