package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"railbed/internal/units"
)

// Stack runs somebody else's programs in nodes, unmodified and with their default
// transports, and puts what they print into the report. A host without them is
// UNSUPPORTED. Nodes are in the plan's order; the first one has the server, or the
// launcher.
type Stack struct {
	// Name is what checks call the run.
	Name string `yaml:"name" json:"name"`
	// Kind is whose: Open MPI's and MPICH's launchers with ranks in all nodes; a server
	// with clients in the other nodes of ucx_perftest, libfabric's fi_pingpong, iperf3 and
	// Redis; pytorch, which trains with DistributedDataParallel over Gloo, a process for
	// each rank; and perftest, between nodes with RDMA devices.
	Kind string `yaml:"kind" json:"kind" jsonschema:"enum=openmpi,enum=mpich,enum=ucx,enum=libfabric,enum=iperf3,enum=redis,enum=pytorch,enum=perftest"`
	// Nodes are names or globs. Default: all nodes.
	Nodes []string `yaml:"nodes,omitempty" json:"nodes,omitempty"`
	// Test is what is measured: all-reduce (default) or all-to-all by openmpi and mpich;
	// tag_bw (default), tag_lat or am_bw by ucx; over endpoints of rdm (default) or msg by
	// libfabric; write_bw (default), write_lat, send_bw, send_lat, read_bw or read_lat by
	// perftest. The others have one test each.
	Test string `yaml:"test,omitempty" json:"test,omitempty"`
	// Command is an MPI program of the file's own and its arguments, in place of a test.
	// No shell reads it.
	Command []string `yaml:"command,omitempty" json:"command,omitempty" scalar:"any"`
	// Sends is what each rank of Command sends to ranks of other nodes at least, for the
	// check crossed.
	Sends units.Bytes `yaml:"sends,omitempty" json:"sends,omitempty"`
	// Size is the largest message of MPI's tests, that of ucx and libfabric, what each
	// client of iperf3 sends in all, a value of Redis, and about the gradients of pytorch.
	// Default 1MiB, 64KiB, 8MiB, 1KiB and 64KiB; a message of perftest 64KiB.
	Size units.Bytes `yaml:"size,omitempty" json:"size,omitempty"`
	// Iterations are the messages of each size, the requests of each kind to Redis, or the
	// steps of pytorch. Default 20, 100 by ucx, libfabric, pytorch and perftest, and 2000.
	Iterations int `yaml:"iterations,omitempty" json:"iterations,omitempty" jsonschema:"minimum=1,maximum=10000000"`
	// Beside names an earlier run of the same kind, of whose figures the report shows
	// what part this one has, and what both were.
	Beside string `yaml:"beside,omitempty" json:"beside,omitempty"`
	// Timeout ends the run as failed. Default 1m.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
}

// Kinds of stacks.
const (
	OpenMPI   = "openmpi"
	MPICH     = "mpich"
	UCX       = "ucx"
	Libfabric = "libfabric"
	IPerf3    = "iperf3"
	Redis     = "redis"
	PyTorch   = "pytorch"
	Perftest  = "perftest"
)

// stackKind is what a file can ask of a kind of stack.
type stackKind struct {
	tests      []string // the default first; none where there is but one
	command    bool     // runs programs of the file's own
	size       units.Bytes
	iterations int // 0 where it has none
}

var stackKinds = map[string]stackKind{
	OpenMPI:   {tests: []string{AllReduce, AllToAll}, command: true, size: 1 << 20, iterations: 20},
	MPICH:     {tests: []string{AllReduce, AllToAll}, command: true, size: 1 << 20, iterations: 20},
	UCX:       {tests: []string{"tag_bw", "tag_lat", "am_bw"}, size: 64 << 10, iterations: 100},
	Libfabric: {tests: []string{"rdm", "msg"}, size: 64 << 10, iterations: 100},
	IPerf3:    {size: 8 << 20},
	Redis:     {size: 1 << 10, iterations: 2000},
	PyTorch:   {size: 64 << 10, iterations: 100},
	Perftest: {tests: []string{"write_bw", "write_lat", "send_bw", "send_lat", "read_bw", "read_lat"},
		size: 64 << 10, iterations: 100},
}

// StackKinds are the kinds of stacks, sorted.
func StackKinds() []string { return slices.Sorted(maps.Keys(stackKinds)) }

func (s *Stack) setDefaults() {
	kind := stackKinds[s.Kind]
	if len(kind.tests) > 0 && len(s.Command) == 0 {
		s.Test = cmp.Or(s.Test, kind.tests[0])
	}
	s.Size = cmp.Or(s.Size, kind.size)
	s.Iterations = cmp.Or(s.Iterations, kind.iterations)
	s.Timeout = cmp.Or(s.Timeout, defaultExecTimeout)
}

// stacks are the names of all runs of stacks, in order.
func (t *Testbed) stacks() []string {
	var names []string
	for _, step := range t.Steps {
		if step.Stack != nil && step.Stack.Name != "" {
			names = append(names, step.Stack.Name)
		}
	}
	return names
}

func (c *checker) stack(at string, index int, s *Stack, names map[string]string) {
	c.unique(at+".name", s.Name, names)
	for i, node := range s.Nodes {
		c.pattern(c.report, fmt.Sprintf("%s.nodes[%d]", at, i), node, "node", nodeName, nodeNameForm)
	}
	c.between(at+".size", s.Size, 4, 1<<36)
	c.positive(at+".timeout", uint64(s.Timeout), "a timeout of no time", "want a duration such as 1m")
	c.words(at, s.Command, "[/opt/app/solver, -n, 100]")
	kind, known := stackKinds[s.Kind]
	if !known {
		return // constraints have said so
	}
	if s.Test != "" && !slices.Contains(kind.tests, s.Test) {
		want := "want " + strings.Join(kind.tests, " or ")
		if len(kind.tests) == 0 {
			want = "remove it: there is one test"
		}
		c.report(at+".test", fmt.Sprintf("test %q of %s", clipped(s.Test), s.Kind), want)
	}
	given := func(key string) bool { return c.t.Source.Has(at + "." + key) }
	switch {
	case len(s.Command) > 0 && !kind.command:
		c.reportKey(at+".command", "a command of "+s.Kind, "remove it; an exec step runs any program")
	case len(s.Command) > 0 && given("test"):
		c.reportKey(at+".test", "a test of a program of the file's own", "remove one of them")
	case len(s.Command) == 0 && s.Sends != 0:
		c.reportKey(at+".sends", "what a test sends is known", "remove it")
	case kind.iterations == 0 && s.Iterations != 0:
		c.reportKey(at+".iterations", "iterations of "+s.Kind, "remove it")
	}
	if s.Beside != "" && !slices.ContainsFunc(c.t.Steps[:index], func(step Step) bool {
		return step.Stack != nil && step.Stack.Name == s.Beside && step.Stack.Kind == s.Kind
	}) && !c.broken("steps") {
		c.report(at+".beside", fmt.Sprintf("no run of %s before this one is named %q", s.Kind,
			clipped(s.Beside)), "want the name of an earlier stack step of this kind")
	}
}

// stackNamed checks that a check names a stack's run of this file.
func (c *checker) stackNamed(path, name string) {
	names := c.runs
	if name == "" || slices.Contains(names, name) || c.full() || c.known("steps") || c.broken("steps") {
		return
	}
	want := "add a stack to the steps"
	if len(names) > 0 {
		_, want = suggest(name, names)
	}
	c.report(path, fmt.Sprintf("stack %q does not exist", clipped(name)), want)
}
