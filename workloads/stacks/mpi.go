package stacks

import (
	"bytes"
	_ "embed" // for the benchmark
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"railbed/capture/report"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/workloads/stacks/rsh"
)

// The common part of the MPI implementations. A launcher in the first node starts a process in
// every other node by a remote shell. Each rank gets the name of its NIC. A benchmark prints the
// columns of the OSU micro-benchmarks.

//go:embed programs/mpi.c
var mpiBenchmark []byte

// mpiProgram is the benchmark's path, in the /tmp of each node.
const mpiProgram = "/tmp/railbed-mpi"

// mpiLast is the last line of the benchmark's output.
const mpiLast = "# done\n"

// mpi is the part that differs between implementations.
type mpi struct {
	compiler string // the tool's name
	// local is the environment variable with a rank's number within its node.
	local string
	// launch returns the launcher and its options, up to the program.
	launch func(r *run, perNode []string) []string
	// finalizes is how long the launcher may run after mpiLast; 0 means without a limit. After
	// that, remaining ranks are ended.
	finalizes time.Duration
	// died matches a launcher's message about the process that ended the job. It may name a node, a
	// rank or neither.
	died []*regexp.Regexp
	// states matches lines on the launcher's standard error that are not for people. died may find
	// in them facts that the launcher does not report otherwise.
	states *regexp.Regexp
}

// osuColumns are the columns of the OSU micro-benchmarks with -f and -c.
var osuColumns = []string{"# Size", "Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations",
	"Validation"}

// mpiFigures are the columns that are compared with another run.
var mpiFigures = []string{"Avg Latency(us)", "Max Latency(us)"}

var mpiMetric = metric{name: "Avg Latency", unit: "us", less: true}

func (m mpi) run(r *run) (table, error) {
	var names []string
	for _, node := range r.Nodes {
		names = append(names, node.Name)
	}
	for _, name := range names[1:] { // the launcher is in the first node
		if err := rsh.Reaches(r.testbed, names, names[0], name); err != nil {
			return table{}, err
		}
	}
	server, err := rsh.Serve(r.ctx, r.testbed, names, r.env())
	if err != nil {
		return table{}, err
	}
	r.closers = append(r.closers, server.Close)
	program := r.Step.Command
	if len(program) == 0 {
		if err := m.build(r); err != nil {
			return table{}, err
		}
		program = []string{mpiProgram, r.Step.Test, fmt.Sprint(uint64(r.Step.Size)),
			fmt.Sprint(r.Step.Iterations), beatFile}
	}
	line := slices.Concat(m.launch(r, m.perNode(r)), []string{"sh", "-c", m.pin(r), "pin"}, program)
	last := lastWord{word: []byte(mpiLast)}
	if len(r.Step.Command) == 0 {
		last.grace = m.finalizes
	}
	if m.states != nil {
		last.aside = &aside{form: m.states}
	}
	output, err := r.outputUntil(&last, r.Nodes[0].Name, line...)
	if err != nil {
		var states []byte
		if last.aside != nil {
			states = last.aside.taken
		}
		return table{}, m.deadRank(r, err, states)
	}
	if len(r.Step.Command) > 0 {
		return table{sends: slices.Repeat([]units.Bytes{r.Step.Sends}, len(r.ranks))}, nil
	}
	made, err := parseOSU(string(output))
	made.sends = m.sends(r, made)
	return made, err
}

// build builds the benchmark in a new directory in the first node, and copies it to mpiProgram in
// all nodes.
func (m mpi) build(r *run) error {
	first := r.Nodes[0].Name
	made, err := r.output(first, "mktemp", "-d")
	if err != nil {
		return err
	}
	program := strings.TrimSpace(string(made)) + "/mpi"
	if err := r.put(first, program+".c", mpiBenchmark); err != nil {
		return err
	}
	if _, err := r.output(first, m.compiler, "-O2", "-o", program, program+".c"); err != nil {
		return err
	}
	cmd, err := r.command(r.ctx, first, "cat", program)
	if err != nil {
		return err
	}
	var built bytes.Buffer
	cmd.Stdout = &built // not into the log
	if err := cmd.Run(); err != nil {
		return err
	}
	return r.each(r.Nodes, func(_ int, node string) error { return r.put(node, mpiProgram, built.Bytes()) })
}

