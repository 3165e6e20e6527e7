package runner

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"railbed/scenarios/runner/measure"

	"railbed/capture/report"
	"railbed/testbed"
)

// hostFacts returns facts about the host of the run. A fact that cannot be read stays empty.
func hostFacts(root string) report.Host {
	name, _ := os.Hostname()
	release, _ := os.ReadFile(filepath.Join(root, "sys/kernel/osrelease"))
	memory, _ := os.ReadFile(filepath.Join(root, "meminfo"))
	return report.Host{
		Name: name, Kernel: strings.TrimSpace(string(release)), Arch: runtime.GOARCH, CPUs: runtime.NumCPU(),
		Memory: memTotal(string(memory)), Rootless: os.Geteuid() != 0,
	}
}

// memTotal reads "MemTotal:  16316412 kB", where kB is 1,024 bytes (proc_meminfo(5)).
func memTotal(text string) uint64 {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseUint(fields[1], 10, 54)
			return kib << 10
		}
	}
	return 0
}

// linkReader returns how a sampler reads the testbed: with the nodes' stacks or without.
func linkReader(tb *testbed.Testbed) func(ctx context.Context, stacks bool) (measure.State, error) {
	return func(ctx context.Context, stacks bool) (measure.State, error) {
		read := tb.Sample
		if stacks {
			read = tb.Inspect
		}
		state, err := read(ctx)
		if err != nil {
			return measure.State{}, err
		}
		return measure.State{Links: state.Links, Soft: state.Soft, Nodes: state.Nodes,
			Switches: state.Switches, Backlog: state.Backlog, NodeFaults: state.NodeFaults}, nil
	}
}

// oneAtATime serialises calls of a function.
func oneAtATime(tell func(Update)) func(Update) {
	var mu sync.Mutex
	return func(u Update) {
		mu.Lock()
		defer mu.Unlock()
		tell(u)
	}
}
