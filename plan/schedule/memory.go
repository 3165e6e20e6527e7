package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// cell is a chunk of a rank's memory.
type cell struct {
	rank   int
	buffer Buffer
	chunk  int
}

// cell returns the memory of a chunk of a rank's buffer. In place, inputs are outputs.
func (c *checker) cell(rank int, b Buffer, chunk int) cell {
	if c.plan.InPlace && b == Input && c.s.Has(rank, Output, chunk) {
		b = Output
	}
	return cell{rank, b, chunk}
}

// use is an access to a cell. Uses of a cell are in a possible order.
type use struct {
	node   int
	writes bool
}

func (c *checker) uses() map[cell][]use {
	all := map[cell][]use{}
	for _, i := range c.order {
		n := &c.nodes[i]
		for chunk := n.Chunk; chunk < n.Chunk+n.Count; chunk++ {
			from, to := c.cell(n.rank, n.Source, chunk), c.cell(n.rank, n.Target, chunk+n.Move)
			if n.Op.reads() && !(n.Op.writes() && from == to) {
				all[from] = append(all[from], use{i, false})
			}
			if n.Op.writes() {
				all[to] = append(all[to], use{i, true})
			}
		}
	}
	return all
}

// races looks for unordered steps of which one writes memory that the other uses.
func (c *checker) races() error {
	var first error
	least, pairs := len(c.nodes), 0
	all := c.uses()
	for _, uses := range all {
		if pairs += len(uses) * len(uses) / 2; pairs > maxPairs {
			return fmt.Errorf("too many steps use the same chunks: more than %d pairs of uses", maxPairs)
		}
	}
	for at, uses := range all {
		for k, late := range uses {
			for _, early := range uses[:k] {
				if (early.writes || late.writes) && !c.before(early.node, late.node) && late.node < least {
					least = late.node // for the same errors each time
					first = c.problem(late.node, "chunk %d of %v is used at the same time by %s", at.chunk,
						at.buffer, c.name(early.node))
				}
			}
		}
	}
	return first
}

// place decides which messages can land in their targets, and which steps must wait until sends are
// complete.
func (c *checker) place() {
	for _, threads := range c.s.Ranks {
		var other [][]At
		var direct [][]bool
		var unsent [][][]At
		var terms [][][]Terms
		for _, t := range threads {
			other = append(other, make([]At, len(t.Steps)))
			direct = append(direct, make([]bool, len(t.Steps)))
			unsent = append(unsent, make([][]At, len(t.Steps)))
			terms = append(terms, make([][]Terms, len(t.Steps)))
		}
		c.plan.Other, c.plan.Direct, c.plan.Unsent = append(c.plan.Other, other),
			append(c.plan.Direct, direct), append(c.plan.Unsent, unsent)
		c.plan.Terms = append(c.plan.Terms, terms)
	}
	direct := make([]bool, len(c.nodes))
	for i := range c.nodes {
		n := &c.nodes[i]
		if n.other >= 0 {
			c.plan.Other[n.rank][n.at.Thread][n.at.Step] = c.nodes[n.other].at
		}
		c.plan.Terms[n.rank][n.at.Thread][n.at.Step] = c.terms[i]
		direct[i] = n.Op.receives()
		for chunk := n.Chunk; n.Op == Combine && chunk < n.Chunk+n.Count; chunk++ {
			direct[i] = direct[i] && c.cell(n.rank, n.Source, chunk) != c.cell(n.rank, n.Target, chunk+n.Move)
		}
	}
	uses := c.uses()
	for _, all := range uses {
		for k, late := range all {
			for _, early := range all[:k] {
				if late.writes && direct[late.node] && !c.overBeforeSent(early.node, late.node) {
					direct[late.node] = false
				}
			}
		}
	}
	for _, all := range uses {
		for k, late := range all {
			if !late.writes || direct[late.node] {
				continue
			}
			n := &c.nodes[late.node]
			for _, early := range all[:k] {
				if c.nodes[early.node].Op == Send && !c.over(early.node, late.node) {
					list := &c.plan.Unsent[n.rank][n.at.Thread][n.at.Step]
					*list = append(*list, c.nodes[early.node].at)
				}
			}
		}
	}
	for i, is := range direct {
		n := &c.nodes[i]
		c.plan.Direct[n.rank][n.at.Thread][n.at.Step] = is
	}
}

// overBeforeSent reports whether step early no longer needs its memory when the message that step
// late receives can be sent.
func (c *checker) overBeforeSent(early, late int) bool {
	return c.over(early, c.nodes[late].other)
}

