package spec

import (
	"cmp"
	"fmt"
	"strings"

	"railbed/internal/printable"
	"railbed/internal/units"
)

// Training runs a training job. Each rank computes, which only takes time, and exchanges real bytes
// with others. The job is given by a model or by a recorded trace.
type Training struct {
	// Name is the name by which checks refer to the job.
	Name string `yaml:"name" json:"name"`
	// Model describes the job by a transformer and the division of its training among dp * tp * pp ranks.
	Model *Model `yaml:"model,omitempty" json:"model,omitempty"`
	// Trace is a file with the job: a workload of SimAI or AICB (.txt), the first of Chakra's
	// execution traces (NAME.0.et), or a traffic matrix of htsim (.cm). Chakra's traces can also be
	// JSON (NAME.0.json). The path is relative to this file.
	Trace string `yaml:"trace,omitempty" json:"trace,omitempty"`
	// Groups is a file with the groups of ranks that Chakra's traces name, in the form of ASTRA-sim's
	// communicator groups: {"1": [0, 1]}. Group 0 is all ranks. The path is relative to this file.
	// Default: NAME.json beside the traces, if it exists.
	Groups string `yaml:"groups,omitempty" json:"groups,omitempty"`
	// World is the number of ranks of the job of a trace. Default: the number that the trace gives.
	// The ranks of a traffic matrix of htsim are the nodes that its connections use. If world is the
	// number after Nodes, all nodes are ranks.
	World int `yaml:"world,omitempty" json:"world,omitempty" jsonschema:"minimum=1,maximum=4096" unit:"ranks"`
	// Placement chooses ranks that no job running at the same time uses. In the order of the job's own
	// ranks, tensor parallel ranks are neighbours, then data parallel ranks, then stages of the pipeline.
	//
	//   - packed (default): fills one leaf after the other.
	//   - spread: takes ranks from all leaves in turn.
	//   - rail-aware: packs by the switches of ranks' own NICs.
	//   - non-idle-aware: packs where no other job runs.
	Placement string `yaml:"placement,omitempty" json:"placement,omitempty" jsonschema:"enum=packed,enum=spread,enum=rail-aware,enum=non-idle-aware"`
	// BytesScale multiplies all sizes, so that a job of a large machine fits on a small one.
	// Default 1.
	BytesScale units.Factor `yaml:"bytes-scale,omitempty" json:"bytes-scale,omitzero" unit:"none"`
	// TimeScale multiplies all times of computation. Default 1.
	TimeScale units.Factor `yaml:"time-scale,omitempty" json:"time-scale,omitzero" unit:"none"`
	// Iterations is the number of measured iterations. Default 5.
	Iterations int `yaml:"iterations,omitempty" json:"iterations,omitempty" jsonschema:"minimum=1,maximum=10000" unit:"iterations"`
	// Warmup is the number of iterations that run before and are not measured. Default 1.
	Warmup int `yaml:"warmup,omitempty" json:"warmup,omitempty" jsonschema:"minimum=0,maximum=10000" unit:"iterations"`
	// Transport is tcp (default), the kernel's TCP; rd, reliable datagrams over many paths; roce,
	// reliable connections of RoCEv2; or quic, QUIC in userspace.
	Transport string `yaml:"transport,omitempty" json:"transport,omitempty" jsonschema:"enum=tcp,enum=rd,enum=roce,enum=quic"`
	Carriage  `yaml:",inline"`
	// Background starts the next step at once. Default false.
	Background bool `yaml:"background,omitempty" json:"background,omitempty"`
	// Timeout is the time after which the job fails. Default 2m.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`

	// Zero marks the fields that are zero on purpose.
	Zero Zeros `yaml:"-" json:"zero,omitempty"`
}

