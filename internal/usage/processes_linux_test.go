package usage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// scriptedProc writes a /proc with processes that had a time, in ticks, with their children's time.
func scriptedProc(t *testing.T, all map[int]string) string {
	t.Helper()
	root := t.TempDir()
	for pid, stat := range all {
		dir := filepath.Join(root, fmt.Sprint(pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "stat"), fmt.Appendf(nil, "%d %s", pid, stat),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// stat is the content of a stat file after the PID (proc_pid_stat(5)).
func stat(name string, parent, flags, user, children, started int) string {
	return fmt.Sprintf("(%s) R %d 1 1 0 -1 %d 0 0 0 0 %d 0 %d 0 20 0 1 0 %d 1000 10 18446744073709551615 "+
		"1 1 1 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", name, parent, flags, user, children,
		started)
}

func TestOthers(t *testing.T) {
	before := ReadProcesses(scriptedProc(t, map[int]string{
		1:  stat("init", 0, 0, 500, 0, 1),
		9:  stat("ksoftirqd/0", 2, kernelThread, 100, 0, 1),
		20: stat("make", 1, 0, 0, 50, 10),
		21: stat("cc", 20, 0, 80, 0, 11), // ends, with 100
		22: stat("spin", 1, 0, 10, 0, 12),
		23: stat("old", 1, 0, 70, 0, 13), // ends, and another process gets its PID
		30: stat("railbed", 1, 0, 10, 0, 14),
		31: stat("rank", 30, 0, 10, 0, 15),
	}))
	after := ReadProcesses(scriptedProc(t, map[int]string{
		1:  stat("init", 0, 0, 500, 70, 1),
		9:  stat("ksoftirqd/0", 2, kernelThread, 300, 0, 1),
		20: stat("make", 1, 0, 0, 150, 10),
		22: stat("spin", 1, 0, 110, 0, 12),
		23: stat("spin", 1, 0, 40, 0, 99),
		30: stat("railbed", 1, 0, 210, 0, 14),
		31: stat("rank", 30, 0, 210, 0, 15),
		32: stat("helper", 31, 0, 60, 0, 98),
	}))
	after.at = before.at.Add(2 * time.Second)
	// spin: 100 and 40 ticks of 200; make: 100 more of its children, 80 of them from before.
	want := []Busy{{"spin", 0.7}, {"make", 0.1}}
	if diff := cmp.Diff(want, after.Others(before, 30), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("others (-want +got):\n%s", diff)
	}
	// These 160 ticks, 200 each of railbed and rank, and 60 of helper.
	if got := after.Used(before); got != 620*tick {
		t.Errorf("all used %v, want %v", got, 620*tick)
	}
	if got := after.Others(after, 30); got != nil {
		t.Errorf("others within no time: %v, want none", got)
	}
}

// TestOthersOfTheHost measures a loop, as a process of others and as one of its own.
func TestOthersOfTheHost(t *testing.T) {
	shell := filepath.Join(t.TempDir(), "spinner") // a program is named as the file that was executed
	if err := os.Symlink("/bin/sh", shell); err != nil {
		t.Fatal(err)
	}
	loop := exec.CommandContext(t.Context(), shell, "-c", "while :; do :; done")
	if err := loop.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = loop.Process.Kill()
		_ = loop.Wait()
	}()
	before := ReadProcesses("/proc")
	spins := func(self int) bool {
		return slices.ContainsFunc(ReadProcesses("/proc").Others(before, self),
			func(b Busy) bool { return b.Name == "spinner" })
	}
	for start := time.Now(); !spins(loop.Process.Pid + 1); {
		if time.Since(start) > time.Minute {
			t.Fatal("a loop had no processor for a minute")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if spins(loop.Process.Pid) || spins(os.Getpid()) {
		t.Error("a process, or its child, is one of others")
	}
}