// share is a multiple of a chunk of a rank's input.
type share struct{ rank, chunk, times int }

// content is the content of a chunk: the shares in its sum, by rank and chunk. Nil means that the
// content is undefined.
type content []share

func (v content) String() string {
	var parts []string
	for _, p := range v {
		parts = append(parts, fmt.Sprintf("%d x rank %d chunk %d", p.times, p.rank, p.chunk))
	}
	if parts == nil {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// contents runs the schedule on contents instead of data.
func (c *checker) contents() error {
	s := c.s
	if s.Kind == Barrier {
		return c.barrier()
	}
	memory := map[cell]content{}
	for rank := range s.Ranks {
		for chunk := range s.Chunks {
			if s.Has(rank, Input, chunk) {
				memory[c.cell(rank, Input, chunk)] = content{{rank, chunk, 1}}
			}
		}
	}
	sent := make([][]content, len(c.nodes))
	for _, i := range c.order {
		n := &c.nodes[i]
		for k := range n.Count {
			target := c.cell(n.rank, n.Target, n.Chunk+n.Move+k)
			var read []cell
			if n.Op.reads() {
				read = append(read, c.cell(n.rank, n.Source, n.Chunk+k))
			}
			if n.Op == Accumulate {
				read = append(read, target)
			}
			var v content
			if n.Op.receives() {
				v = sent[n.other][k]
			}
			for _, from := range read {
				if memory[from] == nil {
					return c.problem(i, "it reads chunk %d of %v before any step wrote it", from.chunk,
						from.buffer)
				}
				if v != nil {
					c.terms[i] = append(c.terms[i], Terms{Came: v.parts(), Has: memory[from].parts()})
				}
				v = v.plus(memory[from])
			}
			if n.Op == Send {
				sent[i] = append(sent[i], v)
			} else {
				memory[target] = v
			}
		}
	}
	for rank := range s.Ranks {
		for chunk := range s.Chunks {
			if !s.Has(rank, Output, chunk) {
				continue
			}
			if has, want := memory[c.cell(rank, Output, chunk)],
				s.wanted(rank, chunk); !slices.Equal(has, want) {
				return fmt.Errorf("rank %d ends with %v in chunk %d, want %v", rank, has, chunk, want)
			}
		}
	}
	return nil
}

// parts returns the number of ranks' parts.
func (v content) parts() (parts int) {
	for _, p := range v {
		parts += p.times
	}
	return parts
}

func (v content) plus(w content) content {
	if v == nil {
		return w
	}
	sum := make(content, 0, len(v)+len(w))
	for len(v) > 0 && len(w) > 0 {
		switch order := cmp.Or(cmp.Compare(v[0].rank, w[0].rank), cmp.Compare(v[0].chunk, w[0].chunk)); {
		case order < 0:
			sum, v = append(sum, v[0]), v[1:]
		case order > 0:
			sum, w = append(sum, w[0]), w[1:]
		default:
			sum = append(sum, share{v[0].rank, v[0].chunk, v[0].times + w[0].times})
			v, w = v[1:], w[1:]
		}
	}
	return append(append(sum, v...), w...)
}

// wanted returns the required content of a chunk of a rank's output.
func (s *Schedule) wanted(rank, chunk int) (v content) {
	if source := s.Kind.Properties().source; source != nil {
		from, fromChunk := source(s, rank, chunk)
		return content{{from, fromChunk, 1}}
	}
	for r := range s.Ranks {
		if s.Has(r, Input, chunk) {
			v = append(v, share{r, chunk, 1})
		}
	}
	return v
}

// Source returns the rank and the chunk of its input that a chunk of a rank's output equals, in a kind that
// combines nothing.
func (s *Schedule) Source(rank, chunk int) (from, fromChunk int) {
	v := s.wanted(rank, chunk)
	return v[0].rank, v[0].chunk
}

// barrier checks that each rank ends after a step of every other rank.
func (c *checker) barrier() error {
	for rank, threads := range c.s.Ranks {
		preceded := make([]bool, len(c.s.Ranks))
		preceded[rank] = true
		for t, thread := range threads {
			if len(thread.Steps) == 0 {
				continue
			}
			last := &c.nodes[c.first[rank][t]+len(thread.Steps)-1]
			for i := range c.nodes {
				preceded[c.nodes[i].rank] = preceded[c.nodes[i].rank] ||
					last.clock[c.nodes[i].thread] > int32(c.nodes[i].at.Step)
			}
		}
		for other, is := range preceded {
			if !is {
				return fmt.Errorf("rank %d may end before rank %d has begun", rank, other)
			}
		}
	}
	return nil
}
