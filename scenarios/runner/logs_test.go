package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"railbed/capture/report"
)

// anyTime is the time in the heading of a repetition.
var anyTime = regexp.MustCompile(`at [0-9.]+ s\]`)

// logsOf returns the logs of a step by their paths, without the times.
func logsOf(t *testing.T, o Options, step report.Step) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, log := range step.Logs {
		found[log] = anyTime.ReplaceAllString(readOut(t, o, log), "at T s]")
	}
	return found
}

// TestRepeatedCommandsPrint: a command that is done again continues its logs.
func TestRepeatedCommandsPrint(t *testing.T) {
	// A command that fails until it ran three times, and prints something each time.
	const third = `n=$(cat /tmp/$0 2>/dev/null || echo 0); n=$((n+1)); echo $n >/tmp/$0; %s; [ $n -ge 3 ]`
	command := func(name, prints string) string {
		return fmt.Sprintf("exec: {name: %s, nodes: [h0], command: [sh, -c, '%s', %[1]s]}", name,
			strings.ReplaceAll(fmt.Sprintf(third, prints), "'", "''"))
	}
	retry := "steps:\n  - retry: {times: 4, every: 10ms}\n    "
	o := options(t, twoHosts+retry+command("both", `echo try $n; printf "refused $n" >&2`)+"\n"+
		strings.TrimPrefix(retry, "steps:\n")+command("late", `[ $n -lt 2 ] || echo late $n >&2`)+"\n"+
		strings.TrimPrefix(retry, "steps:\n")+command("quiet", `true`)+"\n"+
		"  - {every: 20ms, times: 3, exec: {name: poll, nodes: [h0], command: [echo, poll]}}\n"+
		"  - {every: 20ms, times: 2, retry: {times: 1, every: 10ms}, exec: {name: twice, nodes: [h0], "+
		"command: [sh, -c, 'echo x; [ -e /tmp/twice ] && rm /tmp/twice || ! touch /tmp/twice']}}\n"+
		"  - sleep: 500ms\n")
	steps := runAll(t, t.Context(), o).Steps
	heading := func(n int) string { return fmt.Sprintf("[railbed: run %d of the command, at T s]\n", n) }
	out := "try 1\n" + heading(2) + "try 2\n" + heading(3) + "try 3\n"
	err := "refused 1\n" + heading(2) + "refused 2\n" + heading(3) + "refused 3"
	late := heading(2) + "late 2\n" + heading(3) + "late 3\n"
	want := []map[string]string{
		{"logs/h0/both.out": out, "logs/h0/both.err": err},
		{"logs/h0/late.err": late},
		{},
		{"logs/h0/poll.out": "poll\n" + heading(2) + "poll\n" + heading(3) + "poll\n"},
		{"logs/h0/twice.out": "x\n" + heading(2) + "x\n" + heading(3) + "x\n" + heading(4) + "x\n"},
	}
	times := []int{3, 3, 3, 3, 2}
	for i := range want {
		if diff := cmp.Diff(want[i], logsOf(t, o, steps[i])); diff != "" || steps[i].Times != times[i] ||
			steps[i].State != report.Passed {
			t.Errorf("%+v: %s", steps[i], diff)
		}
	}
	if _, err := os.Stat(filepath.Join(o.Out, "logs/h0/quiet.out")); !os.IsNotExist(err) {
		t.Errorf("the log of a command without output: %v", err)
	}
}

// TestLogsOfLastAttempt: a step that fails after its last attempt shows the last output.
func TestLogsOfLastAttempt(t *testing.T) {
	o := options(t, twoHosts+"steps:\n  - retry: {times: 2, every: 1ms}\n    exec: {name: cli, nodes: [h0], "+
		"command: [sh, -c, 'echo x >>/tmp/n; echo attempt $(wc -l </tmp/n) >&2; exit 3']}\n")
	r := runAll(t, t.Context(), o)
	if text := r.Steps[0].Error; r.Steps[0].State != report.Failed || r.Steps[0].Times != 3 ||
		!strings.Contains(text, "after 3 attempts") || !strings.Contains(text, "attempt 3") ||
		strings.Contains(text, "attempt 2") {
		t.Errorf("%+v", r.Steps[0])
	}
	if text := readOut(t, o, "logs/h0/cli.err"); strings.Count(text, "attempt") != 3 {
		t.Errorf("the log has %q", text)
	}
}

// TestLogsOfTwoStepsWithOnePath: logs that would have the same path get two.
func TestLogsOfTwoStepsWithOnePath(t *testing.T) {
	o := options(t, twoHosts+"steps:\n"+
		"  - exec: {name: step2, nodes: [h0], command: [echo, first]}\n"+
		"  - exec: {nodes: [h0], command: [echo, second]}\n"+
		"  - exec: {name: t-sink, nodes: [h1], command: [echo, third]}\n"+
		"  - traffic: {name: t, from: [h0], to: [h1], rate: 1mbit, size: 200B, for: 50ms}\n")
	steps := runAll(t, t.Context(), o).Steps
	for i, want := range []map[string]string{
		{"logs/h0/step2.out": "first\n"}, {"logs/h0/step2-step2.out": "second\n"},
		{"logs/h1/t-sink.out": "third\n"},
	} {
		if diff := cmp.Diff(want, logsOf(t, o, steps[i])); diff != "" {
			t.Error(diff)
		}
	}
	if steps[3].State != report.Passed || slices.Contains(steps[3].Logs, "logs/h1/t-sink.out") {
		t.Errorf("%+v", steps[3])
	}
}
