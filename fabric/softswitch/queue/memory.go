package queue

import (
	"fmt"

	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/plan"
	"railbed/plan/spec"
)

// maxAlpha limits the terms of alpha, so that their products with a number of bytes below maxBuffer
// fit into 64 bits.
const (
	maxAlpha  = 1 << 20
	maxBuffer = 1 << 42
)

// Memory is the shared packet buffer of one switch.
type Memory struct {
	sw       *plan.Switch
	signals  Signals
	rates    rateSignals // signals, if they can signal rates
	pfc, gfc Mask
	lossless Mask // priorities with PFC or GFC

	// used is the used part of the shared bytes, held the used part of the reserved bytes. The
	// reservation grows and shrinks with the ports' thresholds, at the expense of the shared bytes.
	shared, used, held int64
	alpha              struct{ num, den uint64 }

	ports   []*Port
	ingress []ingress
	seen    []bool     // by ingress, for Waits
	period  clock.Time // of time-based GFC
	report  clock.Time // when the next is due; clock.Never if none is
}

// ingress is the account of waiting packets that came in by one port.
type ingress struct {
	bytes  [Priorities]int64
	paused Mask
	stage  [Priorities]uint8

	xoff, xon, limit int64 // of PFC; limit is XOff plus the headroom
	b1, bm, gentle   int64 // of GFC; gentle is the largest accepted number of bytes
	stages           []int64
	period           clock.Time
}

// NewMemory returns the buffer of a soft switch, whose ports are numbered as in the plan. It reads
// the switch's settings once; Set changes the settings that depend on links. Signals may be nil if
// no priority is lossless.
func NewMemory(sw *plan.Switch, signals Signals) (*Memory, error) {
	s := sw.Soft
	if s == nil {
		return nil, fmt.Errorf("make buffer of %s: it is not a soft switch", sw.Name)
	}
	m := &Memory{
		sw: sw, signals: signals, shared: int64(s.Shared), report: clock.Never,
		ports:   make([]*Port, len(sw.Ports)),
		ingress: make([]ingress, len(sw.Ports)),
		seen:    make([]bool, len(sw.Ports)),
	}
	m.alpha.num, m.alpha.den = s.Alpha.Num, s.Alpha.Den
	m.rates, _ = signals.(rateSignals)
	if s.PFC != nil {
		m.pfc = MaskOf(s.PFC.Priorities...)
	}
	if s.GFC != nil {
		m.gfc = MaskOf(s.GFC.Priorities...)
	}
	m.lossless = m.pfc | m.gfc
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("make buffer of %s: %w", sw.Name, err)
	}
	return m, m.addIngresses()
}

// check refuses settings with which the sums below would overflow or loop.
func (m *Memory) check() error {
	s := m.sw.Soft
	switch {
	case s.Buffer == 0 || s.Buffer > maxBuffer:
		return fmt.Errorf("its size is %s, want 1B to %dB", s.Buffer, uint64(maxBuffer))
	case s.Reserved > s.Buffer || s.Shared > s.Buffer-s.Reserved:
		return fmt.Errorf("%s shared and %s reserved exceed its size of %s", s.Shared, s.Reserved,
			s.Buffer)
	case s.Alpha.Num == 0 || s.Alpha.Den == 0 || s.Alpha.Num > maxAlpha || s.Alpha.Den > maxAlpha:
		return fmt.Errorf("alpha is %d/%d, want terms of 1 to %d", s.Alpha.Num, s.Alpha.Den, maxAlpha)
	case m.pfc&m.gfc != 0:
		return fmt.Errorf("priorities %08b are lossless by both PFC and GFC, want only one of them",
			m.pfc&m.gfc)
	case m.lossless != 0 && m.signals == nil:
		return fmt.Errorf("priorities %08b are lossless, and Signals is nil", m.lossless)
	case s.ECN != nil && s.ECN.Kind != spec.RED && s.ECN.Kind != spec.ECNSharp:
		return fmt.Errorf("ecn is of kind %q, want %s or %s", s.ECN.Kind, spec.RED, spec.ECNSharp)
	case s.GFC != nil && s.GFC.Kind != spec.GFCBuffer && s.GFC.Kind != spec.GFCTime:
		return fmt.Errorf("gfc is of kind %q, want %s or %s", s.GFC.Kind, spec.GFCBuffer, spec.GFCTime)
	case len(s.Scheduler.Strict) > Priorities:
		return fmt.Errorf("%d strict priorities, want at most %d", len(s.Scheduler.Strict), Priorities)
	}
	return nil
}

