package pcapng

import (
	"bytes"
	"strconv"
	"time"
)

// Annotation is what a switch says about a packet in the packet's comment, by
// the fixed grammar
//
//	railbed verdict=drop reason=tail depth=40320 late=1200ns
//
// in which every pair may be missing and the order is fixed. Values are words
// without spaces.
type Annotation struct {
	Verdict  string // drop, mark, trim, ...
	Reason   string // tail, ...
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
	if a.HasDepth {
		b = strconv.AppendInt(append(b, " depth="...), a.Depth, 10)
	}
	if a.HasLate {
		b = append(strconv.AppendInt(append(b, " late="...), int64(a.Late), 10), "ns"...)
	}
	return b
}

// ParseAnnotation reads a comment. It reports false for a comment that is not
// exactly of the grammar, such as a person's remark.
func ParseAnnotation(comment []byte) (Annotation, bool) {
	rest, found := bytes.CutPrefix(comment, []byte(annotationTag))
	if !found {
		return Annotation{}, false
	}
	var a Annotation
	for next := 0; len(rest) > 0; {
		var pair []byte
		if rest[0] != ' ' {
			return Annotation{}, false
		}
		pair, rest = rest[1:], nil
		if space := bytes.IndexByte(pair, ' '); space >= 0 {
			pair, rest = pair[:space], pair[space:]
		}
		key, value, _ := bytes.Cut(pair, []byte("="))
		position, ok := a.set(string(key), value)
		if !ok || position < next || len(value) == 0 {
			return Annotation{}, false
		}
		next = position + 1
	}
	return a, true
}

// set stores one pair and returns the key's place in the fixed order.
func (a *Annotation) set(key string, value []byte) (position int, ok bool) {
	switch key {
	case "verdict":
		a.Verdict = string(value)
		return 0, true
	case "reason":
		a.Reason = string(value)
		return 1, true
	case "depth":
		depth, err := strconv.ParseInt(string(value), 10, 64)
		a.Depth, a.HasDepth = depth, true
		return 2, err == nil
	case "late":
		number, found := bytes.CutSuffix(value, []byte("ns"))
		late, err := strconv.ParseInt(string(number), 10, 64)
		a.Late, a.HasLate = time.Duration(late), true
		return 3, found && err == nil
	}
	return 0, false
}
