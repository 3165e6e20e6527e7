// Package verify judges what happened on a fabric from its packets.
//
// Checks are invariants over decoded packets. They read a capture once, as a
// stream, in bounded memory: ours, or anybody's pcapng or pcap whose
// interfaces are named "node:port".
//
// Each check states what it needs to have seen (Need): ports, packets, records, a
// time. One place, Capture.conclude, compares that with what the capture holds. A
// check that lacks something is INCONCLUSIVE and never PASS, and Result.Lacking names
// it. What packets show, and must not be, is FAIL all the same; what only a missing
// packet suggests is not.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"railbed/capture/pcapng"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/transports/rd/privacy"
)

// Check looks at every packet of a capture and then says what it found. A
// check serves one Run.
type Check interface {
	// Begin hands over the capture before the first packet. It fills up while
	// packets are read, and is complete when Result is called.
	Begin(*Capture)
	// Packet is called in the capture's order. The packet is valid until it
	// returns.
	Packet(*Packet)
	Result() Result
}

// Watcher is a check that also looks at what enters queues, where the capture
// holds it.
type Watcher interface {
	Check
	// Event is called in the capture's order, as Packet is.
	Event(*Packet)
}

// Result is what a check found.
type Result struct {
	Name    string          `json:"name"`
	Verdict verdict.Verdict `json:"verdict"`
	// Summary is one line with the numbers that decided.
	Summary string `json:"summary"`
	// Lacking is what the capture lacks of what the check needs.
	Lacking []string `json:"lacking,omitempty"`
	// Details are lines for a person, at most maxDetails and one that says
	// how many more there were.
	Details  []string           `json:"details,omitempty"`
	Measured map[string]float64 `json:"measured,omitempty"`
}

// maxDetails bounds the lines of a result.
const maxDetails = 20

// Tap is an interface of the capture.
type Tap struct {
	Index int    `json:"index"`
	Name  string `json:"name"` // as in the capture
	// Node and Port are the two halves of a name "node:port"; otherwise Node
	// is empty.
	Node string `json:"node,omitempty"`
	Port string `json:"port,omitempty"`
	Link string `json:"link,omitempty"`
	NIC  bool   `json:"nic,omitempty"`
	// Packets is how many packets of it the capture has.
	Packets uint64 `json:"packets"`
	// Lost is how many it lacks, by the capture's own counts: dropped by the
	// tap, or kept out by a size limit.
	Lost uint64 `json:"lost"`
	// Counted says that the capture states its losses for this tap.
	Counted bool `json:"counted"`

	mac      plan.MAC
	hasMAC   bool
	ethernet bool
	filter   string // kept packets out
	// start and end bound the recording, 0 where the capture does not say.
	start, end int64
	// delivered is how many packets the capture says that it has of the tap.
	delivers  bool
	delivered uint64
	// annotates says that a packet had a comment of Railbed's.
	annotates bool
	// noted is what the capture says of its comments, if it does, and seen what it has.
	counts      bool
	noted, seen pcapng.TapNote
}

// Capture is what a Run learns about the capture as a whole.
type Capture struct {
	Plan *plan.Plan // nil when none was given
	Taps []*Tap
	// Railbed says that Railbed wrote it, and so that its counts are due.
	Railbed bool
	// Truncated says that the file ends within a block, or lacks the counts
	// that Railbed writes last.
	Truncated bool
	// Dilation is by how much the testbed's time was slower than the stamps'.
	Dilation uint64
	// First and Last are the times of the first and the last packet, in
	// nanoseconds since 1970; End is the capture's end, or Last.
	First, Last, End int64
	Packets          uint64
	// Unordered is how many packets stand so far behind later ones that they cannot be
	// sorted by their times: what seems to come first proves nothing then.
	Unordered uint64
	// Cut is how many packets were cut off within their headers.
	Cut uint64
	// Undecoded is how many packets had a header that could not be read, or
	// were of another link type than Ethernet, which checks do not see.
	Undecoded uint64
	// RDDamaged are packets to ports of reliable datagrams, at any tap, that are no
	// valid ones; RDCut are those of which the capture has too little to tell.
	RDDamaged, RDCut uint64
	// FlowsFull says that there were more flows than are told apart.
	FlowsFull bool

	keys *privacy.KeyLog // nil opens nothing
	// names are what taps are called, by their names in the capture.
	names map[string]string
	// from and to bound the time in which there was traffic, 0 where it is not known.
	from, to int64
	// counts are the packets that queues of kernel switches counted as dropped, by
	// port; nil when nobody counted.
	counts map[string]uint64
	// interrupted is Options.Interrupted.
	interrupted func(link string) bool
	// foreignPlan says why the capture cannot be of the plan, "" where it can.
	foreignPlan string
	// bare says that Railbed's comments were removed from the section.
	bare bool
	// clockSteps say how clocks were set while they recorded.
	clockSteps       []string
	sorted, repeated uint64
	clocks           *clocks
}

