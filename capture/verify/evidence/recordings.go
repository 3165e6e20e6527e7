package evidence

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"railbed/capture/filter"
	"railbed/capture/pcapng"
	"railbed/internal/plural"
)

// RunAll is Run for all recordings of a run, which may have different taps and times. names are for messages.
// The evidence is the union of the recordings: each packet counts once, and a tap lacks packets only where no
// recording has all of them.
func RunAll(ctx context.Context, names []string, recordings []io.Reader, o Options, checks ...Check) (
	[]Result, Summary, error) {
	if len(recordings) == 1 {
		return Run(ctx, recordings[0], o, checks...)
	}
	m, err := pcapng.NewMerger(names, recordings)
	if err != nil {
		return nil, Summary{}, fmt.Errorf("verify: %w", err)
	}
	return run(ctx, m, &window{most: windowStream}, o, checks)
}

// recorded describes the packets of a tap in one recording.
type recorded struct {
	recording int
	name      string // of the recording, "" if it is the only one
	filter    string
	snap      uint32
	// span is the time of the recording, 0 where the recording does not state it.
	span
	// traffic is the time from the first to the last packet, without frames to groups. It is set for several
	// recordings only.
	traffic span
	// lost counts missing packets by the recording's own counts, if counted is set.
	lost    uint64
	counted bool
	// delivered and packets are the number of the tap's packets, as the recording states it and as read.
	delivers           bool
	delivered, packets uint64
	// noted are the recording's own counts of its comments, where it has them. seen are the comments
	// counted while reading.
	counts      bool
	noted, seen pcapng.TapNote
	unordered   uint64
	broken      string // the reason why packets are missing from the file, or ""
}

// record takes the counts from the end of a recording.
func (t *Tap) record(s *pcapng.Statistics) *recorded {
	r := recorded{filter: t.filter, packets: t.Packets, seen: t.seen}
	if m := s.Recorded; m != nil {
		r = recorded{recording: m.Recording, name: m.Name, filter: m.Filter, snap: m.SnapLen,
			traffic: span{m.First, m.Last}, packets: m.Packets, seen: m.Notes,
			unordered: m.Unordered, broken: m.Broken}
	}
	if s.Has&pcapng.HasStart != 0 {
		r.from = s.Start
	}
	if s.Has&pcapng.HasEnd != 0 {
		r.to = s.End
	}
	if s.Has&pcapng.HasDropped != 0 {
		r.counted, r.lost = true, s.Dropped
	}
	// A packet was left out because of a size limit if the filter accepted it, the tap did not drop it,
	// and no record of it was written.
	if taken := s.Accepted - s.Dropped; s.Has&pcapng.HasAccepted != 0 && s.Has&pcapng.HasDelivered != 0 &&
		s.Accepted >= s.Dropped && taken > s.Delivered {
		r.lost += taken - s.Delivered
	}
	r.delivers, r.delivered = s.Has&pcapng.HasDelivered != 0, s.Delivered
	if s.Has&pcapng.HasOSDropped != 0 { // files by others; Railbed's include it in Dropped
		r.counted = true
		r.lost += s.OSDropped
	}
	r.noted, r.counts = firstNote(s.Comments, pcapng.ParseTapNote)
	t.recordings = append(t.recordings, r)
	return &t.recordings[len(t.recordings)-1]
}

// takes reports whether the recording's filter accepts all packets of some patterns.
func (r *recorded) takes(needed []filter.Pattern) bool {
	return r.filter == "" || filter.Covers(r.filter, needed)
}

// faults lists the losses of packets that the recording should hold.
func (r *recorded) faults(c *Capture, tap string) (lines []string) {
	add := func(format string, args ...any) {
		line := plural.Text(format, args...)
		if r.name != "" {
			line = r.name + ": " + line
		}
		lines = append(lines, line)
	}
	if r.broken != "" {
		lines = append(lines, r.broken)
	}
	if r.lost > 0 {
		add("tap %s lost %d packets", tap, r.lost)
	}
	switch {
	case !r.delivers || r.packets == r.delivered:
	case r.packets < r.delivered:
		add("tap %s: the file holds %d of the %d packets that it counts", tap, r.packets, r.delivered)
	default:
		add("tap %s: the file holds %d packets and counts %d", tap, r.packets, r.delivered)
	}
	if !c.Railbed || c.bare {
		return lines
	}
	// Without a record of its drop, a dropped packet looks like a sent one.
	seen, noted := r.seen, r.noted
	noted.Limited, noted.ClockStepped, noted.Continued = 0, 0, 0
	if r.counted && !r.counts {
		add("tap %s: the comment with its counts was removed", tap)
	}
	if r.counts && seen != noted {
		add("tap %s: the file holds %d comments of packets (%d drops, %d marks, %d trims, %d pauses) and "+
			"counts %d (%d, %d, %d, %d)", tap, seen.Annotated, seen.Drops, seen.Marks, seen.Trims,
			seen.Pauses, noted.Annotated, noted.Drops, noted.Marks, noted.Trims, noted.Pauses)
	}
	return lines
}

// several reports whether the capture is of several recordings.
func (c *Capture) several() bool { return c.times != nil }

// timeRecordings finds the time in which each recording recorded at all of its taps.
func (c *Capture) timeRecordings() {
	for _, tap := range c.Taps {
		for i := range tap.recordings {
			r := &tap.recordings[i]
			if r.name == "" || r.to == 0 {
				continue
			}
			whole, known := c.times[r.recording]
			if !known {
				whole = r.span
			}
			c.times[r.recording] = span{max(whole.from, r.from), min(whole.to, r.to)}
		}
	}
}

