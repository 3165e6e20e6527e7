package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testbed/doctor"
	"railbed/testkit/hosttest"
)

// runDoctor runs the command line as main does.
func runDoctor(args ...string) (code int, stdout, stderr string) {
	var out, logs bytes.Buffer
	code = Main(append([]string{"doctor"}, args...), strings.NewReader(""), &out, &logs)
	return code, out.String(), logs.String()
}

func TestDoctorJSON(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	code, stdout, stderr := runDoctor("-o", "json")
	var document struct {
		Ready  bool
		Probes []doctor.Probe
	}
	if err := json.Unmarshal([]byte(stdout), &document); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if code != verdict.ExitPass || !document.Ready || len(document.Probes) != len(doctor.Features()) ||
		stderr != "" {
		t.Errorf("exit %d, ready %v, %d probes, stderr %q", code, document.Ready, len(document.Probes),
			stderr)
	}
}

func TestDoctorTableNamesTheRemedy(t *testing.T) {
	probes := []doctor.Probe{
		{Feature: "veth", Result: doctor.OK, Needed: true, Tried: "add a pair", Gates: "every link"},
		{Feature: "tbf", Result: doctor.Missing, Needed: true, Tried: "set it", Detail: "no such file",
			Gates: "rates", Remedy: "modprobe sch_tbf"},
		{Feature: "netem", Result: doctor.Missing, Tried: "set it", Detail: "no such file", Gates: "delay",
			Remedy: "modprobe sch_netem"},
	}
	var out bytes.Buffer
	a := &app{stdout: &out, output: "table"}
	err := a.printProbes(probes, false)
	if exit, ok := err.(*exitError); !ok || exit.Code != verdict.ExitUnsupported ||
		exit.Err.Error() != "missing here: tbf" {
		t.Errorf("got %v, want exit 3 for tbf alone", err)
	}
	for _, want := range []string{"FEATURE", "veth *", "tbf *", "remedy:   modprobe sch_netem"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if err := a.printProbes(probes[:1], true); err != nil {
		t.Errorf("all is there, got %v", err)
	}
	if err := a.printProbes(probes[2:], true); err == nil {
		t.Error("netem was asked for and is missing, got no error")
	}
}

func TestDoctorRefusesUnknownFeatures(t *testing.T) {
	code, _, stderr := runDoctor("no-such-feature")
	if code != verdict.ExitUsage || !strings.Contains(stderr, "the features are user-namespace, ") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}
