package jobfile

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"railbed/plan/schedule"
	"railbed/workloads/training"
)

// readSimAI reads a workload of SimAI (aliyun/SimAI), which AICB (aliyun/aicb) writes:
//
//	HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 4 ga: 1 all_gpus: 4
//	checkpoints: 0 checkpoint_initiates: 0 pp_comm: 0
//	1
//	layer -1 1000 ALLREDUCE 4096 1000 ALLREDUCE 4096 1000 ALLREDUCE 65536 100
//
// A line is a layer. It has the layer's name and -1, and then three parts: forward, the gradient of
// the layer's input, and the gradient of its weights. Each part has its time in ns, its collective
// and the collective's bytes. The last word is the time of the update, which is ignored.
//
// The tasks follow the order in SimAI's Workload.cc. First come the layers forward. Each has its
// computation and then its collective, for which the next layer waits. Then come the layers
// backward. The collective of the weights' gradient runs while the next layers are computed. The
// first two collectives are among tensor parallel ranks and the third among data parallel ranks,
// unless a suffix names others. _EP is the ranks that share the experts, and _DP_EP the ranks with
// the same experts. Ranks are numbered as in training.Compile. Recomputation is refused.
//
// For a pipeline (pp above 1) the file has one stage, and every stage executes it, as in SimAI.
// SimAI accounts for a message of pp_comm bytes for each micro-batch and virtual stage in each
// direction. Here these messages are sent (see pipeline). With a pp_comm of 0, or without one, no messages
// are sent, and no stage waits for another: SimAI then adds no time for them.
func readSimAI(name string, text []byte, o Options) (*training.Program, error) {
	all := lines(text)
	if len(all) < 2 {
		return nil, lineError(name, len(all)+1,
			"the file ends; want a line with the kind of the job and a line with the number of layers")
	}
	s := &simai{name: name, tp: 1, ep: 1, pp: 1, virtual: 1, micros: 1, world: o.Ranks}
	if err := s.header(all[0], o); err != nil {
		return nil, err
	}
	layers, err := s.number(2, "number of layers", strings.Join(all[1], " "), 1, 1<<20)
	if err != nil {
		return nil, err
	}
	for i, words := range all[2:] {
		line := i + 3
		switch {
		case len(words) == 0:
			continue
		case len(s.layers) == layers:
			return nil, lineError(name, line, "more layers than the %d of line 2", layers)
		}
		if err := s.layer(line, words); err != nil {
			return nil, err
		}
	}
	if len(s.layers) != layers {
		return nil, lineError(name, len(all), "the file ends after %d layers, want the %d of line 2",
			len(s.layers), layers)
	}
	each := 6 // tasks of a layer
	if s.pp > 1 {
		if err := s.split(); err != nil {
			return nil, err
		}
		each += 4 // messages of a virtual stage, which has at least one layer
	}
	if tasks := s.world * layers * each; tasks > training.MaxTasks {
		return nil, lineError(name, 2, "%d layers on %d ranks are up to %d tasks, want at most %d", layers,
			s.world, tasks, training.MaxTasks)
	}
	b := training.NewBuilder(s.world)
	for rank := range s.world {
		r := s.rank(b, rank)
		if s.pp > 1 {
			r.pipeline()
			continue
		}
		r.forward("", s.layers)
		r.backward("", s.layers)
	}
	return o.done(name, b)
}

type simai struct {
	name              string
	tp, ep, pp, world int
	virtual, micros   int    // virtual stages of a rank, and micro-batches
	message           uint64 // bytes from stage to stage
	layers            []simaiLayer
	pieces            simaiPieces // of a pipeline
}

// simaiLayer has the parts forward, input gradient and weight gradient.
type simaiLayer struct {
	line  int
	name  string
	parts [3]simaiPart
}

type simaiPart struct {
	time  time.Duration
	kind  schedule.Kind // empty for none
	group string
	bytes uint64
}

func (s *simai) number(line int, what, word string, least, most int) (int, error) {
	n, err := strconv.Atoi(word)
	if err != nil || n < least || n > most {
		return 0, lineError(s.name, line, "%s is %s, want a whole number from %d to %d", what, shown(word),
			least, most)
	}
	return n, nil
}

