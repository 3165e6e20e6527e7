package pcapng

import (
	"strconv"
	"time"
)

// Annotation is a switch's record about a packet. It is the packet's comment, in the fixed grammar
//
//	railbed verdict=drop reason=tail depth=40320 late=1200ns
//	railbed verdict=delay reason=fault name=f1 late=800ns
//
// The order of the pairs is fixed, and every pair is optional. Values are words without spaces.
type Annotation struct {
	Verdict  string // drop, mark, trim, ...
	Reason   string // tail, ...
	Name     string // of the fault that acted
	Depth    int64  // bytes queued when the packet came
	HasDepth bool
	Late     time.Duration // actual minus due time
	HasLate  bool
}

const annotationTag = "railbed"

// AppendTo appends the comment to b.
func (a Annotation) AppendTo(b []byte) []byte {
	b = append(b, annotationTag...)
	if a.Verdict != "" {
		b = append(append(b, " verdict="...), a.Verdict...)
	}
	if a.Reason != "" {
		b = append(append(b, " reason="...), a.Reason...)
	}
	if a.Name != "" {
		b = append(append(b, " name="...), a.Name...)
	}
	if a.HasDepth {
		b = strconv.AppendInt(append(b, " depth="...), a.Depth, 10)
	}
	if a.HasLate {
		b = appendNanoseconds(append(b, " late="...), a.Late)
	}
	return b
}

// ParseAnnotation parses a comment. It reports false for a comment that does not match the grammar
// exactly, such as a user's remark.
func ParseAnnotation(comment []byte) (Annotation, bool) {
	var a Annotation
	if !parsePairs(comment, a.set) {
		return Annotation{}, false
	}
	return a, true
}

// set stores one pair and returns the key's position in the fixed order.
func (a *Annotation) set(key string, value []byte) (position int, ok bool) {
	switch key {
	case "verdict":
		a.Verdict = string(value)
		return 0, true
	case "reason":
		a.Reason = string(value)
		return 1, true
	case "name":
		a.Name = string(value)
		return 2, true
	case "depth":
		depth, err := strconv.ParseInt(string(value), 10, 64)
		a.Depth, a.HasDepth = depth, true
		return 3, err == nil
	case "late":
		a.Late, ok = parseNanoseconds(value)
		a.HasLate = true
		return 4, ok
	}
	return 0, false
}
