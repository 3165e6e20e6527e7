package softswitch

import (
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
)

// UseWindow is the period over which telemetry reports a port's utilisation: the last complete
// window before a packet leaves. Windows begin at multiples of it. At 1 Gbit/s it is 8 frames of
// 1,500 bytes. It is short compared with the time in which senders adapt, and long compared with a
// frame.
const UseWindow = 100 * time.Microsecond

// INTCounters count the results for telemetry blocks at a port (PROTOCOL.md, section 2.5).
type INTCounters struct {
	Written uint64 `json:"written"` // hops
	Invalid uint64 `json:"invalid"` // inconsistent blocks
	Full    uint64 `json:"full"`    // blocks without room for this hop
	NoRoom  uint64 `json:"no_room"` // blocks that would have to grow
}

// Add adds another port's counts.
func (c *INTCounters) Add(other *INTCounters) {
	c.Written += other.Written
	c.Invalid += other.Invalid
	c.Full += other.Full
	c.NoRoom += other.NoRoom
}

// writeHop writes this hop's report into a packet that has room for it. The packet has left its
// queue, and its first bit leaves at start.
func (p *port) writeHop(one *packet.Packet, start clock.Time) {
	block, valid := wire.FindINT(one.Data, &one.Headers)
	switch {
	case block == nil, one.Trimmed:
		return // a block that was trimmed off is no error
	case !valid:
		// Other reliable datagrams begin with their own header.
		if one.Headers.DstPort == wire.PortINT || len(block) > 0 && block[0]>>4 == 1 {
			p.count.INT.Invalid++
		}
		return
	}
	left := p.egress.Last()
	hop := wire.INTHop{
		Known: wire.INTNodeID | wire.INTInterfaces | wire.INTHopLatency | wire.INTQueue |
			wire.INTIngressTime | wire.INTEgressTime | wire.INTBuffer,
		Node: p.station.id, Ingress: uint16(one.Ingress), Egress: uint16(p.number),
		Latency: uint64(max(0, start.Sub(one.Due))), IngressTime: uint64(one.Due), EgressTime: uint64(start),
		Queue:       left.Queue,
		QueueBytes:  saturate32(left.Depth),
		BufferBytes: saturate32(p.station.memory.Used()),
	}
	if p.medium.Direction().Rate != 0 { // an unlimited rate has no utilisation
		hop.Known |= wire.INTUtilisation
		hop.Utilisation = p.use.share(start)
	}
	delta, result := block.Push(&hop)
	wire.UDP(one.Data[one.Headers.L4:]).AdjustChecksum(delta)
	switch result {
	case wire.INTWritten:
		p.count.INT.Written++
	case wire.INTFull:
		p.count.INT.Full++
	case wire.INTNoRoom:
		p.count.INT.NoRoom++
	case wire.INTInvalid: // not possible, since it was valid before
	}
}

func saturate32(n int64) uint32 { return uint32(min(max(n, 0), 1<<32-1)) }

// use measures for how long a line was busy: its frames come in order and do not overlap.
type use struct {
	window    clock.Time // number of the window
	now, last clock.Time // busy time in this window up to now, and in the previous window
}

// at moves to the window of a time.
func (u *use) at(now clock.Time) {
	switch window := now / clock.Time(UseWindow); window {
	case u.window:
	case u.window + 1:
		u.window, u.last, u.now = window, u.now, 0
	default:
		u.window, u.last, u.now = window, 0, 0
	}
}

// add adds a time in which the line was busy.
func (u *use) add(from, to clock.Time) {
	const window = clock.Time(UseWindow)
	u.at(from)
	end := (u.window + 1) * window
	if to < end {
		u.now += to - from
		return
	}
	u.now += end - from
	whole, rest := (to-end)/window, (to-end)%window
	if u.last = u.now; whole > 0 {
		u.last = window
	}
	u.now = rest
	u.window += whole + 1
}

// share returns the fraction of the last whole window in which the line was busy, in millionths.
func (u *use) share(now clock.Time) uint32 {
	u.at(now)
	return uint32(u.last * 1_000_000 / clock.Time(UseWindow))
}
