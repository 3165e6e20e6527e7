package worker

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
	"railbed/workloads/training"
)

// trainingJob is a job of a small model.
func trainingJob(t *testing.T, transport string, change func(*spec.Model)) Job {
	t.Helper()
	m := &spec.Model{Layers: 4, Hidden: 64, Sequence: 32, TFLOPS: units.Factor{Num: 1, Den: 10},
		Bucket: 100_000}
	change(m)
	(&spec.Testbed{Steps: []spec.Step{{Training: &spec.Training{Model: m}}}}).SetDefaults()
	program, err := training.Compile(m, training.Scale{})
	if err != nil {
		t.Fatal(err)
	}
	j := job(m.World(), 0)
	j.Algorithm, j.Transport, j.Work = "", transport, Training{program}
	return j
}

// Every rank sends what the program says, element by element right, in each of its groups,
// and no task begins before those that it is after.
func TestTrainingJobs(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*spec.Model)
	}{
		{"data parallel", func(m *spec.Model) { m.DP = 3 }},
		{"3D", func(m *spec.Model) { m.DP, m.TP, m.PP, m.GlobalBatch, m.Vocabulary = 2, 2, 2, 8, 100 }},
		{"ZeRO 3, experts", func(m *spec.Model) { m.DP, m.ZeRO, m.EP, m.Experts, m.TopK = 4, 3, 2, 4, 2 }},
		{"sequence parallel, ZeRO 1", func(m *spec.Model) { m.DP, m.TP, m.SP, m.ZeRO = 2, 2, true, 1 }},
	} {
		for _, transport := range []string{TCP, RD} {
			t.Run(c.name+"/"+transport, func(t *testing.T) {
				j := trainingJob(t, transport, c.change)
				result, err := Run(t.Context(), j, goroutines{}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if n := j.Warmup + j.Iterations; result.Wrong() != 0 || len(result.Operations) != n {
					t.Errorf("%d wrong elements in %d iterations, want %d", result.Wrong(),
						len(result.Operations), n)
				}
				for rank := range j.Ranks {
					checkTrainingRank(t, j, rank, result)
				}
				checkSpans(t, j.Work.(Training).Program, result)
			})
		}
	}
}

func checkTrainingRank(t *testing.T, j Job, rank int, r *Result) {
	t.Helper()
	iterations, program := uint64(j.Warmup+j.Iterations), j.Work.(Training).Program
	sent, groups := r.PerRank[rank].Payload.Sent, r.Own.(*Iterations).Groups[rank]
	if want := program.Sent(rank) * iterations; sent != want || want == 0 {
		t.Errorf("rank %d sent %d bytes, want %d", rank, sent, want)
	}
	for _, v := range program.Volumes(rank) {
		if groups[v.Group] != v.Bytes*iterations {
			t.Errorf("rank %d sent %v, want %v of each iteration", rank, groups, v)
		}
	}
}

func checkSpans(t *testing.T, p *training.Program, r *Result) {
	t.Helper()
	last := len(r.Operations) - 1
	o, own := &r.Operations[last], r.Own.(*Iterations)
	for rank, tasks := range p.Tasks {
		for i, task := range tasks {
			s := own.Spans[rank][i]
			if s.End < s.Start || task.Kind != training.Exchange && s.End-s.Start != task.Time {
				t.Errorf("rank %d: %s took %v", rank, task.Name, s)
			}
			checkExchangeSteps(t, p, own, rank, i)
			for _, before := range task.After {
				if end := own.Spans[rank][before].End; s.Start < end {
					t.Errorf("rank %d: task %d, %s, begins at %v, and task %d ends at %v", rank, i, task.Name,
						s.Start, before, end)
				}
			}
		}
		times := own.All[last].Ranks[rank]
		if times.Compute+times.Exposed+times.Idle != o.Time || times.Compute == 0 {
			t.Errorf("rank %d: %+v of %v", rank, times, o.Time)
		}
	}
}

// checkExchangeSteps requires steps of a task that is an exchange of several ranks, and of no other. They
// follow each other within the task's time.
func checkExchangeSteps(t *testing.T, p *training.Program, own *Iterations, rank, task int) {
	t.Helper()
	of, span, steps := &p.Tasks[rank][task], own.Spans[rank][task], own.Steps[rank][task]
	if of.Kind != training.Exchange {
		if len(steps) > 0 {
			t.Errorf("rank %d: %s has steps %+v", rank, of.Name, steps)
		}
		return
	}
	o := &p.Operations[of.Operation]
	if len(steps) == 0 {
		t.Errorf("rank %d: %s, %s of %d ranks, has no steps", rank, of.Name, o.Kind, len(o.Ranks))
	}
	for _, s := range steps {
		times := slices.Concat([]time.Duration{span.Start, s.From}, s.Ends, []time.Duration{span.End})
		if !slices.IsSorted(times) {
			t.Errorf("rank %d: the begin, the ends of steps and the end of %s are %v", rank, of.Name, times)
		}
		n := len(o.Ranks)
		if want := 2 * (n - 1); o.Kind == schedule.AllReduce && s.Count != want {
			t.Errorf("rank %d: %s of %d ranks has %d steps, want %d", rank, of.Name, n, s.Count, want)
		}
	}
}

