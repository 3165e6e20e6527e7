// Package dcqcn is the congestion control of RoCEv2 NICs, Data Center Quantized Congestion
// Notification (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015).
// The receiver's notification point tells the sender by CNPs that marked packets arrived. The
// sender's reaction point turns CNPs into a rate. Switches mark, as RED does.
//
// The rules are from the paper's section 3. Its text leaves the bounds of a stage open. Here the
// bounds follow csg-htsim: the first F events of either counter are fast recovery.
//
// Nothing here has a clock or a goroutine, and nothing is allocated: the driver passes in the time.
// The same calls give the same answers.
package dcqcn

import (
	"cmp"
	"fmt"
	"time"

	"railbed/internal/clock"
)

// Params are the parameters of both points. Defaults replaces parameters that are zero.
type Params struct {
	// Line is the rate of the NIC, bit/s: a flow starts at it and never exceeds it.
	Line uint64
	// Gain is g, the weight of one period in the estimate alpha. Default 1/256.
	Gain float64
	// AlphaPeriod is K: alpha falls after a period without a CNP. Default 55 us.
	AlphaPeriod time.Duration
	// IncreasePeriod is the period of the timer that raises the rate. Default 55
	// us.
	IncreasePeriod time.Duration
	// IncreaseBytes is the period of the byte counter: the rate also rises after this number of
	// bytes. Default 10 MB.
	IncreaseBytes int64
	// Stages is F, the number of events of fast recovery. Default 5.
	Stages int
	// Additive is R_AI and Hyper R_HAI, bit/s. Defaults: a twentieth and a tenth of Line, as in
	// csg-htsim. The paper's 40 Mbit/s are for 40 Gbit/s NICs.
	Additive, Hyper uint64
	// Least is the least rate after a CNP, bit/s. Default: a hundredth of Line.
	Least uint64
	// NotificationGap is the least time between two CNPs of one flow. Default 50 us.
	NotificationGap time.Duration
}

// Defaults returns p with zero values replaced by defaults.
func (p Params) Defaults() Params {
	p.Gain = cmp.Or(p.Gain, 1.0/256)
	p.AlphaPeriod = cmp.Or(p.AlphaPeriod, 55*time.Microsecond)
	p.IncreasePeriod = cmp.Or(p.IncreasePeriod, 55*time.Microsecond)
	p.IncreaseBytes = cmp.Or(p.IncreaseBytes, 10_000_000)
	p.Stages = cmp.Or(p.Stages, 5)
	p.Additive = cmp.Or(p.Additive, max(p.Line/20, 1))
	p.Hyper = cmp.Or(p.Hyper, max(p.Line/10, 1))
	p.Least = cmp.Or(p.Least, max(p.Line/100, 1))
	p.NotificationGap = cmp.Or(p.NotificationGap, 50*time.Microsecond)
	return p
}

// tuned is the least line rate for which the default periods are meant. For slower lines Scaled
// lengthens them.
const tuned = 10_000_000_000

// Scaled returns the default parameters for a line. For a line slower than 10 Gbit/s, the periods
// last as many packets as at 10 Gbit/s. The paper's 55 us are shorter than one packet at 100
// Mbit/s.
func Scaled(line uint64) Params {
	p := Params{Line: line}.Defaults()
	if line == 0 || line >= tuned {
		return p
	}
	for _, d := range []*time.Duration{&p.AlphaPeriod, &p.IncreasePeriod, &p.NotificationGap} {
		*d = time.Duration(float64(*d) * tuned / float64(line))
	}
	return p
}

// Check returns the error of invalid parameters, after defaults.
func (p Params) Check() error {
	switch {
	case p.Line == 0:
		return fmt.Errorf("dcqcn: the line rate is 0, want the rate of the NIC")
	case !(p.Gain > 0 && p.Gain <= 1):
		return fmt.Errorf("dcqcn: gain %v, want above 0 and at most 1", p.Gain)
	case p.AlphaPeriod <= 0 || p.IncreasePeriod <= 0 || p.NotificationGap < 0:
		return fmt.Errorf("dcqcn: periods %v and %v and gap %v, want periods above 0 and a gap of at least 0",
			p.AlphaPeriod, p.IncreasePeriod, p.NotificationGap)
	case p.IncreaseBytes <= 0 || p.Stages <= 0:
		return fmt.Errorf("dcqcn: byte counter of %d and %d stages, want both above 0", p.IncreaseBytes,
			p.Stages)
	case p.Least > p.Line:
		return fmt.Errorf("dcqcn: least rate %d bit/s, want at most the line rate %d", p.Least, p.Line)
	}
	return nil
}

// Stage selects how a rate rises.
type Stage uint8

// Stages, in the order in which a flow without further CNPs passes them.
const (
	// Unlimited: no CNP has arrived yet, or the flow is back at line rate.
	Unlimited Stage = iota
	FastRecovery
	AdditiveIncrease
	HyperIncrease
)

