package engine

import (
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports/rd/path"
	"railbed/transports/rd/rate"
)

const (
	// firstProbe is how long a peer that has not answered yet may be silent before it is probed.
	firstProbe = 20 * time.Millisecond
	// leastProbe is less than an ordinary host takes to run a waiting process. An earlier probe
	// would request packets that are still in flight.
	leastProbe = 500 * time.Microsecond
	// mostProbe bounds the doubling of the interval between probes.
	mostProbe = 250 * time.Millisecond
	// leastBusy and mostBusy bound how long a message waits for a receiver whose owner does not
	// poll its immediates.
	leastBusy = 100 * time.Microsecond
	mostBusy  = 10 * time.Millisecond
	// leastPause and mostPause bound the pauses for a peer that has not added this endpoint yet.
	leastPause = time.Millisecond
	mostPause  = 50 * time.Millisecond
	// mostTries is how often a packet may be lost while others arrive and the peer does not refuse
	// it: the peer cannot read it. Where 90 % are lost by chance, that happens to one packet in 4 x
	// 10^11.
	mostTries = 255
)

// acknowledged processes an acknowledgement that arrived at a time, now or before.
func (o *outbound) acknowledged(b wire.RD, base wire.RDBase, at, now clock.Time) {
	cumulative := PSN(base.PSN)
	f := b.Ack()
	ahead := cumulative.From(o.una)
	if ahead > o.next.From(o.una) {
		o.engine.counters.Hostile++
		return
	}
	if f.Timestamp == o.probeStamp {
		o.newest = max(o.newest, o.probeOrder) // packets sent before the probe that have not arrived are late
	}
	o.silence, o.progress = 0, now
	o.pauses, o.pauseUntil = 0, 0
	o.told = rate.Ack{}
	for i := range int(f.Echoes) {
		o.echoed(b.AckEcho(i), now)
	}
	o.sample(&f, at, now)
	if ahead < 0 {
		o.tell(now)
		return // older than the known state
	}
	if limit := PSN(f.Limit); limit.From(o.limit) > 0 && limit.From(cumulative) <= Window {
		o.limit = limit
	}
	o.room = max(int(f.Room), 1)
	o.upTo(cumulative, now)
	for i := range int(f.Words) {
		for word, at := b.AckWord(i), cumulative+1+PSN(64*i); word != 0; word, at = word<<1, at+1 {
			if word>>63 != 0 && at.From(o.next) < 0 {
				o.came(at, now)
			}
		}
	}
	if more := int32(f.Duplicates - o.duplicates); more > 0 {
		o.duplicates = f.Duplicates
		needless := min(uint64(more), o.doubtful)
		o.doubtful -= needless
		o.engine.counters.Repeats.Needless += needless
		if o.repeated { // else the network duplicated them
			o.repeated = false
			o.late.spurious()
		}
	}
	o.tell(now)
	o.detect(at)
	o.schedule(now)
}

// echoed processes the echo of one path.
func (o *outbound) echoed(e wire.RDEcho, now clock.Time) {
	o.told.Echoed += int(e.Packets)
	o.told.Marked += int(e.Marked)
	number := int(e.Path) - int(o.engine.config.FirstPath)
	if number < 0 || number >= len(o.probes) {
		return
	}
	if e.Marked > 0 {
		o.paths.Feedback(path.Report{Path: number, Event: path.Marked, Packets: int(e.Marked)}, now)
	}
	if at := o.probes[number]; at != 0 {
		o.probes[number] = 0
		o.paths.Feedback(path.Report{Path: number, Event: path.ProbeReturned, Sent: at}, now)
	}
}

// report reports the fate of a packet's latest transmission to the chooser.
func (o *outbound) report(k *outPacket, what path.Event, now clock.Time) {
	o.paths.Feedback(path.Report{Path: int(k.path), Event: what, Sent: k.sent}, now)
}

// upTo records that every packet before psn has arrived.
func (o *outbound) upTo(psn PSN, now clock.Time) {
	if ahead := psn.From(o.una); ahead < 0 || ahead > o.next.From(o.una) {
		return
	}
	for ; o.una != psn; o.una++ {
		o.came(o.una, now)
		o.packets[o.una.slot()].state = free
	}
}

