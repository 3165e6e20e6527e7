// Package evidence has what all checks of a capture share, and knows no check.
//
// A check is an invariant over decoded packets. Checks read a capture once, as a stream, in bounded
// memory. The capture was written by Railbed, or is any pcapng or pcap file whose interfaces are
// named "node:port". Run decodes each packet, orders packets by their times, and passes them to the
// checks. Roles assigns packets to the ranks of a workload.
//
// Each check states the evidence that it needs (Need): ports, packets, records, a time span. One
// function, Capture.Conclude, compares that need with the capture. A check that lacks evidence is
// INCONCLUSIVE and never PASS, and Result.Lacking lists the missing evidence. A violation that
// packets show is FAIL even then. A violation that only a missing packet suggests is not.
package evidence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"railbed/capture/display"
	"railbed/capture/pcapng"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
)

// Check looks at every packet of a capture and then returns a result. A check serves one Run.
type Check interface {
	// Begin passes the capture before the first packet. The capture fills up while packets are
	// read, and is complete when Result is called.
	Begin(*Capture)
	// Packet is called in the capture's order. The packet is valid until Packet returns.
	Packet(*Packet)
	Result() Result
}

// Watcher is a check that also looks at packets as they enter queues, where the capture holds such
// records.
type Watcher interface {
	Check
	// Event is called in the capture's order, as Packet is.
	Event(*Packet)
}

// Result is the outcome of a check.
type Result struct {
	Name    string          `json:"name"`
	Verdict verdict.Verdict `json:"verdict"`
	// Summary is one line with the numbers that decided.
	Summary string `json:"summary"`
	// Lacking lists the evidence that the check needs and the capture lacks.
	Lacking []string `json:"lacking,omitempty"`
	// Details are lines for a person: at most MaxDetails, and then a line that counts the lines
	// left out.
	Details []string `json:"details,omitempty"`
	// Near are claims that hold although their numbers are within 10 % of their bounds, in words.
	Near     []string           `json:"near,omitempty"`
	Measured map[string]float64 `json:"measured,omitempty"`
	// Offenders are the packets that break the check. It is nil for checks that do not collect them.
	Offenders *Offenders `json:"-"`
	// Excerpt is the file into which the caller of Run wrote the offenders.
	Excerpt string `json:"excerpt,omitempty"`

	grounds *grounds // of the verdict
}

// MaxDetails bounds the lines of a result.
const MaxDetails = 20

// Tap is an interface of the capture.
type Tap struct {
	Index int    `json:"index"`
	Name  string `json:"name"` // as in the capture
	// Node and Port are the two halves of a name "node:port". For any other name Node is empty.
	Node string `json:"node,omitempty"`
	Port string `json:"port,omitempty"`
	Link string `json:"link,omitempty"`
	NIC  bool   `json:"nic,omitempty"`
	// Packets is the number of the tap's packets in the capture.
	Packets uint64 `json:"packets"`
	// Lost is the number of the tap's packets that the capture lacks, by the capture's own counts.
	// The tap dropped these packets, or a size limit left them out.
	Lost uint64 `json:"lost"`
	// Counted reports whether the capture states its losses for this tap.
	Counted bool `json:"counted"`

	mac      plan.MAC
	hasMAC   bool
	ethernet bool
	filter   string // capture filter, which left packets out
	// described is the tap in the words of the capture, but with the name Name.
	described pcapng.Interface
	// recordings has an element for each recording of the tap. It is complete after the last packet.
	recordings []recorded
	// dropped is the number of lost packets by the counts at packets (epb_dropcount).
	dropped uint64
	// partial reports whether packets are missing, by the counts or the times of the recordings.
	partial bool
	// annotates reports whether a packet had a comment by Railbed. Those of faults at ports of the kernel,
	// which record nothing else, do not count.
	annotates bool
	seen      pcapng.TapNote // comments counted while reading
}

