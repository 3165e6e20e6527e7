package fabricchecks

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// pauses judges priority flow control (IEEE 802.1Q clause 36) from its frames. A port that sends a
// frame asks the port at the far end to stop. The pause lasts for the quanta in the frame, or until
// a frame with zero quanta. A quantum is 512 bit times of the far end's line. A pause that is
// renewed in time counts as one pause.
//
// Besides its bounds, the check requires that a paused port of a switch sends no packet of that
// priority. It uses the times of the model where the capture has them.
//
// The paused time is in the testbed's own time.
type pauses struct {
	selector
	priority      int // -1 is any
	count, paused *spec.Bound
	order         []string

	taps   evidence.Slots[pausing]
	passed uint64
}

// pausing is the state of a port: the pauses that it asked for, and those that the far end asked for.
type pausing struct {
	frames, renewals, resumes uint64
	begun                     uint64
	first                     int64 // time of the first pause
	until                     [8]int64
	held                      [8]int64 // ns of pauses
	obeyed                    [8]int64 // the ends of the pauses that the far end asked for
	// disobeyed counts packets that were sent while their priority was paused.
	disobeyed uint64
}

// clockSlack is the possible difference in nanoseconds between the times of two records and the
// times of the model. The host's clock is adjusted slightly now and then.
const clockSlack = 20_000

var _ = evidence.Register(evidence.Kind{Key: "pauses", Example: `{at: leaf1, paused: ">= 10ms"}`,
	Conditions: conditions.Conditions{Soft: true, Packets: conditions.PFC, Examine: pausesConditions},
	Make:       evidence.Of(NewPauses)})

// asks reports whether a port can send PFC frames.
func asks(l *conditions.Prover, p *conditions.Port) bool {
	if !p.NIC {
		return p.Interface.PFC != nil
	}
	return slices.ContainsFunc(l.File.Steps, func(s spec.Step) bool {
		return s.Traffic != nil && s.Traffic.Pause != nil &&
			slices.ContainsFunc(s.Traffic.From, func(from string) bool { return spec.Match(from, p.Node) })
	})
}

const wantPFC = "want fabric: {switch: {pfc: true}} of soft switches, or a step of traffic with pause"

func pausesConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	k := p.Pauses
	at := l.Which(func(p *conditions.Port) bool { return p.Matches(k.At) })
	can := func(p *conditions.Port) bool { return asks(l, p) }
	askers := l.Which(func(p *conditions.Port) bool { return p.Matches(k.At) && can(p) })
	l.Seen(path, at, true) // to see that ports react to pauses
	l.Seen(path, askers, false)
	demands := conditions.Demands(k.Count, spec.CountBound) ||
		conditions.Demands(k.Paused, spec.DurationBound)
	if demands && len(askers) == 0 {
		l.NeverUnlessPrograms(path, wantPFC, "no selected port can request a pause")
	}
	for i, name := range k.Order {
		path := fmt.Sprintf("%s.order[%d]", path, i)
		ports := l.Which(func(p *conditions.Port) bool { return p.Matches(name) })
		if l.Seen(path, ports, false); !slices.ContainsFunc(ports, can) {
			l.NeverUnlessPrograms(path, wantPFC, "%s cannot request a pause", name)
		}
	}
}

// NewPauses makes the check.
func NewPauses(k *spec.PausesCheck) evidence.Check {
	return &pauses{
		selector: selector{selection: selection{At: k.At}},
		priority: priority(k.Priority),
		count:    evidence.Bound(k.Count, spec.CountBound),
		paused:   evidence.Bound(k.Paused, spec.DurationBound),
		order:    k.Order,
	}
}

