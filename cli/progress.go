package cli

import (
	"fmt"
	"io"
	"time"

	"railbed/internal/printable"
)

// progressLine shows how long work proceeds on one line that it rewrites; on
// anything but a terminal it shows nothing. A total of 0 is not known.
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
	const interval = 50 * time.Millisecond // as often as a person can read
	if l.w == nil || time.Since(l.last) < interval && done != total {
		return
	}
	l.last, l.shown = time.Now(), true
	phase = printable.Line(phase) // a step's name is its author's
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
