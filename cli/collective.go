package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"railbed/internal/clock"
	"railbed/internal/element"
	"railbed/internal/input"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/perf"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/collective/msccl"
	"railbed/workloads/worker"
)

// program is a program of nccl-tests, or one like them: its kind of workload, and its algorithm if it is for
// one.
type program struct{ name, kind, algorithm string }

// programs returns the programs of nccl-tests, then those for kinds that nccl-tests lacks.
func programs() (all []program) {
	var more []program
	for _, kind := range schedule.Kinds() {
		if name := kind.Properties().Program; name != "" {
			all = append(all, program{name: name, kind: string(kind)})
		} else {
			more = append(more, program{name: string(kind), kind: string(kind)})
		}
	}
	return slices.Concat(all, []program{{schedule.HyperCube, spec.AllGather, schedule.HyperCube}}, more)
}

func collectiveNames() (names []string) {
	for _, p := range programs() {
		names = append(names, p.name)
	}
	return names
}

// collectiveOptions are the options of the command line.
type collectiveOptions struct {
	testbed                    string
	nodes, transports          []string
	algorithm, family          string
	file                       string // of algorithm msccl
	from, to, step             string
	sizes                      worker.Range // given by these
	iterations, warmup, checks int
	average, timeout, cycles   int
	channels                   int
	datatype, operation, root  string // a name, or all
	at                         string
	stamps                     string // 0 or 1
	ncclColumns                bool
	out                        string // directory
	others                     []otherOption
}

// otherOption is an option of nccl-tests that accepts only its default here.
type otherOption struct {
	name, short, fallback, why string
	value                      string
}

// otherOptions are the options of nccl-tests without a meaning here.
func otherOptions() []otherOption {
	return []otherOption{
		{name: "nthreads", fallback: "1",
			why: "want 1: a rank is a process; ranks per node are in the file (nodes: ranks)"},
		{name: "ngpus", short: "g", fallback: "1",
			why: "want 1: a rank is a process; ranks per node are in the file (nodes: ranks)"},
		{name: "agg_iters", short: "m", fallback: "1", why: "want 1: operations are not aggregated"},
		{name: "parallel_init", short: "p", fallback: "0",
			why: "want 0: ranks are processes and start at the same time"},
		{name: "blocking", short: "z", fallback: "0", why: "want 0: the command waits for each operation"},
		{name: "stream_null", short: "y", fallback: "0", why: "want 0: there are no streams"},
		{name: "cudagraph", short: "G", fallback: "0", why: "want 0: a rank's process begins " +
			"each operation itself, so that there is no launch that a graph could save"},
		{name: "report_cputime", short: "C", fallback: "0",
			why: "want 0: operations are complete when their calls return"},
		{name: "output_file", short: "J", fallback: "", why: "want --output json"},
		{name: "local_register", short: "R", fallback: "1", why: "want 0 or 1: ranks register " +
			"their buffers once, before the first operation, and there are no symmetric windows"},
		{name: "cta_policy", short: "x", fallback: "0", why: "want 0: there is no GPU"},
		{name: "device_implementation", short: "D", fallback: "0", why: "want 0: there is no GPU"},
		{name: "device_cta_count", short: "V", fallback: "16", why: "want 16: there is no GPU"},
		{name: "memory", short: "M", fallback: "0", why: "want 0: there is no GPU"},
		{name: "unalign", short: "u", fallback: "0", why: "want 0: buffers start at page boundaries"},
		{name: "per_iter_timing", short: "I", fallback: "0",
			why: "want 0: the operations of a size are timed together"},
		{name: "per_iter_skip", short: "K", fallback: "0",
			why: "want 0: the operations of a size are timed together"},
	}
}

