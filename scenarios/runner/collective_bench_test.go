package runner

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan/perf"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/workloads/worker"
)

// besideNodes are on one switch. Links to a bridge have a rate, as all have, until unshape.
const besideNodes = `
name: beside-%d-%d
fabric:
  topology: single-switch
  params: {hosts: %d}
  switch: {%s}
  links: {default: {mtu: %d%s}}
`

// besideGroup is sizes with their numbers of operations.
type besideGroup struct {
	warmup, iterations int
	sizes              []units.Bytes
}

var besideGroups = []besideGroup{
	{50, 500, []units.Bytes{1 << 10, 8 << 10, 64 << 10}},
	{2, 10, []units.Bytes{512 << 10, 4 << 20}},
	{1, 3, []units.Bytes{64 << 20}},
}

// ratedGroups are the groups for links that keep their rate.
var ratedGroups = []besideGroup{
	{5, 20, []units.Bytes{8 << 10, 64 << 10}},
	{1, 3, []units.Bytes{512 << 10, 4 << 20}},
	{1, 1, []units.Bytes{64 << 20}},
}

// openMPI holds the settings of OpenMPI. They are the best of a sweep over its eager limits and its
// algorithms of both collectives (coll_tuned, with and without segments of 64 KiB to 1 MiB).
var openMPI = map[string][]string{
	"openmpi": {},
	"openmpi, ring": {"--mca", "coll_tuned_use_dynamic_rules", "1", "--mca",
		"coll_tuned_allreduce_algorithm", "4"},
	"openmpi, pieces": {"--mca", "coll_tuned_use_dynamic_rules", "1", "--mca",
		"coll_tuned_allreduce_algorithm", "5", "--mca", "coll_tuned_allreduce_algorithm_segmentsize",
		"262144"},
}

// beside is nodes with everything that measures between them.
type beside struct {
	b       *testing.B
	tb      *testbed.Testbed
	groups  []besideGroup
	ranks   int
	folder  string
	program string
	port    int
}

// contestant measures a collective in all sizes.
type contestant struct {
	name    string
	measure func(kind string) times
}

// times are microseconds per operation, by size.
type times map[units.Bytes]float64

// BenchmarkCollectivesBesideOpenMPI measures all-reduce and all-to-all in turn over this
// repository's tcp, OpenMPI and PyTorch's Gloo, on the same nodes and links. Each iteration
// is a turn; the table has medians and ranges of bus bandwidth.
func BenchmarkCollectivesBesideOpenMPI(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.Testbed, hosttest.OpenMPI, hosttest.MPICC,
		hosttest.IP, hosttest.Ethtool)
	for _, kind := range []string{spec.AllReduce, spec.AllToAll} {
		for _, links := range []besideLinks{{mtu: 1500}, {mtu: 9000}, {mtu: 1500, offloads: true}} {
			for _, ranks := range []int{2, 4, 8, 16} {
				b.Run(fmt.Sprintf("%s/%v/ranks=%d", kind, links, ranks), func(b *testing.B) {
					besideOpenMPI(b, kind, ranks, links)
				})
			}
		}
	}
}

// besideLinks are the links between the nodes.
type besideLinks struct {
	mtu      int
	offloads bool   // veths as the kernel makes them, which neither segment frames nor compute checksums
	rate     string // of links to a soft switch; empty: links to a bridge, without a rate
}

func (l besideLinks) String() string {
	if l.offloads {
		return fmt.Sprintf("mtu=%d-offloads", l.mtu)
	}
	if l.rate != "" {
		return fmt.Sprintf("mtu=%d-%s", l.mtu, l.rate)
	}
	return fmt.Sprintf("mtu=%d", l.mtu)
}

// file is the testbed's.
func (l besideLinks) file(ranks int) []byte {
	kind, rate := "kind: bridge", ""
	if l.rate != "" {
		kind, rate = fmt.Sprintf("kind: soft, aggregation: {slots: 64, elements: %d, timeout: 5s}",
			l.elements()), ", rate: "+l.rate
	}
	return fmt.Appendf(nil, besideNodes, l.mtu, ranks, ranks, kind, l.mtu, rate)
}