// damage returns the losses of the tap that matter for packets of some patterns in some times. Nil times are
// all times. A recording's losses do not matter where other recordings have all packets of its time.
func (t *Tap) damage(c *Capture, needed []filter.Pattern, times []span) (lines []string) {
	lost := t.dropped // at no known time
	if len(t.recordings) == 0 {
		lost = t.Lost
	}
	if lost > 0 && (c.several() || len(t.recordings) == 0) {
		lines = append(lines, plural.Text("tap %s lost %d packets", t.Name, lost))
	}
	var sound []span
	for i := range t.recordings {
		if r := &t.recordings[i]; r.takes(needed) && len(r.faults(c, t.Name)) == 0 {
			sound = append(sound, r.span)
		}
	}
	for i := range t.recordings {
		r := &t.recordings[i]
		if !r.takes(needed) && slices.ContainsFunc(t.recordings, func(o recorded) bool {
			return o.takes(needed)
		}) {
			continue
		}
		time := r.span
		if time.to <= time.from { // not known
			time = span{c.First, max(c.Last, c.First+1)}
		}
		lossy := []span{time}
		if times != nil {
			lossy = common(lossy, times)
		}
		if len(uncovered(lossy, sound)) > 0 {
			lines = append(lines, r.faults(c, t.Name)...)
		}
	}
	return lines
}

// unrecorded returns the times in which a tap did not record packets of some patterns.
func (t *Tap) unrecorded(times []span, needed []filter.Pattern) []span {
	var has []span
	for i := range t.recordings {
		if r := &t.recordings[i]; r.takes(needed) {
			has = append(has, r.span)
		}
	}
	return uncovered(times, has)
}

// busy returns the times in which there was traffic, or in which others of the taps saw packets. The first
// time encloses the traffic. Several recordings of a run may lack a part of it.
func (c *Capture) busy(taps []*Tap, need Need) []span {
	times := []span{{cmp.Or(need.From, c.from), cmp.Or(need.To, c.to)}}
	if known := times[0].from != 0 && times[0].to != 0; !known {
		times[0] = c.traffic()
	} else if len(taps) > 1 {
		for _, tap := range taps {
			for _, r := range tap.recordings {
				whole := c.times[r.recording]
				times = append(times, span{max(r.traffic.from, whole.from), min(r.traffic.to, whole.to)})
			}
		}
	}
	return times
}

// apart reports gaps in the recordings of taps. A packet between two taps is then seen at one of them only.
func (c *Capture) apart(taps []*Tap, need Need) (lines []string) {
	times := need.times.needed(c.busy(taps, need), need)
	var gaps []string
	longest := int64(0)
	for _, tap := range taps {
		left := tap.unrecorded(times, need.Packets)
		for _, gap := range left {
			longest = max(longest, gap.to-gap.from)
		}
		if len(left) > 0 {
			gaps = append(gaps, tap.Name)
		}
	}
	if len(gaps) > 0 {
		of := ""
		if need.times != nil {
			of = " of " + need.times.words(need) + ","
		}
		lines = append(lines, fmt.Sprintf("for up to %v%s no recording has the packets of %s",
			time.Duration(longest).Round(10*time.Microsecond), of, enumerate(gaps)))
	}
	return append(lines, c.unpaired(taps)...)
}

// traffic returns the time of all packets, without frames to groups.
func (c *Capture) traffic() (all span) {
	for i := range c.Taps {
		for _, r := range c.Taps[i].recordings {
			if r.traffic.to == 0 {
				continue
			}
			if all.to == 0 {
				all.from = r.traffic.from
			}
			all = span{min(all.from, r.traffic.from), max(all.to, r.traffic.to)}
		}
	}
	return all
}

// unpaired reports why packets of different recordings cannot be recognised as the same packet. At kernel
// switches a packet's id is made of its bytes, and of the number of equal packets before it.
func (c *Capture) unpaired(taps []*Tap) (lines []string) {
	if len(taps) < 2 || c.Plan == nil || c.Plan.Soft() {
		return nil
	}
	together := func(same func(a, b *recorded) bool) bool {
		first := &taps[0].recordings[0]
		return !slices.ContainsFunc(taps, func(t *Tap) bool {
			return slices.ContainsFunc(t.recordings, func(r recorded) bool { return !same(first, &r) })
		})
	}
	if !together(func(a, b *recorded) bool { return a.snap == b.snap }) {
		lines = append(lines, "the recordings keep different numbers of bytes of a packet, and so packets "+
			"cannot be matched between taps of kernel switches: give the captures one snaplen")
	}
	if c.equal > 0 && !together(func(a, b *recorded) bool { return a.recording == b.recording }) {
		lines = append(lines, plural.Text("%d packets have the bytes of earlier ones, and cannot be matched "+
			"between taps of different recordings: record the taps in one capture step", c.equal))
	}
	return lines
}

// misordered lists recordings of one tap whose packets may be counted twice.
func (c *Capture) misordered(taps []*Tap) (lines []string) {
	for _, tap := range taps {
		for _, r := range tap.recordings {
			if r.unordered > 0 && len(tap.recordings) > 1 {
				lines = append(lines, plural.Text("%s: %d packets are not in the order of time, and so "+
					"packets of tap %s may be counted twice", r.name, r.unordered, tap.Name))
			}
		}
	}
	return lines
}
