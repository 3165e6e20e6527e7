package input

import "testing"

func TestPosition(t *testing.T) {
	const text = "ab\n\nc"
	for _, c := range []struct{ offset, line, column int }{
		{-1, 1, 1}, {0, 1, 1}, {1, 1, 2}, {2, 1, 3}, {3, 2, 1}, {4, 3, 1}, {5, 3, 2}, {9, 3, 2},
	} {
		if line, column := Position([]byte(text), c.offset); line != c.line || column != c.column {
			t.Errorf("byte %d is at %d:%d, want %d:%d", c.offset, line, column, c.line, c.column)
		}
	}
}
