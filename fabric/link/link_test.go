package link

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"railbed/internal/kernel"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/testkit/hosttest"
)

// The tests measure rates and durations.
var _ = hosttest.MarkPackage(hosttest.Alone, hosttest.AsNobody)

func TestMain(m *testing.M) { os.Exit(hosttest.MainInUserNS(m)) }

// bucket models a token bucket that is drained by a timer which is late by
// late: it loses what arrives while it is full.
func bucket(rate units.Rate, mtu int, late time.Duration) measurement {
	return func(_ context.Context, burst units.Bytes) (units.Rate, error) {
		// how long the bucket takes to fill once a frame is due
		room := rate.SerialisationTime(burst - frameLength(mtu))
		lost := max(0, late-room)
		share := float64(room+rate.SerialisationTime(frameLength(mtu))) / float64(
			room+lost+rate.SerialisationTime(frameLength(mtu)))
		return units.Rate(share * float64(rate)), nil
	}
}

func TestSearchFindsTheSmallestBurst(t *testing.T) { synctest.Test(t, searchFindsTheSmallestBurst) }

func searchFindsTheSmallestBurst(t *testing.T) {
	for _, mtu := range []int{1500, 4200, 9000} {
		for _, rate := range []units.Rate{10e6, 1e9, 10e9} {
			for _, late := range []time.Duration{0, 10 * time.Microsecond, 60 * time.Microsecond,
				100 * time.Microsecond} {
				measure := bucket(rate, mtu, late)
				entry, err := search(context.Background(), rate, mtu, measure, alone)
				if err != nil {
					t.Errorf("%s MTU %d, timer %s late: %v", rate, mtu, late, err)
					continue
				}
				if !entry.plausible() {
					t.Errorf("%s MTU %d, timer %s late: implausible %+v", rate, mtu, late, entry)
				}
				smaller := units.Bytes(float64(entry.Burst) / resolution / 1.01)
				if smaller < frameLength(mtu) {
					continue
				}
				if got, _ := measure(context.Background(), smaller); within(aim, got, rate) {
					t.Errorf("%s MTU %d, timer %s late: burst %d found, %d is enough", rate, mtu, late,
						entry.Burst, smaller)
				}
			}
		}
	}
}

func TestSearchBearsDisturbance(t *testing.T) { synctest.Test(t, searchBearsDisturbance) }

func searchBearsDisturbance(t *testing.T) {
	const rate, mtu = 1e9, 1500
	for seed := range uint64(200) {
		draw := rand.New(rand.NewPCG(seed, 0))
		calm := bucket(rate, mtu, 50*time.Microsecond)
		// Two measurements of three lose up to half of the rate.
		disturbed := func(ctx context.Context, burst units.Bytes) (units.Rate, error) {
			got, err := calm(ctx, burst)
			if draw.IntN(3) > 0 {
				got = units.Rate(float64(got) * (0.5 + draw.Float64()/2))
			}
			return got, err
		}
		entry, err := search(context.Background(), rate, mtu, disturbed, alone)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		} else if truly, _ := calm(context.Background(), entry.Burst); !reached(truly, rate) ||
			!entry.plausible() {
			t.Errorf("seed %d: burst %d reaches %s", seed, entry.Burst, truly)
		}
	}
}

// alone is the load of a host on which nothing else runs.
func alone() func() float64 { return func() float64 { return 0.01 } }

// crowded is the load of a host of which others take a fifth.
func crowded() func() float64 { return func() float64 { return 0.2 } }

// A busy host's shaper falls short for the time being: that does not show what the host can reach.
func TestSearchOnABusyHost(t *testing.T) { synctest.Test(t, searchOnABusyHost) }

