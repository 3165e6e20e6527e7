package jobfile

import (
	"fmt"
	"strings"

	"railbed/workloads/training"
)

// simaiPieces are the layers of a stage: those before the first micro-batch, those of each virtual
// stage of each micro-batch, and those after the last micro-batch.
type simaiPieces struct {
	before, behind []simaiLayer
	micros         [][][]simaiLayer
}

// Prefixes of AICB's layer names. simaiMicro begins a micro-batch, simaiBlock begins a layer of the
// model, and simaiBehind begin the layers after the last micro-batch.
const (
	simaiMicro = "embedding_layer"
	simaiBlock = "attention"
)

var simaiBehind = []string{"cross_entropy", "optimizer"}

// split finds the ga micro-batches of a pipeline, and in each the vpp virtual stages. AICB counts a
// layer of the model as one virtual stage.
func (s *simai) split() error {
	end := len(s.layers)
	for i, l := range s.layers {
		for _, name := range simaiBehind {
			if strings.HasPrefix(l.name, name) {
				end = min(end, i)
			}
		}
	}
	var starts []int
	for i, l := range s.layers[:end] {
		if strings.HasPrefix(l.name, simaiMicro) {
			starts = append(starts, i)
		}
	}
	if len(starts) != s.micros {
		return lineError(s.name, 1, "%d layers %s, each of which begins a micro-batch: want %d (ga)",
			len(starts), simaiMicro, s.micros)
	}
	s.pieces.before, s.pieces.behind = s.layers[:starts[0]], s.layers[end:]
	for i, start := range starts {
		next := end
		if i+1 < len(starts) {
			next = starts[i+1]
		}
		chunks, err := s.chunks(s.layers[start:next])
		if err != nil {
			return err
		}
		s.pieces.micros = append(s.pieces.micros, chunks)
	}
	return nil
}

// chunks divides a micro-batch into virtual stages of whole layers of the model. Layers before the
// model's first layer go to the first virtual stage, and layers after its last layer to the last.
func (s *simai) chunks(micro []simaiLayer) (chunks [][]simaiLayer, err error) {
	if s.virtual == 1 {
		return [][]simaiLayer{micro}, nil
	}
	var starts []int
	for i, l := range micro {
		if strings.HasPrefix(l.name, simaiBlock) &&
			(i == 0 || !strings.HasPrefix(micro[i-1].name, simaiBlock)) {
			starts = append(starts, i)
		}
	}
	if len(starts) == 0 || len(starts)%s.virtual != 0 {
		return nil, lineError(s.name, micro[0].line,
			"a micro-batch of %d model layers, each beginning with %s: want a multiple of %d (vpp)",
			len(starts), simaiBlock, s.virtual)
	}
	each := len(starts) / s.virtual
	from := 0
	for i := 1; i < s.virtual; i++ {
		chunks = append(chunks, micro[from:starts[i*each]])
		from = starts[i*each]
	}
	return append(chunks, micro[from:]), nil
}

// pipeline adds an iteration of a stage by 1F1B with interleaved virtual stages (Narayanan et al.,
// "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", 2021, section
// 2.2). A rank has every pp-th virtual stage of the model, and micro-batches pass through each of
// them in groups of pp. If ga is not a multiple of pp, which Megatron-LM refuses, a rank does all
// of forward before backward. Layers before the micro-batches begin and end the iteration. Layers
// after the micro-batches follow the last forward of a rank.
func (r *simaiRank) pipeline() {
	r.forward("", r.pieces.before)
	turns := r.turns()
	stage := r.rank / (r.world / r.pp)
	ahead := min(r.pp-1-stage, len(turns))
	if r.virtual > 1 {
		ahead = min(2*(r.pp-1-stage)+(r.virtual-1)*r.pp, len(turns))
	}
	if r.virtual > 1 && r.micros%r.pp != 0 {
		ahead = len(turns)
	}
	for i := range len(turns) + ahead {
		if i < len(turns) {
			r.pass(stage, turns[i], true)
		}
		if i == len(turns)-1 {
			r.forward("", r.pieces.behind)
			r.backward("", r.pieces.behind)
		}
		if done := i - ahead; done >= 0 {
			turn := turns[done]
			turn.chunk = r.virtual - 1 - turn.chunk
			r.pass(stage, turn, false)
		}
	}
	r.backward("", r.pieces.before)
}

// simaiTurn is a micro-batch in a virtual stage.
type simaiTurn struct{ micro, chunk int }

// turns returns the turns of a rank in the order of forward.
func (s *simai) turns() (turns []simaiTurn) {
	for first := 0; first < s.micros; first += s.pp {
		for chunk := range s.virtual {
			for micro := first; micro < min(first+s.pp, s.micros); micro++ {
				turns = append(turns, simaiTurn{micro, chunk})
			}
		}
	}
	return turns
}

// pass adds a turn, forward or backward, with the messages before and after it.
func (r *simaiRank) pass(stage int, t simaiTurn, forward bool) {
	all := r.pp * r.virtual
	at, step, channel, do := t.chunk*r.pp+stage, 1, 0, r.forward
	if !forward {
		step, channel, do = -1, 1, r.backward
	}
	of := fmt.Sprintf(" %d", t.micro)
	if from := at - step; r.message > 0 && from >= 0 && from < all {
		task := r.transfer("receive"+of, channel, from%r.pp, stage, nil)
		r.awaited = append(r.awaited, task)
	}
	do(of, r.pieces.micros[t.micro][t.chunk])
	if to := at + step; r.message > 0 && to >= 0 && to < all {
		r.transfer("send"+of, channel, stage, to%r.pp, append([]int{r.last}, r.awaited...))
	}
}

// transfer adds a message from one stage to another.
func (r *simaiRank) transfer(name string, channel, from, to int, after []int) int {
	each := r.world / r.pp
	place := r.rank % each
	operation := r.builder.Operation(training.Operation{
		Group: training.PipelineParallel, Channel: channel, Kind: training.Transfer,
		Ranks: []int{from*each + place, to*each + place}, Bytes: r.message,
	})
	return r.builder.Add(r.rank, training.Task{Name: name, Kind: training.Exchange, Operation: operation,
		After: after})
}
