package verify

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/internal/wire"
)

const (
	// makeUp is how much of its schedule a limiter makes up for after it was late
	// (transports/rd/PROTOCOL.md, 7).
	makeUp = 5 * time.Millisecond
	// rounding is what a schedule of whole nanoseconds and packets may be off by.
	rounding = time.Microsecond
	// PacingTolerance is by how much a packet may be at a tap before its moment,
	// because those before it took longer to get there, where a file says nothing.
	PacingTolerance = time.Millisecond
	// maxPaced bounds the schedules that are followed.
	maxPaced = 1 << 14
	// maxHasty bounds the packets that are judged at the end.
	maxHasty = 1 << 12
)

// Pacing holds that no packet of a workload over reliable datagrams leaves more than
// that one packet ahead of the schedule of its rate.
//
// A schedule begins with a packet that leaves; each moves it on by its bytes at the
// rate. Who is behind may catch up, by 5 ms at most. It is judged twice. By the
// timestamps that data carries, which its sender took when it let it go, nothing may
// be ahead. Where several engines send, which may pass each other on their way to the
// NIC, that is held by an envelope: in any time from s to t they let go at most the
// rate times t - s, one packet, and what is made up for. By the times at the NIC's tap, nothing may
// be ahead by more than a tolerance, besides what the packet with which the schedule began took
// longer from its timestamp to the tap than the fastest packet of that NIC: by that much the
// schedule begins too late, which excuses 5 ms at most. So a sender that stamps what it likes is
// found by its packets, and a host that holds packets up is no wrong of the limiter.
//
// A burst of up to 5 ms after a pause cannot be told from catching up.
//
// Packets that are encrypted to their header say no time. Theirs are judged at the
// tap alone, by such an envelope with the tolerance. A batch that the kernel cuts adds nothing: it
// has what is due. Up to 5 ms more, which a host may have held up before the tap, prove nothing.
// And of a limiter at the link's own rate a tap shows little, being behind the queue that the link
// empties: a rate below it, or timestamps, show more.
type Pacing struct {
	roles     *roles
	options   PacingOptions
	capture   *Capture
	overhead  map[netip.Addr]int
	rates     map[netip.Addr]units.Rate
	offsets   map[uint64]*stampOffset // by life
	schedules map[paceKey]*schedule
	hasty     []hastyPacket
	full      bool

	packets, unread uint64
	untimed         uint64        // of packets, those without a timestamp to be read
	ahead           time.Duration // by timestamps, the most
	examples        []string
	behind          time.Duration // at taps, the most that was made up for
}

// PacingOptions say what is asked for.
type PacingOptions struct {
	// Rate, in bit/s, is that from each rank to each other one. Default: that of
	// each NIC's link, for all that it sends together.
	Rate units.Rate
	// Tolerance is as the check says. Default PacingTolerance.
	Tolerance time.Duration
}

// paceKey is what has a schedule: an endpoint, or what it sends to another. Its
// engines share the NIC's rate, and have parts of that to a peer.
type paceKey struct {
	life uint64
	dst  netip.Addr
}

// schedule is one, by timestamps and by the times at the tap, in virtual time.
type schedule struct {
	said, seen float64 // when the next packet is due, in ns
	began      float64 // what the packet that seen counts from took to the tap, by stampOffset
	engines    [wire.RDEngines]bool
	count      int // of these

	letGo   clock.Queue[letGo] // by timestamp, the latest few
	spoken  envelope           // of timestamps
	passed  envelope
	largest float64 // what the longest packet takes at the rate
	untimed bool    // some packet says no time
	name    string  // who sends to whom
}

// envelope is how much passed in the time that had the most of it beyond the rate.
// Times are ns, and what passes is counted in the ns that it takes at the rate.
type envelope struct {
	last  float64
	depth float64 // in the time that ends with the last packet
	most  float64
}

func (e *envelope) add(at, cost float64) {
	e.depth = max(e.depth-(at-e.last), 0) + cost
	e.last, e.most = at, max(e.most, e.depth)
}

// beyond is what an envelope has more than the rate times the time, and the packet
// that each schedule of so many may have ahead.
func (s *schedule) beyond(e *envelope, schedules int) time.Duration {
	return time.Duration(max(e.most-s.largest*float64(schedules), 0))
}

// maxPassing is how many packets of an endpoint may pass one on their way to the NIC:
// the batches of all engines.
const maxPassing = 64 * wire.RDEngines

// letGo is a packet by its timestamp.
type letGo struct {
	cost float64
	psn  uint32
}

