package collective

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/testkit/hosttest"
	"railbed/transports"
)

// The formulas of this file have no part in the code under test: neither actions, layouts nor schedules. So
// the tests find an error that runners and expected traffic share.

// write is a message as an endpoint accepts it. The place is an offset in bytes in memory of the receiver.
type write struct {
	to               int
	into             string // "input", "output", "work", or "" for a permission
	offset           int
	bytes, droppable int
}

// writes are the numbers of equal messages of a rank.
type writes map[write]int

// amounts adds the messages up by receiver.
func (all writes) amounts(ranks int) []Amount {
	sums := make([]Amount, ranks)
	for w, n := range all {
		sums[w.to].Add(Amount{uint64(n * w.bytes), uint64(n)})
	}
	return sums
}

// share returns the bounds of part i of count elements in n parts, of which the first count % n have one
// element more.
func share(count, n, i int) (from, to int) {
	return i*(count/n) + min(i, count%n), (i+1)*(count/n) + min(i+1, count%n)
}

// sliceOf returns the length in elements of a slice of the longest of n chunks: a quarter of the chunk, at
// least 16 KiB and at most 256 KiB.
func sliceOf(count, n, size int) int {
	longest := max(1, (count+n-1)/n)
	return min(max((longest+3)/4, 16<<10/size), 256<<10/size)
}

// ofRing returns the messages of an operation of a ring. In n-1 steps partial sums of all chunks but one pass
// a rank, and then n-1 results do. The chunk after the rank's own ends there as a partial sum, and the chunk
// after that one as a result. In a scatter the rank's own chunk ends there.
func ofRing(r Ring, rank int, mode Mode) writes {
	n, all := r.Ranks, writes{}
	if n == 1 {
		return all
	}
	all[write{to: (rank + n - 1) % n}]++
	next, slice, sums := (rank+1)%n, sliceOf(r.Count, n, 4), "output"
	if mode == InPlace {
		sums = "input"
	}
	for chunk := range n {
		from, to := share(r.Count, n, chunk)
		for at := from; at < to; at += slice {
			length := 4 * min(slice, to-at)
			ends := chunk == (rank+1)%n
			if r.Scatter {
				ends = chunk == rank
			}
			if !ends {
				all[write{next, sums, 4 * at, length, length * int(r.Droppable.Num) /
					int(max(r.Droppable.Den, 1))}]++
			}
			if !r.Scatter && chunk != (rank+2)%n {
				all[write{next, "output", 4 * at, length, 0}]++
			}
		}
	}
	return all
}

// ofExchange returns the messages of an all-to-all. A block goes in messages of 256 KiB to its place behind
// the blocks of lower ranks. A rank permits each rank to send from which it gets anything.
func ofExchange(m Matrix, size int, c Channel, rank int) writes {
	all := writes{}
	for other := range m {
		if other == rank {
			continue
		}
		from, to := share(m[rank][other], max(c.Of, 1), c.Number)
		for lower := range rank {
			from, to = from+m[lower][other], to+m[lower][other]
		}
		for at := from * size; at < to*size; at += 256 << 10 {
			all[write{other, "output", at, min(256<<10, to*size-at), 0}]++
		}
		if from, to := share(m[other][rank], max(c.Of, 1), c.Number); from < to {
			all[write{to: other}]++
		}
	}
	return all
}

// requestLog keeps the requests that an endpoint accepted.
type requestLog struct {
	transports.Endpoint
	mu  sync.Mutex
	all []transports.Request
}

func (l *requestLog) Post(ctx context.Context, requests []transports.Request) (int, error) {
	n, err := l.Endpoint.Post(ctx, requests)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, requests[:n]...)
	return n, err
}

// taken returns the messages of a runner since the latest call.
func (l *requestLog) taken(r *Runner) writes {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := writes{}
	for i := range l.all {
		q := &l.all[i]
		w := write{bytes: q.Size(), droppable: q.Droppable}
		for w.to == r.config.Rank || r.config.Peers[w.to] != q.Peer {
			w.to++
		}
		if w.bytes > 0 || q.Imm&clearToSend == 0 {
			h := &r.config.Handles[w.to]
			for name, handle := range map[string][]byte{"input": h.Input, "output": h.Output,
				"work": h.Work} {
				if len(handle) > 0 && bytes.Equal(handle, q.Remote) {
					w.into = name
				}
			}
			w.offset = int(q.Offset)
		}
		all[w]++
	}
	l.all = nil
	return all
}

// logged makes runners whose requests are kept.
func logged(t *testing.T, a Algorithm) ([]*Runner, []*requestLog) {
	t.Helper()
	var logs []*requestLog
	memory := openMemory(3)
	runners := newRunners(t, a, func() transports.Endpoint {
		logs = append(logs, &requestLog{Endpoint: memory()})
		return logs[len(logs)-1]
	})
	return runners, logs
}

