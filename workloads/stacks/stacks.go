// Package stacks runs third-party programs on a testbed as their users know them: unmodified, with
// their default transports, and with the tables that they print.
//
// Each program has an adapter in a file of its own. The adapter defines the programs and Debian
// packages that it needs and how to read its version. It also defines how to launch the program,
// how to parse its output into a table, and how much its ranks must send to other nodes. The
// package handles everything else: processes and their logs, listening servers, concurrent clients,
// a remote shell for launchers, and ranks that die or hang.
//
// The lower bound on the bytes that ranks send holds for any algorithm and transport of a program.
// So a check of packets can tell whether the bytes crossed links at all.
package stacks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/reexec"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/workloads/stacks/rsh"
)

// Job is one run of a stack.
type Job struct {
	// Step is the file's step, with defaults.
	Step *spec.Stack
	// Plan is the testbed's plan. Nodes are the nodes that take part, in the plan's order, at least
	// two.
	Plan  *plan.Plan
	Nodes []*plan.Node
	// Dir is the directory in which the programs run. Default: /, and in containers the image's.
	Dir string
	// Log opens the outputs for a node's programs. It is called once for each node.
	Log func(node string) (stdout, stderr io.Writer, err error)
}

// Result is the result of a run.
type Result struct {
	report.Stack
	// Crossing is the number of bytes that the ranks must send, for the check of packets.
	Crossing verify.Crossing
}

// adapter is a kind of stack.
type adapter struct {
	kind string
	// tools are the programs that the stack needs in nodes.
	tools []tool
	// version is the command that prints the version, and says the text before the version.
	version []string
	says    string
	// least is the oldest version whose output this package can parse, such as "3.1".
	least string
	// metric is the last figure of a row, and whether more or less of it is better.
	metric metric
	// figures are the columns that are compared with another run.
	figures []string
	run     func(r *run) (table, error)
}

// tool is a program, by any of its names, and the Debian package that contains it.
type tool struct {
	names  []string
	debian string
}

// metric is the figure that is compared with other runs.
type metric struct {
	name, unit string
	less       bool // is better
}

// table is the table that a run printed, in the program's terms.
type table struct {
	columns []string
	rows    []report.StackRow
	// sends is the lower bound on the bytes that each rank of run.ranks sends to other nodes. 0
	// means that it is not known.
	sends []units.Bytes
	// metric is the metric of the rows if it is not the adapter's.
	metric *metric
	// figures are the figures if they are not the adapter's.
	figures []string
}

var adapters = []adapter{openMPI, mpich, ucx, libfabric, iperf3, redis, pytorch, perftest}

// figure parses a figure of a table. It refuses values that a report cannot hold, which programs
// also print: nan for no messages, inf for no time.
func figure(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0) || v < 0) {
		err = fmt.Errorf("figure %q, want a finite number of at least 0", text)
	}
	return v, err
}

func adapterOf(kind string) (adapter, error) {
	i := slices.IndexFunc(adapters, func(a adapter) bool { return a.kind == kind })
	if i < 0 {
		return adapter{}, fmt.Errorf("stack %q: no adapter has this kind", kind)
	}
	return adapters[i], nil
}

// Parts returns the parts that reexec.Run needs so that launchers can start ranks in other nodes.
func Parts() reexec.Parts { return rsh.Parts() }

// Run runs a stack until it has ended in all nodes. If the host lacks the stack, it returns a
// verdict.UnsupportedError. When ctx ends, Run ends every process of the run. The error then names
// the ranks that the run was waiting for, as far as their processes show.
func Run(ctx context.Context, tb *testbed.Testbed, job Job) (*Result, error) {
	a, err := adapterOf(job.Step.Kind)
	if err != nil {
		return nil, err
	}
	if len(job.Nodes) < 2 {
		return nil, fmt.Errorf("%s in %d nodes: want at least two", job.Step.Kind, len(job.Nodes))
	}
	var there installed
	if first := job.Nodes[0]; first.Container != nil {
		there, err = a.findIn(ctx, tb.Node(first.Name))
	} else {
		there, err = a.find(ctx)
	}
	if err != nil {
		return nil, err
	}
	r := newRun(ctx, tb, job, there.commands)
	began := time.Now()
	made, err := a.run(r)
	err = errors.Join(err, r.close())
	if err != nil {
		return nil, err
	}
	figure := a.metric
	if made.metric != nil {
		figure = *made.metric
	}
	if made.figures == nil {
		made.figures = a.figures
	}
	result := &Result{
		Stack: report.Stack{
			Name:    job.Step.Name,
			Kind:    job.Step.Kind,
			Version: there.version,
			Test:    job.Step.Test,
			Ranks:   len(r.ranks),
			Columns: made.columns,
			Rows:    made.rows,
			Metric:  figure.name,
			Unit:    figure.unit,
			Less:    figure.less,
			Beside:  job.Step.Beside,
			Figures: made.figures,
			Slow:    r.trips.slow(r.ranks),
			Held:    r.account.held(r.ranks),
		},
		Crossing: verify.Crossing{Name: job.Step.Name, From: began.UnixNano(), To: time.Now().UnixNano()},
	}
	for i, rank := range r.ranks {
		c := verify.CrossingRank{Rank: i, Node: rank.Node, NIC: rank.NIC, SecondNIC: rank.SecondNIC}
		if i < len(made.sends) {
			c.Sends = made.sends[i]
		}
		result.Crossing.Ranks = append(result.Crossing.Ranks, c)
	}
	return result, nil
}
