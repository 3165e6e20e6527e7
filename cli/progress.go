package cli

import (
	"fmt"
	"io"
	"time"

	"railbed/internal/printable"
)

// progressLine shows the progress of work on one line that it rewrites. On an output that is not a
// terminal it shows nothing. A total of 0 is unknown.
type progressLine struct {
	w     io.Writer
	last  time.Time
	shown bool
}

func newProgressLine(w io.Writer) *progressLine {
	if !isTerminal(w) {
		w = nil
	}
	return &progressLine{w: w}
}

func (l *progressLine) show(phase string, done, total int) {
	const interval = 50 * time.Millisecond // faster updates cannot be read
	if l.w == nil || time.Since(l.last) < interval && done != total {
		return
	}
	l.last, l.shown = time.Now(), true
	phase = printable.Line(phase) // the name of a step comes from the author of the file
	if total == 0 {
		fmt.Fprintf(l.w, "\r\x1b[K%s", phase)
		return
	}
	fmt.Fprintf(l.w, "\r\x1b[K%s %d/%d", phase, done, total)
}

func (l *progressLine) clear() {
	if l.shown {
		fmt.Fprint(l.w, "\r\x1b[K")
	}
}