// elements of a message to the switch, of 4 bytes each: what fits with its headers.
func (l besideLinks) elements() int {
	return min((l.mtu-28-wire.AggregationLen)/4, 2048)
}

// BenchmarkInNetworkBesideOpenMPI does as BenchmarkCollectivesBesideOpenMPI with all-reduces of
// four nodes on a soft switch that adds up, whose links keep their rate.
func BenchmarkInNetworkBesideOpenMPI(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.Testbed, hosttest.OpenMPI, hosttest.MPICC,
		hosttest.IP, hosttest.Ethtool)
	for _, links := range []besideLinks{{mtu: 1500, rate: "100mbit"}, {mtu: 9000, rate: "200mbit"}} {
		b.Run(links.String(), func(b *testing.B) { besideOpenMPI(b, spec.AllReduce, 4, links) })
	}
}

func besideOpenMPI(b *testing.B, kind string, ranks int, links besideLinks) {
	s := newBeside(b, ranks, links)
	own := []string{schedule.Ring, "recursive-doubling"}
	names := []string{"openmpi", "openmpi, ring", "openmpi, pieces"}
	if kind == spec.AllToAll {
		own, names = []string{schedule.Direct, schedule.Pairwise}, names[:1]
	}
	if links.rate != "" {
		own[1] = schedule.InNetwork
	}
	var contestants []contestant
	for _, algorithm := range own {
		contestants = append(contestants, contestant{"railbed, " + algorithm, func(kind string) times {
			return s.railbed(kind, worker.Job{Algorithm: algorithm})
		}})
	}
	for _, name := range names {
		contestants = append(contestants, contestant{name, func(kind string) times {
			return s.openMPI(kind, openMPI[name])
		}})
	}
	if err := exec.Command("/usr/bin/python3", "-c", "import torch.distributed").Run(); err == nil {
		contestants = append(contestants, contestant{"gloo", s.gloo})
	} else {
		b.Log("without Gloo: apt-get install python3-torch:", err)
	}
	results := make([]map[units.Bytes][]float64, len(contestants)) // busbw in Gbit/s
	for b.Loop() {
		for i, c := range contestants {
			if results[i] == nil {
				results[i] = map[units.Bytes][]float64{}
			}
			for size, us := range c.measure(kind) {
				m := perf.MeasureOf(schedule.Kind(kind), uint64(size), ranks, time.Duration(us*1e3), 0)
				results[i][size] = append(results[i][size], m.BusBW*8)
			}
		}
	}
	for _, g := range s.groups {
		for _, size := range g.sizes {
			var ours, best float64 // of each side's ways, the best for the size
			for i, c := range contestants {
				r := results[i][size]
				slices.Sort(r)
				median := r[len(r)/2]
				fmt.Printf("%-10s %v, %2d ranks, %8v  %-28s %8.4f Gbit/s (%.4f to %.4f)\n", kind, links,
					ranks, size, c.name, median, r[0], r[len(r)-1])
				if i < len(own) {
					ours = max(ours, median)
				} else {
					best = max(best, median)
				}
			}
			b.ReportMetric(ours/best, fmt.Sprintf("x-%v", size))
		}
	}
}

func newBeside(b *testing.B, ranks int, links besideLinks) *beside {
	s := upBeside(b, ranks, links)
	s.addPeers()
	return s
}