// sample measures the round trip from the echoed timestamp.
func (o *outbound) sample(f *wire.RDAckFields, at, now clock.Time) {
	trip := time.Duration(uint32(at)-f.Timestamp) - time.Duration(f.Delay)
	if trip > 0 && trip < time.Second {
		o.told.Trip = trip
		o.late.trip(trip, now)
		o.paths.Paths().SetRoundTrip(o.late.smooth + 4*o.late.vary)
	}
}

// came records that a packet has arrived.
func (o *outbound) came(psn PSN, now clock.Time) {
	k := &o.packets[psn.slot()]
	if k.state == done || k.state == free {
		return
	}
	if m := &o.messages[k.message%Messages]; k.hole && !k.skipped && !m.over {
		m.missing -= uint32(k.size) // it was late, not lost
	}
	if k.sends == 1 || k.state == inFlight && now.Sub(k.sent) >= o.late.shortest {
		// If it is sooner, an earlier transmission has arrived.
		o.newest, o.overtaker = max(o.newest, k.order), max(o.overtaker, k.order)
		o.report(k, path.Acked, now)
	}
	o.busyRounds = 0
	o.told.Packets++
	o.told.Bytes += int(k.size)
	o.end(psn)
}

// detect finds late packets: a packet sent after them has arrived, and they have been in flight
// longer than the bound.
func (o *outbound) detect(now clock.Time) {
	for o.flight.count > 0 {
		k := &o.packets[o.flight.first]
		if k.order > o.newest || now.Sub(k.sent) < o.late.bound() {
			return
		}
		o.report(k, path.Lost, now)
		if k.tries++; k.tries == mostTries {
			o.engine.fail(o.peer, "it did not acknowledge a packet that was sent %d times", mostTries)
			return
		}
		why := byArrivals
		switch {
		case k.trimmed: // reported soon, because headers overtake data
			why = byTrimming
		case k.order > o.overtaker:
			why = byProbe
		}
		o.lose(o.flight.first, why)
		o.tellLost(k, false, now)
	}
}

// lose queues a packet for retransmission, for a reason. If its message may have more holes, a skip will
// replace it.
func (o *outbound) lose(slot uint16, why reason) {
	k := &o.packets[slot]
	k.why = why
	o.unlink(slot)
	if m := &o.messages[k.message%Messages]; !k.skip && k.size > 0 &&
		int(m.missing)+int(k.size) <= m.Droppable {
		k.skip, k.hole = true, true
		m.missing += uint32(k.size)
	}
	o.link(&o.lost, slot, isLost)
}

// refused processes a negative acknowledgement.
func (o *outbound) refused(f wire.RDNackFields, psn PSN, now clock.Time) {
	if ahead := psn.From(o.una); ahead < 0 || ahead >= o.next.From(o.una) {
		return
	}
	slot := psn.slot()
	k := &o.packets[slot]
	m := &o.messages[k.message%Messages]
	hint := f.Reason == wire.RDTrimmed && o.engine.encrypts() // a hint carries no message number
	if k.state != inFlight || f.Message != k.message && !hint {
		return
	}
	if hint {
		o.silence, o.progress = 0, now
		o.hinted(slot, now)
		o.schedule(now)
		return
	}
	o.silence, o.progress, k.tries = 0, now, 0
	switch f.Reason {
	case wire.RDTrimmed:
		k.trimmed = true
		// If it is sooner, the header is of an earlier transmission.
		if now.Sub(k.sent) >= o.late.shortest/2 {
			o.report(k, path.Trimmed, now)
			o.lose(slot, byTrimming)
			o.tellLost(k, true, now)
		}
	case wire.RDBusy:
		o.unlink(slot)
		o.link(&o.busy, slot, isBusy)
		if o.busy.count == 1 {
			o.busyUntil = now.Add(min(leastBusy<<min(o.busyRounds, 10), mostBusy))
			o.busyRounds++
		}
	case wire.RDNoRegion, wire.RDNotWritable, wire.RDBounds:
		if !k.skip {
			o.giveUp(m, refusal(m, &f))
		}
	}
	o.schedule(now)
}

