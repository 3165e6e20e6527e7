package fabric

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/plan"
	"railbed/testkit/hosttest"
)

// sizes are leaf-spine fabrics of 64, 256 and 1,024 nodes.
var sizes = []struct{ leaves, spines, hosts int }{{4, 4, 16}, {8, 8, 32}, {32, 8, 32}}

// forSizes runs a benchmark, whose op builds, for each size. The function that op returns undoes
// it. The measured time includes neither undoing nor namespaces. The time of undoing is reported
// separately.
func forSizes(b *testing.B, op func(b *testing.B, p *plan.Plan,
	ns map[string]*kernel.Namespace) (undo func() error)) {
	hosttest.Need(b, hosttest.Netns)
	for _, s := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", s.leaves*s.hosts), func(b *testing.B) {
			p := leafSpine(b, s.leaves, s.spines, s.hosts)
			if _, err := testCalibration(b).Burst(context.Background(), p.Links[0].AToB.Rate,
				p.Links[0].MTU); err != nil {
				b.Fatal(err)
			}
			var undoing, cpu time.Duration
			for b.Loop() {
				b.StopTimer()
				ns := namespaces(b, p)
				before := cpuTime(b)
				b.StartTimer()
				undo := op(b, p, ns)
				b.StopTimer()
				cpu += cpuTime(b) - before
				start := time.Now()
				if err := undo(); err != nil {
					b.Fatal(err)
				}
				undoing += time.Since(start)
				for _, n := range ns {
					n.Close()
				}
				b.StartTimer()
			}
			nodes := float64(b.N * len(p.Nodes))
			b.ReportMetric(float64(b.Elapsed().Microseconds())/nodes, "us/node")
			b.ReportMetric(float64(cpu.Microseconds())/nodes, "cpu-us/node")
			b.ReportMetric(float64(undoing.Microseconds())/nodes, "undo-us/node")
		})
	}
}

// cpuTime returns the CPU time that the process has used on all CPUs. On a busy machine it is a
// better measure than the elapsed time.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkBuild is the time from namespaces to a fabric that is read back and
// passes packets.
func BenchmarkBuild(b *testing.B) {
	forSizes(b, func(b *testing.B, p *plan.Plan, ns map[string]*kernel.Namespace) func() error {
		f, err := Build(context.Background(), p, ns, Options{Calibration: testCalibration(b)})
		if err != nil {
			b.Fatal(err)
		}
		return f.Close
	})
}

// BenchmarkFloor measures the kernel's share of BenchmarkBuild. It makes the same system calls in
// one tight loop on one thread. Every request is encoded before the clock starts, and nothing is
// compared. Build is to stay within 1.5 times of it.
func BenchmarkFloor(b *testing.B) {
	forSizes(b, func(b *testing.B, p *plan.Plan, ns map[string]*kernel.Namespace) func() error {
		b.StopTimer()
		run, undo := floor(b, p, ns)
		b.StartTimer()
		run()
		return undo
	})
}

// floor prepares the calls; run makes them.
func floor(b *testing.B, p *plan.Plan, ns map[string]*kernel.Namespace) (run func(), undo func() error) {
	b.Helper()
	f, err := prepare(p, firstIndex, ns, Options{Calibration: testCalibration(b), Parallel: 1})
	if err == nil {
		err = f.calibrate(context.Background())
	}
	if err != nil {
		b.Fatal(err)
	}
	f.built = true
	links := kernel.NewBatch("", nil)
	for _, l := range f.links {
		links.AddVeth(f.vethEnd(l, true), f.vethEnd(l, false), linkGroup)
	}
	early, late := map[*host][]kernel.Sysctl{}, map[*host][]kernel.Sysctl{}
	batches := map[*host]*kernel.Batch{}
	for _, h := range f.hosts {
		early[h], late[h], batches[h] = h.early(), h.late(), f.requests(h)
	}
	loop := func(fn func(h *host) error) {
		if err := f.each(context.Background(), f.hosts, fn, func(int) {}); err != nil {
			b.Fatal(err)
		}
	}
	return func() {
		conn, err := kernel.OpenIn(f.hosts[0].ns)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		loop(func(h *host) error { return kernel.SetSysctls(early[h]) })
		if err := conn.Do(links); err != nil {
			b.Fatal(err)
		}
		loop(func(h *host) error { return floorConfigure(h, batches[h], late[h]) })
		loop(floorRead)
	}, f.Close
}