// checkWrites compares the messages of an operation in each mode, and the amounts of some operations, with a
// formula.
func checkWrites(t *testing.T, name string, a Algorithm, formula func(rank int, mode Mode) writes) {
	t.Helper()
	const operations = 3
	runners, logs := logged(t, a)
	for _, mode := range a.traits().modes {
		if _, err := runAll(t.Context(), runners, mode); err != nil {
			t.Fatal(err)
		}
		for rank, r := range runners {
			want, got := formula(rank, mode), logs[rank].taken(r)
			if maps.Equal(got, want) {
				continue
			}
			for _, w := range slices.SortedFunc(maps.Keys(joined(got, want)), func(a, b write) int {
				return cmp.Or(a.to-b.to, a.offset-b.offset)
			}) {
				if got[w] != want[w] {
					t.Errorf("%s, %v: rank %d sent %+v %d times, and by the formula %d times", name, mode,
						rank, w, got[w], want[w])
					break // the first shows what is wrong
				}
			}
		}
	}
	for rank := range runners {
		want := formula(rank, OutOfPlace).amounts(len(runners))
		for i := range want {
			want[i] = Amount{want[i].Bytes * operations, want[i].Messages * operations}
		}
		if got := Amounts(a, rank, operations); !slices.Equal(got, want) {
			t.Errorf("%s: rank %d has amounts %v, and by the formula %v", name, rank, got, want)
		}
	}
}

