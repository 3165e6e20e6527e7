package training

import (
	"fmt"
	"slices"
	"time"

	"railbed/plan/schedule"
	"railbed/plan/spec"
)

// Groups of a compiled model's operations.
const (
	TensorParallel   = "tp"
	DataParallel     = "dp"
	PipelineParallel = "pp"
	ExpertParallel   = "ep"
	// ExpertData is the group of ranks that have the same experts.
	ExpertData = "ep-dp"
)

// Compile makes the program of a model that package spec has checked. Rank r of the job has
// position r % tp in tensor parallelism and position r / tp % dp in data parallelism. It belongs to
// stage r / (tp * dp). This is Megatron-LM's default order.
//
// A layer has matrices of 4 h^2 (attention) and 2 h f (feed-forward, times experts) parameters,
// divided by tp. Biases and norms, 13/(12 h) of that, are left out. Forward of b sequences of s
// tokens takes 8 b s h^2 + 4 b s^2 h operations for attention. It takes 4 b s h f for feed-forward
// and 2 b s h v for logits. Backward takes twice that, without recomputation (Narayanan et al.,
// "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", 2021,
// appendix). The exchanges are:
//
//   - tp: the output of each block is summed. This is an all-reduce of b s h in forward and of its
//     gradient in backward, two blocks a layer (Shoeybi et al., "Megatron-LM", 2019). The
//     embedding's output is summed in forward and the gradient of the logits' input in backward.
//     With sp each sum is an all-gather before the block and a reduce-scatter after it. This
//     follows Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
//     2022, without the second all-gather of inputs in backward.
//   - pp: b s h (b s h / tp with sp) goes to the next stage in forward, and back in backward.
//     Stages follow 1F1B (Narayanan et al., "PipeDream", 2019, without stale weights).
//   - dp: gradients, by an all-reduce. With ZeRO 1 and 2 it is a reduce-scatter, plus an all-gather
//     of parameters at the end. With ZeRO 3 the parameters of each layer, the embedding and the
//     logits are gathered before their forward and before their backward instead (Rajbhandari et
//     al., "ZeRO", 2020, section 7). Gradients are reduced bucket by bucket as soon as they are
//     complete: in the last micro-batch. From ZeRO stage 2 on they are reduced in each micro-batch,
//     because a rank then keeps no gradients of others.
//   - ep: b s h (b s h / tp with sp) times top-k to the experts and back, two all-to-alls a layer in
//     each direction (Lepikhin et al., "GShard", 2020). Gradients of experts are reduced over the ranks
//     that have the same experts. All experts get the same share.
//
// Compile refuses a model with more ranks, tasks or bytes than Check allows.
func Compile(m *spec.Model, scale Scale) (*Program, error) {
	if n := m.World(); n > MaxRanks {
		return nil, tooManyRanks(n)
	}
	// The memory check of one activation or matrix covers all sizes that are computed from them.
	if tokens := float64(m.MicroBatch) *
		float64(m.Sequence); max(tokens*float64(m.Hidden)*float64(max(1, m.TopK)),
		float64(m.Hidden)*float64(max(m.Hidden, m.FFN, m.Vocabulary))*float64(m.Layers)*float64(
			max(1, m.Experts))) > maxNumbers {
		return nil, fmt.Errorf("compile model: the parameters or one activation exceed %d numbers, the limit",
			int64(maxNumbers))
	}
	b := NewBuilder(m.World())
	tasks := 0
	for rank := range b.Tasks {
		s := newStage(m, b, rank)
		s.iteration()
		b.Tasks[rank] = s.tasks
		if tasks += len(s.tasks); tasks > MaxTasks {
			return nil, errTooManyTasks
		}
	}
	return b.Done(scale)
}

// maxNumbers bounds the number of activations and parameters, so that no sum of their bytes exceeds
// 64 bits.
const maxNumbers = 1 << 52

// elementBytes returns the size of a model's numbers.
func elementBytes(m *spec.Model) int {
	if m.DType == spec.FP32 {
		return 4
	}
	return 2
}

