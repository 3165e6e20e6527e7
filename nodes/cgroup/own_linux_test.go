package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"railbed/testkit/hosttest"
)

var _ = hosttest.MarkPackage(hosttest.AsNobody)

// TestReading reads files as the kernel has them with version 2 of control groups.
func TestReading(t *testing.T) {
	dir := t.TempDir()
	g := &Group{limits: Limits{AdjustCPU: true, AdjustMemory: true}, dirs: []string{dir}}
	write := func(files map[string]string) {
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(want Reading) {
		t.Helper()
		if got, err := g.Read(); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	write(map[string]string{"cpu.max": "max 100000", "memory.max": "max", "memory.current": "4096",
		"memory.events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0"})
	none := Reading{Version: 2, CPU: "max 100000", Memory: math.MaxInt64, Used: 4096,
		Events: MemoryEvents{Reached: 7, Killed: 1}}
	check(none)
	write(map[string]string{"cpu.max": "10000 100000", "memory.max": "67108864", "memory.swap.max": "4096"})
	some := none
	some.CPU, some.Memory, some.Sum = "10000 100000", 64<<20, 64<<20+4096
	check(some)
}
