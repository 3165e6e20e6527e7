// Package verify judges what happened on a fabric from its packets.
//
// Checks are invariants over decoded packets. They read a capture once, as a
// stream, in bounded memory: ours, or anybody's pcapng or pcap whose
// interfaces are named "node:port". A check that saw no relevant packet, or
// whose taps lost some, is INCONCLUSIVE and never PASS; what it did see and
// what must not be is FAIL all the same.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"railbed/capture/pcapng"
	"railbed/testbed/plan"
	"railbed/testbed/spec"
	"railbed/testbed/verdict"
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
	filtered bool // a filter kept packets out
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
	// Unordered is how many packets stand behind later ones in what Railbed wrote, which has
	// them in the order of their times while its reader keeps up: what seems to come before
	// what it follows from proves nothing then.
	Unordered uint64
	// Undecoded is how many packets had a header that could not be read, or
	// were of another link type than Ethernet, which checks do not see.
	Undecoded uint64
	// RDDamaged are packets to ports of reliable datagrams, at any tap, that are no
	// valid ones; RDCut are those of which the capture has too little to tell.
	RDDamaged, RDCut uint64
	// FlowsFull says that there were more flows than are told apart.
	FlowsFull bool

	keys *privacy.KeyLog // nil opens nothing
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

// Run reads a capture and returns a result for each check, in their order. The
// plan may be nil; checks that need one are then INCONCLUSIVE. A capture that
// is truncated is judged as far as it goes, and no check passes. The error is
// set when r could not be read, or holds something else than a capture.
func Run(ctx context.Context, r io.Reader, p *plan.Plan, checks ...Check) ([]Result, Summary, error) {
	return RunWithKeys(ctx, r, p, nil, checks...)
}

// RunWithKeys is Run where reliable datagrams that are encrypted are opened, as far
// as the keys go. Those that were trimmed are not: nothing vouches for them.
func RunWithKeys(ctx context.Context, r io.Reader, p *plan.Plan, keys *privacy.KeyLog, checks ...Check) ([]Result, Summary, error) {
	reader, err := pcapng.NewReader(r)
	if err != nil {
		return nil, Summary{}, fmt.Errorf("verify: %w", err)
	}
	c := &Capture{Plan: p, keys: keys, Railbed: reader.Section().Application == "railbed", Dilation: dilation(reader.Section())}
	for _, check := range checks {
		check.Begin(c)
	}
	if err := c.read(ctx, reader, checks); err != nil {
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

// dilation reads the factor in the section's comment; 1 where there is none.
func dilation(s pcapng.Section) uint64 {
	for _, comment := range s.Comments {
		rest, found := strings.CutPrefix(comment, "railbed dilation=")
		number, _, _ := strings.Cut(rest, " ")
		if factor, err := strconv.ParseUint(number, 10, 32); found && err == nil && factor > 0 {
			return factor
		}
	}
	return 1
}

// contextEvery is after how many packets the context is looked at.
const contextEvery = 4096

func (c *Capture) read(ctx context.Context, reader *pcapng.Reader, checks []Check) error {
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
			break
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if raw.Interface >= len(c.Taps) {
			c.addTaps(reader.Interfaces())
		}
		packet := d.decode(raw)
		c.count(packet)
		if !packet.Tap.ethernet {
			c.Undecoded++
			continue
		}
		if packet.Event {
			for _, w := range watchers {
				w.Event(packet)
			}
			continue
		}
		for _, check := range checks {
			check.Packet(packet)
		}
	}
	c.addTaps(reader.Interfaces())
	c.finish(reader.Statistics())
	return nil
}

func (c *Capture) count(p *Packet) {
	if c.Packets == 0 {
		c.First = p.Time
	}
	c.Packets++
	if c.Railbed && p.Time < c.Last {
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
		if s.Has&pcapng.HasEnd != 0 {
			c.End = max(c.End, s.End)
		}
		if s.Has&pcapng.HasDropped != 0 {
			tap.Counted = true
			tap.Lost += s.Dropped
		}
		// What the filter took and the tap did not drop but nobody wrote was
		// kept out by a limit.
		if taken := s.Accepted - s.Dropped; s.Has&pcapng.HasAccepted != 0 && s.Has&pcapng.HasDelivered != 0 && s.Accepted >= s.Dropped && taken > s.Delivered {
			tap.Lost += taken - s.Delivered
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

// untapped names the plan's switches of a pattern of which no port was captured:
// what is judged is judged without them. Which ones count is for the caller.
func (c *Capture) untapped(pattern string, counts func(*plan.Switch) bool) (lines []string) {
	if c.Plan == nil {
		return nil
	}
	for i := range c.Plan.Switches {
		s := &c.Plan.Switches[i]
		if spec.Match(pattern, s.Name) && counts(s) && !slices.ContainsFunc(c.Taps, func(t *Tap) bool { return t.Node == s.Name }) {
			lines = append(lines, s.Name+": not captured")
		}
	}
	return lines
}

// conclude sets the verdict from what a check found. wrong are problems that
// no lost packet can explain; unclear are those that one can, and reasons why
// the check cannot tell. The taps are those that the check rests on.
func (c *Capture) conclude(r *Result, taps []*Tap, wrong, unclear []string) {
	var doubts []string
	if c.Truncated {
		doubts = append(doubts, "the capture is truncated")
	}
	for _, tap := range taps {
		if tap.Lost > 0 {
			doubts = append(doubts, fmt.Sprintf("tap %s lost %d packets", tap.Name, tap.Lost))
		}
	}
	if c.Unordered > 0 {
		r.Details = append(r.Details, fmt.Sprintf("%d packets stand behind later ones in the capture, whose writer did not keep up", c.Unordered))
	}
	if c.FlowsFull {
		doubts = append(doubts, fmt.Sprintf("more than %d flows", maxFlows))
	}
	r.Details = append(append(wrong, unclear...), append(doubts, r.Details...)...)
	switch {
	case len(wrong) > 0:
		r.Verdict = verdict.Fail
	case len(doubts) > 0 || len(unclear) > 0:
		r.Verdict = verdict.Inconclusive
	default:
		r.Verdict = verdict.Pass
	}
}

// lossy reports whether the capture may lack packets of the taps, or have them too late, so
// that an absent packet proves nothing.
func (c *Capture) lossy(taps []*Tap) bool {
	return c.Truncated || c.Unordered > 0 || slices.ContainsFunc(taps, func(t *Tap) bool { return t.Lost > 0 })
}
