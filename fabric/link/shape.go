// Package link shapes a fabric's links, veth pairs, with tc, and calibrates the burst with which
// this host reaches a rate.
//
// A token bucket (tbf) with a drop-tail queue in bytes shapes the egress of both ends of a link.
// Netem adds delay, jitter, loss, duplication and corruption, if the host has it.
//
// Tbf and htb were measured side by side, at 0.1 to 5 Gbit/s with MTUs of 1,500 and 9,000. Htb
// reaches a rate with a burst that is one frame smaller, because it sends a last frame whenever it
// has any token left. Both need the same number of bytes that may leave at once. Tbf was chosen:
// its burst is the number of bytes that leave at once. It is one discipline instead of a
// discipline, a class and a queue (three requests for each end of each link), and it is changed in
// place with one request.
package link

import (
	"fmt"
	"math"
	"strings"
	"time"

	"railbed/internal/kernel"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan"
)

// Shaping describes how one end of a link shapes the packets that it sends.
type Shaping struct {
	plan.Direction
	MTU   int
	Burst units.Bytes
	// Seed makes netem's draws repeatable if the kernel supports that.
	Seed uint64
	// Single is set if every packet has to come into the queue alone.
	Single bool
}

// Handles of the queueing disciplines. A shaper alone and a shaper below netem have different
// handles. So a change from one to the other replaces the whole tree and never changes a discipline
// of another kind.
//
// Netem is the parent: a packet is drawn, delayed, and then queued and serialised. With a constant
// delay the packet arrives at the same time in either order. In this order, the queue that drops is
// the queue counted in bytes, and it holds only the packets that a real queue in front of the link
// would hold. A packet that netem loses takes no time on the link.
//
// Netem releases a delayed packet from its socket's send buffer account. So such a link exerts no
// back-pressure on a sending node, and the node fills the queue. Delay on links between switches,
// away from the senders, is more faithful.
var (
	plainHandle = kernel.Handle(1, 0)
	netemHandle = kernel.Handle(2, 0)
	netemClass  = kernel.Handle(2, 1)
	innerHandle = kernel.Handle(3, 0)
)

// CheckHost returns an error if the host cannot shape the direction. It tries each discipline once
// per process and changes nothing permanently.
func CheckHost(d plan.Direction) error {
	if d.Rate > 0 {
		if err := kernel.ProbeTBF(); err != nil {
			return &verdict.UnsupportedError{
				Feature: "tbf",
				Reason:  fmt.Sprintf("tc qdisc add ... tbf: %v", err),
				Remedy:  "load sch_tbf, or leave out the rate",
			}
		}
	}
	if !d.NeedsNetem() {
		return nil
	}
	if err := kernel.ProbeNetem(); err != nil {
		return &verdict.UnsupportedError{
			Feature: "netem",
			Reason:  fmt.Sprintf("tc qdisc add ... netem: %v", err),
			Remedy:  "load sch_netem, or use soft switches (kind: soft) or VM nodes",
		}
	}
	return kernel.CheckClock()
}

// Check refuses settings that no kernel supports.
func (s Shaping) Check() error {
	switch {
	case s.Rate > 0 && s.Rate.BytesPerSecond() == 0:
		return fmt.Errorf("rate %s: the kernel counts whole bytes per second; want at least 8bit", s.Rate)
	case s.Rate > 0 && s.Queue < frameLength(s.MTU):
		return fmt.Errorf("queue %s holds no frame of MTU %d; want at least %dB", s.Queue, s.MTU,
			frameLength(s.MTU))
	case s.Queue > math.MaxUint32:
		return fmt.Errorf("queue %s: want less than 4GiB", s.Queue)
	case len(s.SoftOnly()) > 0:
		return fmt.Errorf("%s: the kernel's links have no such setting; use soft switches (kind: soft)",
			strings.Join(s.SoftOnly(), ", "))
	}
	return nil
}

// Apply adds the requests that give an interface the shaping. Was is its current shaping, or nil
// for a new interface, which was made with MaxSegments. Queued packets stay queued unless netem is
// added or removed.
func (s Shaping) Apply(b *kernel.Batch, dev string, index int, was *Shaping) {
	if was != nil && was.MaxSegments() != s.MaxSegments() {
		b.SetMaxSegments(dev, index, s.MaxSegments())
	}
	if was != nil && was.shaped() &&
		(!s.shaped() || was.NeedsNetem() && s.NeedsNetem() && was.Rate > 0 && s.Rate == 0) {
		b.DeleteQdisc(dev, index)
	}
	if !s.NeedsNetem() {
		if s.Rate > 0 {
			b.SetTBF(dev, index, kernel.Root, plainHandle, s.tbf())
		}
		return
	}
	b.SetNetem(dev, index, kernel.Root, netemHandle, s.netem())
	if s.Rate > 0 {
		b.SetTBF(dev, index, netemClass, innerHandle, s.tbf())
	}
}

// MaxSegments is the largest number of packets that the end's own stack may hand to the queue as
// one. They leave together if they fit into the burst; otherwise the shaper segments them. Frames
// on the link are single packets either way.
//
// One would be the most faithful, but costs TCP too much CPU time. At 1 Gbit/s with an MTU of 1,500
// a connection over one router got 0.3 to 0.5 of the rate on two busy cores. It got 0.97 to 1 with
// four segments (0.9 with three, 0.6 with two, no more with eight). Four take 48 us on that link.
// Netem draws once for packets handed over as one, so with netem the number is one. So do the programs of
// faults.
func (s Shaping) MaxSegments() int {
	if s.NeedsNetem() || s.Single {
		return 1
	}
	return 4
}

