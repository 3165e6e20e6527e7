package softswitch

import (
	"cmp"
	"errors"
	"math/bits"
	"slices"
	"strings"
	"time"

	"railbed/capture/display"
	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/medium"
	"railbed/fabric/softswitch/packet"
	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// effect is the action of a fault on the packets that it picks.
type effect interface {
	// on acts on a packet that leaves a port. It calls record before it changes the packet. It returns
	// false, and does nothing, if the action has no effect on such a packet.
	on(at *faultPlace, one *packet.Packet, h *harm) bool
}

// harm is the effect of faults on a packet on a link, apart from changes to its bytes.
type harm struct {
	dropped bool // the packet's memory is free again
	delay   time.Duration
	// copies has the time from the packet's arrival to the arrival of each copy. The port reuses its memory
	// for the next packet.
	copies []time.Duration
	// overtaken is the number of packets that leave the port before this one arrives, at the latest after
	// within.
	overtaken int
	within    time.Duration
}

// effectOf returns the effect of a packet fault.
func (e *Engine) effectOf(f *spec.Fault) (effect, error) {
	switch {
	case f.Drop != nil || f.Partition != nil:
		return dropped{}, nil
	case f.Delay != nil:
		return delayed(f.Delay.By), nil
	case f.Duplicate != nil:
		return duplicated{}, nil
	case f.Replay != nil:
		return replayed(f.Replay.After), nil
	case f.Corrupt != nil:
		return (*corrupted)(f.Corrupt), nil
	case f.Truncate != nil:
		return truncated(f.Truncate.To), nil
	case f.Mark != nil:
		return marked{}, nil
	case f.Reorder != nil:
		return (*reordered)(f.Reorder), nil
	case f.Rewrite != nil:
		return newRewritten(f.Rewrite)
	case f.Trim != nil:
		return newTrimmed(f.Trim), nil
	case f.Limit != nil:
		return &limited{rate: uint64(f.Limit.Rate), queue: uint64(f.Limit.Queue),
			free: map[*port]clock.Time{}}, nil
	case f.Pause != nil:
		return newPaused(f.Pause), nil
	}
	to, err := e.plan.FaultTarget(f)
	switch {
	case err != nil:
		return nil, err
	case f.Mirror != nil:
		return mirrored{e.byPort[to]}, nil
	case f.Misroute != nil:
		return misrouted{e.byPort[to]}, nil
	}
	return nil, errors.New("the fault has no action on packets")
}

// record reports the effect of the fault on a packet to the observer.
func (at *faultPlace) record(one *packet.Packet, verdict Verdict) {
	if p := at.port; p.observed {
		p.engine.observe(Observation{Port: p.index, Kind: Harmed, Time: p.engine.now, Packet: one,
			Verdict: verdict, Reason: FromFault, Queue: one.Priority, Fault: at.number})
	}
}

// lose drops a packet.
func (at *faultPlace) lose(one *packet.Packet, h *harm) {
	e := at.port.engine
	e.hitting = at.number
	e.drop(at.port, one, FromFault, 0)
	e.hitting = 0
	h.dropped = true
}

type dropped struct{}

func (dropped) on(at *faultPlace, one *packet.Packet, h *harm) bool {
	at.lose(one, h)
	return true
}

type delayed time.Duration

func (d delayed) on(at *faultPlace, one *packet.Packet, h *harm) bool {
	at.record(one, Delayed)
	h.delay += time.Duration(d)
	return true
}

type duplicated struct{}

func (duplicated) on(at *faultPlace, one *packet.Packet, h *harm) bool {
	at.record(one, Duplicated)
	h.copies = append(h.copies, 0)
	return true
}

// replayed is the time after which a copy arrives. Its records have the verdict of duplicates.
type replayed time.Duration

func (r replayed) on(at *faultPlace, one *packet.Packet, h *harm) bool {
	at.record(one, Duplicated)
	h.copies = append(h.copies, time.Duration(r))
	return true
}

type corrupted spec.FaultCorrupt

func (k *corrupted) on(at *faultPlace, one *packet.Packet, _ *harm) bool {
	if uint64(len(one.Data)) <= max(ethernetHeader, uint64(k.At)) {
		return false
	}
	at.record(one, Corrupted)
	if k.At > 0 {
		one.Data[k.At] ^= byte(k.Bits)
	} else {
		bit := draw.Within(at.drawn(one, draw.FaultBit), uint64(len(one.Data)-ethernetHeader)*8)
		one.Data[ethernetHeader+bit/8] ^= 1 << (bit % 8)
	}
	one.Parse()
	return true
}

type truncated int

func (t truncated) on(at *faultPlace, one *packet.Packet, _ *harm) bool {
	if len(one.Data) <= int(t) {
		return false
	}
	at.record(one, Truncated)
	one.Data = one.Data[:t]
	one.Parse()
	return true
}

type marked struct{}

func (marked) on(at *faultPlace, one *packet.Packet, _ *harm) bool {
	if one.Headers.ECN != wire.ECT0 && one.Headers.ECN != wire.ECT1 {
		return false
	}
	at.record(one, Marked)
	queue.MarkCE(one)
	return true
}

type reordered spec.FaultReorder

func (r *reordered) on(at *faultPlace, one *packet.Packet, h *harm) bool {
	at.record(one, Delayed)
	h.overtaken += r.By
	h.within = max(h.within, time.Duration(r.Within))
	return true
}

// rewritten sets a field.
type rewritten struct {
	field *display.Rewrite
	keep  bool // the checksums as they are
}

func newRewritten(f *spec.FaultRewrite) (*rewritten, error) {
	field, err := display.CompileRewrite(f.Field, f.To)
	return &rewritten{field: field, keep: f.Checksums == spec.KeepChecksums ||
		strings.HasSuffix(f.Field, ".checksum")}, err
}

func (r *rewritten) on(at *faultPlace, one *packet.Packet, _ *harm) bool {
	shown := at.port.engine.faults.show(one)
	if !r.field.Changes(shown) {
		return false
	}
	at.record(one, Rewritten)
	right := rightSums(one)
	r.field.Apply(shown)
	one.Parse()
	if !r.keep {
		right.fill(one)
	}
	return true
}

// cut trims packets.
type cut struct {
	size int
	dscp uint8
}

func newTrimmed(f *spec.FaultTrim) cut {
	dscp := spec.DSCPTrimmed
	if f.DSCP != nil {
		dscp = *f.DSCP
	}
	return cut{int(f.Size), uint8(dscp)}
}

func (t cut) on(at *faultPlace, one *packet.Packet, _ *harm) bool {
	size, can := queue.TrimmedLen(one, t.size, t.dscp)
	if !can {
		return false
	}
	at.record(one, Trimmed)
	queue.Trim(one, size, t.dscp)
	return true
}

// limited is a rate limit with a queue behind the port. The queue holds no packets: it delays their arrival.
type limited struct {
	rate, queue uint64               // in bit/s, and in bytes
	free        map[*port]clock.Time // when the last packet has passed
}

func (l *limited) on(at *faultPlace, one *packet.Packet, h *harm) bool {
	p := at.port
	from := max(l.free[p], p.free)
	waiting := uint64(from-p.free) * (l.rate / 8) / uint64(time.Second)
	if waiting+uint64(len(one.Data)) > l.queue {
		at.lose(one, h)
		return true
	}
	l.free[p] = from.Add(time.Duration(uint64(len(one.Data)) * 8 * uint64(time.Second) / l.rate))
	at.record(one, Delayed)
	h.delay += l.free[p].Sub(p.free)
	return true
}

// mirrored sends copies to a NIC.
type mirrored struct{ to *port }

func (m mirrored) on(at *faultPlace, one *packet.Packet, _ *harm) bool {
	twin := at.port.copied(one)
	if twin == nil {
		return false
	}
	at.record(one, Mirrored)
	twin.Flow = medium.Twin(one.Flow)
	twin.Due = at.port.free
	m.to.engine.events.arrival(twin.Due, int32(m.to.index), twin, m.to.link.epoch)
	return true
}

// misrouted sends packets by another port. It acts before the queue, in port.detour.
type misrouted struct{ to *port }

func (m misrouted) on(at *faultPlace, one *packet.Packet, _ *harm) bool {
	p := at.port
	if p == m.to {
		return false
	}
	at.record(one, Misrouted)
	// A router addresses the frame to the next hop of the port by which it sends it.
	routes := p.engine.plan.Switches[p.station.index].Forwarding != spec.L2
	if frame := wire.Ethernet(one.Data); routes && frame.Dst() == p.far.mac {
		frame.SetDst(m.to.far.mac)
		frame.SetSrc(m.to.mac)
	}
	return true
}

// detour returns the port that sends a packet in place of this one.
func (p *port) detour(one *packet.Packet) *port {
	for _, at := range p.detours {
		if at.hits(one, nil) {
			return at.effect.(misrouted).to
		}
	}
	return p
}

// paused makes the receiver of a packet request a pause.
type paused struct{ fields wire.PFCFields }

func newPaused(f *spec.FaultPause) *paused {
	k := new(paused)
	for _, q := range f.Priorities {
		k.fields.Enable |= 1 << q
		k.fields.Quanta[q] = uint16(cmp.Or(f.Quanta, 65535))
	}
	return k
}

func (k *paused) on(at *faultPlace, cause *packet.Packet, _ *harm) bool {
	far := at.port.far
	e := far.engine
	one := e.pool.Get()
	if one == nil {
		return false
	}
	at.record(cause, PauseRequested)
	e.totals.Made++
	one.Data = one.Data[:wire.EncodePFCFrame(one.Data, far.mac, &k.fields)]
	one.Born, one.Due, one.Queued, one.Priority = e.now, e.now, e.now, queue.Priorities-1
	one.Parse()
	one.Length = len(one.Data)
	for sent := k.fields.Enable; sent != 0; sent &= sent - 1 {
		far.count.PausesSent[bits.TrailingZeros8(sent)]++
	}
	note(one, Paused, PFC, 0)
	far.offer(one)
	return true
}

// heldBack is a packet that arrives after later packets.
type heldBack struct {
	one   *packet.Packet
	left  int // packets that still overtake it
	until clock.Time
	harm  harm
}

// holdBack keeps a packet until others have overtaken it.
func (p *port) holdBack(one *packet.Packet, h harm) {
	e := p.engine
	until := max(p.free, e.now).Add(h.within)
	h.copies = slices.Clone(h.copies)
	p.held = append(p.held, heldBack{one, h.overtaken, until, h})
	e.events.push(event{at: until, kind: overdue, port: int32(p.index)})
}

// release counts a packet that overtakes those held back, and sends the ones that are due.
func (p *port) release() {
	for i := range p.held {
		p.held[i].left--
	}
	p.sendHeld(p.free, func(k *heldBack) bool { return k.left <= 0 })
}

// releaseOverdue sends the packets whose time is over.
func (p *port) releaseOverdue() {
	now := p.engine.now
	p.sendHeld(now, func(k *heldBack) bool { return now >= k.until })
}

// sendHeld puts those packets on the line that are due.
func (p *port) sendHeld(at clock.Time, due func(*heldBack) bool) {
	for i := 0; i < len(p.held); {
		k := p.held[i]
		if !due(&k) {
			i++
			continue
		}
		p.held = slices.Delete(p.held, i, i+1)
		if p.link.up {
			p.transmit(k.one, at, k.harm)
		} else {
			p.engine.drop(p, k.one, LinkDown, 0)
		}
	}
}
