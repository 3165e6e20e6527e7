package evidence

import (
	"fmt"

	"railbed/internal/plural"
)

// Tally holds a check's findings: lines such as "3 lost", and a few examples.
type Tally struct {
	Lines, Examples []string
}

// Count adds a line with a count of things, named in the plural, unless the count is 0.
func (f *Tally) Count(n uint64, what string) {
	if n > 0 {
		f.Lines = append(f.Lines, plural.Count(n, what))
	}
}

// Exemplify adds an example. It keeps the first few.
func (f *Tally) Exemplify(format string, args ...any) {
	if len(f.Examples) < 8 {
		f.Examples = append(f.Examples, fmt.Sprintf(format, args...))
	}
}

// All returns the counts, and then the examples.
func (f *Tally) All() []string { return append(f.Lines, f.Examples...) }
