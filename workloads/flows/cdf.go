package flows

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// mostPoints bounds the points of a file, and mostNumber its numbers.
const (
	mostPoints = 1 << 16
	mostNumber = 1e15
)

// ReadSizes reads a size distribution in the format of public simulators. Each line is a point: a
// size in bytes and the share of messages of at most that size, as a fraction of 1 or in per cent.
// Between points the distribution is linear. HPCC's generator and TrafficGenerator use this format.
// ns-2 has another number between the two, which is ignored. Text after # is a comment. The name is
// used in errors, which name the line.
func ReadSizes(name string, text []byte) (*Sizes, error) {
	s := &Sizes{}
	last := 0 // the line of the last point
	for i, line := range strings.Split(string(text), "\n") {
		wrong := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: %s", name, i+1, fmt.Sprintf(format, args...))
		}
		line, _, _ = strings.Cut(line, "#")
		words := strings.FieldsFunc(line, func(r rune) bool { return unicode.IsSpace(r) || r == ',' })
		if len(words) == 0 {
			continue
		}
		if len(words) > 3 || len(words) < 2 {
			return nil, wrong("%d values, want a size and a share, as in 10000 0.15", len(words))
		}
		size, err := number(words[0])
		if err != nil {
			return nil, wrong("size %v: want bytes", err)
		}
		share, err := number(words[len(words)-1])
		if err != nil {
			return nil, wrong("share %v: want a fraction up to 1, or per cent up to 100", err)
		}
		if n := len(s.points); n > 0 && (size < s.points[n-1].bytes || share < s.points[n-1].share) {
			return nil, wrong("size %v with share %v after size %v with share %v on line %d: neither "+
				"may decrease", size, share, s.points[n-1].bytes, s.points[n-1].share, last)
		}
		if len(s.points) == mostPoints {
			return nil, wrong("more than %d points", mostPoints)
		}
		s.points, last = append(s.points, point{size, share}), i+1
	}
	if len(s.points) == 0 {
		return nil, fmt.Errorf("%s: the file has no point, want lines such as 10000 0.15", name)
	}
	end := s.points[len(s.points)-1]
	if end.share != 1 && end.share != 100 {
		return nil, fmt.Errorf("%s:%d: the last share is %v, want 1, or 100 in per cent", name, last,
			end.share)
	}
	if end.bytes == 0 {
		return nil, fmt.Errorf("%s:%d: the largest size is 0, want more", name, last)
	}
	for i := range s.points {
		s.points[i].share /= end.share
	}
	return s, nil
}

// number parses a number from 0 to mostNumber.
func number(word string) (float64, error) {
	v, err := strconv.ParseFloat(word, 64)
	if err != nil || !(v >= 0 && v <= mostNumber) {
		if len(word) > 40 {
			word = word[:40] + "..."
		}
		return 0, fmt.Errorf("%q is no number from 0 to %g", word, mostNumber)
	}
	return v, nil
}
