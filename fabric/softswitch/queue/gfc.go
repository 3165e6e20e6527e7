package queue

import (
	"math/bits"

	"railbed/internal/clock"
)

// Gentle Flow Control (Qian, Cheng, Zhang and Ren, Gentle Flow Control: Avoiding
// Deadlock in Lossless Networks, SIGCOMM 2019) slows the sender down as what it
// has in the buffer grows, and never stops it: without a stop there is no hold
// and wait, and so no deadlock. The thresholds are the plan's.
//
// Buffer-based, the receiver tells a stage when the length crosses a threshold:
// in stage k the sender sends at C/2^k. Stage 1 begins at B1, and each following
// one where half of what is left up to Bm is used. With tau from the crossing to
// the last bit that was sent without knowing of it, B1 <= Bm - 2*C*tau is enough:
// what comes in during the tau after B1 is at most C*tau, half of what is left, so
// that stage 1 is in force where stage 2 begins, and so on.
//
// Time-based, the receiver tells a rate every period, which falls in proportion
// from C at B0 to 0 at Bm. Reports are at the multiples of the period, counted from
// the epoch, and only as long as one has something to tell: the first is at the
// multiple that follows a packet with which a length exceeds B0, the last is the one
// that tells the last sender that it has the whole line again. Those between which
// nothing happens would tell nothing, so that nothing is told at another time than if
// there were one at each multiple.
//
// No rate is 0, so that every length is exceeded at last by an egress that never
// sends. And rates that are kept alive can be low: where the packets that come
// from hosts and those that are on their way around a ring wait in one queue, they
// have equal shares of what is kept for their ingresses, and unless hosts have
// less room than links between switches, all of them are slowed together until
// next to nothing moves. With B1 of the links between switches no less than Bm of
// the hosts' links, the hosts are slowed first, and the ring goes on at its full
// rate.
//
// Both tell the sender what is new; that a message may be lost, and is told again, is
// the business of whoever carries it.

// takeGently accounts a packet of a priority of GFC.
func (m *Memory) takeGently(now clock.Time, in *ingress, from int32, q uint8, length int64) Reason {
	if in.bytes[q]+length > in.gentle {
		return Headroom
	}
	in.bytes[q] += length
	m.held += length
	if m.period == 0 {
		m.enter(in, from, q, in.stageAt(in.bytes[q], int(in.stage[q])))
	} else if m.report == clock.Never && in.bytes[q] > in.b1 {
		m.planReport(now)
	}
	return Accepted
}

// stageAt is the stage of a length that is at least that of a stage.
func (in *ingress) stageAt(length int64, stage int) uint8 {
	for stage < len(in.stages) && length >= in.stages[stage] {
		stage++
	}
	return uint8(stage)
}

// giveGently ends the account of such a packet.
func (m *Memory) giveGently(in *ingress, from int32, q uint8, length int64) {
	in.bytes[q] -= length
	m.held -= length
	stage := in.stage[q]
	for stage > 0 && len(in.stages) > 0 && in.bytes[q] < in.stages[stage-1] {
		stage--
	}
	m.enter(in, from, q, stage)
}

// enter tells the sender about a stage that is new.
func (m *Memory) enter(in *ingress, from int32, q, stage uint8) {
	if stage != in.stage[q] {
		in.stage[q] = stage
		m.signals.Stage(int(from), q, stage)
	}
}

// planReport asks for the next report after now.
func (m *Memory) planReport(now clock.Time) {
	m.report = m.following(now)
	m.signals.ReportAt(m.report)
}

// following is the multiple of the period that follows a time.
func (m *Memory) following(now clock.Time) clock.Time { return (now/m.period + 1) * m.period }

// Report signals the rates of time-based GFC to the senders when a report is due. It requests the
// next report while some sender's rate is below the line's.
func (m *Memory) Report(now clock.Time) {
	if now < m.report {
		return
	}
	m.report = clock.Never
	slowed := false
	for i := range m.ingress {
		for left := m.gfc; left != 0; left &= left - 1 {
			slowed = m.tell(&m.ingress[i], i, left.first()) || slowed
		}
	}
	if slowed {
		m.planReport(now)
	}
}

// tell tells one sender its rate, and once that it has the whole line again. It
// reports whether it has less.
func (m *Memory) tell(in *ingress, from int, q uint8) (slowed bool) {
	share := shareOf(in.bytes[q], in.b1, in.bm)
	if share == FullRate && in.stage[q] == 0 {
		return false
	}
	in.stage[q] = stageOf(share)
	if m.rates != nil {
		m.rates.Rate(from, q, share)
	} else {
		m.signals.Stage(from, q, in.stage[q])
	}
	return share < FullRate
}

// shareOf is the rate of time-based GFC: the whole up to B0, and from there in
// proportion to what is left up to Bm, but never nothing.
func shareOf(length, b0, bm int64) uint16 {
	if length <= b0 {
		return FullRate
	}
	return uint16(max(1, FullRate*(bm-length)/(bm-b0)))
}

// stageOf is the first stage whose rate is at most a share.
func stageOf(share uint16) uint8 {
	if share == FullRate {
		return 0
	}
	return uint8(17 - bits.Len16(share))
}
