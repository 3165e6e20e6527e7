package spec

import "testing"

// TestCapturePart names the files of a recording, and reads the names back.
func TestCapturePart(t *testing.T) {
	for _, c := range []struct {
		part, whole string
		number      int
	}{
		{"run.pcapng", "run.pcapng", 1}, {"run-2.pcapng", "run.pcapng", 2},
		{"run-10.pcapng", "run.pcapng", 10},
		{"out.d/run-2.pcapng", "out.d/run.pcapng", 2}, {"run-1.pcapng", "run-1.pcapng", 1},
		{"run-02.pcapng", "run-02.pcapng", 1}, {"run-2-3.pcapng", "run-2.pcapng", 3},
		{"run-x.pcapng", "run-x.pcapng", 1}, {"-2", "", 2}, {"run--2.pcapng", "run-.pcapng", 2},
	} {
		whole, number := CaptureOf(c.part)
		if whole != c.whole || number != c.number {
			t.Errorf("%s is file %d of %s, want %d of %s", c.part, number, whole, c.number, c.whole)
		}
		if part := CapturePart(whole, number); part != c.part {
			t.Errorf("file %d of %s is %s, want %s", number, whole, part, c.part)
		}
	}
}