// BenchmarkUpBesideFloor runs `railbed up` of 256 nodes, from reading the file to the end of the
// process, and the floor in turn, and reports ratios of the medians. One ratio is against the
// netlink and sysctl calls alone, the other against these and the making of the namespaces.
func BenchmarkUpBesideFloor(b *testing.B) {
	hosttest.Need(b, hosttest.Testbed)
	dir := b.TempDir()
	binary, file := filepath.Join(dir, "railbed"), filepath.Join(dir, "floor.yaml")
	command := func(name string, args ...string) {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			b.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	command("go", "build", "-o", binary, "railbed")
	name := fmt.Sprintf("floor-%d", os.Getpid())
	text := fmt.Sprintf("name: %s\n%s", name, strings.TrimPrefix(leafSpineFile(16, 4, 16), "name: t\n"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	command(binary, "up", file) // the calibration, when it is the first
	command(binary, "down", name)
	p := leafSpine(b, 16, 4, 16)
	var ups, calls, making []time.Duration
	for b.Loop() {
		settle()
		start := time.Now()
		command(binary, "up", file)
		ups = append(ups, time.Since(start))
		command(binary, "down", name)
		settle()
		start = time.Now()
		ns := namespaces(b, p)
		made := time.Since(start)
		run, undo := floor(b, p, ns)
		start = time.Now()
		run()
		calls = append(calls, time.Since(start))
		making = append(making, time.Since(start)+made)
		if err := undo(); err != nil {
			b.Fatal(err)
		}
		for _, n := range ns {
			n.Close()
		}
	}
	b.ReportMetric(median(ups).Seconds(), "s-up")
	b.ReportMetric(median(calls).Seconds(), "s-calls")
	b.ReportMetric(float64(median(ups))/float64(median(calls)), "up/calls")
	b.ReportMetric(float64(median(ups))/float64(median(making)), "up/calls+namespaces")
}

// settle gives the kernel time to end namespaces that are no longer in use. The kernel does so by
// itself, with locks that new ones need.
func settle() { time.Sleep(time.Second) }

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

func floorConfigure(h *host, batch *kernel.Batch, late []kernel.Sysctl) error {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, p := range h.ports {
		if err := conn.TurnOffloadsOff(p.Name); err != nil {
			return err
		}
	}
	if err := conn.Do(batch); err != nil {
		return err
	}
	return kernel.SetSysctls(late)
}

func floorRead(h *host) error {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Links(false); err != nil {
		return err
	}
	if _, err := conn.Qdiscs(); err != nil {
		return err
	}
	for _, p := range h.ports {
		if _, err := conn.OffloadsOn(p.Name); err != nil {
			return err
		}
	}
	if _, err := conn.Addresses(); err != nil {
		return err
	}
	if _, err := conn.Neighbors(); err != nil {
		return err
	}
	if _, err := conn.Routes(); err != nil {
		return err
	}
	_, err = conn.Rules()
	return err
}

// BenchmarkVerify and BenchmarkLinks measure the cost of reading a fabric's state.
func BenchmarkVerify(b *testing.B) {
	look(b, func(f *Fabric) error { return f.Verify(context.Background()) })
}

func BenchmarkLinks(b *testing.B) {
	look(b, func(f *Fabric) error { _, err := f.Links(context.Background()); return err })
}

func look(b *testing.B, at func(*Fabric) error) {
	hosttest.Need(b, hosttest.Netns)
	f, _ := build(b, leafSpine(b, 8, 8, 32))
	for b.Loop() {
		if err := at(f); err != nil {
			b.Fatal(err)
		}
	}
}
