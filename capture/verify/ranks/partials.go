package ranks

import (
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"

	"railbed/capture/filter"
	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

// partialSums checks that switches aggregate on the way to the root. Each switch but the root sends
// one partial sum up, by the link to the next switch. It does so for every round of a slot in which
// all its children have sent, and the partial sum adds up all of them. The switch sends the sum
// again only when a child has sent its update again. The check reads the packets that a switch
// receives and sends at the switch's own ports.
type partialSums struct {
	workload evidence.Workload
	capture  *evidence.Capture
	job      *plan.AggregationJob
	members  []*member // all switches of the tree but the root
	wrong    evidence.Tally
	short    evidence.Tally // wrong if no packet is missing
	late     evidence.Tally // sums of past rounds: wrong if the switch's taps have one clock
	count    struct{ wrong, short, late uint64 }
}

// member is a switch that sends partial sums.
type member struct {
	*plan.AggregationSwitch
	workers  uint64
	children map[netip.Addr]uint64 // their workers, by address
	slots    map[int]*partialRound // by slot and set
	partials uint64                // rounds whose sum was sent up
	again    uint64
	bytes    uint64 // of elements, each once
	below    uint64 // bytes of elements received from children
	dropped  uint64 // partial sums that were lost on the link
}

// partialRound is a round of a slot at a switch.
type partialRound struct {
	round     uint32
	came      uint64 // workers whose elements were received
	questions int    // updates that were received again
	sent      int
	lost      bool // some sent sums were lost
}

var _ = evidence.Register(evidence.Kind{Key: "partial-sums", Example: "ar", Timed: evidence.Never,
	Conditions: conditions.Conditions{Examine: partialSumsConditions},
	Make:       evidence.OfWorkload(NewPartialSums)})

func partialSumsConditions(l *conditions.Prover, path string, _ *spec.PacketsCheck) {
	l.Seen(path, l.Which(conditions.IsSwitch), true)
}

// NewPartialSums makes the check.
func NewPartialSums(w evidence.Workload) evidence.Check { return &partialSums{workload: w} }

// Begin implements Check.
func (k *partialSums) Begin(c *evidence.Capture) {
	k.capture = c
	if c.Plan == nil || k.workload.Sums == nil {
		return
	}
	jobs := c.Plan.AggregationJobs()
	at := slices.IndexFunc(jobs, func(job *plan.AggregationJob) bool {
		return job.Number == k.workload.Sums.Job
	})
	if at < 0 {
		return
	}
	k.job = jobs[at]
	for at := 1; at < len(k.job.Tree); at++ {
		one := &member{AggregationSwitch: &k.job.Tree[at], workers: k.job.Below(at),
			children: map[netip.Addr]uint64{}, slots: map[int]*partialRound{}}
		for _, w := range one.Workers {
			for _, addr := range []netip.Addr{k.job.Workers[w].Addr4, k.job.Workers[w].Addr6} {
				one.children[addr] |= 1 << w // ranks may share a NIC
			}
		}
		for i := range k.job.Tree {
			if below := &k.job.Tree[i]; below.Above == at {
				one.children[below.Addr4], one.children[below.Addr6] = k.job.Below(i), k.job.Below(i)
			}
		}
		k.members = append(k.members, one)
	}
}

// Packet implements Check.
func (k *partialSums) Packet(p *evidence.Packet) {
	a := p.Aggregation
	if a == nil || p.Flow == nil || k.job == nil || p.Tap.NIC || a.Job() != k.job.Number ||
		a.Epoch() != k.workload.Sums.Epoch || int(a.Slot()) >= k.job.Slots {
		return
	}
	for _, m := range k.members {
		if m.Switch != p.Tap.Node {
			continue
		}
		src, dst := p.Flow.Src.Addr(), p.Flow.Dst.Addr()
		up := a.Kind() == wire.AggregationPartial
		switch own := func(addr netip.Addr) bool { return addr == m.Addr4 || addr == m.Addr6 }; {
		case p.Direction == evidence.Out && own(src) && up:
			k.sent(m, p)
		case p.Direction == evidence.In && p.Drop == "" && own(dst) &&
			(up || a.Kind() == wire.AggregationUpdate) && m.children[src]&a.Bitmap() != 0:
			k.came(m, a)
		case p.Direction == evidence.Out && m.children[src]&a.Bitmap() != 0 &&
			(up || a.Kind() == wire.AggregationUpdate) && !own(dst):
			k.wrongly("%s forwarded an update from %s to %s", m.Switch, p.Flow.Src, p.Flow.Dst)
		}
	}
}

func (k *partialSums) wrongly(format string, args ...any) {
	k.count.wrong++
	k.wrong.Exemplify(format, args...)
}

func (k *partialSums) shortly(format string, args ...any) {
	k.count.short++
	k.short.Exemplify(format, args...)
}

// at returns the round of a slot to which a message belongs, or nil if the round is past.
func (k *partialSums) at(m *member, a wire.Aggregation) *partialRound {
	key := 2*int(a.Slot()) + a.Set()
	s := m.slots[key]
	if s == nil {
		s = &partialRound{round: a.Round()}
		m.slots[key] = s
	}
	switch ahead := int32(a.Round() - s.round); {
	case ahead < 0:
		return nil
	case ahead > 0:
		k.over(m, int(a.Slot()), s)
		*s = partialRound{round: a.Round()}
	}
	return s
}

// over judges a round when no more messages of the round come.
func (k *partialSums) over(m *member, slot int, s *partialRound) {
	if s.came == m.workers && s.sent == 0 && !s.lost {
		k.shortly("%s: no partial sum of slot %d, round %d went up, although all below it had sent",
			m.Switch, slot, s.round)
	}
}

// came adds a message from a child.
func (k *partialSums) came(m *member, a wire.Aggregation) {
	s := k.at(m, a)
	if s == nil {
		return
	}
	if s.came&a.Bitmap() != 0 {
		s.questions++
		return
	}
	s.came |= a.Bitmap()
	m.below += uint64(a.DataLen())
}

// sent adds a partial sum that the switch sent.
func (k *partialSums) sent(m *member, p *evidence.Packet) {
	a := p.Aggregation
	if a.Bitmap() != m.workers || p.Flow.Dst.Addr() != k.job.Tree[m.Above].Addr4 &&
		p.Flow.Dst.Addr() != k.job.Tree[m.Above].Addr6 {
		k.wrongly("%s sent %s a sum of %s, want of %s to %s", m.Switch, p.Flow.Dst, k.ranks(a.Bitmap()),
			k.ranks(m.workers), k.job.Tree[m.Above].Switch)
		return
	}
	s := k.at(m, a)
	if s == nil {
		k.count.late++
		k.late.Exemplify("%s sent a sum of slot %d up after its round %d was over",
			m.Switch, a.Slot(), a.Round())
		return
	}
	if p.Drop != "" { // dropped from the queue, or on the link after it was sent
		m.dropped++
		s.lost = true
		return
	}
	if s.came != m.workers {
		k.shortly("%s sent a sum of slot %d, round %d, before the updates of %s had come", m.Switch, a.Slot(),
			a.Round(), k.ranks(m.workers&^s.came))
	}
	if s.sent++; s.sent == 1 {
		m.partials++
		m.bytes += uint64(a.DataLen())
		return
	}
	m.again++
	if s.sent > 1+s.questions {
		k.shortly("%s sent the sum of slot %d, round %d up %d times, and was asked again %d times", m.Switch,
			a.Slot(), a.Round(), s.sent, s.questions)
	}
}

// ranks lists the ranks of workers.
func (k *partialSums) ranks(workers uint64) string {
	var ranks []int
	for ; workers != 0; workers &= workers - 1 {
		if w := bits.TrailingZeros64(workers); w < len(k.job.Workers) {
			ranks = append(ranks, k.job.Workers[w].Rank)
		}
	}
	return fmt.Sprintf("ranks %v", ranks)
}

// Result implements Check.
func (k *partialSums) Result() evidence.Result {
	r := evidence.Result{Name: "partial-sums " + k.workload.Name, Measured: map[string]float64{}}
	if k.job == nil || len(k.members) == 0 {
		r.Verdict = verdict.Inconclusive
		r.Summary = "no switch sends partial sums of this workload: a single switch, or none of the plan, " +
			"adds it up"
		return r
	}
	for _, m := range k.members {
		for _, key := range slices.Sorted(maps.Keys(m.slots)) {
			k.over(m, key/2, m.slots[key])
		}
	}
	k.wrong.Count(k.count.wrong, "messages that an aggregating switch must not send")
	k.short.Count(k.count.short, "rounds without exactly one partial sum after all updates, or with more "+
		"repeats than requests")
	k.late.Count(k.count.late, "sums went up in rounds that were over")
	f := evidence.Finding{Wrong: k.wrong.All(), Absent: append(k.short.All(), k.late.All()...)}
	var partials, again, bytes, below uint64
	for _, m := range k.members {
		partials, again, bytes, below = partials+m.partials, again+m.again, bytes+m.bytes, below+m.below
		r.Measured[m.Switch+".partials"], r.Measured[m.Switch+".again"] = float64(m.partials),
			float64(m.again)
		r.Measured[m.Switch+".bytes"], r.Measured[m.Switch+".below"] = float64(m.bytes), float64(m.below)
		r.Details = append(r.Details, plural.Text("%s: %d partial sums of %s up to %s, %d bytes of "+
			"elements for %d that came to it; %d sent again, %d lost on its link",
			m.Switch, m.partials, k.ranks(m.workers), k.job.Tree[m.Above].Switch, m.bytes, m.below, m.again,
			m.dropped))
		want := uint64(k.workload.Ranks[m.first()].Expected)
		switch line := plural.Text("%s: sent %d bytes up, the algorithm sends %d", m.Switch, m.bytes, want); {
		case m.partials == 0:
			f.Unclear = append(f.Unclear, m.Switch+": no partial sum of the workload")
		case m.bytes > want:
			f.Wrong = append(f.Wrong, line)
		case m.bytes < want:
			f.Absent = append(f.Absent, line)
		}
	}
	r.Measured["partials"], r.Measured["again"], r.Measured["bytes"], r.Measured["below"] = float64(partials),
		float64(again), float64(bytes), float64(below)
	r.Summary = plural.Text("%d switches sent %d partial sums up, each once for all below, %d bytes for %d "+
		"that came; %d sent again for hosts that asked again",
		len(k.members), partials, bytes, below, again)
	ports := k.capture.Ports(func(t *evidence.Tap) bool {
		return slices.ContainsFunc(k.members, func(m *member) bool { return m.Switch == t.Node })
	})
	need := evidence.Need{Ports: ports, Packets: filter.Transport(evidence.ProtoUDP, 0, wire.PortAggregation),
		From: k.workload.From, To: k.workload.To, Clocks: true, Durations: true}
	k.capture.Conclude(&r, need, f)
	return r
}

// first returns the lowest worker below the switch.
func (m *member) first() int { return bits.TrailingZeros64(m.workers) }