// Packet implements Check.
func (k *pauses) Packet(p *evidence.Packet) {
	switch at := k.taps.At(p.Tap.Index); {
	case p.Drop != "":
	case p.PFC == nil:
		k.passed++
		if p.Direction == evidence.Out && !p.Tap.NIC && !p.Control() && p.Queue >= 0 && p.Queue < 8 &&
			p.Due < at.obeyed[p.Queue]-clockSlack {
			at.disobeyed++
		}
	case p.Direction == evidence.Out && (k.at(p.Tap) || k.inOrder(p.Tap)):
		k.ask(at, p)
	case p.Direction == evidence.In:
		for q := range 8 {
			if p.PFC.Enable>>q&1 != 0 {
				// The frame that is just beginning is sent, and so is a frame that begins at the end of the
				// pause.
				at.obeyed[q] = p.Due + k.capture.PauseLength(p.Tap, false, p.PFC.Quanta[q])
			}
		}
	}
}

// ask adds a pause frame where it leaves the asking port.
func (k *pauses) ask(a *pausing, p *evidence.Packet) {
	for q := range 8 {
		if p.PFC.Enable>>q&1 == 0 || k.priority >= 0 && q != k.priority {
			continue
		}
		length := k.capture.PauseLength(p.Tap, true, p.PFC.Quanta[q])
		holds := p.Time < a.until[q]
		switch {
		case length == 0:
			a.resumes++
		case holds:
			a.renewals++
		default:
			a.begun++
		}
		if a.begun == 1 && a.first == 0 {
			a.first = p.Time
		}
		// The new pause replaces the rest of the previous one.
		if holds {
			a.held[q] -= a.until[q] - p.Time
		}
		a.held[q] += length
		a.until[q] = p.Time + length
	}
	a.frames++
}

// total returns how long a port asked for pauses until the capture's end, for the priority that it
// paused longest.
func (a *pausing) total(end int64) (longest int64) {
	for q, held := range a.held {
		longest = max(longest, held-max(0, a.until[q]-end))
	}
	return longest
}

// Result implements Check.
func (k *pauses) Result() evidence.Result {
	r := evidence.Result{Name: k.titled("pauses"), Measured: map[string]float64{}}
	var begun, frames uint64
	var longest int64
	for _, tap := range k.asked() {
		if !k.at(tap) {
			continue
		}
		a := &k.taps[tap.Index]
		held := a.total(k.capture.End) / int64(k.capture.Dilation)
		begun, frames, longest = begun+a.begun, frames+a.frames, max(longest, held)
		r.Details = append(r.Details, plural.Text(
			"%s asked, first at %s, for %d pauses, %v in all: %d frames, %d to renew, %d to resume",
			tap.Name, evidence.ClockTime(a.first), a.begun, time.Duration(held), a.frames, a.renewals,
			a.resumes))
	}
	f := evidence.Finding{Rests: true} // requires that no port sends a paused priority
	f.Hold("pauses", k.count, float64(begun), fmt.Sprint(begun))
	f.HoldEither("time paused", k.paused, float64(longest), time.Duration(longest).String())
	f.Absent = append(f.Absent, k.judgeOrder()...)
	need := evidence.Need{Ports: evidence.Union(k.ports(), k.capture.Ports(k.inOrder)),
		Records: evidence.RecordsQueues, Clocks: true}
	for i := range k.taps {
		if n := k.taps[i].disobeyed; n > 0 { // the frame that ended the pause may be missing
			need.Ports = evidence.Union(need.Ports, []string{k.capture.Taps[i].Name})
			f.Absent = append(f.Absent, plural.Text("%s sent %d packets of a priority that was paused",
				k.capture.Taps[i].Name, n))
		}
	}
	if k.passed+frames == 0 {
		f = evidence.Finding{Unclear: []string{"no packet at the chosen ports"}}
	}
	r.Measured["pauses"], r.Measured["frames"], r.Measured["longest-ms"] = float64(begun), float64(frames),
		float64(longest)/1e6
	r.Summary = plural.Text("%d pauses by %d PFC frames; one port asked for at most %v in all", begun,
		frames, time.Duration(longest))
	k.capture.Conclude(&r, need, f)
	return r
}