// speak takes a timestamp, of which those that come later may be up to maxPassing
// packets older.
func (k *Pacing) speak(s *schedule, said, cost float64, psn uint32) {
	s.letGo.Push(clock.Time(said), letGo{cost, psn})
	if s.letGo.Len() > maxPassing {
		k.hold(s)
	}
}

// hold holds the packet that was let go first of those that wait against its
// schedule. One that comes later than others pass each other is left out.
func (k *Pacing) hold(s *schedule) {
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
		k.example("%s: packet %d was let go %v ahead of %s", s.name, p.psn, early.Round(time.Microsecond),
			k.at())
	}
	s.said = max(s.said, said-float64(makeUp)) + p.cost
	s.spoken.add(said, p.cost)
}

// stampOffset turns the timestamps of an engine's clock into times of the capture.
type stampOffset struct {
	known   bool
	first   uint32  // timestamp
	at      float64 // time of the capture then
	fastest float64 // the least of a packet's time at the tap less its timestamp's
}

// hastyPacket is one that was too early at the tap.
type hastyPacket struct {
	ahead, began float64
	life         uint64
	text         string
}

// NewPacing makes the check.
func NewPacing(w Workload, o PacingOptions) *Pacing {
	if o.Tolerance == 0 {
		o.Tolerance = PacingTolerance
	}
	return &Pacing{
		roles: newRoles(w), options: o, overhead: map[netip.Addr]int{}, rates: map[netip.Addr]units.Rate{},
		offsets: map[uint64]*stampOffset{}, schedules: map[paceKey]*schedule{},
	}
}

// Begin implements Check.
func (k *Pacing) Begin(c *Capture) {
	k.capture = c
	for _, r := range k.roles.workload.Ranks {
		if c.Plan == nil {
			continue
		}
		if d := c.Plan.Sends(r.Node, r.NIC); d != nil {
			k.overhead[r.Addr], k.rates[r.Addr] = int(d.Overhead), d.Rate
		}
	}
}

