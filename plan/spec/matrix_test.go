package spec

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"railbed/internal/units"
)

func parsed(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func cellNames(f *File) (names []string) {
	for _, c := range f.Cells {
		names = append(names, c.String())
	}
	return names
}

// TestCells has matrices and their cells, each with the seed of its testbed.
func TestCells(t *testing.T) {
	for _, test := range []struct {
		name, matrix string
		want         []string
	}{
		{"product", "a: [1, 2]\n  b: [x, y]", []string{"a=1, b=x 7", "a=1, b=y 7", "a=2, b=x 7",
			"a=2, b=y 7"}},
		{"exclude a cell", "a: [1, 2]\n  b: [x, y]\n  exclude: [{a: 1, b: y}]",
			[]string{"a=1, b=x 7", "a=2, b=x 7", "a=2, b=y 7"}},
		{"exclude a value", "a: [1, 2]\n  b: [x, y]\n  exclude: [{a: 1}]", []string{"a=2, b=x 7",
			"a=2, b=y 7"}},
		{"include a cell", "a: [1]\n  b: [x]\n  include: [{a: 3, b: z, seed: 9}]",
			[]string{"a=1, b=x 7", "a=3, b=z 9"}},
		{"include a variable", "a: [1, 2]\n  b: [x]\n  include: [{a: 2, seed: 9}]",
			[]string{"a=1, b=x 7", "a=2, b=x 9"}},
		{"include in all cells", "a: [1, 2]\n  b: [x]\n  include: [{seed: 9}]", []string{"a=1, b=x 9",
			"a=2, b=x 9"}},
		// A later entry overrides an earlier one, and does not change a cell that an entry added.
		{"include in order",
			"a: [1]\n  b: [x]\n  include: [{seed: 9}, {a: 1, seed: 5}, {a: 2, b: x}, {b: x, seed: 6}]",
			[]string{"a=1, b=x 6", "a=2, b=x 7"}},
		{"include what was excluded",
			"a: [1, 2]\n  b: [x]\n  exclude: [{a: 1}]\n  include: [{a: 1, b: x, seed: 4}]",
			[]string{"a=2, b=x 7", "a=1, b=x 4"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := parsed(t, head+"description: ${a} ${b}\nvariables: {seed: 7}\nseed: ${seed}\nmatrix:\n  "+
				test.matrix+"\n")
			var got []string
			for i := range f.Cells {
				made, err := f.Decode(&f.Cells[i])
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%v %d", f.Cells[i], made.Seed))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestVariables has a value with variables, and the value that it stands for.
func TestVariables(t *testing.T) {
	for _, test := range []struct{ variables, text, same string }{
		{"n: 3", "seed: ${n}", "seed: 3"},
		{"n: 3", `seed: "${n}"`, "seed: 3"},
		{"n: 3", "seed: 1${n}", "seed: 13"},
		{"n: 3", `seed: "1${n}${n}"`, "seed: 133"},
		{`n: "3"`, "description: ${n}", `description: "3"`},
		{"n: 3", "description: x${n}", "description: x3"},
		{"n: 3", "description: ${n}$${n}", "description: '3${n}'"},
		{"n: 3", "nodes: {h0: {env: {A: '$${B} $C ${n} $', D: '${n}'}}}",
			"nodes: {h0: {env: {A: '${B} $C 3 $', D: '3'}}}"},
		{"r: 40MB", "nodes: {h0: {memory: '${r}'}}", "nodes: {h0: {memory: 40MB}}"},
		{"r: 40", "nodes: {h0: {memory: '${r}MB'}}", "nodes: {h0: {memory: 40MB}}"},
		{"on: true", "steps:\n- exec: {nodes: [h0], command: [ls], background: '${on}'}",
			"steps:\n- exec: {nodes: [h0], command: [ls], background: true}"},
		{"c: [ls, -l]", "steps:\n- exec: {nodes: [h0], command: '${c}'}",
			"steps:\n- exec: {nodes: [h0], command: [ls, -l]}"},
		{"s: {sleep: 1s}", "steps: ['${s}', '${s}', {sleep: 2s}]",
			"steps: [{sleep: 1s}, {sleep: 1s}, {sleep: 2s}]"},
		{"n: 3", "nodes: {h0: &n {env: {A: '${n}'}}, h1: *n}",
			"nodes: {h0: {env: {A: 3}}, h1: {env: {A: 3}}}"},
		{"n: &v 3", "seed: ${n}\nnodes: {h0: {env: {A: *v}}}", "seed: 3\nnodes: {h0: {env: {A: 3}}}"},
		{"n: 3", "steps:\n- exec:\n    nodes: [h0]\n    command:\n    - sh\n    - |\n" +
			"      a ${n}\n      b $${n}\n",
			"steps:\n- exec: {nodes: [h0], command: [sh, \"a 3\\nb ${n}\\n\"]}"},
	} {
		f := parsed(t, head+"variables: {"+test.variables+"}\n"+test.text+"\n")
		got, err := f.Decode(&f.Cells[0])
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		want := decoded(t, head+test.same+"\n")
		if diff := cmp.Diff(withoutSource(want), withoutSource(got)); diff != "" {
			t.Errorf("%s: %s", test.text, diff)
		}
	}
}

// TestNoVariables: a file without variables and without a matrix may have any text.
func TestNoVariables(t *testing.T) {
	made := decoded(t, head+"steps:\n  - exec: {nodes: [h0], command: [sh, -c, 'echo ${HOME} $${B}']}\n")
	if got := made.Steps[0].Exec.Command[2]; got != "echo ${HOME} $${B}" {
		t.Errorf("got %q", got)
	}
}

func TestSet(t *testing.T) {
	const text = head + "variables: {seed: 7, on: false, size: 4MiB}\n" +
		"description: ${a} ${b}\nseed: ${seed}\n" +
		"nodes: {h0: {memory: '${size}'}}\n" +
		"steps: [{exec: {nodes: [h0], command: [ls], background: '${on}'}}]\n" +
		"matrix: {a: [1, 2], b: [x, y]}\n"
	for _, test := range []struct {
		set   []Setting
		cells []string
		want  string // of the error
	}{
		{[]Setting{{"a", "1"}}, []string{"a=1, b=x", "a=1, b=y"}, ""},
		{[]Setting{{"a", "1"}, {"b", "y"}, {"seed", "9"}, {"on", "true"}, {"size", "8MB"}},
			[]string{"a=1, b=y"}, ""},
		{[]Setting{{"a", "3"}}, nil, "f.yaml has no cell with a=3: want 1 or 2"},
		{[]Setting{{"sed", "3"}}, nil, `f.yaml has no variable "sed"; did you mean "seed"?`},
	} {
		f := parsed(t, text)
		var err error
		for _, s := range test.set {
			err = errors.Join(err, f.Set(s))
		}
		switch {
		case test.want != "":
			if err == nil || err.Error() != test.want {
				t.Errorf("%v: %v, want %s", test.set, err, test.want)
			}
			continue
		case err != nil || !slices.Equal(cellNames(f), test.cells):
			t.Errorf("%v: %v, %v", test.set, cellNames(f), err)
		}
		made, err := f.Decode(&f.Cells[0])
		if err != nil {
			t.Fatal(err)
		}
		if len(test.set) > 2 && (made.Seed != 9 || !made.Steps[0].Exec.Background ||
			made.Nodes[0].Value.Memory != units.Bytes(8e6)) {
			t.Errorf("%v: %+v", test.set, made)
		}
	}
	if err := parsed(t, head).Set(Setting{"a", "1"}); err == nil ||
		!strings.Contains(err.Error(), "want a file with variables or a matrix") {
		t.Error(err)
	}
}

// TestManyCellsAreListed: a matrix is no testbed, and the problem names a --set that chooses a cell.
func TestManyCellsAreListed(t *testing.T) {
	_, err := Decode("f.yaml", []byte(lossyMatrix))
	const want = "f.yaml:3:1: matrix of 2 cells, and one testbed is wanted; choose a cell, as in " +
		"--set loss=0, " +
		"or run all of them with railbed test; the cells are loss=0; loss=1%"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if _, err := Decode("f.yaml", []byte(lossy+"matrix: {loss: [0]}\n")); err != nil {
		t.Errorf("a matrix of one cell: %v", err)
	}
}

// TestProblemsNameTheirCells: unless all cells have a problem, it names the cells.
func TestProblemsNameTheirCells(t *testing.T) {
	text := "name: a\nfabric: {topology: single-switch, links: {default: {loss: '${loss}', " +
		"rate: '${rate}'}}}\n" +
		"seed: 0\nmatrix: {loss: [0, much], rate: [1gbit, 2gbit, fast]}\n"
	err := decodeAll(text)
	const want = `f.yaml:2:59: cell loss=much, rate=1gbit and 2 more: ratio "much" cannot be read; want a share between 0% and 100%, as in 0.1%, 1/1000 or 1e-12
f.yaml:2:76: cell loss=0, rate=fast and 1 more: rate "fast" cannot be read; want a number with bit, kbit, mbit, gbit or tbit, as in 1gbit
f.yaml:3:7: seed is 0; want at least 1`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestPairs has a comparison's cells.
func TestPairs(t *testing.T) {
	for keys, want := range map[string]string{
		"cells: {loss: 1%}, beside: {loss: 0}": "loss=1%, rate=1gbit beside loss=0, rate=1gbit; " +
			"loss=1%, rate=2gbit beside loss=0, rate=2gbit",
		"beside: {rate: 1gbit}": "loss=0, rate=2gbit beside loss=0, rate=1gbit; " +
			"loss=1%, rate=2gbit beside loss=1%, rate=1gbit",
		"cells: {loss: 1%, rate: 2gbit}, beside: {loss: 0, rate: 1gbit}": "loss=1%, rate=2gbit beside " +
			"loss=0, rate=1gbit",
	} {
		f := parsed(t, twoAxes("", "variables: {least: 90}\ncompare: [{metric: busbw, "+keys+
			", ratio: \">= ${least}%\"}]\n"))
		var got []string
		for _, pair := range f.Compare[0].Pairs {
			got = append(got, pair[0].String()+" beside "+pair[1].String())
		}
		if strings.Join(got, "; ") != want || f.Compare[0].Ratio != ">= 90%" || f.Compare[0].Where.Line != 7 {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
}

func TestRepetitionSeed(t *testing.T) {
	seen := map[uint64]bool{}
	for seed := uint64(1); seed < 20; seed++ {
		if RepetitionSeed(seed, 1) != seed {
			t.Errorf("the first repetition has seed %d, want %d", RepetitionSeed(seed, 1), seed)
		}
		for r := 2; r <= MaxRepeat; r++ {
			s := RepetitionSeed(seed, r)
			if seen[s] || s < 1<<32 || s >= 1<<33 {
				t.Fatalf("seed %d, repetition %d: %d", seed, r, s)
			}
			seen[s] = true
		}
	}
}

// TestLargeVariablesAreBounded: many uses of a large value do not become a large testbed.
func TestLargeVariablesAreBounded(t *testing.T) {
	text := head + "variables: {c: [" + numbers(3000) + "]}\nsteps:\n" +
		strings.Repeat("- exec: {nodes: [h0], command: \"${c}\"}\n", 200)
	if _, err := Decode("f.yaml", []byte(text)); err == nil ||
		!strings.Contains(err.Error(), "aliases stand for more than 100000 values") {
		t.Errorf("got %.200v", err)
	}
}

// FuzzVariables replaces variables in files. If all uses of variables in a file are escaped, the file means
// the same as without variables.
func FuzzVariables(f *testing.F) {
	for _, file := range wrongMatrixFiles {
		text := strings.Replace(file.text, here, "", 1)
		f.Add(text, "1%", "x")
	}
	f.Add(head+"description: a ${x} $${y} ${\nseed: ${v}\n", "3", "a$${b")
	f.Fuzz(func(t *testing.T, text, value, literal string) {
		start := time.Now()
		file, err := Parse("f.yaml", []byte(text))
		if err != nil {
			checkProblems(t, []byte(text), err)
			return
		}
		for i := range file.Cells {
			made, err := file.Decode(&file.Cells[i])
			if err != nil {
				checkProblems(t, []byte(text), err)
				continue
			}
			again, err := file.Decode(&file.Cells[i])
			if err != nil || !reflect.DeepEqual(made, again) {
				t.Fatalf("a second decoding differs: %v", err)
			}
		}
		for _, name := range file.Settable() {
			if err := file.Set(Setting{name, value}); err == nil {
				_, _ = file.Decode(&file.Cells[0])
			}
		}
		escaped := strings.ReplaceAll(literal, "${", "$${")
		parts, wrong := references(escaped)
		var joined strings.Builder
		for _, part := range parts {
			joined.WriteString(part.text)
		}
		if wrong != nil || joined.String() != literal && !strings.Contains(literal, "$${") {
			t.Fatalf("%q escaped reads as %q, %v", literal, joined.String(), wrong)
		}
		if took := time.Since(start); took > maxTime {
			t.Fatalf("took %v", took)
		}
	})
}