func searchOnABusyHost(t *testing.T) {
	const rate, mtu = 100e6, 1500
	for _, c := range []struct {
		most     units.Rate // that gets through
		until    time.Duration
		others   load
		achieved units.Rate // 0: not reachable
		text     string
	}{
		{98_400_000, 9 * time.Second, crowded, 100e6, ""},
		{83_000_000, 9 * time.Second, crowded, 100e6, ""},
		{98_400_000, time.Hour, crowded, 98_400_000, ""},
		{83_000_000, time.Hour, crowded, 0, "best 83mbit with burst 3KB and MTU 1500 while other processes " +
			"took 20% of the CPU time"},
		{98_400_000, time.Hour, alone, 0, "best 98400kbit with burst 3KB and MTU 1500;"},
	} {
		calm, start := bucket(rate, mtu, 20*time.Microsecond), time.Now()
		entry, err := search(t.Context(), rate, mtu, func(ctx context.Context, burst units.Bytes) (units.Rate,
			error) {
			got, err := calm(ctx, burst)
			if time.Since(start) < c.until {
				got = min(got, c.most)
			}
			return got, errors.Join(err, sleep(ctx, 55*time.Millisecond))
		}, c.others)
		var unreachable *UnreachableError
		if entry.Achieved != c.achieved || errors.As(err, &unreachable) != (c.achieved == 0) ||
			err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s for %s: %+v, %v", c.most, c.until, entry, err)
		}
	}
}

func TestSearchSaysWhatIsNotReachable(t *testing.T) { synctest.Test(t, searchSaysWhatIsNotReachable) }

func searchSaysWhatIsNotReachable(t *testing.T) {
	calls := 0
	_, err := search(context.Background(), 40e9, 9000,
		func(_ context.Context, burst units.Bytes) (units.Rate, error) {
			calls++
			return min(40e9, 5_643_219_876), nil
		}, alone)
	want := "40gbit not reachable on this host: best 5640mbit with burst 1MB and MTU 9000; ask for less or " +
		"use dilation"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if calls > chancesIfFar {
		t.Errorf("%d measurements of a rate that is far out of reach", calls)
	}
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || unreachable.Best != 5_643_219_876 {
		t.Errorf("got %#v", err)
	}
}

func TestBurstIsConfirmedWithTCP(t *testing.T) { synctest.Test(t, burstIsConfirmedWithTCP) }

func burstIsConfirmedWithTCP(t *testing.T) {
	start := Entry{Rate: 1e9, MTU: 1500, Burst: 5_000, Achieved: 998e6}
	tcp := func(rates map[units.Bytes]units.Rate) measurement {
		return func(_ context.Context, burst units.Bytes) (units.Rate, error) {
			got, known := rates[burst]
			if !known {
				t.Errorf("burst %d was tried", burst)
			}
			return got, nil
		}
	}
	for _, c := range []struct {
		rates    map[units.Bytes]units.Rate
		burst    units.Bytes
		achieved units.Rate
	}{
		{map[units.Bytes]units.Rate{5_000: 995e6}, 5_000, 995e6},
		{map[units.Bytes]units.Rate{5_000: 790e6, 7_500: 960e6, 11_250: 992e6}, 11_250, 992e6},
		// Too slow for the rate: the smallest burst within 1 % of the best.
		{map[units.Bytes]units.Rate{5_000: 500e6, 7_500: 697e6, 11_250: 700e6, 16_875: 690e6, 25_000: 698e6},
			7_500, 998e6},
	} {
		got, err := confirm(context.Background(), start, tcp(c.rates))
		if err != nil || got.Burst != c.burst || got.Achieved != c.achieved || !got.plausible() {
			t.Errorf("TCP gets %v: burst %d, %s, %v, want %d, %s", c.rates, got.Burst, got.Achieved, err,
				c.burst, c.achieved)
		}
	}
	failure := errors.New("no")
	if _, err := confirm(context.Background(), start,
		func(context.Context, units.Bytes) (units.Rate, error) { return 0, failure }); !errors.Is(err,
		failure) {
		t.Errorf("got %v", err)
	}
}

func TestBurstIsBounded(t *testing.T) {
	// max(2 MTU, rate x 200 us), by hand.
	for _, c := range []struct {
		rate units.Rate
		mtu  int
		want units.Bytes
	}{{1e9, 1500, 25_000}, {10e6, 1500, 3_000}, {1e9, 9000, 25_000}, {100e6, 9000, 18_000},
		{40e9, 9000, 1_000_000}} {
		if got := maxBurst(c.rate, c.mtu); got != c.want {
			t.Errorf("%s at MTU %d: at most %d, want %d", c.rate, c.mtu, got, c.want)
		}
	}
}