// Capture is the data that a Run collects about the capture as a whole.
type Capture struct {
	Plan *plan.Plan // nil when none was given
	Taps []*Tap
	// Railbed reports whether Railbed wrote the capture, which then has to hold Railbed's counts.
	Railbed bool
	// Truncated reports whether the file ends within a block, or lacks the counts that Railbed
	// writes last.
	Truncated bool
	// Missing names files of a recording in several files that were not read. Parts are the files that were,
	// of each recording.
	Missing []string
	Parts   [][]pcapng.Part
	// Dilation is the factor by which the testbed's time was slower than the timestamps'.
	Dilation uint64
	// First and Last are the times of the first and the last packet, in
	// nanoseconds since 1970; End is the capture's end, or Last.
	First, Last, End int64
	Packets          uint64
	// Unordered is the number of packets that the file holds too far behind later packets to sort
	// them by their times. If there are any, the order of packets proves nothing.
	Unordered uint64
	// Cut is the number of packets that the capture cut off within their headers.
	Cut uint64
	// Undecoded is the number of packets that had an unreadable header, or another link type than
	// Ethernet. Checks do not see packets of other link types.
	Undecoded uint64
	// RDDamaged is the number of invalid packets to ports of reliable datagrams, at any tap. RDCut
	// is the number of packets to these ports that the capture cut too short to check.
	RDDamaged, RDCut uint64
	// FlowsFull reports whether there were more flows than the decoder distinguishes.
	FlowsFull bool

	keys *privacy.KeyLog // nil decrypts nothing
	// names maps the names of taps in the capture to the names that reports use.
	names map[string]string
	// from and to bound the time in which there was traffic, 0 where unknown.
	from, to int64
	// QueueDrops is Options.Drops.
	QueueDrops map[string]uint64
	// Lost is Options.Lost.
	Lost map[string]uint64
	// Harm is Options.Harm.
	Harm map[string]Harm
	// hits reports whether the packets that faults of kernel links and switches hit are recorded.
	hits bool
	// interrupted is Options.Interrupted.
	interrupted func(link string) bool
	// Sends is Options.Sends.
	Sends []Send
	// foreignPlan is the reason why the capture cannot be of the plan. It is "" where it can.
	foreignPlan string
	// bare reports whether Railbed's comments were removed from the section.
	bare bool
	// clockSteps are the steps of clocks that were set while they recorded.
	clockSteps       []string
	sorted, repeated uint64
	// times has the time of each of several recordings, by its index. It is nil if there is one recording.
	times map[int]span
	// equal is the number of packets that equal an earlier one at their tap, in several recordings.
	equal     uint64
	clocks    *clocks
	around    neighbourhood
	dissected display.Packet
	// routers has the least numbers of routers between nodes, as far as they were looked up.
	routers map[string]map[string]int
}

// Summary describes the capture for reports.
type Summary struct {
	Packets   uint64        `json:"packets"`
	Start     time.Time     `json:"start"`
	Duration  time.Duration `json:"duration_ns"`
	Taps      []Tap         `json:"taps"`
	Lost      uint64        `json:"lost"`
	Truncated bool          `json:"truncated"`
	// Missing names files of the recording that were not read.
	Missing   []string `json:"missing,omitempty"`
	Undecoded uint64   `json:"undecoded"`
	RDDamaged uint64   `json:"rd_damaged,omitempty"`
	RDCut     uint64   `json:"rd_cut,omitempty"`
	// Note names information that the capture lacks, such as the count of its losses.
	Note string `json:"note,omitempty"`
}

