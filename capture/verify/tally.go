package verify

import "fmt"

// notApplicable formats the finding of a check whose precondition does not hold.
func notApplicable(format string, args ...any) string {
	return "NOT-APPLICABLE: " + fmt.Sprintf(format, args...)
}

// findings holds the findings of a check: counts with words, and examples of them.
type findings struct {
	lines, examples []string
}

func (f *findings) count(n uint64, what string) {
	if n > 0 {
		f.lines = append(f.lines, fmt.Sprintf("%d %s", n, what))
	}
}

func (f *findings) exemplify(format string, args ...any) {
	if len(f.examples) < 8 {
		f.examples = append(f.examples, fmt.Sprintf(format, args...))
	}
}

// all returns the counts, and then the examples.
func (f *findings) all() []string { return append(f.lines, f.examples...) }