// Model is a transformer and the division of its training among dp * tp * pp ranks.
type Model struct {
	// Layers is the number of layers.
	Layers int `yaml:"layers" json:"layers" jsonschema:"minimum=1,maximum=1024" unit:"layers"`
	// Hidden is the number of values of a token's activation.
	Hidden int `yaml:"hidden" json:"hidden" jsonschema:"minimum=1,maximum=1048576" unit:"values"`
	// Sequence is the number of tokens of a sequence.
	Sequence int `yaml:"sequence" json:"sequence" jsonschema:"minimum=1,maximum=16777216" unit:"tokens"`
	// Vocabulary is the number of entries of the embedding. A separate transposed matrix makes the
	// logits. Default: no embedding and no logits.
	Vocabulary int `yaml:"vocabulary,omitempty" json:"vocabulary,omitempty" jsonschema:"minimum=1,maximum=16777216" unit:"entries"`
	// Heads is the number of attention heads, a multiple of tp. Default: as many as tp.
	Heads int `yaml:"heads,omitempty" json:"heads,omitempty" jsonschema:"minimum=1,maximum=65536" unit:"heads"`
	// FFN is the inner size of the feed-forward block. Default: 4 * hidden.
	FFN int `yaml:"ffn,omitempty" json:"ffn,omitempty" jsonschema:"minimum=1,maximum=4194304" unit:"values"`
	// MicroBatch is the number of sequences that go through the model at once. Default 1.
	MicroBatch int `yaml:"micro-batch,omitempty" json:"micro-batch,omitempty" jsonschema:"minimum=1,maximum=1048576" unit:"sequences"`
	// GlobalBatch is the number of sequences of an iteration. Default: dp * micro-batch.
	GlobalBatch int `yaml:"global-batch,omitempty" json:"global-batch,omitempty" jsonschema:"minimum=1,maximum=16777216" unit:"sequences"`
	// DP is the degree of data parallelism. Default 1.
	DP int `yaml:"dp,omitempty" json:"dp,omitempty" jsonschema:"minimum=1,maximum=256" unit:"ranks"`
	// TP is the degree of tensor parallelism. Default 1.
	TP int `yaml:"tp,omitempty" json:"tp,omitempty" jsonschema:"minimum=1,maximum=256" unit:"ranks"`
	// PP is the number of stages of the pipeline. Default 1.
	PP int `yaml:"pp,omitempty" json:"pp,omitempty" jsonschema:"minimum=1,maximum=256" unit:"stages"`
	// EP is the number of ranks of a data parallel group that share the experts. Default 1.
	EP int `yaml:"ep,omitempty" json:"ep,omitempty" jsonschema:"minimum=1,maximum=256" unit:"ranks"`
	// Experts is the number of experts of each layer. Default 1, which is no mixture.
	Experts int `yaml:"experts,omitempty" json:"experts,omitempty" jsonschema:"minimum=1,maximum=4096" unit:"experts"`
	// TopK is the number of experts to which each token goes. Default 1.
	TopK int `yaml:"top-k,omitempty" json:"top-k,omitempty" jsonschema:"minimum=1,maximum=64" unit:"experts"`
	// SP divides along the sequence the parts that tensor parallelism does not divide. Default
	// false.
	SP bool `yaml:"sp,omitempty" json:"sp,omitempty"`
	// ZeRO is the stage of ZeRO: 0 (default) partitions nothing, 1 the optimizer's states, 2
	// gradients too, 3 parameters too.
	ZeRO int `yaml:"zero,omitempty" json:"zero,omitempty" jsonschema:"minimum=0,maximum=3" unit:"none"`
	// DType is the type of activations, gradients and parameters. Default bf16.
	DType string `yaml:"dtype,omitempty" json:"dtype,omitempty" jsonschema:"enum=bf16,enum=fp16,enum=fp32"`
	// Bucket is the least size of the gradients that are reduced together while the backward pass
	// continues. Default 25MB, as in PyTorch.
	Bucket units.Bytes `yaml:"bucket,omitempty" json:"bucket,omitempty"`
	// TFLOPS is the most floating-point operations that a device does per second, in units of
	// 10^12.
	TFLOPS units.Factor `yaml:"tflops" json:"tflops" unit:"10^12 operations per second"`
	// Efficiency is the share of tflops that the model reaches. Default 40%.
	Efficiency units.Ratio `yaml:"efficiency,omitempty" json:"efficiency,omitzero"`
}

// Types of a model's numbers.
const (
	BF16 = "bf16"
	FP16 = "fp16"
	FP32 = "fp32"
)

// Policies of placement.
const (
	PlacementPacked       = "packed"
	PlacementSpread       = "spread"
	PlacementRailAware    = "rail-aware"
	PlacementNonIdleAware = "non-idle-aware"
)

// defaultBucket is bucket_cap_mb of PyTorch's DistributedDataParallel.
const defaultBucket = units.Bytes(25 << 20)

func (t *Training) setDefaults() {
	t.Iterations = cmp.Or(t.Iterations, defaultIterations)
	t.Warmup = over(t.Warmup, defaultWarmup, t.Zero&ZeroWarmup != 0)
	t.Transport = cmp.Or(t.Transport, defaultTransport)
	t.Carriage.setDefaults()
	t.Timeout = cmp.Or(t.Timeout, defaultWorkloadTimeout)
	if len(t.Ranks) == 0 {
		t.Placement = cmp.Or(t.Placement, PlacementPacked)
	}
	if t.Model != nil {
		t.Model.setDefaults()
	}
}

func (m *Model) setDefaults() {
	for _, degree := range []*int{&m.DP, &m.TP, &m.PP, &m.EP, &m.Experts, &m.TopK, &m.MicroBatch} {
		*degree = cmp.Or(*degree, 1)
	}
	m.Heads = cmp.Or(m.Heads, m.TP)
	m.FFN = cmp.Or(m.FFN, 4*m.Hidden)
	m.GlobalBatch = cmp.Or(m.GlobalBatch, m.DP*m.MicroBatch)
	m.DType = cmp.Or(m.DType, BF16)
	m.Bucket = cmp.Or(m.Bucket, defaultBucket)
	if m.Efficiency.IsZero() {
		m.Efficiency = units.Ratio{Num: 2, Den: 5}
	}
}

