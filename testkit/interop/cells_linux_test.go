package interop

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"railbed/internal/units"
	"railbed/plan"
	"railbed/transports/roce/queuepair"
)

// impairment is an effect of the link to the guest on packets, in each direction.
type impairment struct {
	name, words string
	set         func(*plan.Direction)
	// met is how many packets the impairment must have hit for a cell to be conclusive. A cell is
	// repeated until then. Reordered packets are not counted: they are three of a hundred.
	met uint64
}

// held is how long a packet waits that is to be overtaken. An emulated processor sends a packet
// every 0.1 ms.
const held = units.Duration(2 * time.Millisecond)

var impairments = []impairment{
	{"none", "Nothing", func(*plan.Direction) {}, 0},
	{"loss", "1 % of packets lost", func(d *plan.Direction) { d.Loss = ratio(1) }, 1},
	{"reorder", "3 % of packets held back by 2 ms", func(d *plan.Direction) {
		d.Reorder, d.ReorderBy = ratio(3), held
	}, 0},
	{"duplicate", "3 % of packets doubled", func(d *plan.Direction) { d.Duplicate = ratio(3) }, 1},
	{"corrupt", "2 % of packets with a flipped bit", func(d *plan.Direction) { d.Corrupt = ratio(2) }, 1},
}

func ratio(percent uint64) units.Ratio { return units.Ratio{Num: percent, Den: 100} }

// Who asks whom. Of the control both are rdma_rxe.
const (
	ownToRXE = "ours to rxe"
	rxeToOwn = "rxe to ours"
	control  = "rxe to rxe"
)

var (
	ways     = []string{ownToRXE, rxeToOwn}
	mtus     = []int{256, 512, 1024, 2048, 4096}
	families = []int{4, 6}
)

// cell is one thing to be tried: a new connection, and one operation over it, as often
// as it takes about 130 packets.
type cell struct {
	op     string
	way    string
	mtu    int
	impair int // index of impairments
	family int // of IP
}

func (c cell) String() string {
	return fmt.Sprintf("%s %s mtu=%d %s ipv%d", c.op, c.way, c.mtu, impairments[c.impair].name, c.family)
}

// factors are the places of a cell's values in their lists.
type factors [5]int

var counts = factors{len(operations), len(ways), len(mtus), len(impairments), len(families)}

func (f factors) cell() cell {
	return cell{op: operations[f[0]].String(), way: ways[f[1]], mtu: mtus[f[2]], impair: f[3],
		family: families[f[4]]}
}

// every is all cells, with every second one over IPv6.
func every() (cells []cell) {
	var f factors
	for f[0] = range counts[0] {
		for f[1] = range counts[1] {
			for f[2] = range counts[2] {
				for f[3] = range counts[3] {
					f[4] = (f[0] + f[1] + f[2] + f[3]) % 2
					cells = append(cells, f.cell())
				}
			}
		}
	}
	return cells
}

// pairwise is a small set of cells in which each pair of values of two factors is: one
// after the other the candidate that adds most, of some at random.
func pairwise() (cells []cell) {
	draw := rand.New(rand.NewPCG(1, 2))
	missing := pairs()
	for len(missing) > 0 {
		var best factors
		most := -1
		for range 200 {
			var f factors
			for i, n := range counts {
				f[i] = draw.IntN(n)
			}
			adds := 0
			for _, p := range f.pairs() {
				if missing[p] {
					adds++
				}
			}
			if adds > most {
				best, most = f, adds
			}
		}
		for _, p := range best.pairs() {
			delete(missing, p)
		}
		if most > 0 {
			cells = append(cells, best.cell())
		}
	}
	return cells
}

// pair is two factors and the places of their values.
type pair struct{ a, b, at, bt int }

func (f factors) pairs() (all []pair) {
	for a := range f {
		for b := range a {
			all = append(all, pair{a, b, f[a], f[b]})
		}
	}
	return all
}

// pairs is every pair that there is.
func pairs() map[pair]bool {
	all := map[pair]bool{}
	for a := range counts {
		for b := range a {
			for at := range counts[a] {
				for bt := range counts[b] {
					all[pair{a, b, at, bt}] = true
				}
			}
		}
	}
	return all
}

// TestCells: the subset has every pair of values, and is one.
func TestCells(t *testing.T) {
	have := map[pair]bool{}
	place := func(list []string, s string) int { return slices.Index(list, s) }
	var names []string
	for _, op := range operations {
		names = append(names, op.String())
	}
	subset := pairwise()
	for _, c := range subset {
		f := factors{place(names, c.op), place(ways, c.way), slices.Index(mtus, c.mtu), c.impair,
			slices.Index(families, c.family)}
		for _, p := range f.pairs() {
			have[p] = true
		}
	}
	if want := pairs(); len(have) != len(want) {
		t.Errorf("%d pairs of values, want %d", len(have), len(want))
	}
	if all := every(); len(subset) > 60 || len(all) != 350 {
		t.Errorf("%d cells of %d, want at most 60 of 350", len(subset), len(all))
	}
}