func newCollectiveCommand(a *app) *cobra.Command {
	o := &collectiveOptions{others: otherOptions()}
	nccl := collectiveNames()
	nccl = nccl[:slices.Index(nccl, schedule.HyperCube)]
	cmd := &cobra.Command{
		Use:   "collective KIND",
		Short: "Measure a collective between nodes as nccl-tests does",
		Long: `Measure a collective on the nodes of a running testbed, with the options and the table
of nccl-tests. KIND is ` + strings.Join(nccl[:6], ", ") + `,
` + strings.Join(nccl[6:], ", ") + ` or hypercube, as in the names of its programs (all_reduce_perf
and so on). KIND may also be barrier, which nccl-tests lacks: its size is 0, and #wrong
counts the ranks that ended before all had begun. hypercube is an all-gather and needs a
power of two ranks. Its algbw is the size by the time, as of all_gather.

Bandwidths are in one unit, which the table names, with four significant digits. With
--nccl-columns the table has the unit and the number formats of nccl-tests, for programs that
read it: GB/s, in which an emulated link of 100 Mbit/s has 0.0125. JSON always has GB/s.

With several transports each has a table, and a table of busbw follows, with a row for each
size and a column for each transport. --out writes it, with algbw and the times, as a page with
plots (sweep.html), as CSV and as JSON.

Each rank of the testbed's file is a process in its node. Messages use the emulated links,
with the transports that --transport names; control messages use separate channels. Sizes
and columns are as in nccl-tests: a time is the time of all iterations divided by their
number, busbw scales it to the load of each link, and #wrong counts the wrong elements in
all ranks' results of -c further operations with other data. Results are compared bit by
bit: the data are chosen so that the results of every type are exact. sendrecv is checked
in place too, which nccl-tests does not do. Times are in the testbed's
clock. Over tcp, and where no soft switch needs the processors, ranks with results of up
to 32 KiB poll for messages before they sleep.

Options are as in nccl-tests, except that -t is the testbed. So -o is the operation, and
--output is the output's format. With -d all, -o all and -r all (or -1) every type, every
operation and every root runs, roots within operations within types; a collective without
operations or roots ignores -o or -r. The types fp8_e4m3 and fp8_e5m2 may also be called
f8e4m3 and f8e5m2. An option without a meaning here must have the default
of nccl-tests. The exit code is 1 when an element was wrong.`,
		Example: `  railbed collective all_reduce -b 8 -e 64M -f 2 -n 20 -w 5 -c 1
  railbed collective all_reduce --transport tcp,rd,roce -b 64K -e 16M -f 4 --out sweep
  railbed collective reduce -b 1M -d half -o all -r -1 -n 5
  railbed collective alltoall --nodes 'h[0-3]' --transport roce -b 1M -e 1M --output json
  railbed collective all_reduce --algorithm msccl --file all-pairs.xml -b 1M -e 16M -f 2`,
		Args:      exactArgs(1),
		ValidArgs: collectiveNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.collective(cmd, o, args[0])
		},
	}
	o.flags(cmd)
	// nccl-tests uses the letters of the global flags -o and -x for options of its own.
	a.longOutputFlag(cmd)
	cmd.Flags().BoolVar(&a.trace, "trace", false, "")
	_ = cmd.Flags().MarkHidden("trace")
	testbedFlag(cmd, &o.testbed)
	return cmd
}

func (o *collectiveOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&o.nodes, "nodes", nil,
		"`NAMES` or globs of the nodes whose ranks take part (default all)")
	completeFlag(cmd, "nodes", ofTestbed(&o.testbed, nodeNames))
	f.StringSliceVar(&o.transports, "transport", []string{worker.TCP},
		"`TRANSPORT`: tcp, rd, roce or quic, or several with commas")
	completeFlag(cmd, "transport", oneOf(worker.TCP, worker.RD, worker.RoCE, worker.QUIC))
	f.StringVar(&o.algorithm, "algorithm", "",
		"`ALGORITHM`, as in files (default auto, which chooses the best for size and ranks; for "+
			"alltoall direct)")
	completeFlag(cmd, "algorithm", oneOf(algorithms()...))
	f.StringVar(&o.at, "switch", "",
		"with --algorithm in-network: `NAME` of the switch that adds up (default the switch with the "+
			"least load on its links)")
	f.IntVar(&o.channels, "channels", 0,
		"`NUMBER` of parts of the data that are sent at the same time, by the node's NICs in turn "+
			"(default 1, by the rank's NIC)")
	f.StringVar(&o.file, "file", "", "`XML` file of algorithm msccl, as MSCCL's tools write it")
	completeFlag(cmd, "file", filesOf("xml"))
	f.StringVar(&o.family, "ip", "4", "IP `VERSION`: 4 or 6")
	completeFlag(cmd, "ip", oneOf("4", "6"))
	f.StringVarP(&o.from, "minbytes", "b", "32M",
		"first `SIZE`, in bytes or with K, M or G (powers of 1,024)")
	f.StringVarP(&o.to, "maxbytes", "e", "", "last `SIZE` (default the first)")
	f.StringVarP(&o.step, "stepbytes", "i", "1M", "`SIZE` to add for the next size, without -f")
	f.IntVarP(&o.sizes.Factor, "stepfactor", "f", 1, "`FACTOR` between a size and the next")
	f.IntVarP(&o.iterations, "iters", "n", 20, "`NUMBER` of timed operations of each size and mode")
	f.IntVarP(&o.warmup, "warmup_iters", "w", 1, "`NUMBER` of operations before these, of each size and mode")
	f.IntVarP(&o.checks, "check", "c", 1,
		"`NUMBER` of operations after these whose results are checked; 0: none")
	f.StringVarP(&o.datatype, "datatype", "d", string(element.Float32),
		"`TYPE` of an element: "+strings.Join(wordsOf(element.Types()), ", ")+" or all")
	completeFlag(cmd, "datatype", oneOf(append(wordsOf(element.Types()), all)...))
	f.StringVarP(&o.operation, "op", "o", string(element.Sum),
		"`OPERATION` that reduces: "+strings.Join(wordsOf(element.Ops()), ", ")+" or all")
	completeFlag(cmd, "op", oneOf(append(wordsOf(element.Ops()), all)...))
	f.StringVarP(&o.root, "root", "r", "0",
		"`RANK` of the root, which sends a broadcast or scatter and receives a reduce or gather, or all")
	completeFlag(cmd, "root", oneOf("0", all))
	f.IntVarP(&o.cycles, "run_cycles", "N", 1, "`NUMBER` of runs through all sizes")
	f.StringVarP(&o.stamps, "report_timestamps", "S", "0", "`1`: print the time of day after each row")
	completeFlag(cmd, "report_timestamps", oneOf("0", "1"))
	f.IntVarP(&o.average, "average", "a", 1,
		"`NUMBER` of the printed time: 0 rank 0's, 1 the mean, 2 the shortest, 3 the longest")
	f.IntVarP(&o.timeout, "timeout", "T", 0, "`SECONDS` after which the command gives up (default never)")
	f.BoolVar(&o.ncclColumns, "nccl-columns", false,
		"print bandwidths in GB/s, in the columns and formats of nccl-tests")
	f.StringVar(&o.out, "out", "", "directory `DIR` for sweep.html, sweep.csv and sweep.json")
	completeFlag(cmd, "out", completeDirs)
	for i := range o.others {
		other := &o.others[i]
		f.StringVarP(&other.value, other.name, other.short, other.fallback, "only the default: "+other.why)
		_ = f.MarkHidden(other.name)
		completeFlag(cmd, other.name, cobra.NoFileCompletions)
	}
}