// addPeers puts the programs of the peers where the nodes find them.
func (s *beside) addPeers() {
	b := s.b
	var err error
	// Not under /tmp, of which every node has its own.
	if s.folder, err = os.MkdirTemp("/var/tmp", "railbed-beside-"); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(s.folder) })
	s.program = filepath.Join(s.folder, "collective")
	if output, err := exec.Command("mpicc", "-O2", "-o", s.program,
		"testdata/beside/collective.c").CombinedOutput(); err != nil {
		b.Skipf("cannot run here: mpicc: %v\n%s", err, output)
	}
	for name, text := range map[string]string{"agent": "#!/bin/sh\nprintf '%s\\n' \"$*\" > /tmp/launch\n",
		"collective.py": readFile(b, "testdata/beside/collective.py")} {
		if err := os.WriteFile(filepath.Join(s.folder, name), []byte(text), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	os.Chmod(s.folder, 0o755)
	s.serveLaunches()
}

// upBeside brings up the nodes and links alone.
func upBeside(b *testing.B, ranks int, links besideLinks) *beside {
	s := upBesideFile(b, ranks, links.file(ranks))
	s.groups = besideGroups
	if links.rate != "" {
		s.groups = ratedGroups
	} else {
		s.unshape(links.offloads)
	}
	return s
}

// upBesideFile brings up the nodes and links of a file. Their links have the file's rates.
func upBesideFile(b *testing.B, ranks int, text []byte) *beside {
	s := &beside{b: b, ranks: ranks, port: 29500}
	file := filepath.Join(b.TempDir(), "beside.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		b.Fatal(err)
	}
	_, p, err := testbed.Load(file)
	if err != nil {
		b.Fatal(err)
	}
	if s.tb, err = testbed.Up(b.Context(), p, testbed.Options{}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.tb.Down(context.WithoutCancel(b.Context())) })
	return s
}

// unshape removes the rates from the links, so that only the processors limit the throughput. It
// also gives the links the offloads that veths have and emulated links lack.
func (s *beside) unshape(offloads bool) {
	for _, l := range s.tb.Plan().Links {
		for _, end := range []struct{ node, port string }{{l.A.Node, l.A.Port}, {l.B.Node, l.B.Port}} {
			s.within(end.node, "tc", "qdisc", "del", "dev", end.port, "root")
			if offloads {
				s.within(end.node, "ethtool", "-K", end.port, "tso", "on", "gso", "on", "tx", "on", "sg",
					"on")
				s.within(end.node, "ip", "link", "set", end.port, "gso_max_size", "65536", "gso_max_segs",
					"65535")
			}
		}
	}
}

// within runs a command in the network of a node or switch.
func (s *beside) within(node string, command ...string) {
	args := append([]string{"--net=/run/netns/" + s.tb.Name() + "-" + node}, command...)
	if output, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
		s.b.Fatalf("%q in %s: %v\n%s", command, node, err, output)
	}
}

func readFile(b *testing.B, path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

// serveLaunches starts in nodes what mpirun in h0 asks for.
func (s *beside) serveLaunches() {
	ctx := s.b.Context()
	if output, err := s.tb.Node("h0").Command(ctx, "mkfifo", "/tmp/launch").CombinedOutput(); err != nil {
		s.b.Fatalf("mkfifo: %v\n%s", err, output)
	}
	reader, writer := io.Pipe()
	listener := s.tb.Node("h0").Command(ctx, "sh", "-c", "cat <> /tmp/launch")
	listener.Stdout = writer
	if err := listener.Start(); err != nil {
		s.b.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		lines := bufio.NewScanner(reader)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			node, command, _ := strings.Cut(lines.Text(), " ")
			daemon := s.tb.Node(node).Command(ctx, "sh", "-c", command)
			daemon.Stdout, daemon.Stderr = os.Stderr, os.Stderr
			if err := daemon.Start(); err != nil {
				fmt.Fprintln(os.Stderr, "start the MPI daemon:", err)
			}
		}
	})
	s.b.Cleanup(func() {
		listener.Kill()
		listener.Wait()
		writer.Close()
		served.Wait()
	})
}

