package collective

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/internal/element"
	"railbed/plan/schedule"
	"railbed/workloads/collective/msccl"
)

// TestRunnersOfFiles runs algorithms from files, in each mode that they have. Every element must be
// right, inputs must not change, and the sent messages must be those of the file.
func TestRunnersOfFiles(t *testing.T) {
	const seed = 8
	files, err := filepath.Glob("msccl/testdata/*.xml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := msccl.Read(file, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, each := range []int{0, 1, 7, 20_001} { // elements of a chunk; the last is several slices
			d := Data{Count: each * s.Chunks, Type: element.Types()[3*i+i%2], Op: element.Ops()[i+1]}
			t.Run(fmt.Sprintf("%s/chunk=%d/%s/%s", strings.TrimSuffix(filepath.Base(file), ".xml"), each,
				d.Type, d.Op), func(t *testing.T) {
				p, err := NewProgram(s, d)
				if err != nil {
					t.Fatal(err)
				}
				runners := newRunners(t, p, openMemory(seed))
				for iteration, mode := range append(p.modes(), OutOfPlace) {
					checkFile(t, runners, mode, iteration)
				}
				if s.OutOfPlace {
					if _, err := runners[0].Run(t.Context(), InPlace); err == nil ||
						!strings.Contains(err.Error(), "works only out of place") {
						t.Errorf("in place: %v", err)
					}
				}
			})
		}
		if _, err := NewProgram(s, Data{Count: s.Chunks + 1}); s.Chunks > 1 &&
			(err == nil || !strings.Contains(err.Error(), "the number of equal chunks")) {
			t.Errorf("%s of %d elements: %v", file, s.Chunks+1, err)
		}
	}
}

func checkFile(t *testing.T, runners []*Runner, mode Mode, iteration int) {
	t.Helper()
	p := runners[0].config.Algorithm.(*Program)
	var patterns []*Pattern
	var given [][]byte
	for _, r := range runners {
		for _, m := range [][]byte{r.config.Memory.Output, r.config.Memory.Work, r.config.Memory.Input} {
			for i := range m {
				m[i] = 0x5a // what stays shows
			}
		}
		pattern, err := NewPattern(r.Pattern())
		if err != nil {
			t.Fatal(err)
		}
		r.Fill(pattern, mode, iteration)
		patterns, given = append(patterns, pattern), append(given, slices.Clone(r.config.Memory.Input))
	}
	traffic, err := runAll(t.Context(), runners, mode)
	if err != nil {
		t.Fatal(err)
	}
	for rank, r := range runners {
		if wrong, _ := r.Wrong(patterns[rank], mode, iteration, nil); wrong > 0 {
			t.Errorf("%v: rank %d has %d wrong elements", mode, rank, wrong)
		}
		output, _ := r.Buffer(mode, schedule.Output)
		if len(output) > 0 {
			output[len(output)-1] ^= 1
			if wrong, _ := r.Wrong(patterns[rank], mode, iteration, nil); wrong != 1 {
				t.Errorf("%v: rank %d has one wrong element, counted are %d", mode, rank, wrong)
			}
		}
		if mode == OutOfPlace && !bytes.Equal(given[rank], r.config.Memory.Input) {
			t.Errorf("rank %d: its input changed", rank)
		}
		chunk := p.data.Count / p.schedule.Chunks * p.data.Type.Size()
		if want := uint64(p.schedule.Counted(rank) * chunk); traffic[rank].Sent != want {
			t.Errorf("%v: rank %d sent %d bytes, want %d", mode, rank, traffic[rank].Sent, want)
		}
	}
}

// TestExchangedBlocks holds that an all-to-all's block that comes from another rank, or was
// for another one, is wrong.
func TestExchangedBlocks(t *testing.T) {
	text, err := os.ReadFile("msccl/testdata/exchange.xml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := msccl.Read("exchange.xml", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProgram(s, Data{Count: 600})
	if err != nil {
		t.Fatal(err)
	}
	runners := newRunners(t, p, openMemory(1))
	pattern, err := NewPattern(runners[0].Pattern())
	if err != nil {
		t.Fatal(err)
	}
	var inputs [3][]byte
	for rank, r := range runners {
		own, err := NewPattern(r.Pattern())
		if err != nil {
			t.Fatal(err)
		}
		r.Fill(own, OutOfPlace, 0)
		inputs[rank], _ = r.Buffer(OutOfPlace, schedule.Input)
	}
	output, _ := runners[0].Buffer(OutOfPlace, schedule.Output)
	const block = 200 * 4
	right := slices.Concat(inputs[0][:block], inputs[1][:block], inputs[2][:block])
	for _, test := range []struct {
		at    int
		block []byte
		wrong uint64
	}{{1, inputs[1][:block], 0}, {1, inputs[2][:block], 200}, {1, inputs[1][block : 2*block], 200},
		{2, inputs[0][:block], 200}} {
		copy(output, right)
		copy(output[test.at*block:], test.block)
		// Now and then different numbers are the same.
		if wrong, _ := runners[0].Wrong(pattern, OutOfPlace, 0, nil); wrong > test.wrong ||
			wrong < test.wrong-test.wrong/50 {
			t.Errorf("block %d: %d elements are wrong, want %d", test.at, wrong, test.wrong)
		}
	}
}
