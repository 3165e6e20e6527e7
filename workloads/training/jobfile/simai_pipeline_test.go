package jobfile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/workloads/training"
)

// pipelineFile returns a workload as AICB writes it for a pipeline with two tensor parallel ranks.
// The arguments are the numbers of data parallel ranks, stages, virtual stages, micro-batches and
// layers of a stage. All computation takes 1 us.
func pipelineFile(data, stages, virtual, micros, layers int) string {
	lines := []string{"grad_gather -1 0 NONE 0 0 NONE 0 0 ALLGATHER 4096 100"}
	for range micros {
		lines = append(lines, "embedding_layer -1 0 ALLREDUCE 64 0 NONE 0 0 NONE 0 100")
		for range layers {
			lines = append(lines, "attention_column -1 500 ALLGATHER 512 500 REDUCESCATTER 512 0 NONE 0 100",
				"attention_row -1 0 REDUCESCATTER 512 0 ALLGATHER 512 0 NONE 0 100",
				"mlp_moelayer -1 500 ALLTOALL_EP 256 500 NONE 0 1000 NONE 0 100")
		}
		lines = append(lines, "final_column -1 0 NONE 0 0 NONE 0 0 NONE 0 100")
	}
	lines = append(lines, "cross_entropy1 -1 0 ALLREDUCE 32 0 NONE 0 0 NONE 0 100")
	// The size as AICB writes a quotient.
	return fmt.Sprintf("HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: %d vpp: %d "+
		"ga: %d all_gpus: %d checkpoints: 0 checkpoint_initiates: 0 pp_comm: 8192.0\n%d\n%s\n",
		stages, virtual, micros, 2*data*stages, len(lines), strings.Join(lines, "\n"))
}

// A rank must send SimAI's number of messages plus the bytes that the file gives for a stage. The
// number is 2 * vpp * ga of pp_comm bytes, less those missing at the ends of the model. Without a
// network the iteration must take the time of Narayanan et al. (2021), section 2.2: the bubble is
// (p-1)/(m*v) of the rest.
func TestSimAIPipeline(t *testing.T) {
	for _, c := range []struct{ data, stages, virtual, micros, layers int }{
		{1, 2, 1, 1, 2}, {2, 2, 1, 4, 2}, {1, 4, 1, 2, 1}, {1, 4, 1, 8, 3}, {2, 2, 2, 2, 2}, {1, 2, 2, 4, 4},
		{1, 4, 2, 8, 2}, {1, 3, 4, 6, 4}, {1, 4, 8, 4, 8},
		{1, 2, 2, 1, 2}, {1, 2, 2, 3, 2}, {1, 4, 2, 6, 2}, {1, 3, 3, 7, 3}, {1, 4, 3, 2, 3},
	} {
		p, err := readSimAI("f.txt", []byte(pipelineFile(c.data, c.stages, c.virtual, c.micros, c.layers)),
			Options{})
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		for rank := range p.Tasks {
			stage := rank / (2 * c.data)
			messages := 2 * c.virtual * c.micros
			if stage == 0 || stage == c.stages-1 {
				messages -= c.micros
			}
			// By hand: of two ranks each sends half in a gather or reduce-scatter and all in an all-reduce.
			want := []training.Volume{{Group: training.PipelineParallel, Bytes: uint64(messages) * 8192},
				{Group: training.TensorParallel, Bytes: uint64(c.micros*(64+c.layers*4*256) + 32)}}
			if c.data == 2 {
				want = slices.Insert(want, 0, training.Volume{Group: training.DataParallel, Bytes: 2048})
			}
			if got := p.Volumes(rank); !slices.Equal(got, want) {
				t.Errorf("%+v: rank %d sends %v, want %v", c, rank, got, want)
			}
		}
		spans, err := p.Predict(func(*training.Operation) time.Duration { return 0 })
		if err != nil {
			t.Fatal(err)
		}
		// Forward of a layer takes 1 us, backward 2 us.
		busy := time.Duration(3*c.layers*c.micros) * time.Microsecond
		bubble := busy * time.Duration(c.stages-1) / time.Duration(c.micros*c.virtual)
		whole, _ := p.Times(spans)
		if even := c.virtual == 1 || c.micros%c.stages == 0; even && whole != busy+bubble || whole < busy {
			t.Errorf("%+v: an iteration of %v, want %v and a bubble of %v", c, whole, busy, bubble)
		}
	}
}

