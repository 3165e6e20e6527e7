package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Plan is the information that a runner needs about a schedule in addition to its steps. Lists are
// by rank, thread and step.
type Plan struct {
	Schedule *Schedule
	InPlace  bool
	// Other is the other end of a message. For a Send it is the step that receives the message, at
	// rank Peer, and the reverse.
	Other [][][]At
	// Direct reports for a step that receives a message whether the message may land in the step's
	// Target. It may if all other uses of that memory have ended before the message can be sent.
	// All other messages need memory of their own.
	Direct [][][]bool
	// Unsent lists the sends of the same rank that must be complete before a step may run, because
	// the step changes their data.
	Unsent [][][][]At
	// Terms gives for a Combine and an Accumulate, by chunk, the number of ranks' parts in the sums
	// that it adds.
	Terms [][][][]Terms
}

// Terms is the number of ranks' parts in the received data, or in an Accumulate's source, and in
// the data to which they are added.
type Terms struct{ Came, Has int }

// Check proves that a schedule computes the result of its kind, for any order in which its ranks,
// threads and messages proceed. In place, the input and the output of a rank are the same memory
// for chunks that both have.
//
// Check reports malformed steps, messages without a sender or a receiver, steps that wait for each
// other, and outputs that lack a part of a rank or have it twice. It also reports unordered steps
// of which one changes data that the other uses.
//
// Its time grows with the number of steps times the number of threads, and with the square of the
// steps that use the same chunk. Check refuses schedules that would take minutes.
func Check(s *Schedule, inPlace bool) (*Plan, error) {
	c := &checker{s: s, plan: &Plan{Schedule: s, InPlace: inPlace}}
	mode := "out of place"
	if inPlace {
		mode = "in place"
	}
	for _, part := range []func() error{c.number, c.match, c.sort, c.clock, c.races, c.contents} {
		if err := part(); err != nil {
			return nil, fmt.Errorf("check %s by %s for %d ranks %s: %w", s.Kind, s.Algorithm, len(s.Ranks),
				mode, err)
		}
	}
	c.place()
	return c.plan, nil
}

// Limits of Check, so that no file takes all memory or time. They bound the chunks of all steps
// together, and the number of comparisons between uses of the same memory.
const (
	maxChunks = 1 << 22
	maxPairs  = 1 << 28
)

// node is a step of a schedule.
type node struct {
	*Step
	rank   int
	at     At
	thread int     // Index among all threads.
	other  int     // The node at the other end of the message, or -1.
	before []int   // Nodes that must complete before.
	clock  []int32 // By thread, how many of its steps complete before this node or are this node.
}

type checker struct {
	s     *Schedule
	plan  *Plan
	nodes []node
	first [][]int // by rank and thread, the number of its first node
	terms [][]Terms
	order []int // nodes in an order that respects before
}

// StepError is an error in a step.
type StepError struct {
	Rank int
	At   At
	err  error
}

func (e *StepError) Error() string { return e.err.Error() }

// name describes a node.
func (c *checker) name(i int) string {
	n := &c.nodes[i]
	if c.s.Name != nil {
		return c.s.Name(n.rank, n.at)
	}
	return fmt.Sprintf("rank %d thread %d step %d (%v)", n.rank, n.at.Thread, n.at.Step, n.Step)
}

func (c *checker) problem(i int, format string, args ...any) error {
	return c.stepError(i, fmt.Errorf("%s: %w", c.name(i), fmt.Errorf(format, args...)))
}

func (c *checker) stepError(i int, err error) error {
	return &StepError{c.nodes[i].rank, c.nodes[i].at, err}
}

