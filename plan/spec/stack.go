package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"railbed/internal/nearest"
	"railbed/internal/printable"
	"railbed/internal/units"
)

// Stack runs third-party programs in nodes. They are unmodified, with their default transports, and their
// output is in the report. On a host without them the run is UNSUPPORTED. Nodes are in the
// plan's order. The first node runs the server, or the launcher.
type Stack struct {
	// Name is the name by which checks refer to the run.
	Name string `yaml:"name" json:"name"`
	// Kind is the software that is run.
	//
	//   - openmpi, mpich: the launcher with ranks in all nodes.
	//   - ucx (ucx_perftest), libfabric (fi_pingpong), iperf3, redis: a server, with clients in the
	//     other nodes.
	//   - pytorch: training with DistributedDataParallel over Gloo, with one process per rank.
	//   - perftest: between nodes with RDMA devices.
	Kind string `yaml:"kind" json:"kind" jsonschema:"enum=openmpi,enum=mpich,enum=ucx,enum=libfabric,enum=iperf3,enum=redis,enum=pytorch,enum=perftest"`
	// Nodes lists names or globs of nodes. Default: all nodes.
	Nodes []string `yaml:"nodes,omitempty" json:"nodes,omitempty" names:"node"`
	// Test is the measurement. Kinds without an entry here have one test each. Default: by kind.
	//
	//   - openmpi, mpich: all-reduce (default) or all-to-all.
	//   - ucx: tag_bw (default), tag_lat or am_bw.
	//   - libfabric: endpoints of type rdm (default) or msg.
	//   - perftest: write_bw (default), write_lat, send_bw, send_lat, read_bw or read_lat.
	Test string `yaml:"test,omitempty" json:"test,omitempty"`
	// Command is a user's MPI program and its arguments, in place of a test. It is not run by a shell.
	// It runs in the file's folder, if all its nodes see that folder.
	// Default none.
	Command []string `yaml:"command,omitempty" json:"command,omitempty" scalar:"any"`
	// Sends is the least number of bytes that each rank of command sends to ranks of other nodes, for
	// the check crossed. Default none.
	Sends units.Bytes `yaml:"sends,omitempty" json:"sends,omitempty"`
	// Size is the size of messages or data. Default: by kind.
	//
	//   - openmpi, mpich: the largest message of a test. Default 1MiB.
	//   - ucx, libfabric, perftest: a message. Default 64KiB.
	//   - iperf3: the bytes that each client sends in total. Default 8MiB.
	//   - redis: a value. Default 1KiB.
	//   - pytorch: about the size of the gradients. Default 64KiB.
	Size units.Bytes `yaml:"size,omitempty" json:"size,omitempty"`
	// Iterations is the number of repetitions. Default: by kind.
	//
	//   - openmpi, mpich: messages of each size. Default 20.
	//   - ucx, libfabric, perftest: messages of each size. Default 100.
	//   - redis: requests of each kind. Default 2000.
	//   - pytorch: steps. Default 100.
	Iterations int `yaml:"iterations,omitempty" json:"iterations,omitempty" jsonschema:"minimum=1,maximum=10000000" unit:"repetitions"`
	// Beside names an earlier run of the same kind that is not in the background. The report shows the
	// figures of both runs and their ratios, this run's to the earlier one's. Default none.
	Beside string `yaml:"beside,omitempty" json:"beside,omitempty"`
	// Timeout is the time after which the run fails. Default 1m.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	// Background starts the next step at once. Default false.
	Background bool `yaml:"background,omitempty" json:"background,omitempty"`
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

// stackKind holds the settings that a kind of stack accepts.
type stackKind struct {
	tests      []string // the default first; none if there is only one
	command    bool     // accepts a user's program
	size       units.Bytes
	iterations int // 0 if it has none
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

// StackKinds returns the kinds of stacks, sorted.
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

// stacks returns the names of all runs of stacks, in order.
func (t *Testbed) stacks() []string {
	var names []string
	for _, step := range t.Steps {
		if step.Stack != nil && step.Stack.Name != "" {
			names = append(names, step.Stack.Name)
		}
	}
	return names
}

// Traits implements Action.
func (s *Stack) Traits() Traits {
	return Traits{Name: s.Name, Timeout: s.Timeout, Background: s.Background, Programs: true}
}

func (s *Stack) check(c *checker, at string, index int) {
	c.unique(at+".name", s.Name)
	for i, node := range s.Nodes {
		c.pattern(c.Report, fmt.Sprintf("%s.nodes[%d]", at, i), node, "node", nodeName, nodeNameForm)
	}
	c.between(at+".size", s.Size, 4, 1<<36)
	c.positive(at+".timeout", uint64(s.Timeout), "timeout is 0", "want a duration such as 1m")
	c.words(at, s.Command, "[/opt/app/solver, -n, 100]")
	kind, known := stackKinds[s.Kind]
	if !known {
		return // constraints has reported it
	}
	if s.Test != "" && !slices.Contains(kind.tests, s.Test) {
		want := "want " + strings.Join(kind.tests, " or ")
		if len(kind.tests) == 0 {
			want = "remove it: " + s.Kind + " has only one test"
		}
		c.Report(at+".test", fmt.Sprintf("%s has no test %q", s.Kind, printable.Clip(s.Test)), want)
	}
	given := func(key string) bool { return c.Source.Has(at + "." + key) }
	switch {
	case len(s.Command) > 0 && !kind.command:
		c.ReportKey(at+".command", s.Kind+" takes no command", "remove it; an exec step runs any program")
	case len(s.Command) > 0 && given("test"):
		c.ReportKey(at+".test", "test and command are both set", "remove one of them")
	case len(s.Command) == 0 && s.Sends != 0:
		c.ReportKey(at+".sends", "sends without command", "remove it")
	case kind.iterations == 0 && s.Iterations != 0:
		c.ReportKey(at+".iterations", s.Kind+" takes no iterations", "remove it")
	}
	if s.Beside != "" && !slices.ContainsFunc(c.t.Steps[:index], func(step Step) bool {
		return step.Stack != nil && step.Stack.Name == s.Beside && step.Stack.Kind == s.Kind &&
			!step.Stack.Background
	}) && !c.Broken("steps") {
		c.Report(at+".beside", fmt.Sprintf("no earlier run of %s is named %q", s.Kind,
			printable.Clip(s.Beside)),
			"want the name of an earlier stack step of this kind without background: true")
	}
}

// stackNamed checks that a check names a stack's run of this file.
func (c *checker) stackNamed(path, name string) {
	names := c.runs
	if name == "" || slices.Contains(names, name) || c.Full() || c.Known("steps") || c.Broken("steps") {
		return
	}
	want := "add a stack to the steps"
	if len(names) > 0 {
		_, want = nearest.Suggest(name, names)
	}
	c.Report(path, fmt.Sprintf("stack %q does not exist", printable.Clip(name)), want)
}
