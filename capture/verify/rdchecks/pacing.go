package rdchecks

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

const (
	// makeUp is the longest part of its schedule for which a limiter catches up after it was late
	// (transports/rd/PROTOCOL.md, 7).
	makeUp = 5 * time.Millisecond
	// rounding is the error of a schedule in whole nanoseconds and packets.
	rounding = time.Microsecond
	// defaultTolerance is the default tolerance of a check. A packet may pass a tap this much before
	// its scheduled time, because packets before it took longer to the tap.
	defaultTolerance = time.Millisecond
	// maxPaced bounds the number of schedules.
	maxPaced = 1 << 14
	// maxEarly bounds the number of packets that are judged at the end.
	maxEarly = 1 << 12
)

// pacing checks that no packet of a workload over reliable datagrams leaves more than one
// packet ahead of the schedule of its rate.
//
// A schedule begins with a packet that leaves. Each packet moves the schedule on by the time that
// its bytes take at the rate. A late sender may catch up, by 5 ms at most. The check judges each
// schedule twice, by timestamps and by times at the tap.
//
// Data packets carry timestamps, which the sender took when it released them. By these timestamps
// no packet may be ahead. If several engines send, their packets may overtake each other on the way
// to the NIC. For several engines the check uses an envelope. In any time from s to t they release
// at most the rate times t - s, one packet, and the traffic that makes up for a delay.
//
// By the times at the NIC's tap no packet may be ahead by more than a tolerance and an allowance.
// The allowance covers the first packet of the schedule. It is the time which that packet took from
// its timestamp to the tap, beyond the time of the fastest packet of that NIC. The schedule begins
// too late by this much. The allowance is 5 ms at most. The check thus finds a sender with false
// timestamps by its packets, and does not blame the limiter for a host that delays packets.
//
// A burst of up to 5 ms after a pause cannot be distinguished from catching up.
//
// Packets whose headers are encrypted show no timestamp. They are judged at the tap alone, by such
// an envelope with the tolerance. A batch that the kernel segments adds nothing: it contains only
// packets that are due. Up to 5 ms more prove nothing, since a host may have delayed the packets
// before the tap. For a limiter at the link's own rate a tap shows little, because the tap is
// behind the queue that the link drains. A lower rate, or timestamps, show more.
type pacing struct {
	roles     *evidence.Roles
	rate      units.Rate    // from each rank to each other rank; 0 is the rate of each NIC's link
	tolerance time.Duration // at the tap
	capture   *evidence.Capture
	overhead  map[netip.Addr]int
	rates     map[netip.Addr]units.Rate
	offsets   map[uint64]*stampOffset // by life
	schedules map[paceKey]*schedule
	tooEarly  []earlyPacket
	full      bool

	packets, unread uint64
	untimed         uint64        // of packets, those without a readable timestamp
	ahead           time.Duration // the most, by timestamps
	examples        []string
	behind          time.Duration // at taps, the longest lateness that was made up for
}

// paceKey identifies a schedule: of an endpoint, or of its packets to another endpoint. The engines
// of an endpoint share the NIC's rate, and have parts of the rate to a peer.
type paceKey struct {
	life uint64
	dst  netip.Addr
}

// schedule is a schedule by timestamps and by the times at the tap, in virtual time.
type schedule struct {
	said, seen float64 // when the next packet is due, in ns
	began      float64 // time to the tap of the packet that seen counts from, by stampOffset
	engines    [wire.RDEngines]bool
	count      int // number of engines

	letGo   clock.Queue[letGo] // by timestamp, the latest few
	spoken  envelope           // of timestamps
	passed  envelope
	largest float64 // time that the longest packet takes at the rate
	untimed bool    // some packet shows no timestamp
	name    string  // sender and receiver
}

// envelope measures the traffic in excess of the rate, in the time with the largest excess. Times
// are in ns. Traffic is counted as the ns that it takes at the rate.
type envelope struct {
	last  float64
	depth float64 // excess in the time that ends with the last packet
	most  float64
}