// number lists the steps and checks each of them separately.
func (c *checker) number() error {
	s := c.s
	n := len(s.Ranks)
	if n == 0 || s.Root < 0 || s.Root >= n || s.Chunks < 0 || s.Scratch < 0 ||
		(s.Chunks == 0) != (s.Kind == Barrier) || s.Kind.Shares() && s.Chunks%n != 0 {
		return fmt.Errorf("invalid schedule: %d ranks, root %d, %d chunks and %d chunks of scratch memory", n,
			s.Root, s.Chunks, s.Scratch)
	}
	if s.Equal && s.Kind == Barrier {
		return errors.New("a barrier has Equal set, but no chunks")
	}
	if c.plan.InPlace && s.OutOfPlace {
		return errors.New("the schedule works only out of place")
	}
	thread := 0
	for rank, threads := range s.Ranks {
		c.first = append(c.first, nil)
		for t := range threads {
			c.first[rank] = append(c.first[rank], len(c.nodes))
			for i := range threads[t].Steps {
				c.nodes = append(c.nodes, node{Step: &threads[t].Steps[i], rank: rank, at: At{t, i},
					thread: thread, other: -1})
			}
			thread++
		}
	}
	c.terms = make([][]Terms, len(c.nodes))
	var problems []error
	chunks := 0
	for i := range c.nodes {
		if err := c.step(i); err != nil {
			problems = append(problems, err)
		} else if chunks += c.nodes[i].Count; chunks > maxChunks {
			return c.problem(i, "the steps up to this one use more than %d chunks", maxChunks)
		}
	}
	return errors.Join(problems...)
}

func (c *checker) step(i int) error {
	n := &c.nodes[i]
	switch {
	case n.Op >= operations:
		return fmt.Errorf("rank %d thread %d step %d: unknown operation %d", n.rank, n.at.Thread,
			n.at.Step, n.Op)
	case !n.Op.Local() && (n.Peer < 0 || n.Peer >= len(c.s.Ranks) || n.Peer == n.rank):
		return c.problem(i, "its peer is not another rank")
	case c.s.Kind == Barrier && (n.Count != 0 || n.Chunk != 0 || n.Op != Send && n.Op != Receive):
		return c.problem(i, "it has data, but is in a barrier")
	case n.Move != 0 && !c.s.Equal:
		return c.problem(i, "it moves data between chunks, which may differ in length")
	case n.Op.writes() && n.Target == Input:
		return c.problem(i, "it changes the input")
	}
	for _, use := range []struct {
		uses  bool
		b     Buffer
		chunk int
	}{{n.Op.reads(), n.Source, n.Chunk}, {n.Op.writes(), n.Target, n.Chunk + n.Move}} {
		switch {
		case !use.uses || c.s.Kind == Barrier:
			continue
		case use.b >= buffers:
			return c.problem(i, "unknown buffer %d", use.b)
		case n.Count < 1 || n.Count > c.s.Len(use.b) || use.chunk < 0 || use.chunk > c.s.Len(use.b)-n.Count:
			return c.problem(i, "its chunks pass the end of the buffer, which has %d chunks", c.s.Len(use.b))
		}
		for chunk := use.chunk; chunk < use.chunk+n.Count; chunk++ {
			if !c.s.Has(n.rank, use.b, chunk) {
				return c.problem(i, "%v has no chunk %d", use.b, chunk)
			}
		}
	}
	if n.Op.reads() && n.Op.writes() && n.Move != 0 && n.Move < n.Count && -n.Move < n.Count &&
		c.cell(n.rank, n.Source, n.Chunk).buffer == c.cell(n.rank, n.Target, n.Chunk).buffer {
		return c.problem(i, "its source overlaps with its target")
	}
	if (n.Op == Combine || n.Op == Accumulate) && !c.s.Kind.Combines() {
		return c.problem(i, "%s combines nothing", c.s.Kind)
	}
	if n.at.Step > 0 {
		n.before = append(n.before, i-1)
	}
	for _, a := range n.After {
		threads := c.s.Ranks[n.rank]
		if a.Thread < 0 || a.Thread >= len(threads) || a.Step < 0 || a.Step >= len(threads[a.Thread].Steps) {
			return c.problem(i, "it comes after thread %d step %d, which does not exist", a.Thread, a.Step)
		}
		n.before = append(n.before, c.first[n.rank][a.Thread]+a.Step)
	}
	return nil
}

