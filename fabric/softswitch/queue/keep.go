package queue

import (
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

// Thresholds specify how much buffer a port reserves for each lossless priority, and when it
// signals the sender: for PFC and for GFC, if the switch has them.
type Thresholds struct {
	PFC plan.PortPFC
	GFC plan.PortGFC
}

// limits returns the largest number of waiting bytes of a priority that the thresholds allow.
func (t *Thresholds) limits() (pfc, gfc int64) {
	pfc = int64(min(t.PFC.XOff, maxBuffer) + min(t.PFC.Headroom, maxBuffer))
	return pfc, int64(min(t.GFC.Limit, maxBuffer))
}

// Spare returns the bytes that ports can reserve in addition: the unused bytes of the shared
// buffer, less room for one frame.
func (m *Memory) Spare() int64 {
	return max(m.shared-max(m.used, int64(m.sw.Soft.Scheduler.Quantum)), 0)
}

// Needs returns the bytes that a port must take from Spare for some thresholds, or 0 if it reserves
// enough.
func (m *Memory) Needs(port int, at Thresholds) int64 {
	in := &m.ingress[port]
	pfc, gfc := at.limits()
	return max(pfc-in.limit, 0)*int64(m.pfc.Len()) + max(gfc-in.gentle, 0)*int64(m.gfc.Len())
}

// Set changes the thresholds of a port. An increase of its reservation comes out of the shared
// bytes. If it needs more than Spare, nothing changes and the result is false. A decrease stays
// with the port, as headroom, until Shrink.
func (m *Memory) Set(now clock.Time, port int, at Thresholds) bool {
	if need := m.Needs(port, at); need > 0 && need > m.Spare() {
		return false
	}
	in := &m.ingress[port]
	pfc, gfc := at.limits()
	m.keepFor(in, max(pfc, in.limit), max(gfc, in.gentle))
	if m.pfc != 0 {
		in.setPFC(&at.PFC)
		for left := m.pfc; left != 0; left &= left - 1 {
			m.judge(in, port, left.first())
		}
	}
	if m.gfc != 0 {
		m.setGFC(in, &at.GFC)
		for left := m.gfc; left != 0; left &= left - 1 {
			m.judgeGently(now, in, port, left.first())
		}
	}
	return true
}

// Shrink releases the bytes that a port reserves beyond its thresholds, and reports whether it did;
// it does not while more bytes are waiting. The thresholds must be those of the last Set, except
// for the number of bytes that may wait.
func (m *Memory) Shrink(port int, at Thresholds) bool {
	in := &m.ingress[port]
	pfc, gfc := at.limits()
	if in.most(m.pfc) > pfc || in.most(m.gfc) > gfc {
		return false
	}
	m.keepFor(in, min(pfc, in.limit), min(gfc, in.gentle))
	return true
}

// keepFor changes the reservation for each of a port's priorities with PFC and GFC.
func (m *Memory) keepFor(in *ingress, pfc, gfc int64) {
	m.shared -= (pfc-in.limit)*int64(m.pfc.Len()) + (gfc-in.gentle)*int64(m.gfc.Len())
	in.limit, in.gentle = pfc, gfc
}

// most returns the waiting bytes of the priority, among some, that has the most.
func (in *ingress) most(of Mask) (most int64) {
	for ; of != 0; of &= of - 1 {
		most = max(most, in.bytes[of.first()])
	}
	return most
}

// MostGently returns the largest number of waiting bytes that came in by a port, over the
// priorities with GFC.
func (m *Memory) MostGently(port int) int64 { return m.ingress[port].most(m.gfc) }

// setPFC sets thresholds of PFC.
func (in *ingress) setPFC(at *plan.PortPFC) {
	in.xoff, in.xon = int64(at.XOff), int64(at.XOn)
}

// judge signals the sender's state under new thresholds.
func (m *Memory) judge(in *ingress, port int, q uint8) {
	m.resume(in, int32(port), q)
	if in.bytes[q] > in.xoff && !in.paused.Has(q) {
		in.paused |= 1 << q
		m.signals.Pause(port, q, true)
	}
}

// setGFC sets thresholds of GFC.
func (m *Memory) setGFC(in *ingress, at *plan.PortGFC) {
	in.b1, in.bm = int64(at.B1), int64(at.BM)
	if m.sw.Soft.GFC.Kind != spec.GFCTime {
		in.stages = in.stages[:0]
		for _, threshold := range at.Stages {
			in.stages = append(in.stages, int64(threshold))
		}
		return
	}
	in.period = max(clock.Time(at.Period), 1)
	// One report serves all ports: the shortest period of any port is safe for all.
	m.period = in.period
	for i := range m.ingress {
		if period := m.ingress[i].period; period > 0 {
			m.period = min(m.period, period)
		}
	}
}

// judgeGently does the same for GFC. A report may be due earlier than before.
func (m *Memory) judgeGently(now clock.Time, in *ingress, port int, q uint8) {
	if m.period == 0 {
		m.enter(in, int32(port), q, in.stageAt(in.bytes[q], 0))
		return
	}
	if waits := m.report != clock.Never; !waits && in.bytes[q] > in.b1 ||
		waits && m.report > m.following(now) {
		m.planReport(now)
	}
}

// Thresholds returns a port's thresholds that are in force. GFC's stages are omitted; they follow
// from B1 and BM.
func (m *Memory) Thresholds(port int) (at Thresholds) {
	in, planned := &m.ingress[port], &m.sw.Ports[port]
	if m.pfc != 0 {
		at.PFC = plan.PortPFC{XOff: units.Bytes(in.xoff), XOn: units.Bytes(in.xon),
			Headroom: units.Bytes(in.limit - in.xoff), Marks: planned.PFC.Marks,
			Given: planned.PFC.Given}
	}
	if m.gfc != 0 {
		at.GFC = plan.PortGFC{
			B1:     units.Bytes(in.b1),
			BM:     units.Bytes(in.bm),
			Limit:  units.Bytes(in.gentle),
			Period: units.Duration(in.period),
			Least:  planned.GFC.Least, Given: planned.GFC.Given,
		}
	}
	return at
}