// inOrder reports whether a tap matches the list of ports that must ask in order.
func (k *pauses) inOrder(tap *evidence.Tap) bool {
	return slices.ContainsFunc(k.order, func(pattern string) bool {
		return (selection{At: pattern}).tap(tap)
	})
}

// asked returns the taps that asked for a pause, ordered by their first pause.
func (k *pauses) asked() (taps []*evidence.Tap) {
	for i := range k.taps {
		if k.taps[i].begun > 0 {
			taps = append(taps, k.capture.Taps[i])
		}
	}
	slices.SortStableFunc(taps, func(a, b *evidence.Tap) int {
		return cmp.Compare(k.taps[a.Index].first, k.taps[b.Index].first)
	})
	return taps
}

// judgeOrder compares the times of the first pauses with the required order.
func (k *pauses) judgeOrder() (wrong []string) {
	last := int64(0)
	for i, pattern := range k.order {
		first := int64(0)
		for _, tap := range k.asked() {
			if (selection{At: pattern}).tap(tap) {
				first = k.taps[tap.Index].first
				break
			}
		}
		switch {
		case first == 0:
			wrong = append(wrong, fmt.Sprintf("%s asked for no pause", pattern))
		case first < last:
			wrong = append(wrong, fmt.Sprintf("%s asked for its first pause %v before %s did", pattern,
				time.Duration(last-first), k.order[i-1]))
		}
		last = max(last, first)
	}
	return wrong
}

// deadlock looks for a cycle of switches that pause each other. The cycle consists of ports whose
// pause was renewed at least twice since they last sent a packet of the priority. Each port waits
// for a switch to which the next port belongs. Only PFC causes such a cycle. The pause frames prove
// it, together with the absence of packets from the ports.
type deadlock struct {
	want    bool
	capture *evidence.Capture
	ports   map[int]*stalled // by tap index

	found  []string
	seen   map[string]bool
	frames uint64
	passed uint64
}

// stalled is the state of a paused port, by priority.
type stalled struct {
	tap      *evidence.Tap
	far      string // the node at the far end
	until    [8]int64
	renewals [8]int // since it last sent
}

// renewedOften is the number of renewals without a packet from which on a port counts as stalled.
const renewedOften = 2

var _ = evidence.Register(evidence.Kind{Key: "deadlock", Example: "none",
	Conditions: conditions.Conditions{Soft: true, Packets: conditions.PFC, Examine: deadlockConditions},
	Make:       evidence.Of(NewDeadlock)})

func deadlockConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	l.Seen(path, l.Which(conditions.IsSwitch), p.Deadlock == "none")
	if p.Deadlock == "some" &&
		!slices.ContainsFunc(l.Ports, func(p *conditions.Port) bool { return p.Interface.PFC != nil }) {
		l.Never(path, "want fabric: {switch: {pfc: true}} of soft switches", "no switch pauses another")
	}
}

// NewDeadlock makes the check. want is "none" or "some".
func NewDeadlock(want string) evidence.Check {
	return &deadlock{want: want == "some", ports: map[int]*stalled{}, seen: map[string]bool{}}
}

// Begin implements Check.
func (k *deadlock) Begin(c *evidence.Capture) { k.capture = c }

// Packet implements Check.
func (k *deadlock) Packet(p *evidence.Packet) {
	if p.Tap.NIC || p.Drop != "" {
		return
	}
	switch {
	case p.PFC != nil && p.Direction == evidence.In:
		k.frames++
		k.pause(p)
	case !p.Control() && p.Direction == evidence.Out:
		k.passed++
		if s := k.ports[p.Tap.Index]; s != nil && p.Queue >= 0 && p.Queue < 8 {
			s.renewals[p.Queue] = 0
		}
	}
}