// An element that is not what it must be is counted.
func TestTrainingCountsWrongElements(t *testing.T) {
	j := trainingJob(t, TCP, func(m *spec.Model) { m.DP = 2 })
	result, err := Run(t.Context(), j,
		after(func(rank int, id rank.OperationID, output []byte) {
			if rank == 1 && id.Index == 2 {
				output[17]++
			}
		}), nil)
	if err != nil || result.Wrong() != 1 || result.Operations[2].Wrong != 1 {
		t.Errorf("%v, %+v, want one wrong element", err, result)
	}
}

// filled is a part that remembers its data's numbers.
type filled struct {
	rank.Part
	filled, checked []int
}

func (f *filled) Fill(id rank.OperationID) { f.filled = append(f.filled, id.Index) }

func (f *filled) Check(id rank.OperationID, _ []collective.Loss) (wrong, short uint64) {
	f.checked = append(f.checked, id.Index)
	return 0, 0
}

// No two operations of a training job have the same data, nor does one in two iterations.
func TestTrainingDataDiffer(t *testing.T) {
	a, b := &filled{}, &filled{}
	p := &player{operations: []rank.Part{a, nil, b}}
	for i := range 3 {
		p.Fill(rank.OperationID{Index: i})
		p.Check(rank.OperationID{Index: i}, nil)
	}
	all := slices.Concat(a.filled, b.filled)
	slices.Sort(all)
	if len(slices.Compact(all)) != 6 || !slices.Equal(a.filled, a.checked) ||
		!slices.Equal(b.filled, b.checked) {
		t.Errorf("filled as %v and %v, checked as %v and %v", a.filled, b.filled, a.checked, b.checked)
	}
}

// What does not come of an operation that is done again in an iteration is counted, whatever
// came the time before and whether or not it comes the time after.
func TestTrainingOperationsThatComeAgain(t *testing.T) {
	output := make([]byte, 3*blankStep+4)
	p := &player{operations: []rank.Part{&filled{}}, outputs: [][]byte{output},
		used: make([]bool, 1)}
	for _, c := range []struct {
		times []int // elements of blankStep bytes that come each time
		want  uint64
	}{{[]int{4}, 0}, {[]int{4, 4, 4}, 0}, {[]int{4, 3, 4}, 1}, {[]int{4, 0, 0, 4}, 8}, {[]int{2, 4}, 2}} {
		p.Fill(rank.OperationID{})
		for _, come := range c.times {
			p.again(0)
			if slices.Max(output) != 0 {
				t.Error("what is to come is there")
			}
			for i := range come {
				output[i*blankStep+3] = 0x80 // of a zero, which with this sign is data
			}
		}
		if wrong, _ := p.Check(rank.OperationID{}, nil); wrong != c.want {
			t.Errorf("where %v came: %d, want %d", c.times, wrong, c.want)
		}
	}
}

// Times of ranks that began before they could, or ended behind the end, are not known.
func TestTrainingTimesOfOtherClocks(t *testing.T) {
	released := time.Unix(100, 0)
	ended := released.Add(time.Second)
	for begun, want := range map[time.Duration]bool{-time.Hour: true, -2 * time.Millisecond: true, 0: false,
		100 * time.Millisecond: false, 200 * time.Millisecond: true} {
		j := Job{Ranks: make([]plan.Rank, 2)}
		r := Training{&training.Program{Tasks: make([][]training.Task, 2)}}.results(&j).(*Iterations)
		o, step := &Operation{Start: released}, json.RawMessage("{}")
		err := r.add(o, []rank.Done{{Start: released.UnixNano(), Own: step},
			{Start: released.Add(begun).UnixNano(), Time: 900 * time.Millisecond, Own: step}}, released,
			ended)
		if err != nil {
			t.Fatal(err)
		}
		if r.All[0].OtherClocks != want {
			t.Errorf("a rank that began %v after it could in a second, for 900 ms, has another clock: %v, "+
				"want %v", begun, r.All[0].OtherClocks, want)
		}
	}
}

// A rank that is slow is named, and none where none is.
func TestTrainingNamesWhoIsSlow(t *testing.T) {
	j := trainingJob(t, TCP, func(m *spec.Model) {
		m.DP, m.TP, m.TFLOPS = 2, 2, units.Factor{Num: 1, Den: 1000}
	})
	for _, slow := range []int{-1, 2} {
		result, err := Run(t.Context(), j,
			before(func(rank int, _ rank.OperationID) {
				// Beside what all do for as long, a rank that a busy machine held up does not stand out.
				if slow < 0 || rank == slow {
					time.Sleep(300 * time.Millisecond)
				}
			}), nil)
		if err != nil {
			t.Fatal(err)
		}
		if s := result.Straggler(); (s == nil) != (slow < 0) ||
			s != nil && (s.Rank != slow || s.Node != "h2") {
			for i := range result.PerRank {
				t.Logf("rank %d waited %v of %v", i, result.PerRank[i].Waited, result.PerRank[i].Timed)
			}
			t.Errorf("rank %d is slow, and the straggler %+v", slow, s)
		}
	}
}

// Jobs that cannot be are refused before anything starts.
func TestTrainingJobsThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Job){
		"without a program": func(j *Job) { j.Work = Training{} },
		"program of others": func(j *Job) { j.Ranks = j.Ranks[:1] },
	} {
		j := trainingJob(t, TCP, func(m *spec.Model) { m.DP = 2 })
		change(&j)
		if _, err := Run(t.Context(), j, goroutines{refuse: "h0"}, nil); err == nil ||
			!strings.Contains(err.Error(), "want a program for") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