// size parses a number of bytes. AICB writes quotients with a fraction, which SimAI cuts off.
func (s *simai) size(what, word string) (uint64, error) {
	n, err := strconv.ParseFloat(word, 64)
	if err != nil || !(n >= 0 && n <= maxSize) {
		return 0, lineError(s.name, 1, "%s is %s, want bytes", what, shown(word))
	}
	return uint64(n), nil
}

// header parses the first line.
func (s *simai) header(words []string, o Options) error {
	if len(words) == 0 || !slices.Contains(
		[]string{"HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER", "MICRO"}, words[0]) {
		return lineError(s.name, 1, "the kind of the job is %s, want HYBRID_TRANSFORMER_FWD_IN_BCKWD, "+
			"HYBRID_TRANSFORMER or MICRO", shown(strings.Join(words[:min(1, len(words))], "")))
	}
	gpus := 0
	read := map[string]*int{
		"model_parallel_NPU_group": &s.tp, "ep": &s.ep, "expert_parallel_npu_group": &s.ep, "pp": &s.pp,
		"vpp": &s.virtual, "ga": &s.micros,
	}
	for i := 1; i < len(words); i += 2 {
		key := strings.TrimSuffix(words[i], ":")
		if i+1 == len(words) {
			return lineError(s.name, 1, "%s has no value, want one", shown(key))
		}
		var err error
		switch value := words[i+1]; key {
		case "model_parallel_NPU_group", "ep", "expert_parallel_npu_group", "pp":
			*read[key], err = s.number(1, key, value, 1, training.MaxRanks)
		case "all_gpus": // world can ask for fewer
			gpus, err = s.number(1, key, value, 1, 1<<30)
		case "vpp", "ga":
			*read[key], err = s.number(1, key, value, 0, 1<<16)
		case "pp_comm":
			s.message, err = s.size(key, value)
		case "checkpoints", "checkpoint_initiates":
			if value != "0" {
				err = lineError(s.name, 1, "%s is %s, want 0: recomputation is not supported", key,
					shown(value))
			}
		default:
			err = lineError(s.name, 1, "%s is not known; want model_parallel_NPU_group, ep, pp, vpp, ga, "+
				"all_gpus, checkpoints, checkpoint_initiates or pp_comm", shown(key))
		}
		if err != nil {
			return err
		}
	}
	from := "world"
	if s.world == 0 {
		s.world, from = gpus, "all_gpus"
	}
	product := s.tp * s.ep * s.pp // at most 2^36
	switch {
	case product > training.MaxRanks:
		return lineError(s.name, 1, "model_parallel_NPU_group %d, ep %d and pp %d are for at least %d "+
			"ranks, want at most %d", s.tp, s.ep, s.pp, product, training.MaxRanks)
	case s.world == 0:
		return lineError(s.name, 1, "the file has no all_gpus, want world: the number of ranks, a multiple "+
			"of %d up to %d", product, training.MaxRanks)
	case s.world > training.MaxRanks || s.world%product != 0:
		return lineError(s.name, 1, "%d ranks (%s) with model_parallel_NPU_group %d, ep %d and pp %d, want "+
			"world: a multiple of %d up to %d", s.world, from, s.tp, s.ep, s.pp, product, training.MaxRanks)
	case s.pp > 1 && (s.micros == 0 || s.virtual == 0):
		return lineError(s.name, 1, "a pipeline of %d stages with ga %d and vpp %d, want both at least 1",
			s.pp, s.micros, s.virtual)
	}
	return nil
}

// simaiKinds maps the collectives of SimAI.
var simaiKinds = map[string]schedule.Kind{
	"ALLREDUCE": schedule.AllReduce, "ALLGATHER": schedule.AllGather, "REDUCESCATTER": schedule.ReduceScatter,
	"ALLTOALL": training.AllToAll, "BROADCAST": schedule.Broadcast,
}

