package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// A program that prints without end fills no disk: its log has the beginning and the
// end, and says how much is left out.
func TestLogsAreBounded(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const lines = 4 << 20 // of 8 bytes
	o := options(t, twoHosts+fmt.Sprintf("steps:\n  - exec: {name: talk, nodes: [h0], command: [sh, -c, "+
		"\"seq -f %%07.0f 1 %d; seq -f %%07.0f 1 %[1]d >&2\"]}\n", lines))
	want(t, runAll(t, t.Context(), o), verdict.Pass)
	for _, name := range []string{"talk.out", "talk.err"} {
		text, err := os.ReadFile(filepath.Join(o.Out, "logs/h0", name))
		if err != nil {
			t.Fatal(err)
		}
		note := fmt.Sprintf("\n[railbed: %d bytes are left out here; a log keeps the first %d bytes and "+
			"the last %d]\n", 8*lines-mostLog-logTail, mostLog, logTail)
		if len(text) != mostLog+len(note)+logTail || !bytes.HasPrefix(text, []byte("0000001\n")) ||
			!bytes.HasSuffix(text, []byte(fmt.Sprintf("%07d\n", lines))) ||
			!bytes.Contains(text, []byte(note)) {
			t.Errorf("%s has %d bytes, want %d, the first and the last line, and %q", name, len(text),
				mostLog+len(note)+logTail, note)
		}
	}
}

// A log that is just as long as the bounds allow is whole.
func TestLogsWithinTheirBoundsAreWhole(t *testing.T) {
	r := openAndFill(t, t.TempDir())
	defer r.close()
	l, err := r.createLog("whole.out")
	if err != nil {
		t.Fatal(err)
	}
	chunk := strings.Repeat("x", 1<<10)
	for range (mostLog + logTail) / len(chunk) {
		if _, err := fmt.Fprint(l, chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.dir, "whole.out"))
	if err != nil || len(text) != mostLog+logTail || bytes.Contains(text, []byte("railbed")) {
		t.Errorf("%d bytes, %v; want %d and no note", len(text), err, mostLog+logTail)
	}
}