// stage makes the tasks of one rank.
type stage struct {
	m                *spec.Model
	builder          *Builder
	rank, tp, dp, pp int
	tensor, data     []int // ranks of its groups
	experts, same    []int
	tasks            []Task
	// computation is the device's next computation, which is not a task yet.
	computation Task
	operations  float64 // floating-point operations of computation
	last        int     // the latest compute task, -1 at first
	// gathered holds the latest compute tasks at the last two gathers that had different ones, the
	// older one first
	gathered [2]int
	buckets  [2]bucket
	reduced  []int // exchanges of gradients
}

// bucket collects gradients that are reduced together.
type bucket struct {
	group string
	ranks []int
	bytes uint64
}

func newStage(m *spec.Model, b *Builder, rank int) *stage {
	s := &stage{m: m, builder: b, rank: rank, tp: rank % m.TP, dp: rank / m.TP % m.DP,
		pp: rank / (m.TP * m.DP), last: -1, gathered: [2]int{-1, -1}}
	for i := range m.TP {
		s.tensor = append(s.tensor, s.at(i, s.dp, s.pp))
	}
	for i := range m.DP {
		s.data = append(s.data, s.at(s.tp, i, s.pp))
		if i/m.EP == s.dp/m.EP {
			s.experts = append(s.experts, s.at(s.tp, i, s.pp))
		}
		if i%m.EP == s.dp%m.EP {
			s.same = append(s.same, s.at(s.tp, i, s.pp))
		}
	}
	s.buckets = [2]bucket{{DataParallel, s.data, 0}, {ExpertData, s.same, 0}}
	return s
}

func (s *stage) operation(group string, kind schedule.Kind, ranks []int, bytes uint64) int {
	return s.builder.Operation(Operation{Group: group, Kind: kind, Ranks: ranks, Bytes: bytes})
}

func (s *stage) at(tp, dp, pp int) int { return tp + s.m.TP*(dp+s.m.DP*pp) }

// compute adds operations of the device. Operations with the same name form one task.
func (s *stage) compute(name string, operations float64) {
	if s.computation.Name != name {
		s.flush()
	}
	s.computation.Name = name
	s.operations += operations
}

// flush makes a task of the computation so far.
func (s *stage) flush() {
	if s.computation.Name == "" {
		return
	}
	t := s.computation
	t.Kind = Compute
	t.Time = time.Duration(s.operations / (s.m.TFLOPS.Float() * s.m.Efficiency.Float() * 1e12) * 1e9)
	s.last = len(s.tasks)
	s.tasks = append(s.tasks, t)
	s.computation, s.operations = Task{}, 0
}

// exchange adds an exchange after the computation so far, and returns its task. With fewer than two
// ranks or no bytes there is no exchange, and it returns -1.
func (s *stage) exchange(name, group string, kind schedule.Kind, ranks []int, bytes uint64,
	after ...int) int {
	if len(ranks) < 2 || bytes == 0 {
		return -1
	}
	s.flush()
	after = slices.Clone(after)
	if s.last >= 0 {
		after = append(after, s.last)
	}
	s.tasks = append(s.tasks, Task{Name: name, Kind: Exchange,
		Operation: s.operation(group, kind, ranks, bytes), After: after})
	return len(s.tasks) - 1
}

// chain adds an exchange that waits for the previous computation, and for which the next
// computation waits.
func (s *stage) chain(name, group string, kind schedule.Kind, ranks []int, bytes uint64) {
	if len(ranks) > 1 {
		s.flush()
		s.await(s.exchange(name, group, kind, ranks, bytes, s.computation.After...))
	}
}

// await makes the next computation wait for a task.
func (s *stage) await(task int) {
	if task >= 0 {
		s.flush()
		s.computation.After = append(s.computation.After, task)
	}
}

// activation returns the bytes of b s h.
func (s *stage) activation() uint64 {
	return uint64(s.m.MicroBatch) * uint64(s.m.Sequence) * uint64(s.m.Hidden) * uint64(elementBytes(s.m))
}