// perNode returns "node:ranks" for each node, in the order of the ranks.
func (m mpi) perNode(r *run) (all []string) {
	for _, node := range r.Nodes {
		n := len(r.ranksOf(node.Name))
		if n > 0 {
			all = append(all, fmt.Sprintf("%s:%d", node.Name, n))
		}
	}
	return all
}

func (r *run) ranksOf(node string) (all []plan.Rank) {
	for _, rank := range r.ranks {
		if rank.Node == node {
			all = append(all, rank)
		}
	}
	return all
}

// pin returns a script that sets a rank's NIC, by the variables of all transports that the rank may
// choose, and then executes the rank. It sets no variable for Open MPI's own transport, because
// that does not bind its connections and refuses connections that arrive through another NIC.
func (m mpi) pin(r *run) string {
	var script strings.Builder
	fmt.Fprintf(&script, `case "$RAILBED_NODE:$%s" in`, m.local)
	for _, node := range r.Nodes {
		for i, rank := range r.ranksOf(node.Name) {
			fmt.Fprintf(&script, " %s:%d) nic=%s;;", node.Name, i, rank.NIC)
		}
	}
	script.WriteString(` esac; export UCX_NET_DEVICES=$nic FI_TCP_IFACE=$nic FI_SOCKETS_IFACE=$nic; exec "$@"`)
	return script.String()
}

// sends returns the least number of bytes that each rank sends to other nodes, with a warm-up for
// each size. In an all-to-all that is a message to each rank in other nodes. In an all-reduce each
// node must send something about every element, its own value or the sum. So a node of one rank
// sends the buffer. For ranks that share a node the number is not known.
func (m mpi) sends(r *run, t table) []units.Bytes {
	var total units.Bytes
	for _, row := range t.rows {
		size, _ := strconv.ParseUint(row.Key, 10, 64) // parseOSU has checked it
		total += units.Bytes(size) * units.Bytes(r.Step.Iterations+1)
	}
	all := make([]units.Bytes, len(r.ranks))
	for i, rank := range r.ranks {
		here := len(r.ranksOf(rank.Node))
		switch {
		case r.Step.Test == spec.AllToAll:
			all[i] = total * units.Bytes(len(r.ranks)-here)
		case here == 1 && len(r.ranks) > 1:
			all[i] = total
		}
	}
	return all
}

// deadRank returns an error that names the rank that ended first, according to the launcher.
func (m mpi) deadRank(r *run, err error, states []byte) error {
	var exit *testbed.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	for _, form := range m.died {
		parts := form.FindSubmatch(exit.Stderr)
		if parts == nil {
			parts = form.FindSubmatch(states)
		}
		if parts == nil {
			continue
		}
		for i, name := range form.SubexpNames() {
			switch rank, err := strconv.Atoi(string(parts[i])); {
			case name == "rank" && err == nil && rank < len(r.ranks):
				return fmt.Errorf("rank %d (%s) ended: %w", rank, r.ranks[rank].Node, exit)
			case name == "node":
				return fmt.Errorf("a rank in %s ended: %w", parts[i], exit)
			}
		}
	}
	return err
}

// parseOSU parses the rows of the benchmark.
func parseOSU(text string) (table, error) {
	t := table{columns: osuColumns}
	for _, line := range lines(text) {
		fields := strings.Fields(line)
		if len(fields) != len(osuColumns) || fields[0] == "#" {
			continue
		}
		_, sizeErr := strconv.ParseUint(fields[0], 10, 64)
		latency, err := figure(fields[1])
		if errors.Join(sizeErr, err) != nil {
			continue
		}
		if fields[5] != "Pass" {
			return t, fmt.Errorf("the benchmark's validation of messages of %s bytes is %q, want Pass",
				fields[0], fields[5])
		}
		t.rows = append(t.rows, report.StackRow{Cells: fields, Key: fields[0], Value: latency})
	}
	if len(t.rows) == 0 {
		return t, fmt.Errorf("the benchmark printed no row: %q", text[:min(len(text), errorTail)])
	}
	return t, nil
}
