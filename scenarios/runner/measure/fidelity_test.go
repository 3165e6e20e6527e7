package measure

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"railbed/capture/report"
	"railbed/fabric"
	"railbed/fabric/softswitch"
	"railbed/internal/kernel"
	"railbed/plan"
	"railbed/plan/spec"
)

// state is a link h0--s0 of 1 Gbit/s whose first direction has sent bytes and
// holds a backlog.
func state(bytes, backlog uint64) fabric.LinkState {
	d := fabric.DirectionState{Direction: plan.Direction{Rate: 1e9}}
	busy := d
	busy.Shaper = kernel.QdiscStats{Bytes: bytes, Packets: bytes / 1000, BacklogBytes: backlog}
	return fabric.LinkState{
		Name: "h0--s0", Up: true, AToB: busy, BToA: d,
		A: fabric.EndState{Node: "h0", Port: "eth0"}, B: fabric.EndState{Node: "s0", Port: "p0"},
	}
}

// measure feeds a sampler with states 200 ms apart.
func measure(states ...fabric.LinkState) []report.LinkRate {
	s := &Sampler{}
	for i, l := range states {
		s.add(time.Unix(0, 0).Add(time.Duration(i)*sampleInterval), 0, []fabric.LinkState{l}, cpuTime{})
	}
	return s.rates()
}

func TestBusyLinksRate(t *testing.T) {
	// 25,000,000 bytes in 200 ms are 1 Gbit/s.
	const full = 25_000_000
	cases := []struct {
		name     string
		states   []fabric.LinkState
		achieved float64
		busy     float64
		verdict  string
	}{
		{"exact", []fabric.LinkState{state(0, 9), state(full, 9), state(2*full, 9), state(3*full, 9)}, 1e9,
			0.6, report.Faithful},
		{"2.9% slow", []fabric.LinkState{state(0, 9), state(971*full/1000, 9), state(971*2*full/1000, 9),
			state(971*3*full/1000, 9)}, 971e6, 0.6, report.Faithful},
		{"4% slow", []fabric.LinkState{state(0, 9), state(96*full/100, 9), state(96*2*full/100, 9),
			state(96*3*full/100, 9)}, 960e6, 0.6, report.Degraded},
		{"4% fast", []fabric.LinkState{state(0, 9), state(104*full/100, 9), state(104*2*full/100, 9),
			state(104*3*full/100, 9)}, 1040e6, 0.6, report.Degraded},
		{"half", []fabric.LinkState{state(0, 9), state(full/2, 9), state(full, 9), state(3*full/2, 9)}, 5e8,
			0.6, report.Overloaded},
		{"half, but never asked for more",
			[]fabric.LinkState{state(0, 0), state(full/2, 0), state(full, 0), state(3*full/2, 0)}, 0, 0,
			report.Faithful},
		{"two busy intervals prove nothing",
			[]fabric.LinkState{state(0, 9), state(full/2, 9), state(full, 9), state(3*full/2, 0)}, 0, 0,
			report.Faithful},
		{"pauses in all but one interval",
			[]fabric.LinkState{state(0, 9), state(full/2, 9), state(full, 9), state(2*full, 9),
				state(5*full/2, 9)}, 1e9, 0.8, report.Faithful},
		{"one interval seems fast", []fabric.LinkState{state(0, 9), state(full, 9), state(2*full, 9),
			state(3*full+full/10, 9)}, 1e9, 0.6, report.Faithful},
		{"one gap among five", []fabric.LinkState{state(0, 9), state(full, 9), state(full, 9),
			state(2*full, 9), state(3*full, 9), state(4*full, 9)}, 1e9, 1, report.Faithful},
	}
	for _, c := range cases {
		rates := measure(c.states...)
		if len(rates) != 1 {
			t.Fatalf("%s: %d rates, want the one direction that carried something", c.name, len(rates))
		}
		r := rates[0]
		if math.Abs(float64(r.Achieved)-c.achieved) > 1e3 || math.Abs(r.Busy-c.busy) > 1e-9 ||
			r.From != "h0:eth0" || r.To != "s0:p0" {
			t.Errorf("%s: %+v, want %v bit/s in %v s", c.name, r, c.achieved, c.busy)
		}
		f := &report.Fidelity{Links: rates}
		Judge(f, nil)
		if f.Verdict != c.verdict {
			t.Errorf("%s: %s (%v), want %s", c.name, f.Verdict, f.Reasons, c.verdict)
		}
	}
}