// open adds the exchange before a block of tensor parallelism, and shut the exchange after it.
func (s *stage) open(name string) {
	if s.m.SP {
		s.chain(name, TensorParallel, schedule.AllGather, s.tensor, s.activation())
	}
}

func (s *stage) shut(name string) {
	kind := schedule.AllReduce
	if s.m.SP {
		kind = schedule.ReduceScatter
	}
	s.chain(name, TensorParallel, kind, s.tensor, s.activation())
}

// route adds an all-to-all to the experts or back.
func (s *stage) route(name string) {
	bytes := s.activation() * uint64(s.m.TopK)
	if s.m.SP {
		bytes /= uint64(s.m.TP)
	}
	s.chain(name, ExpertParallel, AllToAll, s.experts, bytes)
}

// layer adds one layer: forward, or backward with twice the work.
func (s *stage) layer(name string, work float64) {
	b, q, h, f := float64(s.m.MicroBatch), float64(s.m.Sequence), float64(s.m.Hidden), float64(s.m.FFN)
	attention := func() {
		s.open(name)
		s.compute(name, work*(8*b*q*h*h+4*b*q*q*h)/float64(s.m.TP))
		s.shut(name)
	}
	feedForward := func() {
		s.open(name)
		s.route(name)
		s.compute(name, work*4*b*q*h*f*float64(s.m.TopK)/float64(s.m.TP))
		s.route(name)
		s.shut(name)
	}
	if work == 1 {
		attention()
		feedForward()
	} else {
		feedForward()
		attention()
	}
}

// logits returns the last stage's operations for the vocabulary.
func (s *stage) logits() float64 {
	return 2 * float64(s.m.MicroBatch) * float64(s.m.Sequence) * float64(s.m.Hidden) *
		float64(s.m.Vocabulary) / float64(s.m.TP)
}

// weights returns the bytes of a layer's parameters at a rank: those that its whole data parallel
// group shares, and those of experts that only some ranks have.
func (s *stage) weights() (shared, experts uint64) {
	m := s.m
	h, f, size := uint64(m.Hidden), uint64(m.FFN), uint64(elementBytes(m))
	shared, experts = 4*h*h*size/uint64(m.TP), 2*h*f*uint64(m.Experts/m.EP)*size/uint64(m.TP)
	if m.EP == 1 {
		return shared + experts, 0
	}
	return shared, experts
}

// embedding returns the bytes of the embedding or, at the last stage, of the logits.
func (s *stage) embedding() uint64 {
	return uint64(s.m.Vocabulary) * uint64(s.m.Hidden) * uint64(elementBytes(s.m)) / uint64(s.m.TP)
}

func (s *stage) first() bool { return s.pp == 0 }
func (s *stage) final() bool { return s.pp == s.m.PP-1 }

// transfer adds a message to or from a neighbouring stage. A receiver begins at once.
func (s *stage) transfer(name string, from, to int) {
	bytes := s.activation()
	if s.m.SP {
		bytes /= uint64(s.m.TP)
	}
	pair := []int{s.at(s.tp, s.dp, from), s.at(s.tp, s.dp, to)}
	if to == s.pp {
		s.flush()
		operation := s.operation(PipelineParallel, Transfer, pair, bytes)
		s.tasks = append(s.tasks, Task{Name: name, Kind: Exchange, Operation: operation})
		s.await(len(s.tasks) - 1)
		return
	}
	s.flush()
	s.exchange(name, PipelineParallel, Transfer, pair, bytes, s.computation.After...)
}

// gather adds the all-gathers of a layer's, the embedding's or the logits' parameters, if stage 3
// of ZeRO partitions them. The parameters of the next layer are gathered while this layer is
// computed.
func (s *stage) gather(name string, shared, experts uint64) {
	if s.m.ZeRO < 3 {
		return
	}
	if s.flush(); s.last != s.gathered[1] {
		s.gathered = [2]int{s.gathered[1], s.last}
	}
	for _, part := range []bucket{{DataParallel, s.data, shared}, {ExpertData, s.same, experts}} {
		if len(part.ranks) < 2 || part.bytes == 0 {
			continue
		}
		t := Task{Name: name, Kind: Exchange,
			Operation: s.operation(part.group, schedule.AllGather, part.ranks, part.bytes)}
		if before := s.gathered[0]; before >= 0 {
			t.After = []int{before}
		}
		s.tasks = append(s.tasks, t)
		s.await(len(s.tasks) - 1)
	}
}

