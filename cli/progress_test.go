package cli

import (
	"bytes"
	"testing"
)

// TestProgressIsPrintable: the name of a step, which the author of the file chose, does not steer the
// terminal that shows the progress.
func TestProgressIsPrintable(t *testing.T) {
	var terminal bytes.Buffer
	line := progressLine{w: &terminal}
	line.show("[1/1] exec \x1b[2J\nPASS", 1, 1)
	if want := "\r\x1b[K" + `[1/1] exec \x1b[2J\nPASS 1/1`; terminal.String() != want {
		t.Errorf("the terminal got %q, want %q", terminal.String(), want)
	}
}
