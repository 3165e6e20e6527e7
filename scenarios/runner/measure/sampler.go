// Package measure measures a testbed while the steps of a scenario run. It samples links, switches, the
// kernels of nodes, and the host's processors, and judges from them whether the emulation kept up: the
// fidelity of the run. Effects of the file itself, such as of a fault that holds programs back, do not count.
package measure

import (
	"cmp"
	"context"
	"slices"
	"time"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/fabric"
	"railbed/fabric/softswitch"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

const (
	// sampleInterval is the interval at which the links are sampled. A link counts as busy in an
	// interval if its queue was not empty at both ends of the interval.
	sampleInterval = verify.RateInterval
	// sampleShare is the maximum share of time that sampling may take. A large testbed is sampled
	// less often.
	sampleShare = 0.05
)

// HeldUpDegraded and heldUpOverloaded are shares of a source's time in which the host did not run
// it although it should have sent. The offered load is below the file's by this share.
const (
	HeldUpDegraded   = 0.03
	heldUpOverloaded = 0.20
)

// Sampler samples the links and the CPUs while the steps run.
type Sampler struct {
	plan *plan.Plan
	file *spec.Testbed // nil if nothing of the file counts
	// read reads the state. The first and the last time it also reads the counters of the nodes' stacks.
	read func(ctx context.Context, stacks bool) (State, error)
	cpu  *cpuMeter

	stop      context.CancelFunc
	done      chan struct{}
	meters    []linkMeter // two for each link, a-to-b first
	history   history
	downSpans map[string][]report.DownSpan // by NIC
	groups    map[string]uint64            // by NIC, of an ending
	full      uint64                       // frames that watchQueues leaves out of the losses
	samples   int
	began     time.Time
	ended     time.Time // the latest sample
	// first and last are the first and the latest state of the testbed.
	first, last State
}

// Ending has the observations of the steps, which a sampler gets when they have ended.
type Ending struct {
	// Began is when the first step began, or zero if none did.
	Began time.Time
	// HeldUp are the traffic sources that had no CPU.
	HeldUp []report.HeldUp
	// Overruns are the ranks that had no CPU when packets arrived.
	Overruns []report.Overrun
	// Groups are the packets to groups that nodes had for links that steps took down, by NIC.
	Groups map[string]uint64
	// Captures are the run's recordings.
	Captures []report.Capture
}

// Start starts sampling. It takes the first sample before it returns, so that the samples
// cover the steps from their beginning. Effects of the file do not count against the fidelity.
func Start(ctx context.Context, p *plan.Plan, file *spec.Testbed,
	read func(ctx context.Context, stacks bool) (State, error)) *Sampler {
	s := &Sampler{plan: p, file: file, read: read, cpu: startCPUMeter(procRoot), done: make(chan struct{}),
		began: time.Now()}
	ctx, s.stop = context.WithCancel(ctx)
	took := s.sample(ctx, true)
	go func() {
		defer close(s.done)
		for clock.Sleep(ctx, max(sampleInterval-took, time.Duration(float64(took)/sampleShare))) {
			took = s.sample(ctx, false)
			s.cpu.sample()
		}
	}()
	return s
}

// sample takes one sample and returns how long this took. It skips a sample that fails, because the
// testbed may be going down.
func (s *Sampler) sample(ctx context.Context, stacks bool) time.Duration {
	began := time.Now()
	seen, err := s.read(ctx, stacks)
	took := time.Since(began)
	if err == nil {
		// The counters were read at some moment in between.
		s.add(began.Add(took/2), took/2, seen.Links, s.cpu.time(&seen))
		s.watchQueues(&seen)
		s.last, s.ended = seen, began
		if s.samples == 1 {
			s.first = seen
		}
	}
	return took
}

// dilation returns the testbed's dilation.
func (s *Sampler) dilation() clock.Dilation {
	if s.plan == nil {
		return 1
	}
	return clock.Dilation(s.plan.Dilation)
}

func (s *Sampler) add(at time.Time, blur time.Duration, links []fabric.LinkState, cpus cpuTime) {
	s.samples++
	s.watchNICs(at, links)
	if s.meters == nil {
		s.meters = make([]linkMeter, 2*len(links))
		for i := range s.meters {
			s.meters[i].by = s.dilation()
		}
	}
	for i, l := range links {
		s.meters[2*i].add(at, blur, l, plan.AToB)
		s.meters[2*i+1].add(at, blur, l, plan.BToA)
	}
	s.history.add(at, s.meters, cpus)
}

// Finish stops sampling, takes a last sample and judges the fidelity. ctx limits the time of the
// last sample.
func (s *Sampler) Finish(ctx context.Context, e Ending) *report.Fidelity {
	s.stop()
	<-s.done
	if s.groups = e.Groups; !e.Began.IsZero() {
		s.began = e.Began
	}
	s.sample(ctx, true)
	f := &report.Fidelity{Links: s.rates(), Samples: s.samples,
		Timing: softTiming(s.plan, s.began, s.first.Soft, s.last.Soft)}
	lateLinks(f.Links, s.plan, s.last.Soft)
	f.Nodes, f.Backlog, f.Downs = s.kernels(), s.backlog(), s.downs()
	f.HeldUp, f.Overruns = e.HeldUp, e.Overruns
	if s.file != nil {
		f.Undilated = Undilated(s.file)
	}
	s.leaveOut(f)
	leaveOutDowns(f)
	s.cpu.finish(f)
	Judge(f, e.Captures)
	return f
}

// rates returns the rate of every direction that carried something, sorted by load, the highest
// first.
func (s *Sampler) rates() []report.LinkRate {
	rates := []report.LinkRate{}
	for i := range s.meters {
		if rate := s.meters[i].result(); rate.Bytes > 0 {
			rates = append(rates, rate)
		}
	}
	load := func(r report.LinkRate) float64 { return float64(r.Bytes) / float64(max(1, r.Asked)) }
	slices.SortStableFunc(rates, func(x, y report.LinkRate) int { return cmp.Compare(load(y), load(x)) })
	return rates
}

// Drops returns the packets that the kernel's queues dropped, of switches and nodes, by port. Soft switches,
// and the emulated NICs in front of them, record their own drops.
func (s *Sampler) Drops() map[string]uint64 {
	drops := map[string]uint64{}
	if s.plan == nil {
		return drops
	}
	for i := range s.meters {
		if dropped := s.meters[i].kernelDropped(); dropped > 0 {
			drops[s.meters[i].rate.From] += dropped
		}
	}
	return drops
}

// linkMeter measures one direction of a link.
type linkMeter struct {
	by   clock.Dilation // rates are per virtual second
	rate report.LinkRate
	at   time.Time // of the last sample
	last fabric.DirectionState
	up   bool
	held uint64 // how often the far end had paused it
	// Began and ended are the state of the soft switch's port at the first and the last sample.
	began, ended *softswitch.PortState
	// run holds the latest samples since the queue was empty or the link changed.
	run []reading
	// busy is achieved / asked for each busy interval.
	busy []float32
}

// reading is the number of bytes that a link had sent at a time that is known to within blur.
type reading struct {
	at    time.Time
	blur  time.Duration
	bytes uint64
}

const (
	// blurShare is the maximum ratio of the blur of an interval's ends to its length. If sampling
	// takes long, a busy interval starts further back.
	blurShare = 0.02
	// runKept limits how many samples back a busy interval may start.
	runKept = 64
)

func (m *linkMeter) add(at time.Time, blur time.Duration, l fabric.LinkState, direction string) {
	now, from, to := l.AToB, l.A, l.B
	if direction == plan.BToA {
		now, from, to = l.BToA, l.B, l.A
	}
	held, free := SoftCounts(&now, from)
	steady := false
	if m.at.IsZero() {
		m.began = from.Soft
		m.rate = report.LinkRate{
			Link:      l.Name,
			Direction: direction,
			From:      from.Node + ":" + from.Port,
			To:        to.Node + ":" + to.Port,
			Asked:     uint64(now.Rate),
		}
	} else {
		// A link that changed since the last sample had no single rate.
		steady = now.Rate != 0 && m.last.Rate == now.Rate && m.up == l.Up && m.held == held && free
		m.count(m.by.Passed(at.Sub(m.at)).Seconds(), now, steady)
	}
	if !steady || now.Shaper.BacklogBytes == 0 {
		m.run = m.run[:0]
	}
	if now.Shaper.BacklogBytes > 0 {
		m.measure(reading{at: at, blur: blur, bytes: m.rate.Bytes}, float64(now.Rate))
	}
	m.at, m.last, m.up, m.held, m.ended = at, now, l.Up, held, from.Soft
}

// SoftCounts replaces the shaper's counters by an emulated port's counters, plus the link's
// overhead per packet. It returns how often the far end has paused the port so far, and whether the
// port may send freely. The emulator is not responsible for traffic that flow control holds back.
func SoftCounts(d *fabric.DirectionState, sender fabric.EndState) (held uint64, free bool) {
	if sender.Soft == nil {
		return 0, true
	}
	c := &sender.Soft.Counters
	d.Shaper.Packets, d.Shaper.Bytes = c.Sent.Packets, c.Sent.Bytes+uint64(d.Overhead)*c.Sent.Packets
	for q := range c.PausesReceived {
		held += c.PausesReceived[q]
	}
	return held, !sender.Soft.Slowed && !slices.Contains(sender.Soft.Paused[:], true)
}

// count adds what was counted since the last sample.
func (m *linkMeter) count(took float64, now fabric.DirectionState, steady bool) {
	sent := Since(m.last.Shaper.Bytes, now.Shaper.Bytes)
	m.rate.Bytes += sent
	m.rate.Packets += Since(m.last.Shaper.Packets, now.Shaper.Packets)
	m.rate.Dropped += Since(m.last.Shaper.Drops, now.Shaper.Drops)
	if steady && took > 0 {
		if rate := uint64(float64(sent) * 8 / took); rate > m.rate.Peak {
			m.rate.Peak, m.rate.PeakOver = rate, took
		}
	}
}

// measure computes the rate over the shortest busy interval that ends with this reading and is long
// enough for the blur of its ends.
func (m *linkMeter) measure(now reading, asked float64) {
	for i := len(m.run) - 1; i >= 0; i-- {
		before := m.run[i]
		took := now.at.Sub(before.at)
		if took > 0 && float64(now.blur+before.blur) <= blurShare*float64(took) {
			m.busy = append(m.busy, float32(
				float64(now.bytes-before.bytes)*8/m.by.Passed(took).Seconds()/asked))
			m.rate.Busy += m.by.Passed(now.at.Sub(m.at)).Seconds()
			break
		}
	}
	if m.run = append(m.run, now); len(m.run) > runKept {
		m.run = append(m.run[:0], m.run[1:]...)
	}
}

// kernelDropped is the part of the drops that no soft switch and no emulated NIC recorded.
func (m *linkMeter) kernelDropped() uint64 {
	recorded := uint64(0)
	if m.began != nil && m.ended != nil {
		for _, counts := range grown(m.began.Drops, m.ended.Drops) {
			recorded += (*softswitch.ByPriority)(&counts).Total()
		}
	}
	return m.rate.Dropped - min(recorded, m.rate.Dropped)
}

func (m *linkMeter) result() report.LinkRate {
	rate := m.rate
	if m.began != nil && m.ended != nil {
		rate.Drops = grown(m.began.Drops, m.ended.Drops)
		rate.Marks = grown(m.began.Marks, m.ended.Marks)
		rate.Trims = grown(m.began.Trims, m.ended.Trims)
	}
	share, known := verify.Achieved(m.busy)
	if !known {
		rate.Busy = 0
		return rate
	}
	rate.Achieved = uint64(share * float64(rate.Asked))
	return rate
}

// grown returns the growth of counters by reason and priority, without reasons whose counters did
// not grow.
func grown(before, after softswitch.ByReason) (growth map[string][8]uint64) {
	for why, counts := range after {
		for q := range counts {
			counts[q] = Since(before[why][q], counts[q])
		}
		if counts.Total() == 0 {
			continue
		}
		if growth == nil {
			growth = map[string][8]uint64{}
		}
		growth[why] = counts
	}
	return growth
}

// Since returns the growth of a counter. If the counter of a new queue started again from 0, the
// growth is its current value.
func Since(before, after uint64) uint64 {
	if after < before {
		return after
	}
	return after - before
}

// Refine replaces the rates of links by rates from the run's recording, whose packets show when
// a link was busy. They are more exact than counters that are sampled now and then, and railbed
// verify judges by them. refine judges the fidelity again.
func Refine(f *report.Fidelity, rates []verify.Rate, by clock.Dilation, captures []report.Capture) {
	read := map[string]verify.Rate{}
	for _, rate := range rates {
		read[rate.From] = rate
	}
	for i := range f.Links {
		l := &f.Links[i]
		rate := read[l.From]
		if rate.Peak > 0 && rate.Asked > 0 {
			l.Peak = max(l.Peak, uint64(rate.Peak/float64(rate.Asked)*float64(l.Asked)))
			l.PeakOver = by.Passed(verify.PeakInterval).Seconds()
		}
		if !rate.Known {
			continue
		}
		l.Busy, l.Achieved = 0, uint64(rate.Achieved*float64(l.Asked))
		// The samples are further apart than the rates from packets.
		l.Peak = max(l.Peak, l.Achieved)
		if rate.Achieved > 0 {
			l.Busy = by.Passed(rate.Time).Seconds()
		}
	}
	f.Reasons, f.Dropped = nil, 0
	Judge(f, captures)
}

// Levels of reasons against fidelity.
const degraded, overloaded = 1, 2

// level is the level of a value that is too high. Above the limit the run is overloaded.
func level(value, limit float64) int {
	if value > limit {
		return overloaded
	}
	return degraded
}

// Judge sets the verdict and its reasons by the limits of package verify and of timing.go.
func Judge(f *report.Fidelity, captures []report.Capture) {
	worst := 0
	against := func(level int, format string, args ...any) {
		worst = max(worst, level)
		f.Reasons = append(f.Reasons, plural.Text(format, args...))
	}
	for _, l := range f.Links {
		if l.Busy == 0 {
			continue
		}
		deviation := float64(l.Achieved)/float64(l.Asked) - 1
		if off := max(deviation, -deviation); off > verify.RateDegraded {
			against(level(off, verify.RateOverloaded),
				"%s > %s: %s instead of %s while busy (%+.1f%%, limit %.0f%%)",
				l.From, l.To, units.BitRate(float64(l.Achieved)), units.Rate(l.Asked), deviation*100,
				verify.RateDegraded*100)
		}
	}
	var recorded uint64
	for _, c := range captures {
		f.Dropped += c.Dropped()
		recorded += c.Packets()
	}
	if share := float64(f.Dropped) / max(1, float64(f.Dropped+recorded)); share > verify.LostDegraded {
		against(level(share, verify.LostOverloaded), "captures lost %d of %d packets", f.Dropped,
			f.Dropped+recorded)
	}
	for _, u := range f.Undilated {
		if !u.Accepted {
			against(degraded, "%s (accept it with accept-undilated: [%s])", u.Text(), u.What)
		}
	}
	if f.Timing != nil {
		judgeTiming(f.Timing, against)
	}
	for _, h := range f.HeldUp {
		if share := h.Share - h.Asked; share > HeldUpDegraded {
			against(level(share, heldUpOverloaded),
				"traffic %s: the host held %s up for %.0f%% of its time, in which it sent nothing (limit "+
					"%.0f%%)",
				h.Traffic, h.Node, share*100, HeldUpDegraded*100)
		}
	}
	judgeKernels(f, against)
	for _, o := range f.Overruns {
		if o.Asked {
			continue
		}
		against(overloaded, "workload %s: rank %d at %s had no room for %d packets: the host did not let "+
			"it read them", o.Workload, o.Rank, o.Node, o.Packets)
	}
	if f.Pressure > verify.PressureDegraded {
		against(degraded, "tasks waited for a CPU in %.0f%% of the time (limit %.0f%%)", f.Pressure*100,
			verify.PressureDegraded*100)
	}
	if f.Steal > verify.StealDegraded {
		against(level(f.Steal, verify.StealOverloaded),
			"the hypervisor took %.0f%% of the CPU time (limit %.0f%%)", f.Steal*100,
			verify.StealDegraded*100)
	}
	f.Verdict = []string{report.Faithful, report.Degraded, report.Overloaded}[worst]
}
