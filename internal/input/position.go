package input

import "bytes"

// Position returns the line and the column of a byte, both counted from 1. An offset outside the text is that
// of the nearest byte, or of the end.
func Position(text []byte, offset int) (line, column int) {
	before := text[:min(max(offset, 0), len(text))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}
