package queue

import (
	"math/bits"

	"railbed/internal/clock"
)

// Gentle Flow Control slows a sender down as its share of the buffer grows, and never stops it.
// Source: Qian, Cheng, Zhang and Ren, Gentle Flow Control: Avoiding Deadlock in Lossless Networks,
// SIGCOMM 2019. Without a stop there is no hold and wait, and so no deadlock. The plan sets the
// thresholds.
//
// With buffer-based GFC the receiver signals a stage when the length crosses a threshold. In stage
// k the sender sends at C/2^k. Stage 1 begins at B1, and each further stage where half of the rest
// up to Bm is used. Let tau be the time from the crossing to the last bit sent without knowledge of
// it. Then B1 <= Bm - 2*C*tau is sufficient: at most C*tau arrives during the tau after B1. That is
// half of the rest, so stage 1 is in force when stage 2 begins, and so on.
//
// With time-based GFC the receiver signals a rate every period. The rate falls linearly from C at
// B0 to 0 at Bm. Reports are at multiples of the period, counted from the epoch, and only while
// there is something to signal. The first is at the multiple after a packet with which a length
// exceeds B0. The last is the report that allows the last sender the whole line again. All other
// reports would signal nothing. So every signal has the same time as with a report at every
// multiple.
//
// No rate is 0. So if an egress never sends, every length is exceeded in the end. A rate that is
// kept above 0 can still be low. Suppose that packets from hosts and packets on their way around a
// ring wait in one queue. They have equal shares of the buffer reserved for their ingresses. Unless
// hosts have less room than links between switches, all of them are slowed together until next to
// nothing moves. If B1 of the links between switches is at least Bm of the hosts' links, the hosts
// are slowed first, and the ring continues at its full rate.
//
// Both kinds signal changes to the sender. The implementation of Signals repeats messages, which
// may be lost.

// takeGently adds a packet of a priority with GFC to the ingress's account.
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

// stageAt returns the stage for a length. The result is at least the given stage.
func (in *ingress) stageAt(length int64, stage int) uint8 {
	for stage < len(in.stages) && length >= in.stages[stage] {
		stage++
	}
	return uint8(stage)
}

// giveGently removes such a packet from the account.
func (m *Memory) giveGently(in *ingress, from int32, q uint8, length int64) {
	in.bytes[q] -= length
	m.held -= length
	stage := in.stage[q]
	for stage > 0 && len(in.stages) > 0 && in.bytes[q] < in.stages[stage-1] {
		stage--
	}
	m.enter(in, from, q, stage)
}

// enter signals a new stage to the sender.
func (m *Memory) enter(in *ingress, from int32, q, stage uint8) {
	if stage != in.stage[q] {
		in.stage[q] = stage
		m.signals.Stage(int(from), q, stage)
	}
}

// planReport requests the next report after now.
func (m *Memory) planReport(now clock.Time) {
	m.report = m.following(now)
	m.signals.ReportAt(m.report)
}

// following returns the next multiple of the period after a time.
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

// tell signals the rate to one sender; it signals the whole line only once. It reports whether the
// rate is lower than the line's.
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

// shareOf returns the rate of time-based GFC: the whole line up to B0, and above it proportional to
// the rest up to Bm, but never 0.
func shareOf(length, b0, bm int64) uint16 {
	if length <= b0 {
		return FullRate
	}
	return uint16(max(1, FullRate*(bm-length)/(bm-b0)))
}

// stageOf returns the first stage whose rate is at most a share.
func stageOf(share uint16) uint8 {
	if share == FullRate {
		return 0
	}
	return uint8(17 - bits.Len16(share))
}