// counted is a calibration that counts its measurements instead of making them.
func counted(t *testing.T, path string, measurements *atomic.Int64) *Calibration {
	t.Helper()
	c, err := LoadCalibration(path)
	if err != nil {
		t.Fatal(err)
	}
	c.measure = func(_ context.Context, rate units.Rate, mtu int) (Entry, error) {
		measurements.Add(1)
		time.Sleep(5 * time.Millisecond)
		return Entry{Rate: rate, MTU: mtu, Burst: frameLength(mtu), Achieved: rate,
			Measured: time.Unix(1700000000, 0).UTC()}, nil
	}
	return c
}

func TestCalibrationIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "calibration.json")
	var measurements atomic.Int64
	var group sync.WaitGroup
	for range 8 { // as eight processes would: they share only the file
		c := counted(t, path, &measurements)
		group.Go(func() {
			for _, rate := range []units.Rate{1e9, 10e9} {
				for _, mtu := range []int{1500, 9000} {
					entry, err := c.Burst(context.Background(), rate, mtu)
					if err != nil || entry.Burst != frameLength(mtu) || entry.Rate != rate {
						t.Errorf("%s at MTU %d: %+v, %v", rate, mtu, entry, err)
					}
				}
			}
		})
	}
	group.Wait()
	if got := measurements.Load(); got != 4 {
		t.Errorf("%d measurements of 4 shapes", got)
	}
	if _, known := counted(t, path, &measurements).Known(10e9, 9000); !known {
		t.Error("a later process does not know what was measured")
	}
	if _, known := counted(t, path, &measurements).Known(10e9, 4200); known {
		t.Error("a shape is known that nobody measured")
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestCalibrationOfAnotherHostDoesNotCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calibration.json")
	var measurements atomic.Int64
	c := counted(t, path, &measurements)
	c.host.Kernel += "-other"
	if _, err := c.Burst(context.Background(), 1e9, 1500); err != nil {
		t.Fatal(err)
	}
	here := counted(t, path, &measurements)
	if _, known := here.Known(1e9, 1500); known {
		t.Error("another kernel's calibration counts here")
	}
	if _, err := here.Burst(context.Background(), 1e9, 1500); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), `"burst"`) != 2 {
		t.Errorf("the other kernel's entry was dropped: %s, %v", text, err)
	}
}

func TestDamagedCalibrationIsMeasuredAgain(t *testing.T) {
	var measurements atomic.Int64
	path := filepath.Join(t.TempDir(), "calibration.json")
	if _, err := counted(t, path, &measurements).Burst(context.Background(), 1e9, 1500); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, damage := range []string{
		"", "{", "null", "[]", string(good[:len(good)/2]),
		strings.Replace(string(good), fmt.Sprintf(`"version": %d`, cacheVersion), `"version": 0`, 1),
		strings.Replace(string(good), `"burst": "1514B"`, `"burst": "1513B"`, 1),
		strings.Replace(string(good), `"burst": "1514B"`, `"burst": "25001B"`, 1),
		strings.Replace(string(good), `"achieved": "1gbit"`, `"achieved": "5gbit"`, 1),
	} {
		if damage == string(good) {
			t.Fatalf("the file is not what this test thinks:\n%s", good)
		}
		if err := os.WriteFile(path, []byte(damage), 0o644); err != nil {
			t.Fatal(err)
		}
		before := measurements.Load()
		if _, err := counted(t, path, &measurements).Burst(context.Background(), 1e9, 1500); err != nil ||
			measurements.Load() != before+1 {
			t.Errorf("%d measurements after damage %q, %v", measurements.Load()-before, damage, err)
		}
		if _, known := counted(t, path, &measurements).Known(1e9, 1500); !known {
			t.Errorf("damage %q was not repaired", damage)
		}
	}
}