// Summary describes the capture for reports.
type Summary struct {
	Packets   uint64        `json:"packets"`
	Start     time.Time     `json:"start"`
	Duration  time.Duration `json:"duration_ns"`
	Taps      []Tap         `json:"taps"`
	Lost      uint64        `json:"lost"`
	Truncated bool          `json:"truncated"`
	Undecoded uint64        `json:"undecoded"`
	RDDamaged uint64        `json:"rd_damaged,omitempty"`
	RDCut     uint64        `json:"rd_cut,omitempty"`
	// Note says what the capture does not tell, such as its losses.
	Note string `json:"note,omitempty"`
}

// Options say what is known beside the capture. The zero value knows nothing.
type Options struct {
	// Plan is the testbed's. Without one, checks that need it are INCONCLUSIVE.
	Plan *plan.Plan
	// Keys open reliable datagrams that are encrypted. Those that were trimmed are not
	// opened: nothing authenticates them.
	Keys *privacy.KeyLog
	// Taps names interfaces as "node:port", by their names in the capture, or by their
	// numbers from 0 on.
	Taps map[string]string
	// From and To bound the time of the traffic that checks are about, in nanoseconds
	// since 1970: a capture that does not span it lacks packets. Zero is not known.
	From, To int64
	// Drops are the packets that queues of kernel switches counted as dropped in that
	// time, by port as "node:port". Nil where nobody counted.
	Drops map[string]uint64
	// Interrupted reports whether a link was down for a time. A kernel switch counts no packet for a port
	// without carrier. Nil is no link.
	Interrupted func(link string) bool
}

// Run reads a capture and returns a result for each check, in their order. A capture
// that is truncated is judged as far as it goes, and no check passes. The error is set
// when r could not be read, or holds something else than a capture.
func Run(ctx context.Context, r io.Reader, o Options, checks ...Check) ([]Result, Summary, error) {
	behind, known := displaced(ctx, r)
	reader, err := pcapng.NewReader(r)
	if err != nil {
		return nil, Summary{}, fmt.Errorf("verify: %w", err)
	}
	c := &Capture{
		Plan:        o.Plan,
		keys:        o.Keys,
		names:       o.Taps,
		from:        o.From,
		to:          o.To,
		counts:      o.Drops,
		interrupted: o.Interrupted,
		Railbed:     reader.Section().Application == "railbed", Dilation: 1,
	}
	c.clocks = newClocks(c)
	c.describe(reader.Section())
	for _, check := range checks {
		check.Begin(c)
	}
	w := &window{exact: c.Railbed, most: min(behind+windowLeast, windowPackets)}
	if !known {
		w.most = windowStream
	}
	if err := c.read(ctx, reader, w, checks); err != nil {
		return nil, c.summary(), fmt.Errorf("verify: %w", err)
	}
	var results []Result
	for _, check := range checks {
		result := check.Result()
		if more := len(result.Details) - maxDetails; more > 0 {
			result.Details = append(result.Details[:maxDetails], fmt.Sprintf("and %d more", more))
		}
		results = append(results, result)
	}
	return results, c.summary(), nil
}

// describe takes over what Railbed says of a recording: its dilation and plan.
func (c *Capture) describe(s pcapng.Section) {
	note, noted := firstNote(s.Comments, pcapng.ParseSectionNote)
	if c.bare = c.Railbed && !noted; !noted {
		return
	}
	c.Dilation = note.Dilation
	if note.Plan != "" && c.Plan != nil && note.Plan != c.Plan.Hash() {
		of := ""
		if note.Testbed != "" {
			of = fmt.Sprintf(" of testbed %q", note.Testbed)
		}
		c.foreignPlan = fmt.Sprintf("the capture is of another plan: it names %.12s%s, and this one is "+
			"%.12s of testbed %q", note.Plan, of, c.Plan.Hash(), c.Plan.Name)
	}
}

// firstNote is the first comment that is a note of Railbed's.
func firstNote[N any](comments []string, parse func([]byte) (N, bool)) (note N, noted bool) {
	for _, comment := range comments {
		if note, noted = parse([]byte(comment)); noted {
			return note, true
		}
	}
	return note, false
}

// contextEvery is after how many packets the context is looked at.
const contextEvery = 4096

