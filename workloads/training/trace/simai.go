package trace

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"railbed/workloads/collective/schedule"
	"railbed/workloads/training"
)

// ReadSimAI reads a workload of SimAI (aliyun/SimAI), which AICB (aliyun/aicb) writes:
//
//	HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 4 ga: 1 all_gpus: 4 checkpoints: 0 checkpoint_initiates: 0 pp_comm: 0
//	1
//	layer -1 1000 ALLREDUCE 4096 1000 ALLREDUCE 4096 1000 ALLREDUCE 65536 100
//
// A line is a layer: name, -1, and of forward, of the gradient of its input and of that of its
// weights each the time in ns, the collective and its bytes; then the time of the update,
// which is not played. It goes as in SimAI's Workload.cc: layers forward, each with its
// computation and then its collective, which the next one waits for; then backward, the
// collective of the weights' gradient going on while the next layers are computed. The first
// two collectives are among tensor parallel ranks, the third among data parallel ones, or
// those that a suffix names: _EP, those that share the experts, and _DP_EP, those that have
// the same ones. Ranks are numbered as training.Compile does. Pipelines and recomputation are
// refused: a file of them has the layers of one stage.
func ReadSimAI(name string, text []byte, o Options) (*training.Program, error) {
	all := lines(text)
	if len(all) < 2 {
		return nil, lineError(name, len(all)+1, "the file ends; want a line with the kind of the job, and one with the number of layers")
	}
	s := &simai{name: name, tp: 1, ep: 1, world: o.Ranks}
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
			return nil, lineError(name, line, "a layer more than the %d that line 2 says", layers)
		}
		if err := s.layer(line, words); err != nil {
			return nil, err
		}
	}
	if len(s.layers) != layers {
		return nil, lineError(name, len(all), "the file ends after %d layers, want the %d that line 2 says", len(s.layers), layers)
	}
	if tasks := s.world * layers * 6; tasks > training.MaxTasks {
		return nil, lineError(name, 2, "%d layers on %d ranks are up to %d tasks, want at most %d", layers, s.world, tasks, training.MaxTasks)
	}
	b := training.NewBuilder(s.world)
	for rank := range s.world {
		s.rank(b, rank)
	}
	return o.done(name, b)
}

type simai struct {
	name          string
	tp, ep, world int
	layers        []simaiLayer
}

// simaiLayer has the parts forward, input gradient and weight gradient.
type simaiLayer struct {
	name  string
	parts [3]simaiPart
}

type simaiPart struct {
	time  time.Duration
	kind  schedule.Kind // empty is none
	group string
	bytes uint64
}

func (s *simai) number(line int, what, word string, least, most int) (int, error) {
	n, err := strconv.Atoi(word)
	if err != nil || n < least || n > most {
		return 0, lineError(s.name, line, "%s is %s, want a whole number from %d to %d", what, shown(word), least, most)
	}
	return n, nil
}

// header reads the first line.
func (s *simai) header(words []string, o Options) error {
	if len(words) == 0 || !slices.Contains([]string{"HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER", "MICRO"}, words[0]) {
		return lineError(s.name, 1, "the kind of the job is %s, want HYBRID_TRANSFORMER_FWD_IN_BCKWD, HYBRID_TRANSFORMER or MICRO", shown(strings.Join(words[:min(1, len(words))], "")))
	}
	gpus := 0
	read := map[string]*int{"model_parallel_NPU_group": &s.tp, "ep": &s.ep, "expert_parallel_npu_group": &s.ep, "all_gpus": &gpus}
	for i := 1; i < len(words); i += 2 {
		key := strings.TrimSuffix(words[i], ":")
		if i+1 == len(words) {
			return lineError(s.name, 1, "%s has no value", shown(key))
		}
		most := training.MaxRanks
		switch key {
		case "model_parallel_NPU_group", "ep", "expert_parallel_npu_group", "all_gpus":
			n, err := s.number(1, key, words[i+1], 1, most)
			if err != nil {
				return err
			}
			*read[key] = n
		case "pp":
			if words[i+1] != "1" {
				return lineError(s.name, 1, "a pipeline of %s stages, of which the file has one: want pp: 1", shown(words[i+1]))
			}
		case "checkpoints", "checkpoint_initiates":
			if words[i+1] != "0" {
				return lineError(s.name, 1, "%s: %s, and recomputation is not played: want 0", key, shown(words[i+1]))
			}
		case "vpp", "ga", "pp_comm":
		default:
			return lineError(s.name, 1, "%s is not known; want model_parallel_NPU_group, ep, pp, vpp, ga, all_gpus, checkpoints, checkpoint_initiates or pp_comm", shown(key))
		}
	}
	if s.world == 0 {
		s.world = gpus
	}
	switch {
	case s.world == 0:
		return lineError(s.name, 1, "the file has no all_gpus; say how many ranks the job has")
	case s.world > training.MaxRanks || s.world%s.tp != 0 || s.world/s.tp%s.ep != 0:
		return lineError(s.name, 1, "%d ranks with model_parallel_NPU_group %d and ep %d, want a multiple of both, up to %d", s.world, s.tp, s.ep, training.MaxRanks)
	}
	return nil
}

// simaiKinds are the collectives of SimAI.
var simaiKinds = map[string]schedule.Kind{
	"ALLREDUCE": schedule.AllReduce, "ALLGATHER": schedule.AllGather, "REDUCESCATTER": schedule.ReduceScatter,
	"ALLTOALL": training.AllToAll, "BROADCAST": schedule.Broadcast,
}

// layer reads one.
func (s *simai) layer(line int, words []string) error {
	if len(words) != 12 {
		return lineError(s.name, line, "a layer of %d words, want 12", len(words))
	}
	l := simaiLayer{name: words[0]}
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
			return lineError(s.name, line, "collective %s is not known; want NONE, ALLREDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL or BROADCAST, with _EP or _DP_EP", shown(of[1]))
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

// group are the ranks with which one is in a group.
func (s *simai) group(rank int, group string) (ranks []int) {
	tp, dp := rank%s.tp, rank/s.tp
	for other := range s.world {
		t, d := other%s.tp, other/s.tp
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

// rank adds the tasks of one.
func (s *simai) rank(b *training.Builder, rank int) {
	groups := map[string][]int{}
	for _, group := range []string{training.TensorParallel, training.DataParallel, training.ExpertParallel, training.ExpertData} {
		groups[group] = s.group(rank, group)
	}
	var awaited []int // by the next computation
	part := func(name string, p *simaiPart, wait bool) {
		last := b.Add(rank, training.Task{Name: name, Kind: training.Compute, Time: p.time, After: awaited})
		awaited = nil
		ranks := groups[p.group]
		if p.kind == "" || len(ranks) < 2 {
			return
		}
		operation := b.Operation(training.Operation{Group: p.group, Kind: p.kind, Ranks: ranks, Bytes: p.bytes})
		task := b.Add(rank, training.Task{Name: name, Kind: training.Exchange, Operation: operation, After: []int{last}})
		if wait {
			awaited = []int{task}
		}
	}
	for i := range s.layers {
		part("forward "+s.layers[i].name, &s.layers[i].parts[0], true)
	}
	for i := len(s.layers) - 1; i >= 0; i-- {
		part("backward "+s.layers[i].name, &s.layers[i].parts[1], true)
		part("gradient "+s.layers[i].name, &s.layers[i].parts[2], false)
	}
}