func TestCalibrationWaitsForTheLockOnlyAsLongAsItsContext(t *testing.T) {
	var measurements atomic.Int64
	path := filepath.Join(t.TempDir(), "calibration.json")
	c := counted(t, path, &measurements)
	unlock, err := lockFile(context.Background(), path+".lock")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := c.Burst(ctx, 1e9, 1500); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	unlock()
	if _, err := c.Burst(context.Background(), 1e9, 1500); err != nil {
		t.Error(err)
	}
}

func TestDefaultPath(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/somewhere")
	path, err := defaultPath()
	if err != nil || path != "/var/cache/railbed/calibration.json" &&
		path != "/somewhere/railbed/calibration.json" {
		t.Errorf("got %s, %v", path, err)
	}
}

func shaping(change func(*Shaping)) Shaping {
	s := Shaping{Direction: plan.Direction{Rate: 1e9, Queue: 262_144}, MTU: 1500, Burst: 25_000, Seed: 7}
	if change != nil {
		change(&s)
	}
	return s
}

func withNetem(s *Shaping) {
	s.Delay, s.Loss = units.Duration(time.Millisecond), units.Ratio{Num: 1, Den: 1000}
}

// lines are the tc lines of a change.
func lines(t *testing.T, s Shaping, was *Shaping) []string {
	t.Helper()
	hosttest.Need(t, hosttest.Netns)
	ns, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	conn, err := kernel.OpenIn(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var traced []string
	b := kernel.NewBatch("n", func(line string) { traced = append(traced, line) })
	s.Apply(b, "eth0", 4711, was)
	_ = conn.Do(b) // there is no such interface: the test checks the lines of the requests
	return traced
}

func TestTreesOfShaping(t *testing.T) {
	plain, delayed := shaping(nil), shaping(withNetem)
	none := shaping(func(s *Shaping) { s.Rate = 0 })
	delayOnly := shaping(func(s *Shaping) { withNetem(s); s.Rate = 0 })
	const (
		tbf = "tc -n n qdisc replace dev eth0 root handle 1: tbf rate 1000000000bit burst 25000b " +
			"limit 262144b"
		netem = "tc -n n qdisc replace dev eth0 root handle 2: netem limit 9535 delay 1ms 0s loss 0.1% " +
			"duplicate 0% corrupt 0% seed 7"
		inner = "tc -n n qdisc replace dev eth0 parent 2:1 handle 3: tbf rate 1000000000bit burst " +
			"25000b limit 262144b"
		netemOnly = "tc -n n qdisc replace dev eth0 root handle 2: netem limit 422035 delay 1ms 0s loss " +
			"0.1% duplicate 0% corrupt 0% seed 7"
		one    = "ip -n n link set eth0 gso_max_segs 1"
		four   = "ip -n n link set eth0 gso_max_segs 4"
		remove = "tc -n n qdisc delete dev eth0 root"
	)
	for i, c := range []struct {
		want []string
		s    Shaping
		was  *Shaping
	}{
		{[]string{tbf}, plain, nil},
		{[]string{tbf}, plain, &plain},
		{[]string{netem, inner}, delayed, nil},
		{[]string{one, netem, inner}, delayed, &plain},
		{[]string{four, tbf}, plain, &delayed},
		{nil, none, nil},
		{nil, none, &none},
		{[]string{remove}, none, &plain},
		{[]string{four, remove}, none, &delayed},
		{[]string{remove, netemOnly}, delayOnly, &delayed},
		{[]string{one, netemOnly}, delayOnly, &plain},
		{[]string{netem, inner}, delayed, &delayOnly},
	} {
		got := lines(t, c.s, c.was)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("case %d:\n got %s\nwant %s", i, strings.Join(got, "\n     "),
				strings.Join(c.want, "\n     "))
		}
	}
}