// addIngresses reads the reservation of each port for its lossless priorities.
func (m *Memory) addIngresses() error {
	reserved := int64(0)
	for i := range m.sw.Ports {
		planned, in := &m.sw.Ports[i], &m.ingress[i]
		if m.pfc != 0 {
			if planned.PFC == nil || planned.PFC.XOn > planned.PFC.XOff {
				return fmt.Errorf("make buffer of %s: port %s has no PFC thresholds with xon <= xoff",
					m.sw.Name, planned.Name)
			}
			in.setPFC(planned.PFC)
			in.limit = in.xoff + int64(planned.PFC.Headroom)
		}
		if m.gfc != 0 {
			if planned.GFC == nil || planned.GFC.B1 >= planned.GFC.BM || planned.GFC.BM > planned.GFC.Limit {
				return fmt.Errorf("make buffer of %s: port %s has no GFC thresholds with b1 < bm <= limit",
					m.sw.Name, planned.Name)
			}
			m.setGFC(in, planned.GFC)
			in.gentle = int64(planned.GFC.Limit)
		}
		reserved += in.limit*int64(m.pfc.Len()) + in.gentle*int64(m.gfc.Len())
	}
	if reserved > int64(m.sw.Soft.Reserved) {
		return fmt.Errorf("make buffer of %s: its ports need %d bytes for lossless priorities, but %s are "+
			"reserved", m.sw.Name, reserved, m.sw.Soft.Reserved)
	}
	return nil
}

// NewPort returns the egress of a port by its number in the plan.
func (m *Memory) NewPort(index int) *Port {
	s := m.sw.Soft
	p := &Port{
		memory: m, index: index, scheduler: newScheduler(&s.Scheduler), trim: newTrimmer(s.Trim),
		marker: newMarker(s.ECN, draw.Seed(uint64(m.sw.HashSeed), "ecn", m.sw.Name, m.sw.Ports[index].Name)),
	}
	p.trim.priorities &^= m.lossless
	m.ports[index] = p
	return p
}

// free returns the free part of the shared bytes.
func (m *Memory) free() int64 { return m.shared - m.used }

// within reports whether a length is at most alpha times the free bytes.
func (m *Memory) within(length int64) bool {
	return uint64(length)*m.alpha.den <= uint64(m.free())*m.alpha.num
}

// account returns the ingress of a packet of a lossless priority. It returns nil if there is no
// sender to signal to; the packet then shares the memory of the lossy priorities.
func (m *Memory) account(from int32) *ingress {
	if uint(from) < uint(len(m.ingress)) {
		return &m.ingress[from]
	}
	return nil
}

// take adds a packet of a lossless priority to the account.
func (m *Memory) take(now clock.Time, from int32, q uint8, length int64) Reason {
	in := m.account(from)
	switch {
	case in == nil:
		if length > m.free() {
			return Buffer
		}
		m.used += length
		return Accepted
	case m.gfc.Has(q):
		return m.takeGently(now, in, from, q, length)
	}
	after := in.bytes[q] + length
	fits := after <= in.limit
	// A sender that is paused because of a dropped packet resumes only when other packets leave. So
	// there must be waiting packets.
	if after > in.xoff && !in.paused.Has(q) && (fits || in.bytes[q] > in.xon) {
		in.paused |= 1 << q
		m.signals.Pause(int(from), q, true)
	}
	if !fits {
		return Headroom
	}
	in.bytes[q] = after
	m.held += length
	return Accepted
}

// resume lets a paused sender continue once few enough bytes are waiting.
func (m *Memory) resume(in *ingress, from int32, q uint8) {
	if in.paused.Has(q) && in.bytes[q] <= in.xon {
		in.paused &^= 1 << q
		m.signals.Pause(int(from), q, false)
	}
}

// keep adds a packet of a lossy priority to the account.
func (m *Memory) keep(from int32, q uint8, length int64) {
	m.used += length
	if in := m.account(from); in != nil {
		in.bytes[q] += length
	}
}

// give removes a packet from the account.
func (m *Memory) give(one *packet.Packet, q uint8, length int64) {
	in := m.account(one.Ingress)
	switch {
	case in == nil:
		m.used -= length
	case m.gfc.Has(q):
		m.giveGently(in, one.Ingress, q, length)
	case m.pfc.Has(q):
		in.bytes[q] -= length
		m.held -= length
		m.resume(in, one.Ingress, q)
	default:
		in.bytes[q] -= length
		m.used -= length
	}
}

// Used returns the bytes that wait in the whole switch. It never exceeds the buffer's size.
func (m *Memory) Used() int64 { return m.used + m.held }

// Size returns the size of the whole buffer in bytes.
func (m *Memory) Size() int64 { return int64(m.sw.Soft.Buffer) }

// Held returns the waiting bytes of one priority that came in by a port.
func (m *Memory) Held(ingress int, priority uint8) int64 { return m.ingress[ingress].bytes[priority] }

// Asked returns the last signals to the sender at a port for a priority: whether it is paused, and
// GFC's stage.
func (m *Memory) Asked(ingress int, priority uint8) (paused bool, stage uint8) {
	in := &m.ingress[ingress]
	return in.paused.Has(priority), in.stage[priority]
}
