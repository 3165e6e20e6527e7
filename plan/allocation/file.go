package allocation

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"railbed/internal/input"
	"railbed/internal/units"
)

// Format identifies the format of files of rates, in their first field.
const Format = "railbed-rates/1"

// schema is the JSON schema of files of rates.
//
//go:embed rates.schema.json
var schema []byte

// File holds rates for the ranks of a testbed.
type File struct {
	Format  string `json:"format"`
	Testbed string `json:"testbed"`
	Ranks   int    `json:"ranks"`
	// Pattern and Method are the parameters with which the rates were computed. A file written by
	// hand may omit them.
	Pattern  string      `json:"pattern,omitempty"`
	Method   string      `json:"method,omitempty"`
	Headroom units.Ratio `json:"headroom,omitzero"`
	// Phases follow one another and repeat. A workload decides when the next phase begins.
	Phases []Phase `json:"phases"`
}

// Phase holds rates that apply at the same time.
type Phase struct {
	Rates []Entry `json:"rates"`
}

// Entry is the rate from one rank to another, in bit/s of Ethernet frames plus the link's overhead
// per frame. Pairs without an entry are limited by their NIC only.
type Entry struct {
	From int        `json:"from"`
	To   int        `json:"to"`
	Rate units.Rate `json:"rate"`
	// Bottleneck is the direction of a link that limits the rate.
	Bottleneck string `json:"bottleneck,omitempty"`
}

// From returns the rates of one rank in a phase, by destination rank. Phases count from 0 and
// repeat.
func (f *File) From(rank, phase int) map[int]units.Rate {
	found := make(map[int]units.Rate)
	if len(f.Phases) == 0 {
		return found
	}
	for _, e := range f.Phases[phase%len(f.Phases)].Rates {
		if e.From == rank {
			found[e.To] = e.Rate
		}
	}
	return found
}

// Pairs returns the rates of one rank by destination rank. The rate for a destination comes from
// the first phase in which the rank sends to it.
func (f *File) Pairs(rank int) map[int]units.Rate {
	found := make(map[int]units.Rate)
	for i := range slices.Backward(f.Phases) {
		maps.Copy(found, f.From(rank, i))
	}
	return found
}

// Phase returns the first phase in which a rank sends to another, or -1.
func (f *File) Phase(from, to int) int {
	return slices.IndexFunc(f.Phases, func(p Phase) bool {
		return slices.ContainsFunc(p.Rates, func(e Entry) bool { return e.From == from && e.To == to })
	})
}

// Write writes the file as JSON, with one entry per line.
func (f *File) Write(w io.Writer) error {
	head, err := json.MarshalIndent(struct {
		Format   string      `json:"format"`
		Testbed  string      `json:"testbed"`
		Ranks    int         `json:"ranks"`
		Pattern  string      `json:"pattern,omitempty"`
		Method   string      `json:"method,omitempty"`
		Headroom units.Ratio `json:"headroom,omitzero"`
	}{f.Format, f.Testbed, f.Ranks, f.Pattern, f.Method, f.Headroom}, "", "  ")
	out := append(bytes.TrimSuffix(head, []byte("\n}")), ",\n  \"phases\": ["...)
	separator := "\n"
	for _, ph := range f.Phases {
		out = append(append(out, separator...), "    {\"rates\": ["...)
		inner := "\n"
		for _, e := range ph.Rates {
			line, failed := json.Marshal(e)
			err = errors.Join(err, failed)
			out = append(append(append(out, inner...), "      "...), line...)
			inner = ",\n"
		}
		out = append(out, "\n    ]}"...)
		separator = ",\n"
	}
	if err == nil {
		_, err = w.Write(append(out, "\n  ]\n}\n"...))
	}
	if err != nil {
		return fmt.Errorf("write rates: %w", err)
	}
	return nil
}

// Read decodes and checks a file of rates. The name is the name of the file, for the error, which
// contains all problems.
func Read(name string, text []byte) (*File, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	f := &File{}
	if err := decoder.Decode(f); err != nil {
		return nil, fmt.Errorf("%s:%s: %w", name, place(text, decodeOffset(decoder, err)), err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("%s:%s: text after the end of the file's JSON value: remove it", name,
			place(text, decoder.InputOffset()))
	}
	var problems []error
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: "+format, append([]any{name}, args...)...))
	}
	if f.Format != Format {
		problem("format is %q: want %q", f.Format, Format)
	}
	if f.Ranks < 1 {
		problem("ranks is %d: want the number of ranks, at least 1", f.Ranks)
	}
	if len(f.Phases) == 0 {
		problem("no phases: want at least one")
	}
	for i, ph := range f.Phases {
		seen := map[Pair]bool{}
		for j, e := range ph.Rates {
			at := fmt.Sprintf("phases[%d].rates[%d]", i, j)
			pair := Pair{e.From, e.To}
			if e.From < 0 || e.From >= f.Ranks || e.To < 0 || e.To >= f.Ranks || e.From == e.To {
				problem("%s is from rank %d to rank %d: want two different ranks, 0 to %d", at, e.From, e.To,
					f.Ranks-1)
			}
			if e.Rate == 0 {
				problem("%s has no rate: want a rate above 0", at)
			}
			if seen[pair] {
				problem("%s repeats the pair from %d to %d: want each pair once in a phase", at, e.From, e.To)
			}
			seen[pair] = true
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return f, nil
}

// decodeOffset returns the offset at which decoding failed.
func decodeOffset(d *json.Decoder, err error) int64 {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return syntax.Offset
	case errors.As(err, &kind):
		return kind.Offset
	}
	return d.InputOffset()
}

// place returns a line and column, counted from 1.
func place(text []byte, offset int64) string {
	line, column := input.Position(text, int(offset))
	return fmt.Sprintf("%d:%d", line, column)
}
