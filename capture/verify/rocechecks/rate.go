package rocechecks

import (
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// rate checks that senders slow down on congestion notification packets (CNPs). In the window
// after the first CNP of a train, a queue pair sends fewer bytes than in the window before the CNP.
// DCQCN (Zhu et al., SIGCOMM 2015) reduces the rate at once, at first by half, and restores it only
// step by step. A window of a few of its timers therefore shows the reduction.
//
// The check judges requests of connections where they leave the sender's NIC, and CNPs where they
// arrive there. It applies to CNPs for which the windows show a rate. In the window before the CNP
// the queue pair sent at least eight packets, did not rest for a third of the window, and received
// no other CNP. After the CNP the capture continues for a window. One in ten of these CNPs may be
// without effect: it is not known how much the sender had to send, and how packets fall into the
// windows.
type rate struct {
	follower[rateFlow]
	window                                 int64 // ns of the testbed's clock
	packets, bytes, cnps                   uint64
	slower, same, train, idle, last, stray uint64 // CNPs, by outcome
	before, after                          float64
	found                                  evidence.Tally
}

// busyPackets is the number of packets in a window that show a rate. They show no rate if no packet
// left for one restedPart-th of the window.
const busyPackets, restedPart = 8, 3

// rateFlow is the last window of a sender.
type rateFlow struct {
	sent  []sentBytes
	cnpAt int64
	told  bool
	// open reports whether a CNP is judged when its window is over.
	open   bool
	openAt int64
	before uint64 // bytes
	after  uint64
}

type sentBytes struct {
	at    int64
	bytes int
}

// defaultRateWindow is several of DCQCN's timers.
const defaultRateWindow = time.Millisecond

// newRate makes the check. The window is in the testbed's time; 0 means defaultRateWindow.
func newRate(window time.Duration) *rate {
	if window <= 0 {
		window = defaultRateWindow
	}
	k := &rate{follower: newFollower[rateFlow](atRequester), window: int64(window)}
	k.timed = true
	return k
}

// Begin implements Check.
func (k *rate) Begin(c *evidence.Capture) {
	k.capture = c
	k.window *= int64(c.Dilation)
}

// Packet implements Check.
func (k *rate) Packet(p *evidence.Packet) {
	if p.RoCE != nil && p.RoCE.BTH.Opcode == infiniband.CNP {
		if k.sees(p) && k.came(p) {
			k.slowDown(p)
		}
		return
	}
	f, _ := k.walkRequests(p)
	if f == nil {
		return
	}
	k.packets++
	k.bytes += uint64(p.Length)
	own := &f.own
	own.forget(p.Time - k.window)
	own.sent = append(own.sent, sentBytes{p.Time, p.Length})
	if own.open && p.Time-own.openAt <= k.window {
		own.after += uint64(p.Length)
	} else if own.open {
		k.judge(f)
	}
}

// forget drops the packets that were sent before a time.
func (own *rateFlow) forget(before int64) {
	n := 0
	for n < len(own.sent) && own.sent[n].at < before {
		n++
	}
	own.sent = own.sent[n:]
}

// rested reports whether no packet left for a part of the last window. The window then does not
// show the rate: the sender waited for data, or for its host.
func (own *rateFlow) rested(now, window int64) bool {
	before := now - window
	for _, s := range append(own.sent, sentBytes{at: now}) {
		if s.at-before > window/restedPart {
			return true
		}
		before = s.at
	}
	return false
}

// slowDown adds a CNP that arrives at its sender.
func (k *rate) slowDown(p *evidence.Packet) {
	k.cnps++
	f := k.answered(p)
	if f == nil {
		k.stray++
		return
	}
	own := &f.own
	if own.open && p.Time-own.openAt > k.window {
		k.judge(f)
	}
	train := own.told && p.Time-own.cnpAt <= k.window
	own.told, own.cnpAt = true, p.Time
	own.forget(p.Time - k.window)
	switch {
	case train:
		k.train++
	case len(own.sent) < busyPackets || own.rested(p.Time, k.window):
		k.idle++
	default:
		own.open, own.openAt, own.before, own.after = true, p.Time, 0, 0
		for _, s := range own.sent {
			own.before += uint64(s.bytes)
		}
	}
}

// judge compares the windows around a CNP.
func (k *rate) judge(f *flow[rateFlow]) {
	own := &f.own
	own.open = false
	k.before += float64(own.before)
	k.after += float64(own.after)
	if own.after < own.before {
		k.slower++
		return
	}
	k.same++
	k.found.Exemplify("%s: %d bytes left in the %v before the CNP of %s, and %d in the same time after it",
		f.name,
		own.before, k.shown(), evidence.ClockTime(own.openAt), own.after)
}

// shown returns the window in the testbed's time.
func (k *rate) shown() time.Duration {
	return time.Duration(k.window / int64(max(k.capture.Dilation, 1)))
}

// Result implements Check.
func (k *rate) Result() evidence.Result {
	r := evidence.Result{Name: title(spec.RoCERuleRate)}
	for _, f := range k.ordered {
		if f.own.open && k.capture.End-f.own.openAt < k.window {
			k.last++
		} else if f.own.open {
			k.judge(f)
		}
	}
	unclear := k.doubts()
	judged, apart := k.slower+k.same, k.train+k.idle+k.last+k.stray
	var wrong []string
	if k.same*10 > judged {
		k.found.Count(k.same, plural.Text("of %d CNPs were without effect", judged))
		wrong = k.found.All()
	} else {
		r.Details = append(r.Details, k.found.Examples...)
	}
	f := evidence.Finding{}
	k.addAbsent(&f, wrong...)
	if judged == 0 {
		unclear = append(unclear, notApplicable("%d CNPs came: %d behind others, %d to queue pairs that "+
			"sent fewer than %d packets in %v, or rested for a third of it, %d at the end, %d for an "+
			"unknown queue pair",
			k.cnps, k.train, k.idle, busyPackets, k.shown(), k.last, k.stray))
	}
	rest := 0.0
	if k.before > 0 {
		rest = k.after / k.before
	}
	r.Measured = map[string]float64{
		"packets": float64(k.packets), "bytes": float64(k.bytes), "cnps": float64(k.cnps),
		"slower": float64(k.slower), "without-effect": float64(k.same),
		"rest": rest, "not-applicable": float64(apart),
	}
	r.Summary = plural.Text("after %d of %d CNPs that could be judged the sender was slower, at %s of its "+
		"rate over %v; %d could not", k.slower, judged, evidence.Percent(rest), k.shown(), apart)
	k.capture.Conclude(&r, k.need(), evidence.Finding{Absent: f.Absent, Unclear: append(f.Unclear,
		unclear...)})
	return r
}