// pause adds a pause frame where it arrives.
func (k *deadlock) pause(p *evidence.Packet) {
	s := k.ports[p.Tap.Index]
	if s == nil {
		s = &stalled{tap: p.Tap}
		if port, _ := k.capture.Interface(p.Tap.Node, p.Tap.Port); port != nil {
			s.far, _ = spec.SplitPort(port.Peer)
		}
		k.ports[p.Tap.Index] = s
	}
	for q := range 8 {
		if p.PFC.Enable>>q&1 == 0 {
			continue
		}
		if holds := p.Time <= s.until[q]; holds && p.PFC.Quanta[q] > 0 {
			s.renewals[q]++
		} else {
			s.renewals[q] = 0
		}
		s.until[q] = p.Time + k.capture.PauseLength(p.Tap, false, p.PFC.Quanta[q])
		if s.renewals[q] >= renewedOften {
			k.search(q, p.Time)
		}
	}
}

// search follows stalled ports from switch to switch until a switch repeats.
func (k *deadlock) search(q int, now int64) {
	next := map[string][]*stalled{}
	for _, s := range k.ports {
		if s.renewals[q] >= renewedOften && s.until[q] >= now && s.far != "" {
			next[s.tap.Node] = append(next[s.tap.Node], s)
		}
	}
	var path []*stalled
	onPath, done := map[string]int{}, map[string]bool{}
	var visit func(node string) []*stalled
	visit = func(node string) []*stalled {
		onPath[node] = len(path)
		for _, s := range next[node] {
			path = append(path, s)
			if at, cycle := onPath[s.far]; cycle {
				return slices.Clone(path[at:])
			}
			if !done[s.far] {
				if found := visit(s.far); found != nil {
					return found
				}
			}
			path = path[:len(path)-1]
		}
		delete(onPath, node)
		done[node] = true
		return nil
	}
	for node := range next {
		if cycle := visit(node); cycle != nil {
			k.note(cycle, q, now)
			return
		}
		path = path[:0]
		clear(onPath)
	}
}

// note records each cycle once.
func (k *deadlock) note(cycle []*stalled, q int, now int64) {
	var names []string
	for _, s := range cycle {
		names = append(names, s.tap.Name)
	}
	least := slices.Index(names, slices.Min(names))
	names = slices.Concat(names[least:], names[:least])
	key := fmt.Sprint(q, names)
	if k.seen[key] || len(k.found) >= evidence.MaxDetails {
		return
	}
	k.seen[key] = true
	k.found = append(k.found, fmt.Sprintf("priority %d at %s: %v wait for each other in a circle", q,
		evidence.ClockTime(now), names))
}

// Result implements Check.
func (k *deadlock) Result() evidence.Result {
	r := evidence.Result{Name: "deadlock", Measured: map[string]float64{"deadlocks": float64(len(k.found)),
		"pfc-frames": float64(k.frames)}}
	need := evidence.Need{Ports: k.capture.Ports(func(t *evidence.Tap) bool { return !t.NIC }),
		Records: evidence.RecordsQueues, Clocks: true}
	f := evidence.Finding{Rests: true} // a port may have sent packets that the capture lacks
	switch {
	case k.capture.Plan == nil:
		f.Unclear = append(f.Unclear, "without a plan the ends of links are not known")
	case k.passed+k.frames == 0:
		f.Unclear = append(f.Unclear, "no packet passed a switch")
	case k.want && len(k.found) == 0:
		f.Absent = append(f.Absent, "no cycle of ports that are paused and send nothing")
	case len(k.found) > 0 && !k.want:
		f.Absent = append(f.Absent, k.found...)
	default:
		r.Details = k.found
	}
	r.Summary = plural.Text("%d cycles of ports that pause each other, among %d PFC frames", len(k.found),
		k.frames)
	if len(k.found) > 0 {
		r.Summary += "; " + k.found[0]
	}
	k.capture.Conclude(&r, need, f)
	return r
}
