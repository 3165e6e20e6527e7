package stacks

import (
	"bytes"
	"io"
	"regexp"
)

// asideLine is the longest line that aside looks at whole.
const asideLine = 64 << 10

// aside takes lines out of what a program prints that are for us, and not for people.
type aside struct {
	form  *regexp.Regexp
	to    io.Writer // of the other lines
	taken []byte
	part  []byte
}

// Write implements io.Writer.
func (a *aside) Write(p []byte) (int, error) {
	a.part = append(a.part, p...)
	for {
		end := bytes.IndexByte(a.part, '\n') + 1
		if end == 0 && len(a.part) < asideLine {
			return len(p), nil
		}
		if end == 0 {
			end = len(a.part)
		}
		line := a.part[:end]
		a.part = a.part[end:]
		if a.form.Match(line) {
			a.taken = append(a.taken, line...)
		} else if _, err := a.to.Write(line); err != nil {
			return 0, err
		}
	}
}

// flush passes on what has no end of line.
func (a *aside) flush() {
	_, _ = a.to.Write(a.part) // a log and a buffer, as before
	a.part = nil
}
