package spec

import "fmt"

// ParsePart parses a part of a testbed, such as a Link, as it is written in files. It skips the
// checks that need the whole file.
func ParsePart[T any](name, text string) (T, error) {
	var part T
	d, err := decodePart(name, []byte(text), "", &part)
	if err != nil {
		return part, err
	}
	return part, d.Problems.Err()
}

// FormatPart formats a part of a testbed on one line, in the form that ParsePart reads.
func FormatPart[T any](part T) (string, error) {
	text, err := newEncoder().Line(&part)
	if err != nil {
		return "", fmt.Errorf("write a part of a testbed: %w", err)
	}
	return text, nil
}