// An interval in which the rate, the state or the queue itself changed says
// nothing about a rate, but its bytes count.
func TestChangedLinkIsNotMeasured(t *testing.T) {
	slow := state(1_000_000, 9)
	slow.AToB.Rate = 1e6
	down := state(2_000_000, 9)
	down.AToB.Rate, down.Up = 1e6, false
	fresh := state(500_000, 9) // a new queue counts from zero
	fresh.AToB.Rate, fresh.Up = 1e6, false
	rates := measure(state(0, 9), slow, down, fresh)
	if r := rates[0]; r.Bytes != 2_500_000 || r.Busy != 0 || r.Asked != 1e9 {
		t.Errorf("%+v, want 2,500,000 bytes and no busy time", r)
	}
}

// Where reading the counters takes 40 ms, an interval of 200 ms could be 20 %
// off: the rate is taken over 2 s.
func TestBlurredReadingsAreFurtherApart(t *testing.T) {
	const full = 25_000_000
	s := &Sampler{}
	jitter := []int64{20, -20} // ms; alternately late and early
	for i := range 14 {
		at := time.Unix(0, 0).Add(time.Duration(i) * sampleInterval)
		read := uint64(int64(i)*full + jitter[i%2]*full/200)
		s.add(at, 20*time.Millisecond, []fabric.LinkState{state(read+full, 9)}, cpuTime{})
	}
	r := s.rates()[0]
	if off := math.Abs(float64(r.Achieved)/1e9 - 1); off > blurShare || len(s.meters[0].busy) != 4 {
		t.Errorf("%+v over %d intervals, want 1 Gbit/s within 2%% over 4 intervals of 2 s", r,
			len(s.meters[0].busy))
	}
}

func TestFidelityByNumbers(t *testing.T) {
	lost := func(packets, dropped uint64) []report.Capture {
		return []report.Capture{{Taps: []report.Tap{{Packets: packets, Dropped: dropped}}}}
	}
	cases := []struct {
		name     string
		fidelity report.Fidelity
		captures []report.Capture
		want     string
	}{
		{"nothing", report.Fidelity{}, nil, report.Faithful},
		{"no loss", report.Fidelity{}, lost(1000, 0), report.Faithful},
		{"one lost", report.Fidelity{}, lost(999, 1), report.Degraded},
		{"2% lost", report.Fidelity{}, lost(98, 2), report.Overloaded},
		{"pressure at its limit", report.Fidelity{Pressure: 0.90}, nil, report.Faithful},
		{"all the time", report.Fidelity{Pressure: 1}, nil, report.Degraded},
		{"some steal", report.Fidelity{Steal: 0.06}, nil, report.Degraded},
		{"much steal", report.Fidelity{Steal: 0.26}, nil, report.Overloaded},
	}
	for _, c := range cases {
		Judge(&c.fidelity, c.captures)
		if c.fidelity.Verdict != c.want || (c.want == report.Faithful) != (len(c.fidelity.Reasons) == 0) {
			t.Errorf("%s: %s %q, want %s", c.name, c.fidelity.Verdict, c.fidelity.Reasons, c.want)
		}
	}
}

func TestSamplerSlowsDownWhereLookingIsDear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		s := Start(t.Context(), &plan.Plan{}, nil, func(context.Context, bool) (State, error) {
			reads++
			time.Sleep(100 * time.Millisecond)
			if reads == 2 {
				return State{}, errors.New("busy")
			}
			return State{Links: []fabric.LinkState{state(uint64(reads)*1000, 0)}}, nil
		})
		time.Sleep(10 * time.Second)
		f := s.Finish(t.Context(), Ending{})
		// 100 ms are 5% of 2 s: the first read at 0, then every 2.1 s, and the last.
		if reads != 6 || f.Samples != 5 || len(f.Links) != 1 || f.Links[0].Bytes != 5000 {
			t.Errorf("%d reads, %+v; want 6 reads, 5 of them good, and 5,000 bytes", reads, f)
		}
	})
}

