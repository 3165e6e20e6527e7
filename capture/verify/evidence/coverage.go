package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"railbed/capture/filter"
	"railbed/internal/plural"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
)

// Need states the evidence that a check must have before a missing packet proves anything. Conclude
// compares it with the capture. The zero Need requires nothing.
type Need struct {
	// Ports are the ports whose packets the check reads, as "node:port". A capture without one of
	// them lacks packets.
	Ports []string
	// Packets are patterns of the packets that a filter of the capture must have accepted. Nil
	// means every packet.
	Packets []filter.Pattern
	// Records are the records that the ports must have written in addition to packets.
	Records Records
	// From and To bound the time that the capture must span, in nanoseconds since 1970. Zero
	// requires no bound.
	From, To int64
	// Around is how long before and after a selection of times the check reads packets, too, in nanoseconds
	// of the capture. Earlier reports whether it reads all packets before the end of the selection.
	Around  int64
	Earlier bool
	// Clocks reports whether the check compares times of different ports.
	Clocks bool
	// Durations reports whether the check measures the time from one port to another. Its result changes if a
	// clock is ahead by less than packets may wait in queues.
	Durations bool
	// AnyOrder reports whether the check only counts, so that the order of packets does not matter.
	AnyOrder bool

	times *Times // which the check is limited to, or nil
}

// Records is a set of kinds of records that a port writes in addition to the packets that pass it.
type Records uint8

// Kinds of records. Only ports of soft switches, and the emulated NICs in front of them, write others than
// RecordsFaults.
const (
	RecordsDrops  Records = 1 << iota // packets that the port dropped
	RecordsQueues                     // verdicts and depths of packets that the port sent
	RecordsFaults                     // packets that faults hit
)

// Finding holds the results of a check, from which its verdict follows.
type Finding struct {
	// Wrong are violations that the packets show, whatever packets the capture lacks.
	Wrong []string
	// Absent are violations only if no packet is missing from the capture.
	Absent []string
	// Unclear are reasons why the check cannot judge.
	Unclear []string
	// Unseen are reasons why packets may differ from their records in ways that the check judges: encrypted,
	// cut off, in a protocol that is not decoded. They take the proof away as missing packets do.
	Unseen []string
	// Rests reports whether a claim holds only if no packet is missing.
	Rests bool

	near   []string // claims that hold, with numbers near their bounds
	proved bool     // another claim holds by the packets seen, whatever packets are missing
}

// Hold adds a claim about a count, which missing packets could only raise.
func (f *Finding) Hold(what string, b *spec.Bound, value float64, shown string) {
	if b == nil {
		return
	}
	line := f.claim(what, b, value, shown)
	switch {
	case b.Holds(value):
		f.proved, f.Rests = f.proved || !b.Upper(), f.Rests || b.Upper()
	case b.Upper() && value > b.Limit:
		f.Wrong = append(f.Wrong, line)
	default:
		f.Absent = append(f.Absent, line)
	}
}

// HoldEither adds a claim about a value, which missing packets could raise or lower.
func (f *Finding) HoldEither(what string, b *spec.Bound, value float64, shown string) {
	if b == nil {
		return
	}
	f.Rests = true
	if line := f.claim(what, b, value, shown); !b.Holds(value) {
		f.Absent = append(f.Absent, line)
	}
}

// claim returns a claim in words, and keeps those whose numbers are near their bounds.
func (f *Finding) claim(what string, b *spec.Bound, value float64, shown string) string {
	line := fmt.Sprintf("%s: %s, want %s", what, shown, b)
	if b.Near(value) {
		f.near = append(f.near, line)
	}
	return line
}

// findingsMost is the number of violations of a kind that Shorten keeps.
const findingsMost = 6

// Shorten keeps the first violations and counts the others, so that a result has room for the packets that
// break the check.
func (f *Finding) Shorten() {
	for _, lines := range []*[]string{&f.Wrong, &f.Absent} {
		if more := len(*lines) - findingsMost; more > 1 {
			*lines = append((*lines)[:findingsMost], fmt.Sprintf("and %d more", more))
		}
	}
}

// Bound parses a comparison whose syntax was checked before. It returns nil for an empty one.
func Bound(text string, kind spec.BoundKind) *spec.Bound {
	b, err := spec.ParseBound(text, kind)
	if err != nil {
		return nil
	}
	return &b
}

// gaps lists the evidence that a capture lacks.
type gaps struct {
	// useless are reasons why the capture proves nothing at all.
	useless []string
	// damaged are losses of packets that the capture should hold.
	damaged []string
	// beyond are packets that the capture was not configured to hold.
	beyond []string
}

// grounds holds the need and the finding of a check, and its own details. The verdict follows from them and
// from the capture.
type grounds struct {
	need    Need
	finding Finding
	details []string
}

// Conclude sets the verdict of a check.
func (c *Capture) Conclude(r *Result, need Need, f Finding) {
	r.grounds = &grounds{need, f, r.Details}
	c.conclude(r)
}