// forward and backward add a micro-batch.
func (s *stage) forward(micro int) {
	name := fmt.Sprintf("forward %d", micro)
	if !s.first() {
		s.transfer(name, s.pp-1, s.pp)
	} else if s.m.Vocabulary > 0 {
		s.gather(name, s.embedding(), 0)
		s.shut(name)
	}
	shared, experts := s.weights()
	for range s.m.Layers / s.m.PP {
		s.gather(name, shared, experts)
		s.layer(name, 1)
	}
	switch {
	case !s.final():
		s.transfer(name, s.pp, s.pp+1)
	case s.m.Vocabulary > 0:
		s.gather(name, s.embedding(), 0)
		s.open(name)
		s.compute(name, s.logits())
	}
}

func (s *stage) backward(micro int, last bool) {
	name := fmt.Sprintf("backward %d", micro)
	reduce := last || s.m.ZeRO >= 2
	if !s.final() {
		s.transfer(name, s.pp+1, s.pp)
	} else if s.m.Vocabulary > 0 {
		s.gather(name, s.embedding(), 0)
		s.compute(name, 2*s.logits())
		s.shut(name)
		s.gradients(name, s.embedding(), 0, reduce)
	}
	shared, experts := s.weights()
	for range s.m.Layers / s.m.PP {
		s.gather(name, shared, experts)
		s.layer(name, 2)
		s.gradients(name, shared, experts, reduce)
	}
	if !s.first() {
		s.transfer(name, s.pp, s.pp-1)
	} else if s.m.Vocabulary > 0 {
		s.gather(name, s.embedding(), 0)
		s.open(name)
		s.gradients(name, s.embedding(), 0, reduce)
	}
	for i := range s.buckets {
		s.reduce(name, i)
	}
}

// gradients adds gradients to the buckets, and reduces the buckets that are full.
func (s *stage) gradients(name string, shared, experts uint64, complete bool) {
	if !complete {
		return
	}
	for i, bytes := range []uint64{shared, experts} {
		if s.buckets[i].bytes += bytes; s.buckets[i].bytes >= uint64(s.m.Bucket) {
			s.reduce(name, i)
		}
	}
}

func (s *stage) reduce(name string, i int) {
	kind := schedule.AllReduce
	if s.m.ZeRO > 0 {
		kind = schedule.ReduceScatter
	}
	b := &s.buckets[i]
	if task := s.exchange(name, b.group, kind, b.ranks, b.bytes); task >= 0 {
		s.reduced = append(s.reduced, task)
	}
	b.bytes = 0
}

// iteration adds all micro-batches, by 1F1B, and the update of the parameters.
func (s *stage) iteration() {
	micros := s.m.GlobalBatch / (s.m.DP * s.m.MicroBatch)
	ahead := min(s.m.PP-1-s.pp, micros)
	for i := range micros + ahead {
		if len(s.tasks) > MaxTasks {
			return
		}
		if i < micros {
			s.forward(i)
		}
		if done := i - ahead; done >= 0 {
			s.backward(done, done == micros-1)
		}
	}
	s.flush()
	if s.m.ZeRO == 1 || s.m.ZeRO == 2 {
		shared, experts := s.weights()
		layers := uint64(s.m.Layers / s.m.PP)
		shared, experts = shared*layers, experts*layers
		if s.first() {
			shared += s.embedding()
		}
		if s.final() {
			shared += s.embedding()
		}
		s.exchange("parameters", DataParallel, schedule.AllGather, s.data, shared, s.reduced...)
		s.exchange("parameters", ExpertData, schedule.AllGather, s.same, experts, s.reduced...)
	}
}
