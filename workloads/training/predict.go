package training

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Span is the time in which a task ran, from the start of its iteration.
type Span struct {
	Start time.Duration `json:"start"`
	End   time.Duration `json:"end"`
}

// Predict computes an iteration in virtual time. A computation takes its time. An operation takes
// the time that cost returns, counted from the time at which the last of its ranks began it. A task
// of an exchange begins when its own rank is ready. The spans are by rank and task.
func (p *Program) Predict(cost func(*Operation) time.Duration) ([][]Span, error) {
	s := p.newPlay()
	for rank := range s.ranks {
		for _, stream := range s.ranks[rank].order {
			s.push(rank, stream)
		}
	}
	for len(s.dirty) > 0 {
		at := s.dirty[0]
		s.dirty = s.dirty[1:]
		s.ranks[at.rank].streams[at.stream].queued = false
		for s.advance(at.rank, at.stream, cost) {
		}
	}
	if s.left > 0 {
		return nil, s.stuck()
	}
	return s.spans, nil
}

// play is the state of a prediction.
type play struct {
	program *Program
	ranks   []playRank
	spans   [][]Span
	done    [][]bool
	left    int
	dirty   []playAt // streams to visit: a task that their first task waits for is done
}

type playAt struct {
	rank   int
	stream string
}

type playRank struct {
	order   []string
	streams map[string]*playStream
	waiting map[int][]string // streams, by the task that their first task waits for
}

type playStream struct {
	tasks  []int // in order
	next   int
	free   time.Duration
	queued bool
}

func (p *Program) newPlay() *play {
	n := len(p.Tasks)
	s := &play{program: p, ranks: make([]playRank, n), spans: make([][]Span, n), done: make([][]bool, n)}
	for rank, tasks := range p.Tasks {
		r := &s.ranks[rank]
		r.streams, r.waiting = map[string]*playStream{}, map[int][]string{}
		s.spans[rank], s.done[rank] = make([]Span, len(tasks)), make([]bool, len(tasks))
		s.left += len(tasks)
		for i := range tasks {
			name := p.Stream(rank, i)
			if r.streams[name] == nil {
				r.streams[name] = &playStream{}
				r.order = append(r.order, name)
			}
			r.streams[name].tasks = append(r.streams[name].tasks, i)
		}
	}
	return s
}

func (s *play) push(rank int, stream string) {
	if st := s.ranks[rank].streams[stream]; !st.queued {
		st.queued = true
		s.dirty = append(s.dirty, playAt{rank, stream})
	}
}

// ready returns the first task of a stream and when it can begin, if that is known. Otherwise
// missing is a task that it waits for, or -1 if the stream is empty.
func (s *play) ready(rank int, stream string) (task int, at time.Duration, missing int, known bool) {
	st := s.ranks[rank].streams[stream]
	if st == nil || st.next == len(st.tasks) {
		return 0, 0, -1, false
	}
	task, at = st.tasks[st.next], st.free
	for _, before := range s.program.Tasks[rank][task].After {
		if !s.done[rank][before] {
			return task, 0, before, false
		}
		at = max(at, s.spans[rank][before].End)
	}
	return task, at, -1, true
}

func (s *play) finish(rank int, stream string, task int, span Span) {
	st := s.ranks[rank].streams[stream]
	st.next++
	st.free = span.End
	s.spans[rank][task], s.done[rank][task] = span, true
	s.left--
	s.push(rank, stream)
	for _, waiting := range s.ranks[rank].waiting[task] {
		s.push(rank, waiting)
	}
	delete(s.ranks[rank].waiting, task)
}

// advance finishes the first task of a stream, if it is ready. It finishes an exchange at all of
// the exchange's ranks, once the last of them has reached it.
func (s *play) advance(rank int, stream string, cost func(*Operation) time.Duration) bool {
	task, at, missing, known := s.ready(rank, stream)
	if !known {
		if missing >= 0 {
			waiting := s.ranks[rank].waiting
			waiting[missing] = append(waiting[missing], stream)
		}
		return false
	}
	t := &s.program.Tasks[rank][task]
	if t.Kind != Exchange {
		s.finish(rank, stream, task, Span{at, at + t.Time})
		return true
	}
	o := &s.program.Operations[t.Operation]
	tasks, starts := make([]int, len(o.Ranks)), make([]time.Duration, len(o.Ranks))
	for i, other := range o.Ranks {
		if tasks[i], starts[i], _, known = s.ready(other, stream); !known ||
			s.program.Tasks[other][tasks[i]].Operation != t.Operation {
			return false
		}
	}
	end := slices.Max(starts) + cost(o)
	for i, other := range o.Ranks {
		s.finish(other, stream, tasks[i], Span{starts[i], end})
	}
	return true
}

// stuck returns an error that says which tasks the first few ranks wait for.
func (s *play) stuck() error {
	const most = 4
	var waiting []string
	for rank := range s.ranks {
		for _, name := range s.ranks[rank].order {
			st := s.ranks[rank].streams[name]
			if st.next == len(st.tasks) {
				continue
			}
			if task := &s.program.Tasks[rank][st.tasks[st.next]]; len(waiting) < most {
				waiting = append(waiting, fmt.Sprintf("rank %d at task %d, %s", rank, st.tasks[st.next],
					task.Name))
			} else if len(waiting) == most {
				waiting = append(waiting, "others")
			}
		}
	}
	return fmt.Errorf("check program: it deadlocks: %s", strings.Join(waiting, "; "))
}