// Packet implements Check.
func (k *Pacing) Packet(p *Packet) {
	if !p.Tap.NIC || p.Direction != Out || p.Flow == nil || p.Drop != "" {
		return
	}
	src := p.Flow.Src.Addr()
	if p.RD == nil {
		if k.ranksAt(src) > 0 && p.RDFault != RDSound {
			k.unread++
		}
		return
	}
	rank, found := k.roles.rd[netip.AddrPortFrom(src, wire.PortRD+uint16(p.RD.Source))]
	if !found || p.RD.Type != wire.RDData {
		return
	}
	key, rate := paceKey{life: p.RD.Life}, k.rates[src]
	if k.options.Rate > 0 {
		key.dst, rate = p.Flow.Dst.Addr(), k.options.Rate
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

// ranksAt is how many ranks of rd have an address.
func (k *Pacing) ranksAt(addr netip.Addr) (n int) {
	for _, r := range k.roles.workload.Ranks {
		if r.Transport == TransportRD && r.Addr == addr {
			n++
		}
	}
	return n
}

// judge holds a packet against its schedule.
func (k *Pacing) judge(s *schedule, p *Packet, cost float64) {
	seen := float64(p.Time-k.capture.First) / float64(max(k.capture.Dilation, 1))
	s.passed.add(seen, cost)
	s.largest = max(s.largest, cost)
	engine := int(p.RD.Source) % wire.RDEngines
	fresh := !s.engines[engine]
	if fresh {
		s.engines[engine] = true
		s.count++
	}
	if !p.RD.clear() {
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
	case k.options.Rate > 0:
		s.seen -= cost // each engine may have its one packet to a peer ahead
	}
	k.speak(s, said, cost, p.RD.PSN)
	if early := s.seen - seen; early > float64(k.options.Tolerance) && len(k.hasty) < maxHasty {
		k.hasty = append(k.hasty, hastyPacket{ahead: early, began: s.began, life: p.RD.Life,
			text: fmt.Sprintf("%s: packet %d was at the NIC %%v ahead of %s", s.name, p.RD.PSN, k.at())})
	} else if early < 0 && early > -float64(makeUp) {
		k.behind = max(k.behind, time.Duration(-early))
	}
	if from := seen - float64(makeUp); from > s.seen {
		s.seen, s.began = from, took
	}
	s.seen += cost
}

// at is the rate in words.
func (k *Pacing) at() string {
	if k.options.Rate > 0 {
		return k.options.Rate.String()
	}
	return "its link's rate"
}

func (k *Pacing) example(format string, args ...any) {
	if len(k.examples) <= maxDetails {
		k.examples = append(k.examples, fmt.Sprintf(format, args...))
	}
}

// time is when a timestamp was taken, in the capture's time, but for how long the
// first packet took to the tap. Timestamps count modulo 4.3 s.
func (o *stampOffset) time(stamp uint32, seen float64) float64 {
	if !o.known {
		o.known, o.first, o.at = true, stamp, seen
		return seen
	}
	const round = 1 << 32
	said := o.at + float64(int32(stamp-o.first)) // engines pass each other
	for seen-said > round/2 {
		said += round
	}
	if said > o.at {
		o.at, o.first = said, stamp
	}
	return said
}

// Result implements Check.
func (k *Pacing) Result() Result {
	r := Result{Name: "pacing " + k.roles.workload.Name}
	byName := func(a, b *schedule) int { return cmp.Compare(a.name, b.name) }
	for _, s := range slices.SortedFunc(maps.Values(k.schedules), byName) {
		for s.letGo.Len() > 0 {
			k.hold(s)
		}
	}
	var most time.Duration
	for _, h := range k.hasty {
		early := time.Duration(h.ahead - min(h.began-k.offsets[h.life].fastest, float64(makeUp)))
		if most = max(most, early); early > k.options.Tolerance {
			k.example(h.text, early.Round(time.Microsecond))
		}
	}
	var unclear []string
	beyond := k.envelopes(&unclear)
	if k.packets == 0 {
		unclear = append(unclear, "no packet of the workload's data was seen")
	}
	if k.unread > 0 {
		unclear = append(unclear, fmt.Sprintf("%d packets cannot be read, or there is no rate for them",
			k.unread))
	}
	if k.full || len(k.hasty) == maxHasty && len(k.examples) == 0 {
		unclear = append(unclear, "more than is remembered")
	}
	r.Summary = fmt.Sprintf("%d packets in %d schedules of %s; at most %v ahead by their timestamps, %v at "+
		"the tap (tolerance %v); up to %v behind",
		k.packets, len(k.schedules), k.at(), k.ahead.Round(time.Microsecond), most.Round(time.Microsecond),
		k.options.Tolerance, k.behind.Round(time.Microsecond))
	if k.untimed > 0 {
		r.Summary = fmt.Sprintf("%d packets in %d schedules of %s, %d of them without a timestamp to be "+
			"read; at most one packet and %v at the rate beyond it in any time (allowed %v)",
			k.packets, len(k.schedules), k.at(), k.untimed, beyond.Round(time.Microsecond),
			makeUp+k.options.Tolerance)
	}
	r.Measured = map[string]float64{
		"packets": float64(k.packets), "ahead_us": float64(max(k.ahead, most)) / 1e3,
		"behind_us": float64(k.behind) / 1e3, "beyond_us": float64(beyond) / 1e3,
	}
	k.capture.conclude(&r, k.roles.need(k.capture), finding{absent: k.examples, unclear: unclear})
	return r
}

// envelopes judges the schedules of several engines and those of which packets say
// no time, and is the most that passed a tap beyond the rate in any.
func (k *Pacing) envelopes(unclear *[]string) (most time.Duration) {
	allowed := makeUp + k.options.Tolerance
	var wrong, doubtful []string
	for _, s := range k.schedules {
		schedules := 1
		if k.options.Rate > 0 {
			schedules = s.count
		}
		if said := s.beyond(&s.spoken, schedules); s.count > 1 && said > makeUp+rounding {
			wrong = append(wrong, fmt.Sprintf("%s: %d engines let go a packet and %v at %s beyond the rate "+
				"in some time, %v are allowed", s.name, s.count, said.Round(time.Microsecond), k.at(),
				makeUp))
		}
		beyond := s.beyond(&s.passed, schedules)
		most = max(most, beyond)
		if !s.untimed || beyond <= allowed {
			continue
		}
		line := fmt.Sprintf("%s: a packet and %v at %s passed the NIC beyond the rate in some time, %v are "+
			"allowed", s.name, beyond.Round(time.Microsecond), k.at(), allowed)
		if beyond > allowed+makeUp {
			wrong = append(wrong, line)
		} else {
			doubtful = append(doubtful, line+"; a host that held packets up does that, too")
		}
	}
	slices.Sort(wrong)
	slices.Sort(doubtful)
	k.examples = append(k.examples, wrong[:min(len(wrong), maxDetails)]...)
	*unclear = append(*unclear, doubtful[:min(len(doubtful), maxDetails)]...)
	return most
}
