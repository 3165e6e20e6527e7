package convert_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"railbed/plan"
	"railbed/plan/convert"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

var update = flag.Bool("update", false, "rewrite the files that say what conversions give")

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestImport compares the testbeds of topologies, and the notes about omissions, with reviewed
// files.
func TestImport(t *testing.T) {
	labs, err := filepath.Glob("testdata/*.clab.yml")
	if err != nil || len(labs) == 0 {
		t.Fatal("no topologies", err)
	}
	for _, lab := range labs {
		made, left, err := convert.FromContainerlab(filepath.Base(lab), read(t, lab),
			convert.Options{Folder: "labs", ReadFile: func(path string) ([]byte, error) {
				return os.ReadFile(filepath.Join("testdata", path))
			}})
		if err != nil {
			t.Errorf("%s: %v", lab, err)
			continue
		}
		text, err := spec.Marshal(made)
		if err != nil {
			t.Fatal(err)
		}
		got := string(text) + "---\n" + left.Error() + "\n"
		golden := strings.TrimSuffix(lab, ".clab.yml") + ".golden"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(string(read(t, golden)), got); diff != "" {
			t.Errorf("%s (-want +got; -update writes it):\n%s", lab, diff)
		}
	}
}

// planOf returns a testbed's plan as JSON values, without values that an explicit topology does not
// have: tiers, roles and groups, positions in the file, and what follows from steps.
func planOf(t *testing.T, made *spec.Testbed) any {
	t.Helper()
	p, err := plan.Compile(made)
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Switches {
		sw := &p.Switches[i]
		sw.Tier, sw.Role, sw.Group, sw.At = 0, "", "", nil
	}
	for i := range p.Nodes {
		p.Nodes[i].Slowed = false
	}
	for i := range p.Requires {
		p.Requires[i].Where = ""
	}
	for _, places := range []map[string]string{p.Containers, p.Sysctls} {
		for name := range places {
			places[name] = ""
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var values any
	if err := json.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// TestRoundTrip exports every scenario and imports it again. The plan is the same.
func TestRoundTrip(t *testing.T) {
	files, err := filepath.Glob("../../scenarios/*.yaml")
	more, err2 := filepath.Glob("../../scenarios/*/*.yaml")
	if files = append(files, more...); errors.Join(err, err2) != nil || len(files) < 30 {
		t.Fatalf("%d scenarios, %v, %v", len(files), err, err2)
	}
	for _, file := range files {
		f, err := spec.LoadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before, err := f.Decode(&f.Cells[0])
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Compile(before)
		if err != nil {
			t.Fatal(err)
		}
		exported, _, err := convert.ToContainerlab(before, p, convert.DefaultImage)
		if err != nil {
			t.Fatal(err)
		}
		after, left, err := convert.FromContainerlab("exported", exported, convert.Options{})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		// Exports have no steps, and a plan prepares ports and nodes for faults.
		before.Steps = slices.DeleteFunc(before.Steps, func(s spec.Step) bool { return s.Fault != nil })
		if diff := cmp.Diff(planOf(t, before), planOf(t, after)); diff != "" {
			t.Errorf("%s has another plan afterwards (-before +after):\n%s", file, diff)
		}
		if len(left) > 0 {
			t.Errorf("%s: what was exported is not imported: %v", file, left)
		}
	}
}

// TestExportSaysWhatItLeavesOut compares the notes with each step, check and faulty link of a file.
func TestExportSaysWhatItLeavesOut(t *testing.T) {
	const file = `name: t
fabric:
  topology: single-switch
  params: {hosts: 2}
  links: {"h0--leaf1": {loss: 1%}}
steps:
  - exec: {nodes: ["h*"], command: [echo, "it's"]}
  - sleep: 1s
  - exec: {nodes: [h0], command: [date]}
checks:
  - fidelity: degraded
`
	made, err := spec.Decode("t.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(made)
	if err != nil {
		t.Fatal(err)
	}
	text, left, err := convert.ToContainerlab(made, p, "example/image")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `echo 'it'"'"'s'`) &&
		!strings.Contains(string(text), `echo ''it''"''"''s''`) {
		t.Errorf("the first command is not in\n%s", text)
	}
	for _, want := range []string{
		`t.yaml:5:11: delay, loss and other effects of a link are kept in a label (h0--leaf1)`,
		`t.yaml:8:5: 2 steps are left out (sleep, exec date); railbed run does the steps`,
		`t.yaml:11:5: a check is left out (fidelity: degraded)`,
		`a soft switch becomes a kernel switch, and a label keeps its buffer, queues and packet settings (leaf1)`,
	} {
		if !strings.Contains(left.Error(), want) {
			t.Errorf("no %q in\n%v", want, left)
		}
	}
	if strings.Contains(left.Error(), "t.yaml:7") {
		t.Errorf("the first step is exported, and yet in\n%v", left)
	}
	text, left, err = convert.ToCompose(made, p, "example/image")
	if err != nil || !strings.Contains(string(text), "image: example/image") ||
		!strings.Contains(left.Error(),
			"t.yaml:7:5: 3 steps are left out (exec echo it's, sleep and 1 more)") {
		t.Errorf("%v\n%s\n%v", err, text, left)
	}
}

// TestExportOfContainers checks the settings of nodes of runtime docker in the words of both files.
func TestExportOfContainers(t *testing.T) {
	const file = `name: t
fabric: {topology: single-switch, params: {hosts: 3}}
nodes:
  h0:
    runtime: docker
    image: a/b:1
    pull: never
    ulimits: {nofile: "1024:2048"}
    health: {command: [/ready], interval: 1500ms, timeout: 20s}
    management: {publish: ["8080:80"]}
    command: [sh, -c, "echo $SIZE"]
    binds: ["shared:/x"]
    env: {P: a$b}
  h1: {runtime: docker, build: ./here}
`
	made, err := spec.Decode("t.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(made)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		export func(*spec.Testbed, *plan.Plan, string) ([]byte, spec.Problems, error)
		has    []string
		told   []string
	}{
		"containerlab": {convert.ToContainerlab,
			[]string{"ports:\n      - 8080:80", "image-pull-policy: Never",
				"healthcheck:\n        test:\n        - CMD\n        - /ready\n        interval: 2\n       " +
					" timeout: 2\n        retries: 5",
				"type: veth\n    endpoints:\n    - node: h0\n      interface: eth0"},
			[]string{"t.yaml:4:3: ulimits of a node are kept in a label (h0)",
				"t.yaml:14:3: a node has the default image in place of its build or rootfs (h1)"}},
		"compose": {convert.ToCompose,
			[]string{"ports:\n    - 8080:80", "pull_policy: never",
				"interval: 2s\n      timeout: 2s\n      retries: 5",
				"nofile:\n        soft: '1024'\n        hard: '2048'", "- fabric0\n    - management",
				"management:\n    driver: bridge", "build: ./here", "- echo $$SIZE", "- ./shared:/x",
				"P: a$$b"},
			[]string{"t.yaml:4:3: a node reaches all networks that the host reaches (h0)"}},
	} {
		text, left, err := test.export(made, p, "example/image")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range test.has {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
		for _, want := range test.told {
			if !strings.Contains(left.Error(), want) {
				t.Errorf("%s: no %q in\n%v", name, want, left)
			}
		}
	}
}

// TestExportIsShort exports large fabrics. There is one note for each class, and no line of commands
// is long.
func TestExportIsShort(t *testing.T) {
	for file, notes := range map[string]int{
		"name: t\nfabric: {topology: fat-tree, params: {k: 8}, links: {default: {delay: 10us}, fabric: " +
			"{loss: 1%}}}\nsteps:\n- sleep: 1s\n- sleep: 2s\n- sleep: 3s\nchecks:\n- fidelity: degraded\n" +
			"- fidelity: faithful\n": 5,
		"name: t\nfabric: {topology: rail-optimized, params: {servers: 16, rails: 8, spines: 4}}\n": 2,
		"name: t\nfabric: {topology: single-switch, params: {hosts: 99}, switch: {kind: bridge}}\n": 2,
	} {
		made, err := spec.Decode("t.yaml", []byte(file))
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Compile(made)
		if err != nil {
			t.Fatal(err)
		}
		text, left, err := convert.ToContainerlab(made, p, convert.DefaultImage)
		if err != nil || len(left) != notes {
			t.Errorf("%d notes, %v; want %d:\n%v", len(left), err, notes, left)
		}
		for line := range strings.Lines(string(text)) {
			if len(line) > 700 {
				t.Errorf("a line of %d bytes:\n%s", len(line), line)
			}
		}
		for _, note := range left {
			if len(note.Error()) > 300 {
				t.Errorf("a note of %d bytes: %v", len(note.Error()), note)
			}
		}
	}
}

func TestWrongTopologies(t *testing.T) {
	two := "topology: {nodes: {a: {kind: linux}, b: {kind: linux}}, links: [%s]}"
	for _, test := range []struct{ text, want string }{
		{"", "lab:1:1: the file is empty; write name: and topology:"},
		{"name: x", "lab:1:1: the topology has no nodes; want topology: {nodes: {a: {kind: linux}}}"},
		{"nam: x", `lab:1:1: unknown key "nam"`},
		{"topology: [a]", "lab:1:11: topology is no mapping"},
		{"topology: {nodes: {a: {kinf: linux}}}", `lab:1:24: unknown key "kinf" in node a`},
		{"topology: {nodes: {a: {image: x}}, links: []}", "lab:1:20: node a has no kind"},
		{"topology: {nodes: {a: {kind: linux}}}", "lab:1:1: no node of the topology has a link to another"},
		{"topology: {nodes: {a: {kind: linux, cpu: x}, b: {kind: linux}}, links: [{endpoints: [a:e1, b:e1]}]}", `lab:1:42: invalid cpu "x" of node a; want a number of cores`},
		{"topology: {nodes: {a: {kind: linux, memory: lots}, b: {kind: linux}}, links: [{endpoints: [a:e1, " +
			"b:e1]}]}", `lab:1:45: invalid memory "lots" of node a`},
		{strings.ReplaceAll(two, "%s", "{endpoints: [a:e1]}"), "lab:1:65: a link has 1 ends"},
		{strings.ReplaceAll(two, "%s", "{endpoints: [a:e1, b]}"),
			`lab:1:84: end "b" of a link names no interface`},
		{strings.ReplaceAll(two, "%s", "{endpoints: [a:e1, c:e1]}"), `lab:1:84: there is no node "c"`},
		{strings.ReplaceAll(two, "%s", "{type: tube, endpoints: [a:e1, b:e1]}"),
			`lab:1:72: unknown type "tube" of a link`},
		{strings.ReplaceAll(two, "%s", "{endpoints: [a:e1, b:e1], mtu: big}"), `lab:1:96: invalid mtu "big"`},
		{strings.ReplaceAll(two, "%s", "{endpoints: [a:e1, b:e1], labels: {railbed.link: '{rat: 1gbit}'}}"),
			`label railbed.link: unknown key "rat" in the file; did you mean "rate"?`},
		{"topology: {nodes: {a: {image: ${IMAGE}}}}", "lab:1:20: node a has no kind"},
		{"topology: {defaults: &d {<<: *d}}", "no mapping, or has too many aliases"},
		{"topology:\n  nodes:\n{{- range .nodes }}\n    a{{ . }}: {kind: linux}\n{{- end }}\n",
			"lab:3:1: the file is a Go template"},
		{"topology: {nodes: {a: {kind: linux, healthcheck: {retries: many}}}}",
			`lab:1:60: retries of node a.healthcheck is "many"; want a whole number`},
		{"a: b\n---\nc: d", "a second document starts here; one file is one topology"},
	} {
		_, _, err := convert.FromContainerlab("lab", []byte(test.text), convert.Options{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q:\n%v\nwant %q", test.text, err, test.want)
		}
	}
}

func FuzzFromContainerlab(f *testing.F) {
	labs, _ := filepath.Glob("testdata/*.clab.yml")
	for _, lab := range labs {
		text, err := os.ReadFile(lab)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		made, _, err := convert.FromContainerlab("lab", text, convert.Options{})
		if err != nil {
			return
		}
		if _, err := plan.Compile(made); err != nil {
			t.Errorf("an imported testbed has no plan: %v", err)
		}
	})
}