func (e *envelope) add(at, cost float64) {
	e.depth = max(e.depth-(at-e.last), 0) + cost
	e.last, e.most = at, max(e.most, e.depth)
}

// beyond returns the excess of an envelope over the rate, less one packet for each schedule that
// may be one packet ahead.
func (s *schedule) beyond(e *envelope, schedules int) time.Duration {
	return time.Duration(max(e.most-s.largest*float64(schedules), 0))
}

// maxPassing is how many packets of an endpoint may overtake a packet on their way to the NIC: the
// batches of all engines.
const maxPassing = 64 * wire.RDEngines

// letGo is a released packet, ordered by its timestamp.
type letGo struct {
	cost float64
	psn  uint32
}

// speak adds the timestamp of a packet. Timestamps that arrive later may be older by up to
// maxPassing packets.
func (k *pacing) speak(s *schedule, said, cost float64, psn uint32) {
	s.letGo.Push(clock.Time(said), letGo{cost, psn})
	if s.letGo.Len() > maxPassing {
		k.hold(s)
	}
}

// hold compares the earliest waiting packet with its schedule. A packet that is overtaken by more
// packets than maxPassing is left out.
func (k *pacing) hold(s *schedule) {
	at, p := s.letGo.Pop()
	said := float64(at)
	switch {
	case s.spoken.most == 0:
		s.said = said
	case said < s.spoken.last:
		return
	}
	if early := time.Duration(s.said - said); early > rounding && s.count == 1 {
		k.ahead = max(k.ahead, early)
		k.example("%s: packet %d was released %v too early for %s",
			s.name, p.psn, early.Round(time.Microsecond),
			k.at())
	}
	s.said = max(s.said, said-float64(makeUp)) + p.cost
	s.spoken.add(said, p.cost)
}

// stampOffset converts the timestamps of an engine's clock to times of the capture.
type stampOffset struct {
	known   bool
	first   uint32  // timestamp
	at      float64 // time of the capture at that timestamp
	fastest float64 // least difference of a packet's time at the tap and its timestamp
}

// earlyPacket is a packet that was too early at the tap.
type earlyPacket struct {
	ahead, began float64
	life         uint64
	text         string
}

var _ = evidence.Register(evidence.Kind{Key: "pacing",
	Example:    "{workload: ar, rate: 100mbit, tolerance: 1ms}",
	Conditions: conditions.Conditions{Packets: conditions.RD},
	Make: func(p *spec.PacketsCheck, s evidence.Sources) (evidence.Check, error) {
		w, err := s.Traffic(p.Work())
		return NewPacing(w, p.Pacing), err
	}})

// NewPacing makes the check for a workload. Without a rate, all packets that a NIC sends are limited by
// the rate of the NIC's link.
func NewPacing(w evidence.Workload, k *spec.PacingCheck) evidence.Check {
	return &pacing{
		roles: evidence.NewRoles(w), rate: k.Rate,
		tolerance: time.Duration(cmp.Or(k.Tolerance, units.Duration(defaultTolerance))),
		overhead:  map[netip.Addr]int{}, rates: map[netip.Addr]units.Rate{},
		offsets: map[uint64]*stampOffset{}, schedules: map[paceKey]*schedule{},
	}
}

// Begin implements Check.
func (k *pacing) Begin(c *evidence.Capture) {
	k.capture = c
	for _, r := range k.roles.Workload.Ranks {
		if c.Plan == nil {
			continue
		}
		if d := c.Plan.Sends(r.Node, r.NIC); d != nil {
			k.overhead[r.Addr], k.rates[r.Addr] = int(d.Overhead), d.Rate
		}
	}
}