// Options holds information of the caller that the capture does not contain. All fields are
// optional.
type Options struct {
	// Plan is the testbed's plan. Without a plan, checks that need it are INCONCLUSIVE.
	Plan *plan.Plan
	// Keys decrypt reliable datagrams. Trimmed datagrams are not decrypted: nothing authenticates
	// them.
	Keys *privacy.KeyLog
	// Taps maps interfaces to names "node:port". Its keys are interface names in the capture, or
	// interface numbers from 0 on.
	Taps map[string]string
	// From and To bound the time of the traffic under check, in nanoseconds since 1970. A capture
	// that does not span this time lacks packets. Zero means unknown.
	From, To int64
	// Drops holds the packets that the queues of kernel switches, and the kernel's queues in front of
	// NICs, counted as dropped in that time. The key is the port as "node:port". Nil means that no
	// counters were read.
	Drops map[string]uint64
	// Lost holds the packets that NICs, kernel links and routers lost outside of queues in that time. The key
	// is the port whose packets did not reach the other end of its link, or the name of a router. At soft
	// switches only NICs have such losses: without a carrier they take no packets from their node's kernel.
	Lost map[string]uint64
	// Harm holds what faults did at ports, by port as "node:port".
	Harm map[string]Harm
	// Interrupted reports whether a link was down for a time. A kernel switch counts no packet for
	// a port without carrier. Nil means that no link was down.
	Interrupted func(link string) bool
	// Sends are flows of datagrams that steps of the run sent.
	Sends []Send
}

// Harm counts the packets that faults hit at a port. At a kernel link or switch faults act before the packet
// reaches the port's tap.
type Harm struct {
	Dropped uint64
	Changed uint64 // whose bytes changed, so that a capture has them as other packets
	Copied  uint64
}

// HarmAt returns the sum of the harm at some ports, without those whose packets the capture has as records.
func (c *Capture) HarmAt(ports ...string) (sum Harm) {
	for _, port := range ports {
		h, harmed := c.Harm[port]
		if !harmed || c.hits && slices.ContainsFunc(c.Taps, func(t *Tap) bool { return t.Name == port }) {
			continue
		}
		sum.Dropped += h.Dropped
		sum.Changed += h.Changed
		sum.Copied += h.Copied
	}
	return sum
}

// Run reads a capture and returns a result for each check, in the order of the checks. A truncated
// capture is judged up to its end, and then no check passes. Run returns an error when r could not
// be read, or does not hold a capture.
func Run(ctx context.Context, r io.Reader, o Options, checks ...Check) ([]Result, Summary, error) {
	behind, known := displaced(ctx, r)
	reader, err := pcapng.NewReader(r)
	if err != nil {
		return nil, Summary{}, fmt.Errorf("verify: %w", err)
	}
	w := &window{most: min(behind+windowLeast, windowPackets)}
	if !known {
		w.most = windowStream
	}
	return run(ctx, reader, w, o, checks)
}

func run(ctx context.Context, reader pcapng.Source, w *window, o Options, checks []Check) ([]Result, Summary,
	error) {
	c := &Capture{
		Plan:        o.Plan,
		keys:        o.Keys,
		names:       o.Taps,
		from:        o.From,
		to:          o.To,
		QueueDrops:  o.Drops,
		Lost:        o.Lost,
		Harm:        o.Harm,
		interrupted: o.Interrupted,
		Sends:       o.Sends,
		Railbed:     reader.Section().Application == "railbed", Dilation: 1,
	}
	c.dissected.Keys = o.Keys
	if _, several := reader.(*pcapng.Merger); several {
		c.times = map[int]span{}
	}
	c.clocks = newClocks(c)
	c.describe(reader.Section())
	for _, check := range checks {
		check.Begin(c)
	}
	w.exact = c.Railbed
	if err := c.read(ctx, reader, w, checks); err != nil {
		return nil, c.summary(), fmt.Errorf("verify: %w", err)
	}
	var results []Result
	for _, check := range checks {
		result := check.Result()
		if more := len(result.Details) - MaxDetails; more > 0 {
			result.Details = append(result.Details[:MaxDetails], fmt.Sprintf("and %d more", more))
		}
		results = append(results, result)
	}
	return results, c.summary(), nil
}