// pause waits for a peer that has not added this endpoint yet. The packets in flight were not
// accepted.
func (o *outbound) pause(now clock.Time) {
	o.silence, o.progress = 0, now
	if o.pauseUntil > now {
		return
	}
	o.sendAgain(&o.flight)
	o.pauseUntil = now.Add(min(leastPause<<min(o.pauses, 10), mostPause))
	o.pauses++
	o.schedule(now)
}

// sendAgain moves all packets of a list to the lost ones.
func (o *outbound) sendAgain(l *list) {
	for l.count > 0 {
		slot := l.first
		o.packets[slot].why = byRefusal
		o.unlink(slot)
		o.link(&o.lost, slot, isLost)
	}
}

// tick does the work that is due by now.
func (o *outbound) tick(now clock.Time) {
	if o.busy.count > 0 && o.busyUntil <= now {
		o.sendAgain(&o.busy)
	}
	o.detect(now)
	if o.peer.err != nil {
		return
	}
	if o.waits() {
		if now.Sub(o.progress) >= o.engine.config.PeerTimeout {
			o.engine.fail(o.peer, "it sent nothing for %v%s", now.Sub(o.progress).Round(time.Millisecond),
				o.peer.suspects())
			return
		}
		o.probing = o.probing || o.probeAt() <= now
	}
	o.schedule(now)
}

// waits reports whether sending cannot continue without the peer: packets are in flight, or its
// limit holds packets back.
func (o *outbound) waits() bool {
	return o.flight.count > 0 || o.lost.count+o.busy.count == 0 && !o.idle() && o.full()
}

// probeAt is when a probe is due because the peer is silent. After the first probe, packets sent
// meanwhile do not delay the next.
func (o *outbound) probeAt() clock.Time {
	wait := o.late.probe()
	switch {
	case o.asked:
	case o.ended:
		wait += endDelay
	default:
		wait += ackDelay
	}
	from := max(o.progress, o.probed)
	if o.flight.count > 0 && o.silence == 0 {
		from = max(from, o.packets[o.flight.final].sent)
	}
	return from.Add(min(wait<<min(o.silence, 16), mostProbe))
}

// probe writes a probe if one is due: of the silent peer, or of a path.
func (o *outbound) probe(p *Packet, now clock.Time) bool {
	if o.probing && o.waits() {
		if k := &o.packets[o.flight.first]; o.silence > 0 && o.flight.count > 0 &&
			now.Sub(k.sent) >= o.late.bound() {
			o.report(k, path.TimedOut, now)
		}
		o.silence++
		o.engine.order++
		o.probed, o.probeOrder, o.probeStamp = now, o.engine.order, uint32(now)
		o.probing = false
		o.writeProbe(p, o.paths.Pick(now), now)
		return true
	}
	o.probing = false
	if o.idle() {
		return false
	}
	number, due := o.paths.Probe(now)
	if due {
		o.probes[number] = now
		o.writeProbe(p, number, now)
	}
	return due
}

func (o *outbound) writeProbe(p *Packet, by int, now clock.Time) {
	o.engine.counters.Probes++
	base := o.engine.base(o.peer, o.port)
	base.PSN, base.Flags = uint32(o.next), wire.RDAckRequest
	p.control(o.peer, o.port)
	p.Path = by
	p.header(wire.RDProbeLen).EncodeProbe(base, uint32(now))
	o.schedule(now)
}

// schedule sets the deadline at which tick must run.
func (o *outbound) schedule(now clock.Time) {
	at := clock.Never
	if o.busy.count > 0 {
		at = o.busyUntil
	}
	if o.pauseUntil > now {
		at = min(at, o.pauseUntil)
	}
	if o.waits() {
		at = min(at, o.probeAt(), o.progress.Add(o.engine.config.PeerTimeout))
	}
	if o.flight.count > 0 {
		if k := &o.packets[o.flight.first]; k.order < o.newest {
			at = min(at, k.sent.Add(o.late.bound()))
		}
	}
	o.deadline = min(at, o.paths.NextProbe())
}