// defaults returns the model with defaults for all settings that it omits. Some depend on other
// settings.
func (m Model) defaults() Model {
	own := Model{Hidden: m.Hidden, DP: m.DP, TP: m.TP, MicroBatch: m.MicroBatch}
	own.setDefaults()
	own.DP, own.TP, own.MicroBatch = 1, 1, 1
	return own
}

// FormulaTraining is the formula for the bytes of a training job.
const FormulaTraining = "training"

// training returns the job with a name, or nil if there is none.
func (t *Testbed) training(name string) *Training {
	for _, step := range t.Steps {
		if step.Training != nil && step.Training.Name == name {
			return step.Training
		}
	}
	return nil
}

// trainingFormula checks that a check of a job's bytes has the formula of jobs.
func (c *checker) trainingFormula(at string, b *BytesPerRank, t *Training) {
	if t.Name == b.Workload && b.Formula != FormulaTraining && !c.Known(at+".formula") {
		c.Report(at+".formula", fmt.Sprintf("formula %q of a training job", printable.Clip(b.Formula)),
			"want "+FormulaTraining)
	}
}

// World returns the number of ranks among which the model is divided.
func (m *Model) World() int { return m.DP * m.TP * m.PP }

// Traits checks conditions on a job that struct tags cannot express. Traits implements Action.
func (t *Training) Traits() Traits {
	return Traits{Name: t.Name, Background: t.Background, Timeout: t.Timeout, Transport: t.Transport,
		Carriage: &t.Carriage}
}

func (t *Training) check(c *checker, at string, _ int) {
	c.unique(at+".name", t.Name)
	c.positive(at+".timeout", uint64(t.Timeout), "timeout is 0", "want a duration such as 2m")
	c.exactlyOne(at, *t, "model", "trace")
	if t.Groups != "" && !strings.HasSuffix(t.Trace, ".et") && !strings.HasSuffix(t.Trace, ".json") {
		c.Report(at+".groups", "groups without a trace of Chakra",
			"remove groups, or want a trace NAME.0.et or NAME.0.json")
	}
	c.carriage(at, cmp.Or(t.Transport, defaultTransport), &t.Carriage)
	if t.Placement != "" && len(t.Ranks) > 0 {
		c.Report(at+".placement", "placement and ranks are both set", "remove one of them")
	}
	if t.World != 0 && (t.Model != nil || len(t.Ranks) > 0 && len(t.Ranks) != t.World) {
		c.Report(at+".world", fmt.Sprintf("world %d with a model, or with another number of ranks", t.World),
			"remove it")
	}
	if t.Model != nil && !c.Broken(at+".model") {
		m := *t.Model // with defaults, which are set after the checks
		m.setDefaults()
		c.model(at+".model", &m)
		if n := m.World(); len(t.Ranks) > 0 && len(t.Ranks) != n {
			c.Report(at+".ranks", fmt.Sprintf("%d ranks for dp %d * tp %d * pp %d", len(t.Ranks), m.DP, m.TP,
				m.PP), fmt.Sprintf("want %d", n))
		}
	}
}

// model checks that the degrees of parallelism divide the numbers that they must divide.
func (c *checker) model(at string, m *Model) {
	divides := func(key string, whole int, what string, by int) {
		if by > 0 && whole%by != 0 {
			c.Report(at+"."+key, fmt.Sprintf("%s %d does not divide %s, %d", key, by, what, whole),
				fmt.Sprintf("want a divisor of %d", whole))
		}
	}
	divides("pp", m.Layers, "the layers", m.PP)
	divides("tp", m.Heads, "the heads", m.TP)
	divides("tp", m.Hidden, "the hidden size", m.TP)
	divides("tp", m.FFN, "the feed-forward size", m.TP)
	divides("ep", m.DP, "dp", m.EP)
	divides("ep", m.Experts, "the experts", m.EP)
	if m.SP {
		divides("tp", m.Sequence, "the sequence", m.TP)
	}
	if each := m.DP * m.MicroBatch; m.GlobalBatch%each != 0 {
		c.Report(at+".global-batch", fmt.Sprintf("a global batch of %d with dp %d and micro-batches of %d",
			m.GlobalBatch, m.DP, m.MicroBatch), fmt.Sprintf("want a multiple of %d", each))
	}
	switch {
	case m.SP && m.TP == 1:
		c.Report(at+".sp", "sequence parallelism without tensor parallelism",
			"want tp of at least 2, or remove it")
	case m.ZeRO > 1 && m.PP > 1:
		// Partitioned gradients cannot wait for the other micro-batches of a pipeline (DeepSpeed,
		// "Pipeline Parallelism").
		c.Report(at+".zero", fmt.Sprintf("zero %d with a pipeline of %d stages", m.ZeRO, m.PP),
			"want zero of at most 1, or pp: 1")
	case m.TopK > m.Experts:
		c.Report(at+".top-k", fmt.Sprintf("top-k is %d and experts %d", m.TopK, m.Experts),
			fmt.Sprintf("want at most %d", m.Experts))
	}
	if m.Efficiency.Float() > 1 {
		c.Report(at+".efficiency", "efficiency is above 100%", "want a share such as 40%")
	}
}