// conclude sets the verdict by its grounds. It is the only place that derives the verdict from the finding,
// the need and the capture.
func (c *Capture) conclude(r *Result) {
	need, f := r.grounds.need, r.grounds.finding
	g := c.gaps(need)
	lacking := slices.Concat(g.useless, g.damaged)
	if enough := f.proved && !f.Rests && len(f.Absent) == 0; !enough {
		lacking = slices.Concat(lacking, f.Unseen, g.beyond)
	}
	r.Near = nil
	switch {
	case len(g.useless) > 0:
		r.Verdict = verdict.Inconclusive
	case len(f.Wrong) > 0, len(f.Absent) > 0 && len(lacking) == 0:
		r.Verdict = verdict.Fail
	case len(f.Absent)+len(f.Unclear)+len(lacking) > 0:
		r.Verdict = verdict.Inconclusive
	default:
		r.Verdict, r.Near = verdict.Pass, f.near
	}
	r.Lacking = lacking
	r.Details = slices.Concat(f.Wrong, f.Absent, f.Unclear, lacking, c.remarks(), r.grounds.details)
}

// gaps compares a need with the capture.
func (c *Capture) gaps(need Need) (g gaps) {
	taps, absent := c.rests(need)
	if c.foreignPlan != "" {
		g.useless = append(g.useless, c.foreignPlan)
	}
	g.useless = append(g.useless, c.misordered(taps)...)
	g.damaged = c.damage(taps, need)
	if c.Unordered > 0 && !need.AnyOrder {
		g.damaged = append(g.damaged, plural.Text("%d packets were too far behind later ones to be sorted",
			c.Unordered))
	}
	if len(absent) > 0 {
		g.beyond = append(g.beyond, fmt.Sprintf("not recorded: %s", enumerate(absent)))
	}
	g.beyond = append(g.beyond, filtered(taps, need.Packets)...)
	g.beyond = append(g.beyond, c.unrecorded(taps, need)...)
	if need.Records != 0 {
		g.beyond = append(g.beyond, c.silent(taps, need)...)
	}
	if need.Clocks {
		g.damaged = append(g.damaged, c.clocks.disagreements()...)
	}
	if need.Durations {
		g.useless = append(g.useless, c.clocks.unshown(taps)...)
	}
	return g
}

// rests returns the taps that a need names, and the names of taps that the capture lacks.
func (c *Capture) rests(need Need) (taps []*Tap, absent []string) {
	for _, name := range need.Ports {
		if tap := c.TapNamed(name); tap != nil {
			taps = append(taps, tap)
		} else {
			absent = append(absent, name)
		}
	}
	return taps, absent
}