// Packet implements Check.
func (k *pacing) Packet(p *evidence.Packet) {
	if !p.Tap.NIC || p.Direction != evidence.Out || p.Flow == nil || p.Drop != "" {
		return
	}
	src := p.Flow.Src.Addr()
	if p.RD == nil {
		if k.ranksAt(src) > 0 && p.RDFault != evidence.RDSound {
			k.unread++
		}
		return
	}
	rank, found := k.roles.Engine(src, p.RD.Source)
	if !found || p.RD.Type != wire.RDData {
		return
	}
	key, rate := paceKey{life: p.RD.Life}, k.rates[src]
	if k.rate > 0 {
		key.dst, rate = p.Flow.Dst.Addr(), k.rate
	}
	if rate == 0 {
		k.unread++
		return
	}
	s := k.schedules[key]
	if s == nil {
		if k.full = len(k.schedules) == maxPaced; k.full {
			return
		}
		s = &schedule{name: fmt.Sprintf("rank %d to %v", rank, p.Flow.Dst.Addr())}
		k.schedules[key] = s
	}
	k.packets++
	k.judge(s, p, float64(p.Length+k.overhead[src])*8e9/float64(rate))
}

// ranksAt returns how many ranks of rd use an address.
func (k *pacing) ranksAt(addr netip.Addr) (n int) {
	for _, r := range k.roles.Workload.Ranks {
		if r.Transport == evidence.TransportRD && r.Addr == addr {
			n++
		}
	}
	return n
}

// judge compares a packet with its schedule.
func (k *pacing) judge(s *schedule, p *evidence.Packet, cost float64) {
	seen := float64(p.Time-k.capture.First) / float64(max(k.capture.Dilation, 1))
	s.passed.add(seen, cost)
	s.largest = max(s.largest, cost)
	engine := int(p.RD.Source) % wire.RDEngines
	fresh := !s.engines[engine]
	if fresh {
		s.engines[engine] = true
		s.count++
	}
	if !p.RD.Clear() {
		k.untimed++
		s.untimed = true
		return
	}
	offset := k.offsets[p.RD.Life]
	if offset == nil {
		offset = &stampOffset{}
		k.offsets[p.RD.Life] = offset
	}
	said := offset.time(p.RD.Data.Timestamp, seen)
	took := seen - said
	offset.fastest = min(offset.fastest, took)
	switch {
	case !fresh:
	case s.count == 1:
		s.seen, s.began = seen, took
	case k.rate > 0:
		s.seen -= cost // each engine may have its one packet to a peer ahead
	}
	k.speak(s, said, cost, p.RD.PSN)
	if early := s.seen - seen; early > float64(k.tolerance) && len(k.tooEarly) < maxEarly {
		k.tooEarly = append(k.tooEarly, earlyPacket{ahead: early, began: s.began, life: p.RD.Life,
			text: fmt.Sprintf("%s: packet %d was at the NIC %%v too early for %s", s.name, p.RD.PSN, k.at())})
	} else if early < 0 && early > -float64(makeUp) {
		k.behind = max(k.behind, time.Duration(-early))
	}
	if from := seen - float64(makeUp); from > s.seen {
		s.seen, s.began = from, took
	}
	s.seen += cost
}

// at returns the rate in words.
func (k *pacing) at() string {
	if k.rate > 0 {
		return k.rate.String()
	}
	return "its link's rate"
}

func (k *pacing) example(format string, args ...any) {
	if len(k.examples) <= evidence.MaxDetails {
		k.examples = append(k.examples, fmt.Sprintf(format, args...))
	}
}

// time returns when a timestamp was taken, in the capture's time. The result is late by the time
// that the first packet took to the tap. Timestamps count modulo 4.3 s.
func (o *stampOffset) time(stamp uint32, seen float64) float64 {
	if !o.known {
		o.known, o.first, o.at = true, stamp, seen
		return seen
	}
	const round = 1 << 32
	said := o.at + float64(int32(stamp-o.first)) // packets of engines overtake each other
	for seen-said > round/2 {
		said += round
	}
	if said > o.at {
		o.at, o.first = said, stamp
	}
	return said
}