// Netem counts the drops of the shaper below it. TestNetem of the fabric compares the sum with the
// losses.
func TestDropsAreCountedOnce(t *testing.T) {
	shaper, netem := kernel.QdiscStats{Packets: 7, Drops: 3}, kernel.QdiscStats{Packets: 7, Drops: 5}
	for _, c := range []struct {
		qdiscs []kernel.Qdisc
		want   kernel.QdiscStats
	}{
		{[]kernel.Qdisc{{Handle: plainHandle, Stats: shaper}}, shaper},
		{[]kernel.Qdisc{{Handle: netemHandle, Stats: netem}}, netem},
		{[]kernel.Qdisc{{Handle: netemHandle, Stats: netem}, {Handle: innerHandle, Stats: shaper}},
			kernel.QdiscStats{Packets: 7, Drops: 5}},
	} {
		if got := (Shaping{}).Stats(c.qdiscs); got != c.want {
			t.Errorf("%+v: got %+v, want %+v", c.qdiscs, got, c.want)
		}
	}
}

func TestCompareTellsEveryDifference(t *testing.T) {
	s := shaping(withNetem)
	good := func() []kernel.Qdisc {
		netem := s.netem()
		return []kernel.Qdisc{
			{Kind: "netem", Handle: netemHandle, Parent: kernel.Root, Netem: &netem},
			{Kind: "tbf", Handle: innerHandle, Parent: netemClass,
				TBF: &kernel.TBF{Rate: s.Rate, Burst: s.Burst - 2, Limit: s.Queue}},
		}
	}
	if errs := s.Compare(good()); len(errs) > 0 {
		t.Errorf("what was asked for differs: %v", errs)
	}
	for want, alter := range map[string]func(q []kernel.Qdisc) []kernel.Qdisc{
		"kernel has 5640mbit, want 1gbit": func(q []kernel.Qdisc) []kernel.Qdisc {
			q[1].TBF.Rate = 5.64e9
			return q
		},
		"kernel has burst 25001B, want 25KB": func(q []kernel.Qdisc) []kernel.Qdisc {
			q[1].TBF.Burst = 25_001
			return q
		},
		"kernel has burst 20KB, want 25KB": func(q []kernel.Qdisc) []kernel.Qdisc {
			q[1].TBF.Burst = 20_000
			return q
		},
		"kernel has queue 1B, want 256KiB": func(q []kernel.Qdisc) []kernel.Qdisc {
			q[1].TBF.Limit = 1
			return q
		},
		"kernel has no shaper, want 1gbit": func(
			q []kernel.Qdisc) []kernel.Qdisc {
			return q[:1]
		},
		"kernel has delay 0s, want 1ms": func(q []kernel.Qdisc) []kernel.Qdisc {
			q[0].Netem.Delay = 0
			return q
		},
		"kernel has jitter 1ns, want 0s": func(q []kernel.Qdisc) []kernel.Qdisc {
			q[0].Netem.Jitter = 1
			return q
		},
		"kernel has netem packet limit 1, want 9535": func(q []kernel.Qdisc) []kernel.Qdisc {
			q[0].Netem.Limit = 1
			return q
		},
		"kernel has loss 0%, want 0.1%": func(q []kernel.Qdisc) []kernel.Qdisc {
			q[0].Netem.Loss = units.Ratio{}
			return q
		},
		"kernel has duplication 50%, want 0%": func(q []kernel.Qdisc) []kernel.Qdisc {
			q[0].Netem.Duplicate = units.Ratio{Num: 1, Den: 2}
			return q
		},
		"kernel has corruption 50%, want 0%": func(q []kernel.Qdisc) []kernel.Qdisc {
			q[0].Netem.Corrupt = units.Ratio{Num: 1, Den: 2}
			return q
		},
		"kernel has loss 2%, want 0.1%": func(q []kernel.Qdisc) []kernel.Qdisc {
			q[0].Netem.Loss = units.Ratio{Num: 85_899_346, Den: math.MaxUint32} // as it is read back
			return q
		},
		"kernel's netem has reorder, want none": func(q []kernel.Qdisc) []kernel.Qdisc {
			q[0].Netem.Others = []string{"reorder"}
			return q
		},
		"kernel has no netem, want delay 1ms, loss 0.1%": func(
			q []kernel.Qdisc) []kernel.Qdisc {
			return q[1:]
		},
		"kernel has qdisc pfifo 8:, want none": func(q []kernel.Qdisc) []kernel.Qdisc {
			return append(q, kernel.Qdisc{Kind: "pfifo", Handle: kernel.Handle(8, 0)})
		},
	} {
		errs := s.Compare(alter(good()))
		if len(errs) != 1 || errs[0].Error() != want {
			t.Errorf("got %v, want %s", errs, want)
		}
	}
}