// Ranks are numbered as in a compiled model. A rank's messages go to the rank with the same
// position in the next stage.
func TestSimAIPipelineRanks(t *testing.T) {
	p, err := readSimAI("f.txt", []byte(pipelineFile(2, 2, 1, 1, 1)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var ranks [][]int
	for i := range p.Operations {
		if o := &p.Operations[i]; slices.Contains(o.Ranks, 5) &&
			!slices.ContainsFunc(ranks, func(r []int) bool {
				return slices.Equal(r, o.Ranks)
			}) {
			ranks = append(ranks, o.Ranks)
		}
	}
	if got := fmt.Sprint(ranks); got != "[[1 5] [5 1] [4 5] [5 7]]" {
		t.Errorf("rank 5 is in groups %v", got)
	}
}

// TestSimAIPipelineWithoutMessages: for a pp_comm of 0, SimAI's Layer.cc adds 2 * vpp * ga * 0 bytes of time,
// and Workload.cc warns but runs the file. Each stage then takes the time of its own layers.
func TestSimAIPipelineWithoutMessages(t *testing.T) {
	text := pipelineFile(1, 2, 2, 2, 2)
	for _, new := range []string{"pp_comm: 0", "pp_comm 0", ""} {
		p, err := readSimAI("f.txt", []byte(strings.Replace(text, "pp_comm: 8192.0", new, 1)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Operations {
			if o := p.Operations[i]; o.Group == training.PipelineParallel {
				t.Errorf("%q: a message of %d bytes between the ranks %v", new, o.Bytes, o.Ranks)
			}
		}
		spans, err := p.Predict(func(*training.Operation) time.Duration { return 0 })
		if err != nil {
			t.Fatal(err)
		}
		// Forward of a layer takes 1 us, backward 2 us, and a stage has 2 layers in 2 micro-batches.
		if whole, _ := p.Times(spans); whole != 3*2*2*time.Microsecond {
			t.Errorf("%q: an iteration of %v, want 12us", new, whole)
		}
	}
}

func TestWrongSimAIPipeline(t *testing.T) {
	good := pipelineFile(1, 2, 2, 2, 2)
	for _, c := range []struct{ old, new, want string }{
		{"pp: 2", "pp: 3", "f.txt:1: 4 ranks (all_gpus) with model_parallel_NPU_group 2, ep 1 and pp 3, " +
			"want world: a multiple of 6 up to 4096"},
		{"pp_comm: 8192.0", "pp_comm: -1", `f.txt:1: pp_comm is "-1", want bytes`},
		{"pp_comm: 8192.0", "pp_comm: NaN", `f.txt:1: pp_comm is "NaN", want bytes`},
		{"vpp: 2", "vpp: many", `f.txt:1: vpp is "many", want a whole number`},
		{"vpp: 2", "vpp: 0", "f.txt:1: a pipeline of 2 stages with ga 2 and vpp 0"},
		{"vpp: 2", "vpp: 3", "f.txt:4: a micro-batch of 2 model layers, each beginning with attention: " +
			"want a multiple of 3 (vpp)"},
		{"ga: 2", "ga: 0", "f.txt:1: a pipeline of 2 stages with ga 0"},
		{"ga: 2", "ga: 3", "f.txt:1: 2 layers embedding_layer, each of which begins a micro-batch: " +
			"want 3 (ga)"},
	} {
		if _, err := readSimAI("f.txt", []byte(strings.Replace(good, c.old, c.new, 1)),
			Options{}); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}
