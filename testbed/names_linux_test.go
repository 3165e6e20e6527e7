package testbed_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"railbed/testbed/supervisor"
)

// TestProcessesHaveNames reads the names of a testbed's threads as top and perf do.
func TestProcessesHaveNames(t *testing.T) {
	tb := upPlan(t, strings.Replace(fmt.Sprintf(twoHosts, "go-names"), "router", "soft", 1))
	cmd := tb.Node("h1").Part(t.Context(), reachPart) // makes the node's init
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	capture, err := tb.Capture(t.Context(), supervisor.CaptureRequest{At: []string{"h0:eth0"}}, &file)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	addNames(t, inspected(t, tb).PID, names)
	if _, err := capture.Stop(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"rb:supervisor", "rb:softswitch", "rb:sw-timing", "rb:sw-arrivals",
		"rb:capture", "rb:h1:init"} {
		if !names[want] {
			t.Errorf("no thread has the name %s", want)
		}
		delete(names, want)
	}
	if len(names) > 0 {
		t.Errorf("threads have the names %v, too", names)
	}
}

// addNames adds the names of the threads of a process and its descendants.
func addNames(t *testing.T, pid int, names map[string]bool) {
	t.Helper()
	for _, task := range tasks(t, pid) {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/comm", pid, task.Name()))
		if err == nil { // otherwise the thread has ended
			names[strings.TrimSpace(string(name))] = true
		}
	}
	for _, child := range childrenOf(t, pid) {
		addNames(t, child, names)
	}
}