func (c *Capture) read(ctx context.Context, reader *pcapng.Reader, w *window, checks []Check) error {
	d := newDecoder(c)
	var watchers []Watcher
	for _, check := range checks {
		if w, is := check.(Watcher); is {
			watchers = append(watchers, w)
		}
	}
	for {
		if c.Packets%contextEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		raw, err := reader.Next()
		if errors.Is(err, pcapng.ErrTruncated) {
			c.Truncated = true
		}
		if err == io.EOF || c.Truncated {
			break
		}
		if err != nil {
			return err
		}
		if raw.Interface >= len(c.Taps) {
			c.addTaps(reader.Interfaces())
		}
		if w.full() {
			c.judge(d.decode(w.take()), checks, watchers)
		}
		w.add(raw)
	}
	c.addTaps(reader.Interfaces())
	for w.len() > 0 {
		c.judge(d.decode(w.take()), checks, watchers)
	}
	c.sorted, c.repeated = w.sorted, w.repeated
	c.finish(reader.Statistics())
	return nil
}

// judge shows checks a packet.
func (c *Capture) judge(p *Packet, checks []Check, watchers []Watcher) {
	c.count(p)
	switch {
	case !p.Tap.ethernet:
		c.Undecoded++
	case p.Event:
		for _, w := range watchers {
			w.Event(p)
		}
	default:
		c.clocks.take(p)
		for _, check := range checks {
			check.Packet(p)
		}
	}
}

func (c *Capture) count(p *Packet) {
	if c.Packets == 0 {
		c.First = p.Time
	}
	c.Packets++
	if p.Time < c.Last {
		c.Unordered++
	}
	c.First, c.Last = min(c.First, p.Time), max(c.Last, p.Time)
	p.Tap.Packets++
}

// finish takes over the counts that stand at the end of a capture.
func (c *Capture) finish(statistics []pcapng.Statistics) {
	c.End = c.Last
	for _, s := range statistics {
		tap := c.Taps[s.Interface]
		if s.Has&pcapng.HasStart != 0 {
			tap.start = s.Start
		}
		if s.Has&pcapng.HasEnd != 0 {
			tap.end = s.End
			c.End = max(c.End, s.End)
		}
		if s.Has&pcapng.HasDropped != 0 {
			tap.Counted = true
			tap.Lost = max(tap.Lost, s.Dropped)
		}
		// What the filter took and the tap did not drop but nobody wrote was
		// kept out by a limit.
		if taken := s.Accepted - s.Dropped; s.Has&pcapng.HasAccepted != 0 && s.Has&pcapng.HasDelivered != 0 &&
			s.Accepted >= s.Dropped && taken > s.Delivered {
			tap.Lost += taken - s.Delivered
		}
		tap.delivers, tap.delivered = s.Has&pcapng.HasDelivered != 0, s.Delivered
		if s.Has&pcapng.HasOSDropped != 0 { // others'; ours are among the dropped
			tap.Counted = true
			tap.Lost += s.OSDropped
		}
		if tap.noted, tap.counts = firstNote(s.Comments, pcapng.ParseTapNote); tap.noted.ClockStepped != 0 {
			c.clockSteps = append(c.clockSteps,
				fmt.Sprintf("tap %s: the host's clock was set by %v", tap.Name, tap.noted.ClockStepped))
		}
	}
	if c.Railbed && slices.ContainsFunc(c.Taps, func(t *Tap) bool { return !t.Counted }) {
		c.Truncated = true
	}
}

func (c *Capture) summary() Summary {
	s := Summary{
		Packets: c.Packets, Start: time.Unix(0, c.First), Duration: time.Duration(c.Last - c.First),
		Truncated: c.Truncated, Undecoded: c.Undecoded, RDDamaged: c.RDDamaged, RDCut: c.RDCut,
	}
	counted := true
	for _, tap := range c.Taps {
		s.Taps = append(s.Taps, *tap)
		s.Lost += tap.Lost
		counted = counted && tap.Counted
	}
	switch {
	case c.Truncated:
		s.Note = "the capture is truncated"
	case !counted:
		s.Note = "the capture does not say what it lost"
	}
	return s
}

// Tap returns the tap of a port, or nil.
func (c *Capture) Tap(node, port string) *Tap {
	for _, tap := range c.Taps {
		if tap.Node == node && tap.Port == port {
			return tap
		}
	}
	return nil
}

// tapNamed returns the tap of a port, as "node:port", or nil.
func (c *Capture) tapNamed(name string) *Tap {
	node, port := splitPort(name)
	return c.Tap(node, port)
}
