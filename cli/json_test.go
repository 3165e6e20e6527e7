package cli_test

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"railbed/capture/display"
	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/cli"
	"railbed/plan"
	"railbed/plan/allocation"
	"railbed/plan/spec"
	"railbed/reporting/compare"
	"railbed/testbed/probe"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
)

// jsonCase is a command and its JSON document with -o json.
type jsonCase struct {
	path string // of the command
	args []string
	// lines is set for streams: a document in each line.
	lines bool
	// long is set where -o is another option.
	long bool
	// exempt is why the command prints something else.
	exempt string
}

// TestJSON has every command print one JSON document on standard output. It
// fails for a command that the table does not have.
func TestJSON(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-json"
	dir := t.TempDir()
	file, out := writeFile(t, strings.Replace(twoHosts(name), "hosts: 2}",
		"hosts: 2}, switch: {kind: soft, int: true}", 1)), filepath.Join(dir, "out")
	scenario := writeFile(t, twoHosts(name+"-run")+"steps:\n  - capture: {at: [all], file: run.pcapng}\n")
	bad := writeFile(t, "name: x\n")
	cases := []jsonCase{
		{path: "version"},
		{path: "schema"},
		{path: "explain", args: []string{"checks.packets.roce"}},
		{path: "doctor", args: []string{"net-namespace", "netem"}},
		{path: "generate", args: []string{"torus"}},
		{path: "import containerlab", args: []string{filepath.Join("..", "plan", "convert", "testdata",
			"ring.clab.yml")}},
		{path: "export containerlab", args: []string{file}},
		{path: "export compose", args: []string{file}},
		{path: "graph", args: []string{file, "--format", "dot"}},
		{path: "plan", args: []string{file}},
		{path: "validate", args: []string{file, bad}},
		{path: "ls"}, // with none, or with others
		{path: "down", args: []string{name, name + "-never"}},
		{path: "run", args: []string{scenario, "--out", out}},
		{path: "report", args: []string{out}},
		{path: "run", args: []string{scenario, "--out", out + "2"}},
		{path: "report", args: []string{out, out + "2", "--html", filepath.Join(dir, "comparison.html")}},
		{path: "verify", args: []string{filepath.Join(out, "run.pcapng"), "--testbed-file", scenario}},
		{path: "decode", args: []string{"../capture/verify/rocechecks/testdata/rxe/send.pcap", "-c", "3"},
			lines: true},
		{path: "follow", args: []string{out}},
		{path: "why", args: []string{out}},
		{path: "trace", args: []string{out, "--out", filepath.Join(dir, "trace.json")}},
		{path: "bundle", args: []string{out, "--out", filepath.Join(dir, "run.zip")}},
		{path: "follow", args: []string{filepath.Join(dir, "run.zip"), "--rank", "0"}},
		{path: "up", args: []string{file}},
		{path: "up", args: []string{file}}, // again
		{path: "ls"},
		{path: "inspect", args: []string{name, "--verify"}},
		{path: "link show", args: []string{"-t", name}},
		{path: "link show", args: []string{"h0--leaf1", "-t", name}},
		{path: "link down", args: []string{"h0--leaf1", "-t", name}},
		{path: "link up", args: []string{"h0--leaf1", "-t", name}},
		{path: "link set", args: []string{"h0--leaf1", "-t", name, "--rate", "10mbit"}},
		{path: "fault add", args: []string{"h0", "--drop", "every: 1000", "-t", name}},
		{path: "fault list", args: []string{"-t", name}},
		{path: "fault plan", args: []string{file, "--cover", "all"}},
		{path: "fault clear", args: []string{"--all", "-t", name}},
		{path: "test", args: []string{scenario, "--out", filepath.Join(dir, "suite")}},
		{path: "probe", args: []string{"h0", "h1", "-t", name, "--count", "1"}},
		{path: "collective", args: []string{"all_reduce", "-t", name, "-b", "1K", "-e", "4K", "-f", "4", "-n",
			"2"}, long: true},
		{path: "events", args: []string{"-t", name}, lines: true},
		{path: "gc", args: []string{"--dry-run"}},
		{path: "capture", exempt: "TestCaptureJSON"},
		{path: "rdma write-bw", exempt: "TestRdmaJSON, as those below it"},
		{path: "rdma write-lat", exempt: "the same"},
		{path: "rdma send-bw", exempt: "the same"},
		{path: "rdma send-lat", exempt: "the same"},
		{path: "rdma read-bw", exempt: "the same"},
		{path: "rdma atomic-bw", exempt: "the same"},
		{path: "ui", exempt: "TestUI"},
		{path: "exec", exempt: "its output is the program's"},
		{path: "rsh", exempt: "the same"},
		{path: "shell", exempt: "its output is the shell's"},
		{path: "dissector", exempt: "a program of Wireshark's"},
		{path: "man", exempt: "TestManualPages"},
		{path: "extcap", exempt: "a program of Wireshark's"},
		{path: "man", exempt: "files for man: TestMan"},
		{path: "wireshark install", args: []string{"--dir", dir}},
		{path: "wireshark status", args: []string{"--dir", dir}},
		{path: "wireshark uninstall", args: []string{"--dir", dir}},
		{path: "cni config", exempt: "a document of CNI's, and the same one: TestCNI"},
		{path: "cni install", args: []string{dir}},
		{path: "help", exempt: "for people"},
		{path: "completion bash", exempt: "a program of the shell's"},
		{path: "completion zsh", exempt: "a program of the shell's"},
		{path: "completion fish", exempt: "a program of the shell's"},
		{path: "completion powershell", exempt: "a program of the shell's"},
		{path: "down", args: []string{name}},
		{path: "down", args: []string{name}}, // of nothing
	}
	t.Cleanup(func() { must(t, "down", name) })
	known := cli.CommandPaths()
	for _, c := range cases {
		if !slices.Contains(known, c.path) {
			t.Errorf("there is no command %q", c.path)
		}
		if c.exempt != "" {
			continue
		}
		format := "-o"
		if c.long {
			format = "--output"
		}
		args := slices.Concat(strings.Fields(c.path), c.args, []string{format, "json"})
		got := do(t, args...)
		all, err := decodeAll(got.stdout)
		if err != nil {
			t.Errorf("railbed %q: %v:\n%s%s", args, err, got.stdout, got.stderr)
		}
		documents := len(all)
		if c.path != "schema" { // JSON Schema's own words, and the file's
			for _, key := range strangeKeys(all) {
				t.Errorf("railbed %q: the key %s is not in small letters with underscores", args, key)
			}
		}
		if strings.Contains(got.stdout, "0001-01-01T00:00:00") {
			t.Errorf("railbed %q: there is a time that is none", args)
		}
		switch {
		case c.path == "inspect":
			shapedAtNodes(t, got.stdout)
		case c.path == "wireshark status" && hosttest.Probe(hosttest.Tshark) == nil &&
			!strings.Contains(got.stdout, `"listed": true`):
			t.Errorf("tshark does not list the plugin: %s", got.stdout)
		}
		if !c.lines && documents != 1 {
			t.Errorf("railbed %q: exit %d, %d documents, want 1:\n%s%s", args, got.code, documents,
				got.stdout, got.stderr)
		}
		if c.lines && (documents < 2 || documents != strings.Count(got.stdout, "\n")) {
			t.Errorf("railbed %q: %d documents in %d lines", args, documents, strings.Count(got.stdout, "\n"))
		}
	}
	for _, path := range known {
		if !slices.ContainsFunc(cases, func(c jsonCase) bool { return c.path == path }) {
			t.Errorf("no case for railbed %s -o json", path)
		}
	}
}