// damage lists the losses of packets that the capture should hold. Comments hold records of drops, the
// testbed's plan and its dilation.
func (c *Capture) damage(taps []*Tap, need Need) (lines []string) {
	if !c.several() {
		if c.Truncated {
			lines = append(lines, "the capture is truncated")
		}
		lines = append(lines, c.Missing...)
	}
	if c.bare {
		lines = append(lines, "the comments of the capture were removed, with its records of drops, "+
			"marks and queues")
	}
	var times []span
	if need.times != nil && c.several() {
		times = need.times.needed(c.busy(taps, need), need)
	}
	for _, tap := range taps {
		for _, line := range tap.damage(c, need.Packets, times) {
			if !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	if c.Cut > 0 {
		lines = append(lines, plural.Text("%d packets were cut off within their headers", c.Cut))
	}
	if c.FlowsFull {
		lines = append(lines, plural.Text("more than %d flows", maxFlows))
	}
	return append(lines, c.clockSteps...)
}

// filtered names taps whose filter may leave needed packets out.
func filtered(taps []*Tap, needed []filter.Pattern) (lines []string) {
	by := map[string][]string{}
	for _, tap := range taps {
		taken := slices.ContainsFunc(tap.recordings, func(r recorded) bool { return r.takes(needed) })
		if !taken && tap.filter != "" {
			text := tap.filter
			by[text] = append(by[text], tap.Name)
		}
	}
	for text, names := range by {
		lines = append(lines, fmt.Sprintf("the filter %q leaves packets out at %s", text, enumerate(names)))
	}
	slices.Sort(lines)
	return lines
}

// unrecorded returns reasons why the capture lacks a part of the needed time.
func (c *Capture) unrecorded(taps []*Tap, need Need) []string {
	if c.several() {
		return c.apart(taps, need)
	}
	return c.span(taps, need)
}

// span reports by how much a single recording began too late or ended too early.
func (c *Capture) span(taps []*Tap, need Need) (lines []string) {
	late, early := int64(0), int64(0)
	from, to := cmp.Or(need.From, c.from), cmp.Or(need.To, c.to)
	begin, end := "the traffic", "the traffic"
	if need.times != nil {
		times := need.times.needed([]span{{cmp.Or(from, c.First), cmp.Or(to, c.Last)}}, need)
		if len(times) == 0 {
			return nil
		}
		from, to = times[0].from, times[len(times)-1].to
		begin, end = "the begin of "+need.times.words(need), "the end of "+need.times.words(need)
	}
	for _, tap := range taps {
		for _, r := range tap.recordings {
			if r.from != 0 && from != 0 {
				late = max(late, r.from-from)
			}
			if r.to != 0 && to != 0 {
				early = max(early, to-r.to)
			}
		}
	}
	if late > 0 {
		lines = append(lines, fmt.Sprintf("the capture began %v after %s",
			time.Duration(late).Round(10*time.Microsecond), begin))
	}
	if early > 0 {
		lines = append(lines, fmt.Sprintf("the capture ended %v before %s",
			time.Duration(early).Round(10*time.Microsecond), end))
	}
	return lines
}

// silent names ports that do not write the needed records.
func (c *Capture) silent(taps []*Tap, need Need) []string {
	var unknown, mute, down []string
	for _, tap := range taps {
		switch {
		case need.Records == RecordsFaults && c.Railbed && c.hits:
		case c.QueueDrops != nil && need.Records == RecordsDrops && c.wasDown(tap):
			down = append(down, tap.Name)
		case c.QueueDrops != nil && need.Records == RecordsDrops && c.Plan != nil && c.softAt(tap) == nil:
			// the counter of its queue replaces the records
		case c.Plan == nil && !tap.annotates:
			unknown = append(unknown, tap.Name)
		case !c.records(tap):
			mute = append(mute, tap.Name)
		}
	}
	var lines []string
	if len(mute) > 0 {
		lines = append(lines, fmt.Sprintf("no soft switch is at %s: other ports record no drops, marks, "+
			"trims, pauses or depths", enumerate(mute)))
	}
	if len(unknown) > 0 {
		lines = append(lines, fmt.Sprintf("without a plan it is not known whether %s record drops, marks, "+
			"trims, pauses or depths", enumerate(unknown)))
	}
	if len(down) > 0 {
		lines = append(lines, fmt.Sprintf("the link was down for a time at %s, and kernel switches do not "+
			"count what they drop then", enumerate(down)))
	}
	return lines
}

// wasDown reports whether a tap is at a port of a kernel switch whose link was down for a time.
func (c *Capture) wasDown(tap *Tap) bool {
	if c.interrupted == nil || c.Plan == nil || c.softAt(tap) != nil {
		return false
	}
	port, nic := c.Interface(tap.Node, tap.Port)
	return port != nil && !nic && c.interrupted(port.Link)
}

// records reports whether a tap's port records its verdicts on packets. Ports of soft switches, and
// the NICs attached to them, do so in captures that Railbed wrote.
func (c *Capture) records(tap *Tap) bool {
	if !c.Railbed {
		return false
	}
	if tap.annotates {
		return true
	}
	if sw := c.softAt(tap); sw != nil {
		return true
	}
	return false
}

// softAt returns the soft switch to which a port belongs or a NIC is attached, or nil.
func (c *Capture) softAt(tap *Tap) *plan.Switch {
	if c.Plan == nil {
		return nil
	}
	node := tap.Node
	if port, nic := c.Interface(tap.Node, tap.Port); nic {
		node, _ = spec.SplitPort(port.Peer)
	}
	if sw := c.Plan.Switch(node); sw != nil && sw.Soft != nil {
		return sw
	}
	return nil
}

// Numbered reports whether soft switches gave every packet its id. For kernel switches the id
// counts equal packets, and does not skip a lost packet.
func (c *Capture) Numbered() bool { return c.Railbed && c.Plan != nil && c.Plan.Soft() }

// remarks are facts for the reader that do not weaken the proof.
func (c *Capture) remarks() (lines []string) {
	if c.sorted > 0 {
		lines = append(lines, plural.Text("%d packets stood behind later ones and were sorted", c.sorted))
	}
	if c.repeated > 0 {
		lines = append(lines, plural.Text("%d packets stood in the file twice and were read once",
			c.repeated))
	}
	return lines
}

// Ports returns the ports that match selects: ports of the plan or, without a plan, of the
// capture.
func (c *Capture) Ports(match func(*Tap) bool) (names []string) {
	if c.Plan == nil {
		for _, tap := range c.Taps {
			if tap.Node != "" && match(tap) {
				names = append(names, tap.Name)
			}
		}
		return names
	}
	add := func(node string, ports []plan.Interface, nic bool) {
		for i := range ports {
			tap := &Tap{Name: node + ":" + ports[i].Name, Node: node, Port: ports[i].Name, NIC: nic}
			if match(tap) {
				names = append(names, tap.Name)
			}
		}
	}
	for i := range c.Plan.Nodes {
		add(c.Plan.Nodes[i].Name, c.Plan.Nodes[i].NICs, true)
	}
	for i := range c.Plan.Switches {
		add(c.Plan.Switches[i].Name, c.Plan.Switches[i].Ports, false)
	}
	return names
}

// NICs returns the NICs of the plan or, without a plan, of the capture.
func (c *Capture) NICs() []string { return c.Ports(func(t *Tap) bool { return t.NIC }) }

// Recorded returns the names of all taps, for checks of the packets in the file.
func (c *Capture) Recorded() (names []string) {
	for _, tap := range c.Taps {
		names = append(names, tap.Name)
	}
	return names
}