// describe takes the dilation and the plan from Railbed's note on the recording.
func (c *Capture) describe(s pcapng.Section) {
	note, noted := firstNote(s.Comments, pcapng.ParseSectionNote)
	if c.bare = c.Railbed && !noted; !noted {
		return
	}
	c.Dilation, c.hits = note.Dilation, note.Hits
	if note.Plan != "" && c.Plan != nil && note.Plan != c.Plan.Hash() {
		of := ""
		if note.Testbed != "" {
			of = fmt.Sprintf(" of testbed %q", note.Testbed)
		}
		c.foreignPlan = fmt.Sprintf("the capture is of another plan: it names %.12s%s, and the given plan "+
			"is %.12s of testbed %q", note.Plan, of, c.Plan.Hash(), c.Plan.Name)
	}
}

// firstNote returns the first comment that is a note by Railbed.
func firstNote[N any](comments []string, parse func([]byte) (N, bool)) (note N, noted bool) {
	for _, comment := range comments {
		if note, noted = parse([]byte(comment)); noted {
			return note, true
		}
	}
	return note, false
}

// contextEvery is the number of packets after which read looks at the context again.
const contextEvery = 4096

func (c *Capture) read(ctx context.Context, reader pcapng.Source, w *window, checks []Check) error {
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
			c.judge(d, w.take(), checks, watchers)
		}
		w.add(raw)
	}
	c.addTaps(reader.Interfaces())
	for w.len() > 0 {
		c.judge(d, w.take(), checks, watchers)
	}
	c.sorted, c.repeated = w.sorted, w.repeated
	c.Missing, c.Parts = reader.Missing(), reader.Parts()
	c.finish(reader.Statistics())
	return nil
}

// judge passes a packet to the checks.
func (c *Capture) judge(d *decoder, raw *pcapng.Packet, checks []Check, watchers []Watcher) {
	c.count(raw)
	p := d.decode(raw)
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
		c.around.pass(p)
	}
}

func (c *Capture) count(p *pcapng.Packet) {
	if c.Packets == 0 {
		c.First = p.Time
	}
	c.Packets++
	if p.Time < c.Last {
		c.Unordered++
	}
	c.First, c.Last = min(c.First, p.Time), max(c.Last, p.Time)
	c.Taps[p.Interface].Packets++
}

// finish takes the counts from the end of a capture.
func (c *Capture) finish(statistics []pcapng.Statistics) {
	c.End = c.Last
	for i := range statistics {
		tap := c.Taps[statistics[i].Interface]
		r := tap.record(&statistics[i])
		c.End = max(c.End, r.to)
		tap.Counted = r.counted && (tap.Counted || len(tap.recordings) == 1)
		if r.noted.ClockStepped != 0 {
			c.clockSteps = append(c.clockSteps,
				fmt.Sprintf("tap %s: the host's clock was set by %v", tap.Name, r.noted.ClockStepped))
		}
		if c.Railbed && !r.counted && r.name != "" && r.broken == "" {
			r.broken = r.name + " is truncated"
		}
	}
	c.timeRecordings()
	for _, tap := range c.Taps {
		if len(tap.recordings) == 0 {
			tap.record(&pcapng.Statistics{})
		}
		if !c.several() {
			r := &tap.recordings[0]
			r.lost = max(r.lost, tap.dropped) // the counts at packets are of the same losses
		}
		tap.sum(c)
	}
	if c.Railbed && !c.several() && slices.ContainsFunc(c.Taps, func(t *Tap) bool { return !t.Counted }) {
		c.Truncated = true
	}
}

func (c *Capture) summary() Summary {
	s := Summary{
		Packets: c.Packets, Start: time.Unix(0, c.First), Duration: time.Duration(c.Last - c.First),
		Truncated: c.Truncated, Missing: c.Missing, Undecoded: c.Undecoded, RDDamaged: c.RDDamaged,
		RDCut: c.RDCut,
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
	case len(c.Missing) > 0:
		s.Note = strings.Join(c.Missing, "; ")
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

// TapNamed returns the tap with a name, which is "node:port" for the tap of a port, or nil.
func (c *Capture) TapNamed(name string) *Tap {
	node, port := spec.SplitPort(name)
	for _, tap := range c.Taps {
		if tap.Node == node && tap.Port == port && (node != "" || tap.Name == name) {
			return tap
		}
	}
	return nil
}