// shapedAtNodes: the kernel shapes the traffic of nodes, and not of soft switches. There is no
// calibration either, since the emulated NIC has the exact rate.
func shapedAtNodes(t *testing.T, document string) {
	t.Helper()
	var state struct {
		Links []struct {
			AToB map[string]any `json:"a_to_b"`
			BToA map[string]any `json:"b_to_a"`
		}
	}
	if err := json.Unmarshal([]byte(document), &state); err != nil || len(state.Links) != 2 {
		t.Errorf("%d links, %v", len(state.Links), err)
	}
	for _, link := range state.Links {
		if link.AToB["burst"] == nil || link.BToA["burst"] != nil {
			t.Errorf("the burst is %v at a node and %v at a soft switch, want one and none",
				link.AToB["burst"], link.BToA["burst"])
		}
		for _, key := range []string{"achieved", "calibrated"} {
			if link.AToB[key] != nil || link.BToA[key] != nil {
				t.Errorf("%s is %v at a node and %v at a soft switch, and neither was calibrated", key,
					link.AToB[key], link.BToA[key])
			}
		}
	}
}

// decodeAll decodes the JSON documents of a text.
func decodeAll(text string) (documents []any, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return documents, err
		}
		documents = append(documents, document)
	}
}

// plainKey matches names of fields.
var plainKey = regexp.MustCompile("^[a-z][a-z0-9_]*$")