func TestDropsAreCountedBySender(t *testing.T) {
	before, after := state(0, 0), state(10, 0)
	before.BToA.Shaper.Drops, after.BToA.Shaper.Drops = 3, 10
	before.AToB.Shaper.Drops, after.AToB.Shaper.Drops = 1, 8
	for _, kind := range []string{spec.Bridge, spec.Soft} {
		want := uint64(7)
		if kind == spec.Soft { // and emulated NICs record their drops
			for _, end := range []*fabric.EndState{&before.A, &before.B, &after.A, &after.B} {
				end.Soft = &softswitch.PortState{}
			}
			for _, end := range []*fabric.EndState{&after.A, &after.B} {
				end.Soft.Drops = softswitch.ByReason{"nic-overrun": {3: 5}}
			}
			want = 2
		}
		s := &Sampler{plan: &plan.Plan{Switches: []plan.Switch{{Name: "s0", Kind: kind}}}}
		s.add(time.Unix(1, 0), 0, []fabric.LinkState{before}, cpuTime{})
		s.add(time.Unix(2, 0), 0, []fabric.LinkState{after}, cpuTime{})
		drops := s.Drops()
		if nic, port := s.meters[0].rate.From,
			s.meters[1].rate.From; drops[port] != want || drops[nic] != want {
			t.Errorf("drops %v, want %d of %s and %s", drops, want, nic, port)
		}
	}
}

// The texts are the kernel's documentation's (accounting/psi.rst, proc_stat(5)).
func TestCPUState(t *testing.T) {
	root := t.TempDir()
	const stat = "cpu  10 0 20 100 5 0 5 60 0 0\ncpu0 10 0 20 100 5 0 5 60 0 0\nintr 12345 0\n" +
		"procs_running 7\n"
	put(t, filepath.Join(root, "stat"), stat)
	without := readCPUState(root)
	if without.pressure || without.steal != 0.6 || without.total != 2 || without.running != 7 {
		t.Errorf("without pressure: %+v", without)
	}
	put(t, filepath.Join(root, "pressure/cpu"),
		"some avg10=0.12 avg60=1.00 avg300=0.40 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 "+
			"total=9\n")
	if with := readCPUState(root); !with.pressure || with.stalled != 1500*time.Millisecond {
		t.Errorf("with pressure: %+v", with)
	}
}

func TestCPUMeter(t *testing.T) {
	root := t.TempDir()
	write := func(stalled, stat string) {
		put(t, filepath.Join(root, "pressure/cpu"), "some avg10=0 avg60=0 avg300=0 total="+stalled+"\n")
		put(t, filepath.Join(root, "stat"), stat)
	}
	synctest.Test(t, func(t *testing.T) {
		write("1000000", "cpu 0 0 0 0 0 0 0 0 0 0\n")
		meter := startCPUMeter(root)
		time.Sleep(2 * time.Second)
		write("1500000", "cpu 30 0 30 30 0 0 0 10 0 0\n")
		var f report.Fidelity
		meter.finish(&f)
		if f.Pressure != 0.25 || math.Abs(f.Steal-0.1) > 1e-9 || math.Abs(f.Idle-0.3) > 1e-9 ||
			f.PressureSource != "/proc/pressure/cpu" {
			t.Errorf("%+v; want a pressure of 0.25 of 2 s, steal 0.1, idle 0.3", f)
		}
	})
	if err := os.RemoveAll(filepath.Join(root, "pressure")); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(root, "stat"), "cpu 0 0 0 0 0 0 0 0 0 0\nprocs_running 100000\n")
	meter := startCPUMeter(root)
	meter.sample()
	var f report.Fidelity
	if meter.finish(&f); f.Pressure != 1 || !strings.Contains(f.PressureSource, "run queue") {
		t.Errorf("pressure %v from %s, want 1 from the run queue", f.Pressure, f.PressureSource)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}