// wordsOf converts names to plain strings.
func wordsOf[T ~string](names []T) []string {
	var words []string
	for _, name := range names {
		words = append(words, string(name))
	}
	return words
}

// algorithms returns all algorithms of all collectives.
func algorithms() []string {
	var all []string
	for _, p := range programs() {
		all = append(all, spec.Algorithms(p.kind)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// setKind sets a job's kind by its name, and the default algorithm if none is set.
func setKind(job *worker.Job, name string) error {
	all := programs()
	i := slices.IndexFunc(all, func(p program) bool {
		return name == p.name || name == p.name+"_perf" || name == p.kind
	})
	if i < 0 {
		return fmt.Errorf("collective %q: want %s", name, strings.Join(collectiveNames(), ", "))
	}
	p := all[i]
	job.Name, job.Kind = p.name, p.kind
	if job.Algorithm = cmp.Or(job.Algorithm, p.algorithm); p.algorithm != "" && job.Algorithm != p.algorithm {
		return fmt.Errorf("--algorithm %s of %s: want none, or all_gather with it", job.Algorithm, p.name)
	}
	if all := spec.Algorithms(job.Kind); job.Algorithm == "" {
		job.Algorithm = all[0]
		if slices.Contains(all, schedule.Auto) {
			job.Algorithm = schedule.Auto
		}
	}
	return nil
}

// mostFile bounds the file of an algorithm, in bytes.
const mostFile = 64 << 20

// readAlgorithm reads the job's algorithm from a file, if the algorithm comes from one.
func (o *collectiveOptions) readAlgorithm(job *worker.Job) error {
	if (o.algorithm == schedule.MSCCL) != (o.file != "") {
		return fmt.Errorf("--algorithm %q with --file %q: want --algorithm %s and a file, or neither",
			o.algorithm, o.file, schedule.MSCCL)
	}
	if o.file == "" {
		return nil
	}
	text, err := input.ReadFile(o.file, mostFile)
	if err != nil {
		return err
	}
	if job.Schedule, err = msccl.Read(o.file, text, job.Root); err != nil {
		return err
	}
	job.InPlace = job.InPlace && !job.Schedule.OutOfPlace
	return nil
}

// ranksOf returns the ranks of nodes, renumbered from 0.
func ranksOf(p *plan.Plan, nodes []string) ([]plan.Rank, error) {
	var ranks []plan.Rank
	used := make([]bool, len(nodes))
	for _, r := range p.Ranks {
		member := len(nodes) == 0
		for i, glob := range nodes {
			match, err := path.Match(glob, r.Node)
			if err != nil {
				return nil, fmt.Errorf("--nodes %s: %w", glob, err)
			}
			used[i], member = used[i] || match, member || match
		}
		if member {
			r.Rank = len(ranks)
			ranks = append(ranks, r)
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return nil, fmt.Errorf("--nodes %s: no such node with a rank", nodes[i])
	}
	return ranks, nil
}

// parseSizes reads the range of sizes.
func (o *collectiveOptions) parseSizes() error {
	to := o.to
	if to == "" {
		to = o.from
	}
	for _, size := range []struct {
		option, text string
		value        *units.Bytes
	}{{"-b", o.from, &o.sizes.From}, {"-e", to, &o.sizes.To}, {"-i", o.step, &o.sizes.Step}} {
		var err error
		if *size.value, err = parseNCCLSize(size.text); err != nil {
			return fmt.Errorf("%s %s: %w", size.option, size.text, err)
		}
	}
	return nil
}

// parseNCCLSize parses a size as nccl-tests does: a number in bytes or, with K, M or G, in powers
// of 1,024.
func parseNCCLSize(text string) (units.Bytes, error) {
	number, unit := strings.TrimSpace(text), 1.0
	if i := len(number) - 1; i > 0 {
		if power := strings.IndexByte("KMG", number[i]&^0x20); power >= 0 {
			number, unit = number[:i], math.Pow(1024, float64(power+1))
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	if value *= unit; err != nil || !(value >= 0 && value < 1<<50) {
		return 0, errors.New("want a number of bytes, or a number with K, M or G")
	}
	return units.Bytes(value), nil
}

// ncclPrinter prints the table while rows arrive.
type ncclPrinter struct {
	options *collectiveOptions
	job     worker.Job // the first job of the table
	plan    *plan.Plan
	out     io.Writer
	table   *perf.Table
	begun   bool
}

// newPrinter returns the printer of a table that begins with a job.
func (o *collectiveOptions) newPrinter(out io.Writer, p *plan.Plan, job worker.Job) *ncclPrinter {
	job.Sweep = &worker.Sweep{Sizes: job.Sweep.Sizes[:len(job.Sweep.Sizes)/o.cycles]}
	printer := &ncclPrinter{options: o, job: job, plan: p, out: out}
	if o.ncclColumns {
		printer.table = perf.NewNCCLTable(out)
	} else {
		printer.table = perf.NewTable(out, rateUnit(p, job.Ranks))
	}
	if o.stamps == "1" {
		printer.table.Clock = time.Now
	}
	return printer
}

// rateUnit returns the unit for the bandwidths of ranks, by the rates of their NICs. The table is printed row
// by row, so that the unit is chosen before there are values.
func rateUnit(p *plan.Plan, ranks []plan.Rank) units.Unit {
	const unlimited = 10e9
	most := 0.0
	for _, r := range ranks {
		if sends := p.Sends(r.Node, r.NIC); sends != nil {
			most = max(most, float64(sends.Rate))
		}
	}
	if most == 0 {
		most = unlimited
	}
	return perf.UnitFor(most)
}

// progress prints the head of the table and each row. The table's Close returns errors of the
// output at the end.
func (p *ncclPrinter) progress(done worker.Progress) {
	if !p.begun {
		p.begun = true
		p.head(done.Ranks)
	}
	if done.Row != nil {
		row := done.Row.Virtual(clock.Dilation(p.plan.Dilation))
		_ = p.table.Row(&row)
	}
}

// head prints the lines above the columns.
func (p *ncclPrinter) head(ranks []worker.RankResult) {
	o := p.options
	step, how := o.sizes.Factor, "factor"
	if step <= 1 {
		step, how = int(o.sizes.Step), "bytes"
	}
	fmt.Fprintf(p.out, "# railbed %s, as nccl-tests\n# Collective test starting: %s\n", version, p.job.Name)
	fmt.Fprintf(p.out, "# nThread 1 nGpus 1 minBytes %d maxBytes %d step: %d(%s) warmup iters: %d iters: "+
		"%d agg iters: 1 validation: %d graph: 0 unalign: 0\n#\n",
		o.sizes.From, o.sizes.To, step, how, o.warmup, o.iterations, o.checks)
	fmt.Fprintf(p.out, "# Algorithm: %s\n#\n", p.job.Chosen())
	var devices []perf.Device
	for _, r := range ranks {
		node := p.plan.Node(r.Node)
		index := slices.IndexFunc(node.NICs, func(n plan.Interface) bool { return n.Name == r.NIC })
		devices = append(devices, perf.Device{Rank: r.Rank, PID: r.PID, Host: r.Node, Index: index,
			NIC: r.NIC, Detail: fmt.Sprintf("%v over %s", r.Addr, p.job.Transport)})
	}
	_ = p.table.Devices(devices)
	_ = p.table.Header()
}