var stageNames = [...]string{"unlimited", "fast recovery", "additive increase", "hyper increase"}

// String returns the paper's name of the stage.
func (s Stage) String() string {
	if int(s) < len(stageNames) {
		return stageNames[s]
	}
	return "unknown"
}

// ReactionPoint is the rate of one flow at its sender. It is not safe for
// concurrent use.
type ReactionPoint struct {
	params Params

	limited         bool
	current, target float64 // R_C and R_T, bit/s
	alpha           float64
	alphaAt         clock.Time // when alpha falls
	timerAt         clock.Time // when the timer raises the rate
	timer, counter  int        // T and BC, events since the CNP
	bytes           int64      // since the counter's last event
}

// NewReactionPoint makes the reaction point of a flow that starts at line rate.
func NewReactionPoint(p Params) (*ReactionPoint, error) {
	p = p.Defaults()
	if err := p.Check(); err != nil {
		return nil, err
	}
	r := &ReactionPoint{params: p}
	r.release()
	return r, nil
}

// release ends the limit: the flow has the line's rate, and its state is reset.
func (r *ReactionPoint) release() {
	line := float64(r.params.Line)
	r.limited, r.current, r.target, r.alpha = false, line, line, 1
}

// Notified processes a CNP: the rate falls by alpha/2 of it, and its old value is the target of
// recovery.
func (r *ReactionPoint) Notified(now clock.Time) {
	r.Advance(now)
	p := &r.params
	r.limited = true
	r.target = r.current
	r.current = max(r.current*(1-r.alpha/2), float64(p.Least))
	r.alpha = (1-p.Gain)*r.alpha + p.Gain
	r.alphaAt, r.timerAt = now.Add(p.AlphaPeriod), now.Add(p.IncreasePeriod)
	r.timer, r.counter, r.bytes = 0, 0, 0
}

// Sent records sent bytes, with their headers.
func (r *ReactionPoint) Sent(now clock.Time, bytes int) {
	r.Advance(now)
	if !r.limited {
		return
	}
	for r.bytes += int64(bytes); r.limited &&
		r.bytes >= r.params.IncreaseBytes; r.bytes -= r.params.IncreaseBytes {
		r.counter++
		r.raise()
	}
}

// Advance runs the timers that are due by now.
func (r *ReactionPoint) Advance(now clock.Time) {
	for r.limited {
		next := min(r.alphaAt, r.timerAt)
		if next > now {
			return
		}
		if r.alphaAt == next {
			r.alpha *= 1 - r.params.Gain
			r.alphaAt = r.alphaAt.Add(r.params.AlphaPeriod)
		}
		if r.timerAt == next {
			r.timerAt = r.timerAt.Add(r.params.IncreasePeriod)
			r.timer++
			r.raise()
		}
	}
}

// raise is one event of the timer or the byte counter.
func (r *ReactionPoint) raise() {
	p := &r.params
	switch r.Stage() {
	case AdditiveIncrease:
		r.target += float64(p.Additive)
	case HyperIncrease:
		r.target += float64(min(r.timer, r.counter)-p.Stages) * float64(p.Hyper)
	}
	line := float64(p.Line)
	r.target = min(r.target, line)
	r.current = (r.current + r.target) / 2
	// Halving the distance never ends, so stop within a thousandth.
	if r.target == line && line-r.current <= line/1000 {
		r.release()
	}
}

// Stage is the stage of the next event, or of the latest one.
func (r *ReactionPoint) Stage() Stage {
	switch f := r.params.Stages; {
	case !r.limited:
		return Unlimited
	case max(r.timer, r.counter) <= f:
		return FastRecovery
	case min(r.timer, r.counter) > f:
		return HyperIncrease
	}
	return AdditiveIncrease
}

// Rate is the flow's present rate, bit/s.
func (r *ReactionPoint) Rate() uint64 { return uint64(r.current) }

// Target is the rate that recovery approaches, bit/s.
func (r *ReactionPoint) Target() uint64 { return uint64(r.target) }

// Alpha is the estimate of congestion, 0 to 1.
func (r *ReactionPoint) Alpha() float64 { return r.alpha }

// Deadline is the time at which Advance has work to do, or clock.Never at line rate.
func (r *ReactionPoint) Deadline() clock.Time {
	if !r.limited {
		return clock.Never
	}
	return min(r.alphaAt, r.timerAt)
}

// NotificationPoint decides when the receiver of one flow sends a CNP.
type NotificationPoint struct {
	gap  time.Duration
	next clock.Time // the earliest time of the next CNP
}

// NewNotificationPoint makes the notification point of a flow without packets so far.
func NewNotificationPoint(p Params) *NotificationPoint {
	return &NotificationPoint{gap: p.Defaults().NotificationGap}
}

// Marked processes a packet with congestion experienced, and reports whether a CNP must be sent for
// it.
func (n *NotificationPoint) Marked(now clock.Time) bool {
	if now < n.next {
		return false
	}
	n.next = now.Add(n.gap)
	return true
}