func TestCheckRefusesWhatNoKernelDoes(t *testing.T) {
	for want, s := range map[string]Shaping{
		"holds no frame of MTU 1500; want at least 1514B": shaping(
			func(s *Shaping) { s.Queue = 1513 }),
		"whole bytes per second": shaping(func(s *Shaping) { s.Rate = 7 }),
		"want less than 4GiB": shaping(func(s *Shaping) {
			s.Queue = math.MaxUint32 + 1
		}),
		"drop-every, flap: the kernel's links have no such setting": shaping(func(s *Shaping) {
			s.DropEvery, s.Flap = 3, plan.Flap{Every: 2, For: 1}
		}),
	} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, s := range []Shaping{shaping(nil), shaping(func(s *Shaping) { s.Queue = 1514 }),
		shaping(func(s *Shaping) {
			s.Rate, s.Queue = 0, 0
		})} {
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestNetemIsUnsupportedWhereTheKernelHasNone(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	if err := CheckHost(shaping(nil).Direction); err != nil {
		t.Errorf("rate and queue alone need %v", err)
	}
	err := CheckHost(shaping(withNetem).Direction)
	if kernel.ProbeNetem() == nil {
		if err != nil {
			t.Error(err)
		}
		t.Skip("this host has netem")
	}
	var unsupported *verdict.UnsupportedError
	if !errors.As(err, &unsupported) || unsupported.Feature != "netem" || unsupported.Remedy == "" ||
		!strings.Contains(unsupported.Reason, "no such file") {
		t.Errorf("got %v", err)
	}
}

func TestSettledRigMeasures(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := LoadCalibration(filepath.Join(t.TempDir(), "calibration.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, rate := range []units.Rate{1e6, 100e6, 200e6} { // the last with TCP
		entry, err := c.Burst(ctx, rate, 1500)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: burst %d achieves %s", rate, entry.Burst, entry.Achieved)
		busy := c.NotStored() != nil && strings.Contains(c.NotStored().Error(), "kept the CPUs busy")
		if !entry.plausible() && !busy || entry.Measured.IsZero() {
			t.Errorf("%s: %+v, %v", rate, entry, c.NotStored())
		}
	}
	// A shaper at half the rate is measured as half the rate: the measurement does not just repeat
	// its input.
	rig, err := newRig(100e6, 1500)
	if err != nil {
		t.Fatal(err)
	}
	rig.rate = 50e6
	var best units.Rate // other load only slows the shaper down, as persist takes it
	for try := 0; try < chancesIfFar && best < 45e6 && err == nil; try++ {
		var got units.Rate
		got, err = rig.measure(ctx, 3000)
		best = max(best, got)
	}
	if err := errors.Join(err, rig.close()); err != nil {
		t.Fatal(err)
	}
	if best < 25e6 || best > 51e6 { // a busy host measured 44.6mbit for as long as it was busy
		t.Errorf("a shaper of 50mbit measures %s", best)
	}
	cancel()
	if _, err := c.Burst(ctx, 2e6, 1500); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context ended: %v", err)
	}
}

func TestCalibrationInAUserNamespace(t *testing.T) {
	if hosttest.InUserNS(t) {
		TestSettledRigMeasures(t)
	}
}

// BenchmarkCalibrate measures the cost of the first use of a rate.
func BenchmarkCalibrate(b *testing.B) {
	hosttest.Need(b, hosttest.Netns)
	for _, rate := range []units.Rate{10e6, 100e6, 1e9} {
		for _, mtu := range []int{1500, 4200, 9000} {
			b.Run(fmt.Sprintf("rate=%s/mtu=%d", rate, mtu), func(b *testing.B) {
				var entry Entry
				for b.Loop() {
					var err error
					if entry, err = measureBurst(context.Background(), rate, mtu); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(entry.Burst), "burst-B")
				b.ReportMetric(100*float64(entry.Achieved)/float64(rate), "%achieved")
			})
		}
	}
}
