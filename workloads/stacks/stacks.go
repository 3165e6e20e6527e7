// Package stacks runs other people's programs on a testbed as their users know them:
// unmodified, with their default transports, and with the tables that they print.
//
// What is special about a program stands in its adapter, one file each: which
// programs and Debian packages it needs, how its version is read, how it is launched,
// how its output becomes a table, and what its ranks had to send to other nodes. All
// the rest is here: processes and their logs, servers that listen, clients beside each
// other, a remote shell for launchers, and what becomes of ranks that die or hang.
//
// The bound on what ranks had to send holds whatever algorithm and transport a program
// took, so that a check of packets can tell whether the bytes crossed links at all.
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
	// Step is what the file asks for, with defaults.
	Step *spec.Stack
	// Plan is the testbed's; Nodes are those that take part, in its order, at least two.
	Plan  *plan.Plan
	Nodes []*plan.Node
	// Log opens what a node's programs write to. It is called once for each node.
	Log func(node string) (stdout, stderr io.Writer, err error)
}

// Result is what came of a run.
type Result struct {
	report.Stack
	// Crossing is what its ranks had to send, for the check of packets.
	Crossing verify.Crossing
}

// adapter is a kind of stack.
type adapter struct {
	kind string
	// tools are the programs that it needs in nodes.
	tools []tool
	// version is the command that says the version, and what it says in front of it.
	version []string
	says    string
	// least is the oldest version whose output is understood, such as "3.1".
	least string
	// metric is what the last figure of a row is, better if there is more of it or less.
	metric metric
	// figures are the columns that are compared with another run's.
	figures []string
	run     func(r *run) (table, error)
}

// tool is a program, by any of its names, and the Debian package that has it.
type tool struct {
	names  []string
	debian string
}

// metric is what is compared with other runs.
type metric struct {
	name, unit string
	less       bool // is better
}

// table is what a run printed, in the words of the program.
type table struct {
	columns []string
	rows    []report.StackRow
	// sends is what each rank had to send to other nodes at least; 0 is that it is not
	// known. Ranks are those of run.ranks.
	sends []units.Bytes
	// metric is that of the rows where it is not the adapter's.
	metric *metric
	// figures are likewise.
	figures []string
}

var adapters = []adapter{openMPI, mpich, ucx, libfabric, iperf3, redis, pytorch, perftest}

// figure reads a figure of a table. Programs print others, too, of which a report can
// make nothing: nan of no messages, inf of no time.
func figure(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0) || v < 0) {
		err = fmt.Errorf("a figure of %q", text)
	}
	return v, err
}

func adapterOf(kind string) (adapter, error) {
	i := slices.IndexFunc(adapters, func(a adapter) bool { return a.kind == kind })
	if i < 0 {
		return adapter{}, fmt.Errorf("stack %q: there is no adapter of this kind", kind)
	}
	return adapters[i], nil
}

// Parts is what reexec.Run needs so that launchers can start ranks in other nodes.
func Parts() reexec.Parts { return rsh.Parts() }

// Run runs a stack until it has ended in all nodes. A host that lacks it gives a
// verdict.UnsupportedError. When ctx ends, so does every process of the run, and the
// error names the ranks that it was waiting for, as far as their processes tell.
func Run(ctx context.Context, tb *testbed.Testbed, job Job) (*Result, error) {
	a, err := adapterOf(job.Step.Kind)
	if err != nil {
		return nil, err
	}
	if len(job.Nodes) < 2 {
		return nil, fmt.Errorf("%s in %d nodes: want two at least", job.Step.Kind, len(job.Nodes))
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
		c := verify.CrossingRank{Rank: i, Node: rank.Node, NIC: rank.NIC}
		if i < len(made.sends) {
			c.Sends = made.sends[i]
		}
		result.Crossing.Ranks = append(result.Crossing.Ranks, c)
	}
	return result, nil
}