// layer parses a layer.
func (s *simai) layer(line int, words []string) error {
	if len(words) != 12 {
		return lineError(s.name, line, "a layer of %d words, want 12", len(words))
	}
	l := simaiLayer{line: line, name: words[0]}
	for i := range l.parts {
		part, of := &l.parts[i], words[2+3*i:]
		ns, err := strconv.ParseUint(of[0], 10, 63)
		if err != nil || ns > uint64(time.Hour) {
			return lineError(s.name, line, "a time of %s, want ns, at most an hour", shown(of[0]))
		}
		part.time = time.Duration(ns)
		if of[1] == "NONE" {
			continue
		}
		word := of[1]
		part.group = training.TensorParallel
		if i == 2 {
			part.group = training.DataParallel
		}
		if plain, found := strings.CutSuffix(word, "_DP_EP"); found {
			word, part.group = plain, training.ExpertData
		} else if plain, found := strings.CutSuffix(word, "_EP"); found {
			word, part.group = plain, training.ExpertParallel
		}
		kind, known := simaiKinds[word]
		if !known {
			return lineError(s.name, line,
				"collective %s is not known; want NONE, ALLREDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL or "+
					"BROADCAST, with _EP or _DP_EP", shown(of[1]))
		}
		if part.bytes, err = strconv.ParseUint(of[2], 10, 64); err != nil || part.bytes > maxSize {
			return lineError(s.name, line, "a size of %s, want bytes", shown(of[2]))
		}
		if part.kind = kind; part.bytes == 0 {
			part.kind = ""
		}
	}
	s.layers = append(s.layers, l)
	return nil
}

// group returns the ranks of a group of the given rank.
func (s *simai) group(rank int, group string) (ranks []int) {
	each := s.world / s.pp // ranks of a stage
	tp, dp := rank%s.tp, rank%each/s.tp
	for other := rank / each * each; other < (rank/each+1)*each; other++ {
		t, d := other%s.tp, other%each/s.tp
		var in bool
		switch group {
		case training.TensorParallel:
			in = d == dp
		case training.DataParallel:
			in = t == tp
		case training.ExpertParallel:
			in = t == tp && d/s.ep == dp/s.ep
		case training.ExpertData:
			in = t == tp && d%s.ep == dp%s.ep
		}
		if in {
			ranks = append(ranks, other)
		}
	}
	return ranks
}

// simaiRank adds the tasks of one rank.
type simaiRank struct {
	*simai
	builder *training.Builder
	rank    int
	groups  map[string][]int
	awaited []int // exchanges that the next computation waits for
	last    int   // latest computation, -1 at first
}

func (s *simai) rank(b *training.Builder, rank int) *simaiRank {
	r := &simaiRank{simai: s, builder: b, rank: rank, groups: map[string][]int{}, last: -1}
	for _, group := range []string{training.TensorParallel, training.DataParallel, training.ExpertParallel,
		training.ExpertData} {
		r.groups[group] = s.group(rank, group)
	}
	return r
}

// part adds a computation and its collective. If wait is set, the next computation waits for the
// collective.
func (r *simaiRank) part(name string, p *simaiPart, wait bool) {
	r.last = r.builder.Add(r.rank,
		training.Task{Name: name, Kind: training.Compute, Time: p.time, After: r.awaited})
	r.awaited = nil
	ranks := r.groups[p.group]
	if p.kind == "" || len(ranks) < 2 {
		return
	}
	operation := r.builder.Operation(
		training.Operation{Group: p.group, Kind: p.kind, Ranks: ranks, Bytes: p.bytes})
	task := r.builder.Add(r.rank, training.Task{Name: name, Kind: training.Exchange, Operation: operation,
		After: []int{r.last}})
	if wait {
		r.awaited = []int{task}
	}
}

// forward and backward add layers. of is appended to the tasks' names.
func (r *simaiRank) forward(of string, layers []simaiLayer) {
	for i := range layers {
		r.part("forward "+layers[i].name+of, &layers[i].parts[0], true)
	}
}

func (r *simaiRank) backward(of string, layers []simaiLayer) {
	for i := len(layers) - 1; i >= 0; i-- {
		r.part("backward "+layers[i].name+of, &layers[i].parts[1], true)
		r.part("gradient "+layers[i].name+of, &layers[i].parts[2], false)
	}
}