// match finds both ends of each message.
func (c *checker) match() error {
	type way struct{ from, to, channel int }
	type ends struct{ sends, takes []int }
	ways := map[way]*ends{}
	var order []way // for the same errors each time
	for i := range c.nodes {
		n := &c.nodes[i]
		if n.Op.Local() {
			continue
		}
		w := way{n.rank, n.Peer, c.s.Ranks[n.rank][n.at.Thread].Channel}
		if n.Op.receives() {
			w.from, w.to = w.to, w.from
		}
		e := ways[w]
		if e == nil {
			e = &ends{}
			ways[w] = e
			order = append(order, w)
		}
		list := &e.sends
		if n.Op.receives() {
			list = &e.takes
		}
		if k := len(*list); k > 0 && c.nodes[(*list)[k-1]].thread != n.thread {
			return c.problem(i, "channel %d to its peer is also used by thread %d, so that messages have "+
				"no order", w.channel, c.nodes[(*list)[k-1]].at.Thread)
		}
		*list = append(*list, i)
	}
	for _, w := range order {
		e := ways[w]
		for k := range max(len(e.sends), len(e.takes)) {
			switch {
			case k >= len(e.takes):
				return c.problem(e.sends[k], "no step receives its message")
			case k >= len(e.sends):
				return c.problem(e.takes[k], "no step sends its message")
			}
			from, to := &c.nodes[e.sends[k]], &c.nodes[e.takes[k]]
			if from.Count != to.Count || from.Chunk != to.Chunk+to.Move && !c.s.Equal {
				return c.problem(e.takes[k], "it receives the message of %s, whose chunks differ",
					c.name(e.sends[k]))
			}
			from.other, to.other = e.takes[k], e.sends[k]
			to.before = append(to.before, e.sends[k])
		}
	}
	return nil
}

// sort finds an order of the nodes, or reports the nodes that wait for each other.
func (c *checker) sort() error {
	waits := make([]int, len(c.nodes))
	behind := make([][]int, len(c.nodes))
	for i := range c.nodes {
		waits[i] = len(c.nodes[i].before)
		for _, b := range c.nodes[i].before {
			behind[b] = append(behind[b], i)
		}
		if waits[i] == 0 {
			c.order = append(c.order, i)
		}
	}
	for k := 0; k < len(c.order); k++ {
		for _, i := range behind[c.order[k]] {
			if waits[i]--; waits[i] == 0 {
				c.order = append(c.order, i)
			}
		}
	}
	if len(c.order) == len(c.nodes) {
		return nil
	}
	i := slices.IndexFunc(waits, func(w int) bool { return w > 0 })
	var way []int
	for !slices.Contains(way, i) {
		way = append(way, i)
		b := c.nodes[i].before
		i = b[slices.IndexFunc(b, func(b int) bool { return waits[b] > 0 })]
	}
	var names []string
	for _, i := range way[slices.Index(way, i):] {
		names = append(names, c.name(i))
	}
	return c.stepError(i, fmt.Errorf("deadlock: each waits for the next: %s, which waits for the first",
		strings.Join(names, ", ")))
}

// maxClocks bounds the entries of vector clocks, of 4 bytes each. All pairs among 64 ranks need
// nearly that many.
const maxClocks = 1 << 26

// clock computes vector clocks (Fidge 1988, Mattern 1989), with which two steps are compared in
// constant time.
func (c *checker) clock() error {
	threads := 0
	for _, t := range c.s.Ranks {
		threads += len(t)
	}
	if threads > 0 && len(c.nodes) > maxClocks/threads {
		return fmt.Errorf("%d steps in %d threads are too many to prove: want at most %d steps",
			len(c.nodes), threads, maxClocks/threads)
	}
	clocks := make([]int32, len(c.nodes)*threads)
	for _, i := range c.order {
		n := &c.nodes[i]
		n.clock, clocks = clocks[:threads:threads], clocks[threads:]
		for _, b := range n.before {
			for t, at := range c.nodes[b].clock {
				n.clock[t] = max(n.clock[t], at)
			}
		}
		n.clock[n.thread] = int32(n.at.Step) + 1
	}
	return nil
}

// before reports whether step a always completes before step b can complete.
func (c *checker) before(a, b int) bool {
	return a != b && c.nodes[b].clock[c.nodes[a].thread] > int32(c.nodes[a].at.Step)
}

// over reports whether step a no longer needs its rank's memory when step b runs. A Send needs it
// until the receiver has taken the message.
func (c *checker) over(a, b int) bool {
	if c.nodes[a].Op == Send {
		a = c.nodes[a].other
	}
	return a == b || c.before(a, b)
}