func atomic(op string) bool {
	return op == queuepair.CompareSwap.String() || op == queuepair.FetchAdd.String()
}

// consumes reports whether an operation uses up a receive.
func consumes(op string) bool {
	return op == queuepair.Send.String() || op == queuepair.SendImm.String() ||
		op == queuepair.WriteImm.String()
}

// exchange has the operations of the two ends of a cell, and the final content of their memory.
type exchange struct {
	messages []message
	size     int     // of the memory of each
	receives []place // of the responder
	asked    []byte  // the requester's memory afterwards
	served   []byte  // the responder's
}

// newExchange places the messages of a cell: the requester's one after the other, and the
// responder's in the opposite order. Between them is room that must not change.
func newExchange(c cell, askedSeed, servedSeed string) *exchange {
	if atomic(c.op) {
		return newAtomics(c, askedSeed, servedSeed)
	}
	m := c.mtu
	sizes := []int{3*m - 5, 1, m, m + 1, 0, m - 1, 17 * m, 2 * m, 33*m + 3, 4, 5 * m, 64*m - 2, 7}
	x := &exchange{messages: make([]message, len(sizes))}
	at := 16
	for i, n := range sizes {
		x.messages[i] = message{Local: at, Length: n, Imm: 0xA0B0C000 + uint32(i)}
		at += n + 13
	}
	far := 24
	for i, n := range slices.Backward(sizes) {
		x.messages[i].Remote = far
		far += n + 7
	}
	x.size = max(at, far)
	x.asked, x.served = fill(askedSeed, x.size), fill(servedSeed, x.size)
	for _, m := range x.messages {
		here, there := x.asked[m.Local:][:m.Length], x.served[m.Remote:][:m.Length]
		if c.op == queuepair.Read.String() {
			copy(here, there)
		} else {
			copy(there, here)
		}
		switch {
		case c.op == queuepair.WriteImm.String():
			x.receives = append(x.receives, place{0, 0})
		case consumes(c.op):
			x.receives = append(x.receives, place{m.Remote, m.Length})
		}
	}
	return x
}

// newAtomics works on a few words in turn. Two of three compare-and-swaps compare with the current
// value and replace it by its complement, so that a word alternates. So an operation that is left
// out, done out of order, or repeated later changes the values that others find.
func newAtomics(c cell, askedSeed, servedSeed string) *exchange {
	const words, rounds = 5, 120
	x := &exchange{size: 8 * (rounds + 2)}
	x.asked, x.served = fill(askedSeed, x.size), fill(servedSeed, x.size)
	for i := range rounds {
		m := message{Local: 8 * (i + 1), Remote: 8 * (1 + 2*(i%words)), Length: 8,
			Operand: uint64(i+1) * 0x0101_0000_0000_0101}
		word := x.served[m.Remote:][:8]
		found := binary.LittleEndian.Uint64(word)
		binary.LittleEndian.PutUint64(x.asked[m.Local:], found)
		if c.op == queuepair.CompareSwap.String() {
			if m.Compare, m.Operand = found, ^found; i%3 == 2 {
				m.Compare++
			}
		}
		switch {
		case c.op == queuepair.FetchAdd.String():
			binary.LittleEndian.PutUint64(word, found+m.Operand)
		case m.Compare == found:
			binary.LittleEndian.PutUint64(word, m.Operand)
		}
		x.messages = append(x.messages, m)
	}
	return x
}

// ranges are the places to be compared: the messages, and all there is.
func (x *exchange) ranges(of func(message) int) (list []place) {
	for _, m := range x.messages {
		list = append(list, place{of(m), m.Length})
	}
	return append(list, place{0, x.size})
}

// differ says which ranges of a memory are not as they should be.
func differ(memory []byte, ranges []place, sums []string) (wrong []string) {
	for i, r := range ranges {
		if i >= len(sums) || fmt.Sprintf("%x", sha256.Sum256(memory[r[0]:][:r[1]])) != sums[i] {
			what := fmt.Sprintf("message %d (%d bytes at %d)", i, r[1], r[0])
			if i == len(ranges)-1 {
				what = "what is beside the messages"
				if len(wrong) > 0 {
					break
				}
			}
			wrong = append(wrong, what)
		}
	}
	return wrong
}
