package pcapng

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// SectionNote is the comment in the section header of a Railbed capture, in the fixed grammar
//
//	railbed dilation=2 epoch=17...ns plan=4fd0... testbed=NAME recording=17...ns part=2 hits=...
//
// The order of the pairs is fixed, and every pair except the first is optional. A reader compares
// Plan with the hash of its own plan. The files of a recording in several files have the same note, except
// for Part.
type SectionNote struct {
	// Dilation is the factor by which the testbed's time is slower than real time, at least 1.
	Dilation uint64
	// Epoch is the real time at which the testbed's own time was zero. The zero Time is not
	// written.
	Epoch   time.Time
	Plan    string // hash of the testbed's plan; empty is not written
	Testbed string // the testbed's name; empty is not written
	// Recording is the time of the first packet of a recording in several files, and Part the number of the
	// file, from 1. The value 0 is not written.
	Recording int64
	Part      int
	// Hits reports whether the packets that faults drop or change are recorded, as "hits=recorded".
	Hits bool
}

// AppendTo appends the comment to b. Plan and Testbed must be words without spaces (IsWord).
func (n SectionNote) AppendTo(b []byte) []byte {
	b = strconv.AppendUint(append(b, annotationTag+" dilation="...), max(n.Dilation, 1), 10)
	if !n.Epoch.IsZero() {
		b = appendNanoseconds(append(b, " epoch="...), time.Duration(n.Epoch.UnixNano()))
	}
	if n.Plan != "" {
		b = append(append(b, " plan="...), n.Plan...)
	}
	if n.Testbed != "" {
		b = append(append(b, " testbed="...), n.Testbed...)
	}
	if n.Recording != 0 {
		b = appendNanoseconds(append(b, " recording="...), time.Duration(n.Recording))
	}
	if n.Part != 0 {
		b = strconv.AppendInt(append(b, " part="...), int64(n.Part), 10)
	}
	if n.Hits {
		b = append(append(b, " hits="...), hitsRecorded...)
	}
	return b
}

// ParseSectionNote parses a comment. It reports false for a comment that does not match the grammar
// exactly.
func ParseSectionNote(comment []byte) (SectionNote, bool) {
	var n SectionNote
	if !parsePairs(comment, n.set) || n.Dilation == 0 {
		return SectionNote{}, false
	}
	return n, true
}

func (n *SectionNote) set(key string, value []byte) (position int, ok bool) {
	switch key {
	case "dilation":
		n.Dilation, ok = parseCount(value)
		return 0, ok
	case "epoch":
		since, ok := parseNanoseconds(value)
		n.Epoch = time.Unix(0, int64(since))
		return 1, ok
	case "plan":
		n.Plan = string(value)
		return 2, true
	case "testbed":
		n.Testbed = string(value)
		return 3, true
	case "recording":
		at, ok := parseNanoseconds(value)
		n.Recording = int64(at)
		return 4, ok && at != 0
	case "part":
		n.Part, ok = parsePart(value)
		return 5, ok
	case "hits":
		n.Hits = true
		return 6, string(value) == hitsRecorded
	}
	return 0, false
}

const hitsRecorded = "recorded"

// TapNote is the comment in a tap's statistics block of a Railbed capture, in the fixed grammar
//
//	railbed limited=0 annotated=12 drops=4 marks=8 trims=0 pauses=0 clock-stepped=-3000000000ns continued=2
//
// Only the last two pairs are optional. If a reader counts fewer annotated records than the note says,
// comments or records were removed from the file.
type TapNote struct {
	Limited   uint64 // packets over the capture's limit
	Annotated uint64 // records with an Annotation
	Drops     uint64 // of these, with the verdict drop
	Marks     uint64 // with the verdict mark
	Trims     uint64 // with the verdict trim
	Pauses    uint64 // with the verdict pause, resume or slow
	// ClockStepped is the sum of all steps of the host's clock, forwards or backwards, during the
	// capture. The value 0 is not written.
	ClockStepped time.Duration
	// Continued is the number of the file that continues the recording. The value 0 is not written.
	Continued int
}

// Count counts a record that is written with an annotation of the given verdict.
func (n *TapNote) Count(verdict string) {
	n.Annotated++
	switch verdict {
	case "drop":
		n.Drops++
	case "mark":
		n.Marks++
	case "trim":
		n.Trims++
	case "pause", "resume", "slow":
		n.Pauses++
	}
}

// add adds the counts of the file that continues the recording.
func (n *TapNote) add(next TapNote) {
	counts := n.counts()
	for i, more := range next.counts() {
		*counts[i] += *more
	}
	n.ClockStepped += next.ClockStepped
	n.Continued = next.Continued
}

// tapNoteCounts are the keys of a TapNote's counts, in their order.
var tapNoteCounts = [...]string{"limited", "annotated", "drops", "marks", "trims", "pauses"}