// railbed measures this repository's workers, with the algorithm and the transport of a job.
func (s *beside) railbed(kind string, job worker.Job) times {
	p, found := s.tb.Plan(), times{}
	nodes := worker.NewNodes(s.b.Context(), s.tb, func(string) (io.Writer, io.Writer, error) {
		return os.Stderr, os.Stderr, nil
	})
	defer nodes.Close()
	for _, g := range s.groups {
		job.Name, job.Kind, job.Ranks = "beside", kind, p.Ranks
		job.Iterations, job.Warmup = g.iterations, g.warmup
		job.Sweep = &worker.Sweep{Sizes: g.sizes, Average: worker.MeanRank, BusyPoll: !p.Soft()}
		if job.Algorithm == schedule.InNetwork {
			job.Transport, job.Aggregator = spec.InSwitch, s.aggregator()
		}
		result, err := worker.Run(s.b.Context(), job, nodes, nil)
		job.Aggregator.End()
		if err != nil {
			s.b.Fatal(err)
		}
		for _, row := range result.Rows {
			found[units.Bytes(row.Size)] = row.OutOfPlace.Time
		}
	}
	return found
}

// aggregator is the job of the switch, for the next collective.
func (s *beside) aggregator() *worker.Aggregator {
	a, err := worker.FindAggregator(s.tb.Plan(), s.tb.Plan().Ranks, "")
	if err == nil {
		err = a.Begin(s.b.Context(), s.tb)
	}
	if err != nil {
		s.b.Fatal(err)
	}
	return a
}

// arguments returns the arguments of the peers' programs.
func (s *beside) arguments(kind string) []string {
	arguments := []string{strings.ReplaceAll(strings.Replace(kind, "all-to-all", "alltoall", 1), "-", "")}
	for _, g := range s.groups {
		for _, size := range g.sizes {
			arguments = append(arguments, fmt.Sprintf("%d:%d:%d", uint64(size), g.warmup, g.iterations))
		}
	}
	return arguments
}

// openMPI measures OpenMPI with settings of its own.
func (s *beside) openMPI(kind string, settings []string) times {
	var hosts []string
	for _, r := range s.tb.Plan().Ranks {
		hosts = append(hosts, r.Node)
	}
	args := slices.Concat([]string{"--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
		"--mca", "plm_rsh_agent", filepath.Join(s.folder, "agent"), "--mca", "plm_rsh_no_tree_spawn", "1",
		"--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0", "--mca", "mpi_yield_when_idle",
		"1"},
		settings, []string{"--host", strings.Join(hosts, ","), "-np", fmt.Sprint(s.ranks), "--map-by", "node",
			s.program}, s.arguments(kind))
	var output, errs bytes.Buffer
	mpirun := s.tb.Node("h0").Command(s.b.Context(), "mpirun", args...)
	mpirun.Stdout, mpirun.Stderr = &output, &errs
	if err := mpirun.Run(); err != nil {
		s.b.Fatalf("mpirun %q: %v\n%s%s", args, err, &output, &errs)
	}
	return s.read(&output)
}

// gloo measures PyTorch's Gloo.
func (s *beside) gloo(kind string) times {
	s.port++ // the one before may be in TIME_WAIT
	ranks := s.tb.Plan().Ranks
	meet := fmt.Sprintf("%v:%d", ranks[0].Addr4, s.port)
	outputs := make([]bytes.Buffer, len(ranks))
	var all []*testbed.Cmd
	for i, r := range ranks {
		args := append([]string{filepath.Join(s.folder, "collective.py"), fmt.Sprint(i),
			fmt.Sprint(len(ranks)), meet}, s.arguments(kind)...)
		cmd := s.tb.Node(r.Node).Command(s.b.Context(), "/usr/bin/python3", args...)
		cmd.Env = []string{"GLOO_SOCKET_IFNAME=" + r.NIC, "OMP_NUM_THREADS=1"}
		cmd.Stdout, cmd.Stderr = &outputs[i], os.Stderr
		if err := cmd.Start(); err != nil {
			s.b.Fatal(err)
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			s.b.Fatalf("gloo: %v", err)
		}
	}
	return s.read(&outputs[0])
}

// read reads lines of a size and its microseconds.
func (s *beside) read(output io.Reader) times {
	found := times{}
	for _, g := range s.groups {
		for range g.sizes {
			var size uint64
			var us float64
			if _, err := fmt.Fscan(output, &size, &us); err != nil {
				s.b.Fatalf("read what a peer printed: %v", err)
			}
			found[units.Bytes(size)] = us
		}
	}
	return found
}