func (s Shaping) shaped() bool { return s.Rate > 0 || s.NeedsNetem() }

func (s Shaping) tbf() kernel.TBF { return kernel.TBF{Rate: s.Rate, Burst: s.Burst, Limit: s.Queue} }

func (s Shaping) netem() kernel.Netem {
	return kernel.Netem{
		Delay: time.Duration(s.Delay), Jitter: time.Duration(s.Jitter),
		Loss: s.Loss, Duplicate: s.Duplicate, Corrupt: s.Corrupt,
		Limit: s.netemLimit(), Seed: s.Seed,
	}
}

// netemLimit returns how many packets netem may hold. It is twice the number of shortest frames
// that the link carries within the longest delay, plus the number that a full queue passes on at
// once. Without a rate, 100 Gbit/s is assumed.
func (s Shaping) netemLimit() uint32 {
	const shortestFrame, fastest = 60, units.Rate(100e9)
	rate := s.Rate
	if rate == 0 {
		rate = fastest
	}
	// Netem's jitter is uniform within +-Jitter without a table.
	longest := time.Duration(s.Delay + s.Jitter).Seconds()
	packets := (2*float64(rate.BytesPerSecond())*longest + float64(s.Queue)) / shortestFrame
	return uint32(min(packets+1000, math.MaxInt32))
}

// Compare lists the differences between the interface's queueing disciplines and the shaping.
func (s Shaping) Compare(qdiscs []kernel.Qdisc) []error {
	want := map[kernel.QdiscHandle]bool{}
	var errs []error
	if s.NeedsNetem() {
		want[netemHandle] = true
		errs = append(errs, s.compareNetem(find(qdiscs, netemHandle))...)
	}
	if s.Rate > 0 {
		handle, parent := plainHandle, kernel.Root
		if s.NeedsNetem() {
			handle, parent = innerHandle, netemClass
		}
		want[handle] = true
		errs = append(errs, s.compareTBF(find(qdiscs, handle), parent)...)
	}
	for _, q := range qdiscs {
		if !want[q.Handle] {
			errs = append(errs, fmt.Errorf("kernel has qdisc %s %s, want none", q.Kind, q.Handle))
		}
	}
	return errs
}

func find(qdiscs []kernel.Qdisc, handle kernel.QdiscHandle) *kernel.Qdisc {
	for i := range qdiscs {
		if qdiscs[i].Handle == handle {
			return &qdiscs[i]
		}
	}
	return nil
}

func (s Shaping) compareTBF(got *kernel.Qdisc, parent kernel.QdiscHandle) (errs []error) {
	if got == nil || got.TBF == nil || got.Parent != parent {
		return []error{fmt.Errorf("kernel has no shaper, want %s", s.Rate)}
	}
	if got.TBF.Rate.BytesPerSecond() != s.Rate.BytesPerSecond() {
		errs = append(errs, fmt.Errorf("kernel has %s, want %s", got.TBF.Rate, s.Rate))
	} else if got.TBF.Burst > s.Burst || got.TBF.Burst+got.TBF.BurstResolution() < s.Burst {
		errs = append(errs, fmt.Errorf("kernel has burst %s, want %s", got.TBF.Burst, s.Burst))
	}
	if got.TBF.Limit != s.Queue {
		errs = append(errs, fmt.Errorf("kernel has queue %s, want %s", got.TBF.Limit, s.Queue))
	}
	return errs
}

func (s Shaping) compareNetem(got *kernel.Qdisc) (errs []error) {
	if got == nil || got.Netem == nil || got.Parent != kernel.Root {
		return []error{fmt.Errorf("kernel has no netem, want delay %s, loss %s", s.Delay, s.Loss)}
	}
	differ := func(what string, got, want any) {
		errs = append(errs, fmt.Errorf("kernel has %s %v, want %v", what, got, want))
	}
	want := s.netem()
	if got.Netem.Delay != want.Delay {
		differ("delay", got.Netem.Delay, want.Delay)
	}
	if got.Netem.Jitter != want.Jitter {
		differ("jitter", got.Netem.Jitter, want.Jitter)
	}
	if got.Netem.Limit != want.Limit {
		differ("netem packet limit", got.Netem.Limit, want.Limit)
	}
	for _, other := range got.Netem.Others {
		errs = append(errs, fmt.Errorf("kernel's netem has %s, want none", other))
	}
	for _, share := range []struct {
		what      string
		got, want units.Ratio
	}{
		{"loss", got.Netem.Loss, want.Loss},
		{"duplication", got.Netem.Duplicate, want.Duplicate},
		{"corruption", got.Netem.Corrupt, want.Corrupt},
	} {
		if !kernel.SameShare(share.got, share.want) {
			// The kernel's value is a fraction of 2^32-1, which is unreadable.
			differ(share.what, fmt.Sprintf("%.4g%%", 100*share.got.Float()), share.want)
		}
	}
	return errs
}

// Stats returns the counters of the shaping's queue: the shaper's if there is one. With netem, the
// drops are netem's count, which includes the drops of the shaper below it.
func (s Shaping) Stats(qdiscs []kernel.Qdisc) (stats kernel.QdiscStats) {
	netem := find(qdiscs, netemHandle)
	shaper := find(qdiscs, plainHandle)
	if shaper == nil {
		shaper = find(qdiscs, innerHandle)
	}
	switch {
	case shaper != nil && netem != nil:
		stats = shaper.Stats
		stats.Drops = netem.Stats.Drops
	case shaper != nil:
		stats = shaper.Stats
	case netem != nil:
		stats = netem.Stats
	}
	return stats
}