// joined returns all keys of two sets of messages.
func joined(a, b writes) writes {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// TestRingsByFormula compares the messages of rings with closed formulas: how many of which length go to
// whom, where they land, and which bytes may be missing. Most buffers cannot be shared evenly.
func TestRingsByFormula(t *testing.T) {
	row := 0
	for _, ranks := range []int{1, 2, 3, 4, 7} {
		for _, count := range append(oddSizes(ranks), 70_001*ranks+1) {
			for _, r := range []Ring{{}, {Scatter: true}, {Droppable: units.Ratio{Num: 3, Den: 100}},
				{Scatter: true, Droppable: units.Ratio{Num: 1, Den: 7}}} {
				if row++; !hosttest.Sampled(t, row) {
					continue
				}
				r.Ranks, r.Count = ranks, count
				checkWrites(t, fmt.Sprintf("%+v", r), ring(t, r),
					func(rank int, mode Mode) writes { return ofRing(r, rank, mode) })
			}
		}
	}
}

// TestExchangesByFormula does the same for all-to-alls whose blocks have any lengths, in channels too.
func TestExchangesByFormula(t *testing.T) {
	row := 0
	for _, ranks := range []int{1, 2, 3, 5, 8} {
		uneven := make(Matrix, ranks)
		for from := range ranks {
			for to := range ranks {
				uneven[from] = append(uneven[from], (from*7+to*13)%5*(30_011+from))
			}
		}
		for name, m := range map[string]Matrix{"uneven": uneven, "even": Even(ranks, 1009*ranks),
			"rest": Even(ranks, 1009*ranks-1), "few": Even(ranks, ranks/2), "none": Even(ranks, 0)} {
			for _, kind := range []element.Type{element.Float32, element.Int8, element.Float64} {
				for _, c := range []Channel{{}, {0, 2}, {2, 3}} {
					if row++; !hosttest.Sampled(t, row) {
						continue
					}
					e, err := NewExchange(ExchangeConfig{Matrix: m, Type: kind, Channel: c})
					if err != nil {
						t.Fatal(err)
					}
					checkWrites(t, fmt.Sprintf("%d ranks, %s, %s, %+v", ranks, name, kind, c), e,
						func(rank int, _ Mode) writes { return ofExchange(m, kind.Size(), c, rank) })
				}
			}
		}
	}
}

// ringSteps returns the chunks that a rank sends in an operation of a ring that is a program, once for each
// step.
// Of a reduce-scatter, a rank's own chunk ends there. Of an all-gather, the next chunk does.
func ringSteps(kind schedule.Kind, ranks, rank int) (chunks []int) {
	for chunk := range ranks {
		if kind != schedule.AllGather && chunk != rank {
			chunks = append(chunks, chunk)
		}
		if kind != schedule.ReduceScatter && chunk != (rank+1)%ranks {
			chunks = append(chunks, chunk)
		}
	}
	return chunks
}

// ofProgram returns the amounts of operations of a program. Kinds with a share for each rank cut each share
// into slices. An all-reduce cuts the buffer into slices, and a slice into chunks. Short programs permit
// others to send once, for all operations.
func ofProgram(kind schedule.Kind, ranks, rank, count, size, operations int) []Amount {
	cuts := (max(1, (count+ranks-1)/ranks) + sliceOf(count, ranks, size) - 1) / sliceOf(count, ranks, size)
	if count == 0 {
		cuts = 1
	}
	sums := make([]Amount, ranks)
	send := func(to, elements int) {
		if elements > 0 {
			sums[to].Add(Amount{uint64(operations * elements * size), uint64(operations)})
		}
	}
	permissions := uint64(operations)
	if count*size <= 256<<10 && (count >= ranks || kind == schedule.AllReduce && count > 0) {
		permissions = 1
	}
	for slice := range cuts {
		switch kind {
		case schedule.AllToAll:
			for to := range ranks {
				if from, behind := share(count/ranks, cuts, slice); to != rank {
					send(to, behind-from)
				}
			}
		case schedule.AllReduce:
			from, behind := share(count, cuts, slice)
			for _, chunk := range ringSteps(kind, ranks, rank) {
				first, end := share(behind-from, ranks, chunk)
				send((rank+1)%ranks, end-first)
			}
		default:
			for _, chunk := range ringSteps(kind, ranks, rank) {
				from, behind := share(count, ranks, chunk)
				from, behind = share(behind-from, cuts, slice)
				send((rank+1)%ranks, behind-from)
			}
		}
	}
	for from := range ranks {
		if from == (rank+ranks-1)%ranks || kind == schedule.AllToAll && from != rank {
			sums[from].Messages += permissions
		}
	}
	return sums
}

// TestProgramsByFormula compares the traffic of rings and direct all-to-alls that are programs with formulas.
func TestProgramsByFormula(t *testing.T) {
	const operations = 3
	row := 0
	for _, p := range []struct {
		kind      schedule.Kind
		algorithm string
	}{{schedule.AllReduce, schedule.Ring}, {schedule.AllGather, schedule.Ring},
		{schedule.ReduceScatter, schedule.Ring}, {schedule.AllToAll, schedule.Direct}} {
		for _, ranks := range []int{2, 3, 5, 8} {
			for _, count := range append(oddSizes(ranks), 30_001*ranks+1) {
				for _, kind := range []element.Type{element.Float32, element.BFloat16, element.Float64} {
					if row++; !hosttest.Sampled(t, row) {
						continue
					}
					if p.kind == schedule.AllToAll {
						count -= count % ranks // blocks of one length
					}
					made := program(t, p.kind, p.algorithm, ranks, 0, Data{Count: count, Type: kind})
					name := fmt.Sprintf("%s by %s: %d ranks, %d of %s", p.kind, p.algorithm, ranks, count,
						kind)
					for rank := range checkAmounts(t, made, operations) {
						want := ofProgram(p.kind, ranks, rank, count, kind.Size(), operations)
						if got := Amounts(made, rank, operations); !slices.Equal(got, want) {
							t.Errorf("%s: rank %d has amounts %v, and by the formula %v", name, rank, got,
								want)
						}
					}
				}
			}
		}
	}
}

// TestLandingsOfShortPrograms checks where messages without permission land: in work memory, in places that
// no other message of the same operation or of the next one has. Every second operation has the same places.
func TestLandingsOfShortPrograms(t *testing.T) {
	for _, a := range eager {
		if a.kind == schedule.Barrier {
			continue // its messages have no bytes
		}
		const ranks = 8
		runners, logs := logged(t, program(t, a.kind, a.algorithm, ranks, 0, Data{Count: 1001 * ranks}))
		var places [3][ranks]map[write]bool // by operation and receiver
		for operation := range places {
			if _, err := runAll(t.Context(), runners, OutOfPlace); err != nil {
				t.Fatal(err)
			}
			for sender, r := range runners {
				for w, n := range logs[sender].taken(r) {
					if w.into == "" && operation == 0 {
						continue // the permission
					}
					to := &places[operation][w.to]
					if *to == nil {
						*to = map[write]bool{}
					}
					if (*to)[w] || n != 1 || w.into != "work" {
						t.Errorf("%s by %s: operation %d: rank %d got %+v twice, or not in work memory",
							a.kind, a.algorithm, operation, w.to, w)
					}
					(*to)[w] = true
				}
			}
		}
		for to := range ranks {
			if !maps.Equal(places[0][to], places[2][to]) {
				t.Errorf("%s by %s: the third operation has other places at rank %d than the first", a.kind,
					a.algorithm, to)
			}
			checkDisjoint(t, fmt.Sprintf("%s by %s, rank %d", a.kind, a.algorithm, to), places[0][to],
				places[1][to])
		}
	}
}

// checkDisjoint requires that no two messages have a byte in common.
func checkDisjoint(t *testing.T, name string, of ...map[write]bool) {
	t.Helper()
	var all []write
	for _, places := range of {
		all = slices.AppendSeq(all, maps.Keys(places))
	}
	slices.SortFunc(all, func(a, b write) int { return a.offset - b.offset })
	for i := 1; i < len(all); i++ {
		if before := all[i-1]; before.offset+before.bytes > all[i].offset {
			t.Errorf("%s: %+v and %+v overlap", name, before, all[i])
		}
	}
	if len(all) == 0 {
		t.Errorf("%s: no messages", name)
	}
}
