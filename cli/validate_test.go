package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

const validated = "name: v\nfabric: {topology: single-switch, params: {hosts: 2}}\n"

// besideFiles writes a file with steps, and others beside it, and returns its name.
func besideFiles(t *testing.T, text string, beside map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	name := filepath.Join(folder, "v.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for other, content := range beside {
		if err := os.WriteFile(filepath.Join(folder, other), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

// TestValidateReadsWhatStepsName holds that validate and run refuse a file that a step names,
// at the same place, and that nothing is made.
func TestValidateReadsWhatStepsName(t *testing.T) {
	beside := map[string]string{
		"wrong.xml": "<algo name=\"a\">\n", "wrong.cm": "Nodes 2\nConnections 1\n1->1 start 0 size 100\n",
		"wrong.txt": "10 0\n20 most\n",
		"wrong.csv": "Timestamp,Request tokens\n1,long\n", "wrong.json": "{\"format\": 7}\n",
	}
	for name, c := range map[string]struct{ steps, want string }{
		"no algorithm": {"- workload: {name: w, kind: all-reduce, algorithm: msccl, file: none.xml, " +
			"size: 4KiB}", "v.yaml:4:65: algorithm of a workload: DIR/none.xml cannot be read: no such " +
			"file or directory"},
		"a folder": {"- workload: {name: w, kind: all-reduce, algorithm: msccl, file: ., size: 4KiB}",
			"v.yaml:4:65: algorithm of a workload: DIR is a directory, not a file"},
		"a wrong algorithm": {"- workload: {name: w, kind: all-reduce, algorithm: msccl, file: wrong.xml, " +
			"size: 4KiB}", "v.yaml:4:65: algorithm of a workload: DIR/wrong.xml:"},
		"no trace": {"- training: {name: t, trace: none.cm}",
			"v.yaml:4:30: training job: DIR/none.cm cannot be read: no such file or directory"},
		"a wrong trace": {"- training: {name: t, trace: wrong.cm}",
			"v.yaml:4:30: training job: DIR/wrong.cm:3: node 1 sends to itself"},
		"no sizes": {"- messages: {name: m, open: {file: none.txt, load: 40%, count: 5}}",
			"v.yaml:4:36: messages: DIR/none.txt cannot be read"},
		"wrong sizes": {"- messages: {name: m, closed: {file: wrong.txt, count: 5}}",
			`v.yaml:4:38: messages: DIR/wrong.txt:2: share "most" is no number`},
		"wrong requests": {"- messages: {name: m, cache: {prefill: 1, trace: wrong.csv, layers: 1, " +
			"layer-time: 1ms, layer-bytes: 1KB}}",
			`v.yaml:4:50: messages: DIR/wrong.csv:2: a prompt of "long" tokens`},
		"no rates": {"- workload: {name: w, kind: all-reduce, size: 4KiB, transport: rd, rd: " +
			"{control: offline, rates: none.json}}",
			"v.yaml:4:98: rates of a workload: DIR/none.json cannot be read"},
		"wrong rates": {"- workload: {name: w, kind: all-reduce, size: 4KiB, transport: rd, rd: " +
			"{control: offline, rates: wrong.json}}", "v.yaml:4:98: rates of a workload: DIR/wrong.json:1:"},
		"too many ranks": {"- training: {name: t, model: {layers: 4, hidden: 64, sequence: 32, tflops: " +
			"1, dp: 3}}", "v.yaml:4:3: training job: place 3 ranks: the testbed has 2"},
		"experts": {"- workload: {name: w, kind: moe, moe: {experts: 3}}",
			"v.yaml:4:34: algorithm of a workload: "},
		"a filter": {"- capture: {at: [all], file: a.pcapng, filter: udpp}",
			`v.yaml:4:48: invalid value: compile filter "udpp": column 1: `},
		"two problems": {"- capture: {at: [all], file: a.pcapng, filter: udpp}\n- training: {name: t, " +
			"trace: none.cm}", "v.yaml:5:30: training job: "},
	} {
		file := besideFiles(t, validated+"steps:\n"+c.steps+"\n", beside)
		want := strings.ReplaceAll(c.want, "DIR", filepath.Dir(file))
		code, _, validate := railbed("", "validate", file)
		if code != verdict.ExitUsage || !strings.Contains(validate, want) {
			t.Errorf("%s: validate ends with %d:\n%s want %s", name, code, validate, want)
		}
		out := filepath.Join(t.TempDir(), "out")
		code, _, run := railbed("", "run", file, "--out", out)
		if _, err := os.Stat(out); code != verdict.ExitUsage ||
			run != "railbed: "+validate && run != validate || !os.IsNotExist(err) {
			t.Errorf("%s: run ends with %d and says\n%s, validate\n%s; results: %v", name, code, run,
				validate, err)
		}
	}
	for keys, want := range map[string]string{
		"rootfs: none.tar": "v.yaml:3:44: warning: DIR/none.tar does not exist, or is not a file; make it " +
			"first",
		"build: wrong.cm": "v.yaml:3:43: warning: DIR/wrong.cm does not exist, or is not a folder",
	} {
		file := besideFiles(t, validated+"nodes: {default: {runtime: docker, "+keys+"}}\n", beside)
		if code, _, errs := railbed("", "validate", file); code != verdict.ExitPass ||
			!strings.Contains(errs, strings.ReplaceAll(want, "DIR", filepath.Dir(file))) {
			t.Errorf("%s: exit %d: %s", keys, code, errs)
		}
	}
	file := besideFiles(t, "requires: [netem, netme]\n"+validated, nil)
	for _, verb := range []string{"validate", "plan", "up", "run"} {
		if code, _, errs := railbed("", verb, file); code != verdict.ExitUsage ||
			!strings.Contains(errs, `v.yaml:1:19: invalid value: feature "netme"; want one of `) {
			t.Errorf("%s of a file with an unknown feature: exit %d: %s", verb, code, errs)
		}
	}
}

// validate of a directory reads the files below it that describe a fabric.
func TestValidateDirectory(t *testing.T) {
	dir := filepath.Dir(besideFiles(t, validated, nil))
	for name, text := range map[string]string{
		"sub/w.yaml": validated + "sead: 1\n", "sub/other.yml": "a: b\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := railbed("", "validate", dir)
	if code != verdict.ExitUsage || !strings.HasPrefix(out, dir+"/v.yaml: ok, ") ||
		strings.Count(out, "\n") != 1 ||
		!strings.Contains(errs, dir+"/sub/w.yaml:") || !strings.Contains(errs,
		"passed over "+dir+"/sub/other.yml: it has no key fabric\n") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if code, _, errs := railbed("", "validate", t.TempDir()); code != verdict.ExitUsage ||
		!strings.Contains(errs, "no file below this directory describes a fabric") {
		t.Errorf("an empty directory: exit %d: %s", code, errs)
	}
}

// What validate prints as JSON has the problems of files that steps name one by one.
func TestValidateListsProblems(t *testing.T) {
	file := besideFiles(t, validated+"steps:\n- training: {name: t, trace: none.cm}\n- workload: {name: w, "+
		"kind: moe, moe: {experts: 3}}\n", nil)
	code, out, _ := railbed("", "validate", "-o", "json", file)
	var found []struct {
		OK       bool
		Problems []struct {
			Line, Column int
			What         string
		}
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != verdict.ExitUsage ||
		len(found) != 1 || found[0].OK || len(found[0].Problems) != 2 || found[0].Problems[1].Line != 5 {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
}

// TestValidateSaysWhatCannotBeProved holds that a check that can never pass is a problem, one
// that probably does not a warning, and that run says both and judges all the same.
func TestValidateSaysWhatCannotBeProved(t *testing.T) {
	const steps = "steps:\n- capture: {at: [nics], file: a.pcapng}\n- traffic: {name: x, from: [h0], to: " +
		"[h1], rate: 1mbit, for: 100ms}\nchecks:\n"
	hardly := besideFiles(t, validated+steps+"- packets: {drops: {count: '== 0'}}\n", nil)
	warning := "v.yaml:7:13: warning: drops needs 4 ports, and the capture at "
	code, out, errs := railbed("", "validate", hardly)
	if code != verdict.ExitPass || !strings.Contains(errs, warning) ||
		!strings.Contains(out, "v.yaml: ok, 2 nodes") {
		t.Errorf("a warning: exit %d:\n%s%s", code, out, errs)
	}
	code, out, errs = railbed("", "validate", "-o", "json", hardly)
	var found []struct {
		OK       bool
		Warnings []struct{ Line, Column int }
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != verdict.ExitPass || errs != "" ||
		len(found) != 1 || !found[0].OK || len(found[0].Warnings) != 1 || found[0].Warnings[0].Line != 7 {
		t.Errorf("a warning: exit %d, %v: %s%s", code, err, out, errs)
	}
	never := besideFiles(t, validated+steps+"- packets: {trims: {}}\n", nil)
	problem := "no selected port can trim a packet; want fabric: {switch: {trim: true}} of soft switches"
	if code, _, errs := railbed("", "validate", never); code != verdict.ExitUsage ||
		!strings.Contains(errs, "v.yaml:7:13: "+problem) {
		t.Errorf("never: exit %d: %s", code, errs)
	}
	hosttest.Need(t, hosttest.Testbed)
	if code, out, errs := railbed("", "run", never, "--name", "unproved", "--out",
		filepath.Join(t.TempDir(), "out")); code != verdict.ExitInconclusive ||
		!strings.Contains(errs, "v.yaml:7:13: warning: "+problem) {
		t.Errorf("run: exit %d:\n%s%s", code, out, errs)
	}
}