// counts returns pointers to the fields that tapNoteCounts names.
func (n *TapNote) counts() [len(tapNoteCounts)]*uint64 {
	return [...]*uint64{&n.Limited, &n.Annotated, &n.Drops, &n.Marks, &n.Trims, &n.Pauses}
}

// AppendTo appends the comment to b.
func (n TapNote) AppendTo(b []byte) []byte {
	b = append(b, annotationTag...)
	for i, count := range n.counts() {
		b = append(append(append(b, ' '), tapNoteCounts[i]...), '=')
		b = strconv.AppendUint(b, *count, 10)
	}
	if n.ClockStepped != 0 {
		b = appendNanoseconds(append(b, " clock-stepped="...), n.ClockStepped)
	}
	if n.Continued != 0 {
		b = strconv.AppendInt(append(b, " continued="...), int64(n.Continued), 10)
	}
	return b
}

// ParseTapNote parses a comment. It reports false for a comment that does not match the grammar
// exactly.
func ParseTapNote(comment []byte) (TapNote, bool) {
	var n TapNote
	found := 0
	whole := parsePairs(comment, func(key string, value []byte) (position int, ok bool) {
		if key == "clock-stepped" {
			n.ClockStepped, ok = parseNanoseconds(value)
			return len(tapNoteCounts), ok && n.ClockStepped != 0
		}
		if key == "continued" {
			n.Continued, ok = parsePart(value)
			return len(tapNoteCounts) + 1, ok
		}
		for i, name := range tapNoteCounts {
			if key == name {
				found++
				*n.counts()[i], ok = parseCount(value)
				return i, ok
			}
		}
		return 0, false
	})
	if !whole || found != len(tapNoteCounts) {
		return TapNote{}, false
	}
	return n, true
}

// TapDescription is the description of an interface in a Railbed capture, in the fixed grammar
//
//	h0--leaf1 ranks=0,1 nic-path=bypass
//
// The ranks are absent if no rank uses the interface, and the path if programs reach it by the kernel alone.
type TapDescription struct {
	Link   string // the link's name, a word
	Ranks  []int  // the ranks that use the NIC
	Bypass bool   // programs reach the NIC past their node's kernel, too
}

const bypassed = " nic-path=bypass"

// String returns the description.
func (d TapDescription) String() string {
	text := d.Link
	for i, rank := range d.Ranks {
		if i == 0 {
			text += " ranks="
		} else {
			text += ","
		}
		text += strconv.Itoa(rank)
	}
	if d.Bypass {
		text += bypassed
	}
	return text
}

// ParseTapDescription parses a description. In a description of another grammar everything is the link's
// name.
func ParseTapDescription(text string) TapDescription {
	known, bypass := strings.CutSuffix(text, bypassed)
	link, list, found := strings.Cut(known, " ranks=")
	if !found && bypass && IsWord(link) {
		return TapDescription{Link: link, Bypass: true}
	}
	if !found || !IsWord(link) {
		return TapDescription{Link: text}
	}
	var ranks []int
	for number := range strings.SplitSeq(list, ",") {
		rank, err := strconv.ParseUint(number, 10, 31)
		if err != nil {
			return TapDescription{Link: text}
		}
		ranks = append(ranks, int(rank))
	}
	return TapDescription{Link: link, Ranks: ranks, Bypass: bypass}
}

// IsWord reports whether a text can be a value in this package's grammars: not empty, and printable
// ASCII without spaces.
func IsWord(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return text != ""
}

// parsePairs parses a comment that consists of the tag and of pairs in a fixed order, each at most
// once. set stores a pair and returns the position of its key in the order.
func parsePairs(comment []byte, set func(key string, value []byte) (position int, ok bool)) bool {
	rest, found := bytes.CutPrefix(comment, []byte(annotationTag))
	if !found {
		return false
	}
	for next := 0; len(rest) > 0; {
		var pair []byte
		if rest[0] != ' ' {
			return false
		}
		pair, rest = rest[1:], nil
		if space := bytes.IndexByte(pair, ' '); space >= 0 {
			pair, rest = pair[:space], pair[space:]
		}
		key, value, _ := bytes.Cut(pair, []byte("="))
		position, ok := set(string(key), value)
		if !ok || position < next || len(value) == 0 {
			return false
		}
		next = position + 1
	}
	return true
}

func parseCount(value []byte) (uint64, bool) {
	count, err := strconv.ParseUint(string(value), 10, 64)
	return count, err == nil
}

// parsePart parses the number of a file.
func parsePart(value []byte) (int, bool) {
	part, err := strconv.ParseInt(string(value), 10, 32)
	return int(part), err == nil && part > 0
}

func parseNanoseconds(value []byte) (time.Duration, bool) {
	number, found := bytes.CutSuffix(value, []byte("ns"))
	d, err := strconv.ParseInt(string(number), 10, 64)
	return time.Duration(d), found && err == nil
}

func appendNanoseconds(b []byte, d time.Duration) []byte {
	return append(strconv.AppendInt(b, int64(d), 10), "ns"...)
}
