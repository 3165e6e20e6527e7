package stacks

import (
	"bytes"
	"io"
	"regexp"
)

// asideLine is the maximum length of a line that aside examines as a whole.
const asideLine = 64 << 10

// aside removes lines for the package itself from a program's output.
type aside struct {
	form  *regexp.Regexp
	to    io.Writer // for the other lines
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

// flush passes on an incomplete last line.
func (a *aside) flush() {
	_, _ = a.to.Write(a.part) // a log and a buffer, as before
	a.part = nil
}