// keyedByName lists the fields whose keys are names and not fields: of reasons, which files and
// captures spell like this, and of a check's measurements, such as ports.
var keyedByName = map[string]bool{"drops": true, "marks": true, "trims": true, "dropped": true,
	"rejected": true, "measured": true}

// TestJSONFields checks all fields of the types of documents, including fields that an example may
// lack.
func TestJSONFields(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(path string, of reflect.Type)
	walk = func(path string, of reflect.Type) {
		for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map},
			of.Kind()) {
			of = of.Elem()
		}
		own := reflect.TypeFor[json.Marshaler]()
		text := reflect.TypeFor[encoding.TextMarshaler]()
		if of.Kind() != reflect.Struct || seen[of] || of.Implements(own) || of.Implements(text) ||
			reflect.PointerTo(of).Implements(text) {
			return
		}
		seen[of] = true
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case !field.IsExported() || name == "-":
				continue
			case field.Anonymous && name == "": // its fields belong to the outer struct
			case !plainKey.MatchString(name):
				t.Errorf("%s.%s of %s is %q in documents, want small letters with underscores", path,
					field.Name, of, name)
			}
			walk(path+"."+name, field.Type)
		}
	}
	for _, document := range []any{
		supervisor.State{}, supervisor.Event{}, plan.Plan{}, report.Report{}, verify.Result{}, probe.Report{},
		display.Summary{},
		spec.Problem{}, allocation.File{}, cli.CollectiveReport{}, compare.Comparison{},
	} {
		walk(reflect.TypeOf(document).String(), reflect.TypeOf(document))
	}
	if len(seen) < 50 {
		t.Errorf("%d types were looked at; want all that documents have", len(seen))
	}
}

// strangeKeys are the keys of documents, as paths, that look otherwise than fields do.
func strangeKeys(document any) (strange []string) {
	var walk func(path, under string, value any)
	walk = func(path, under string, value any) {
		switch value := value.(type) {
		case []any:
			for _, one := range value {
				walk(path+"[]", under, one)
			}
		case map[string]any:
			for key, one := range value {
				if !plainKey.MatchString(key) && !keyedByName[under] &&
					!slices.Contains(strange, path+"."+key) {
					strange = append(strange, path+"."+key)
				}
				walk(path+"."+key, key, one)
			}
		}
	}
	walk("", "", document)
	slices.Sort(strange)
	return strange
}

// TestCaptureJSON: the counts go where the packets do not.
func TestCaptureJSON(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-json-capture"
	must(t, "up", writeFile(t, twoHosts(name)))
	t.Cleanup(func() { must(t, "down", name) })
	for _, path := range []string{filepath.Join(t.TempDir(), "all.pcapng"), "-"} {
		recording := command("capture", "-t", name, "-w", path, "-o", "json")
		var stdout bytes.Buffer
		recording.Stdout = &stdout
		pipe, err := recording.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := recording.Start(); err != nil {
			t.Fatal(err)
		}
		begun := make([]byte, 256)
		n, err := pipe.Read(begun)
		if err != nil || !strings.HasPrefix(string(begun[:n]), "recording") {
			t.Fatalf("capture said %q, error %v", begun[:n], err)
		}
		if err := recording.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		stderr, err := io.ReadAll(pipe)
		if err := errors.Join(err, recording.Wait()); err != nil {
			t.Fatal(err)
		}
		text, want := stdout.String(), ""
		if path == "-" {
			text, want = string(stderr), stdout.String()
			if !strings.HasPrefix(want, "\x0a\x0d\x0d\x0a") {
				t.Errorf("standard output begins with %.8q, which is no pcapng", want)
			}
		} else if len(stderr) > 0 {
			t.Errorf("standard error: %q, want nothing after the first line", stderr)
		}
		var counts struct{ Taps []struct{ Tap string } }
		if err := json.Unmarshal([]byte(text), &counts); err != nil || len(counts.Taps) != 4 {
			t.Errorf("-w %s: counts %q, error %v", path, text, err)
		}
	}
}