// Result implements Check.
func (k *pacing) Result() evidence.Result {
	r := evidence.Result{Name: "pacing " + k.roles.Workload.Name}
	byName := func(a, b *schedule) int { return cmp.Compare(a.name, b.name) }
	for _, s := range slices.SortedFunc(maps.Values(k.schedules), byName) {
		for s.letGo.Len() > 0 {
			k.hold(s)
		}
	}
	var most time.Duration
	for _, h := range k.tooEarly {
		early := time.Duration(h.ahead - min(h.began-k.offsets[h.life].fastest, float64(makeUp)))
		if most = max(most, early); early > k.tolerance {
			k.example(h.text, early.Round(time.Microsecond))
		}
	}
	var unclear []string
	beyond := k.envelopes(&unclear)
	if k.packets == 0 {
		unclear = append(unclear, "no packet of the workload's data was seen")
	}
	if k.unread > 0 {
		unclear = append(unclear, plural.Text("%d packets cannot be read, or have no known rate",
			k.unread))
	}
	if k.full || len(k.tooEarly) == maxEarly && len(k.examples) == 0 {
		unclear = append(unclear, "more schedules or early packets than the check can remember")
	}
	r.Summary = plural.Text("%d packets in %d schedules of %s; at most %v ahead by their timestamps, %v at "+
		"the tap (tolerance %v); up to %v behind",
		k.packets, len(k.schedules), k.at(), k.ahead.Round(time.Microsecond), most.Round(time.Microsecond),
		k.tolerance, k.behind.Round(time.Microsecond))
	if k.untimed > 0 {
		r.Summary = plural.Text("%d packets in %d schedules of %s, %d of them without a timestamp to be "+
			"read; at most one packet and %v beyond the rate in any interval (allowed %v)",
			k.packets, len(k.schedules), k.at(), k.untimed, beyond.Round(time.Microsecond),
			makeUp+k.tolerance)
	}
	r.Measured = map[string]float64{
		"packets": float64(k.packets), "ahead_us": float64(max(k.ahead, most)) / 1e3,
		"behind_us": float64(k.behind) / 1e3, "beyond_us": float64(beyond) / 1e3,
	}
	k.capture.Conclude(&r, k.roles.Need(k.capture), evidence.Finding{Absent: k.examples, Unclear: unclear})
	return r
}

// envelopes judges the schedules of several engines, and schedules with packets that show no
// timestamp. It returns the largest excess over the rate at a tap.
func (k *pacing) envelopes(unclear *[]string) (most time.Duration) {
	allowed := makeUp + k.tolerance
	var wrong, doubtful []string
	for _, s := range k.schedules {
		schedules := 1
		if k.rate > 0 {
			schedules = s.count
		}
		if said := s.beyond(&s.spoken, schedules); s.count > 1 && said > makeUp+rounding {
			wrong = append(wrong, plural.Text("%s: %d engines released a packet and %v at %s more than the "+
				"rate allows in some interval, want at most %v",
				s.name, s.count, said.Round(time.Microsecond), k.at(),
				makeUp))
		}
		beyond := s.beyond(&s.passed, schedules)
		most = max(most, beyond)
		if !s.untimed || beyond <= allowed {
			continue
		}
		line := fmt.Sprintf("%s: a packet and %v at %s more than the rate allows passed the NIC in some "+
			"interval, want at most %v", s.name, beyond.Round(time.Microsecond), k.at(), allowed)
		if beyond > allowed+makeUp {
			wrong = append(wrong, line)
		} else {
			doubtful = append(doubtful, line+"; a host that delays packets can cause this, too")
		}
	}
	slices.Sort(wrong)
	slices.Sort(doubtful)
	k.examples = append(k.examples, wrong[:min(len(wrong), evidence.MaxDetails)]...)
	*unclear = append(*unclear, doubtful[:min(len(doubtful), evidence.MaxDetails)]...)
	return most
}
