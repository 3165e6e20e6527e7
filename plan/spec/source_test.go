package spec

import (
	"os"
	"strings"
	"testing"
)

// The positions were counted by hand in testdata/scenario.yaml.
func TestPositions(t *testing.T) {
	testbed, err := Load("testdata/scenario.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"":                          "2:1",
		"name":                      "2:7",
		"fabric":                    "6:1",
		`fabric.params["spines"]`:   "8:31",
		`fabric.switches["spine*"]`: "11:5",
		`fabric.links["leaf1--spine2"].a-to-b.loss`: "15:38",
		`fabric.links["leaf1--spine2"].a-to-b`:      "15:23",
		// A value that the file omits has the position of the value that would contain it.
		`fabric.links["leaf1--spine2"].rate`:     "15:5",
		`nodes["h[0-1]"].env["OMP_NUM_THREADS"]`: "18:47",
		"addressing.links4":                      "2:1",
		"steps[0].capture.at[0]":                 "21:20",
		"steps[3]":                               "25:5",
		"steps[3].exec.command[1]":               "25:43",
		"checks[1].packets.bytes-per-rank":       "29:15",
	} {
		if got := testbed.Source.Pos(path).String(); got != "testdata/scenario.yaml:"+want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	if got := testbed.Source.KeyPos(
		`fabric.params["spines"]`).String(); got != "testdata/scenario.yaml:8:23" {
		t.Errorf("key: got %s", got)
	}
}

// Every scalar has the position of its own text.
func TestPositionsPointAtTheText(t *testing.T) {
	text, err := os.ReadFile("testdata/scenario.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, ending := range []string{"\n", "\r\n"} {
		whole := strings.ReplaceAll(string(text), "\n", ending)
		// Characters of several bytes count as one column.
		whole = strings.Replace(whole, "description: A ring", "description: \"Ä→𝄞\" # A ring", 1)
		testbed, err := Decode("f.yaml", []byte(whole))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(whole, ending)
		at := func(path string) string {
			p := testbed.Source.Pos(path)
			return string([]rune(lines[p.Line-1])[p.Column-1:])
		}
		for path, want := range map[string]string{
			"name": "ring-allreduce", "seed": "7", "description": `"Ä`,
			`fabric.links["default"].mtu`: "4200}", "steps[1].workload.size": "16MiB",
			"steps[2].at": "500ms", "steps[2].link.where": `"leaf1--spine2 a-to-b"`,
			"checks[5].fidelity": "faithful",
		} {
			if !strings.HasPrefix(at(path), want) {
				t.Errorf("%s: at its place stands %q", path, at(path))
			}
		}
	}
}

func TestHasTellsDefaultsFromSettings(t *testing.T) {
	testbed := decoded(t, head+"steps: [{sleep: 1s}]\n")
	for path, want := range map[string]bool{"name": true, "steps[0].sleep": true, "seed": false,
		"steps[1]": false, "addressing.links4": false} {
		if testbed.Source.Has(path) != want {
			t.Errorf("%s: got %v", path, !want)
		}
	}
	if testbed.Seed != 1 || testbed.Dilation != 1 || testbed.Addressing.Links4 != "10.128.0.0/10" {
		t.Errorf("defaults: %+v", testbed)
	}
}

func TestProblemOfATestbedBuiltInGo(t *testing.T) {
	built := &Testbed{Name: "A", Fabric: Fabric{Topology: LeafSpine},
		Steps: []Step{{Capture: &Capture{At: []string{"all"}}}}}
	err := built.Check()
	const want = `name: invalid name "A"; want 1 to 24 characters of a-z, 0-9 and -, the first not -
steps[0].capture.file: steps[0].capture lacks the key "file"; add file: text`
	if err == nil || len(err.(Problems)) != 2 ||
		!strings.Contains(err.Error(), strings.Split(want, "\n")[0]) ||
		!strings.Contains(err.Error(), strings.Split(want, "\n")[1]) {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// Explicit zeros survive where a default is not zero.
func TestZeroOnPurpose(t *testing.T) {
	testbed := decoded(t, head+"steps:\n  - workload: {name: a, kind: all-reduce, size: 4B, warmup: 0}\n  "+
		"- workload: {name: b, kind: all-reduce, size: 4B}\n")
	testbed.SetDefaults()
	if a, b := testbed.Steps[0].Workload,
		testbed.Steps[1].Workload; a.Warmup != 0 || b.Warmup != 1 || b.Iterations != 5 || b.Family != "4" {
		t.Errorf("got %+v and %+v", a, b)
	}
}
