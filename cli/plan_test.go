package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"railbed/cli"
	"railbed/plan"
	"railbed/plan/allocation"
	"railbed/plan/spec"
	"railbed/plan/topology"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// railbed runs the command in this process.
func railbed(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = cli.Main(args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

const smallFile = "name: small\nfabric: {topology: single-switch, params: {hosts: 2}}\n"

func TestPlanCommand(t *testing.T) {
	code, out, errs := railbed(smallFile, "plan", "-")
	if code != 0 || errs != "" {
		t.Fatalf("code %d, %s", code, errs)
	}
	for _, want := range []string{"testbed small, seed 1, plan ", "2 nodes, 1 switch, 2 links, 2 ranks",
		"h1    10.0.0.2 fd00:a1::2  eth0  leaf1:p1     10.128.0.3 fd00:a2::3  02:00:00:00:00:02  1500",
		"leaf1   soft  leaf     0         10.0.0.5 fd00:a1::5      2",
		"h0--leaf1  h0:eth0 leaf1:p0  1500  1gbit, queue 256KiB  1gbit, queue 2MB",
		"   1  h1    eth0  10.128.0.3  fd00:a2::3"} {
		if !strings.Contains(out, want) {
			t.Errorf("the table lacks %q:\n%s", want, out)
		}
	}
	const tree = "name: t\nfabric: {topology: leaf-spine, params: {leaves: 2, spines: 1, hosts-per-leaf: " +
		"2}, switch: {kind: soft, aggregation: {}}}\n"
	if _, out, _ := railbed(tree, "plan", "-"); !strings.Contains(out,
		"all ranks                 spine1 (leaf1 (ranks 0 1), leaf2 (ranks 2 3))"+
			"       8.704us              6") {
		t.Errorf("no tree of switches that add up:\n%s", out)
	}
	code, out, _ = railbed(smallFile, "plan", "-", "-o", "json")
	var p plan.Plan
	if err := json.Unmarshal([]byte(out), &p); code != 0 || err != nil {
		t.Fatalf("code %d, %v", code, err)
	}
	if p.Hash() != plantest.Compile(t, smallFile).Hash() {
		t.Error("the JSON is another plan")
	}
}

// largestWrite is how much was written at once.
type largestWrite int

func (l *largestWrite) Write(p []byte) (int, error) {
	*l = max(*l, largestWrite(len(p)))
	return len(p), nil
}

// TestPlanCommandStreams: no JSON of a plan is in memory as a whole.
func TestPlanCommandStreams(t *testing.T) {
	const file = "name: t\nfabric: {topology: leaf-spine, params: {leaves: 16, spines: 16, hosts-per-leaf: " +
		"1}}\n"
	var largest largestWrite
	if code := cli.Main([]string{"plan", "-o", "json", "-"}, strings.NewReader(file), &largest,
		t.Output()); code != 0 {
		t.Fatalf("code %d", code)
	}
	if largest > 64<<10 {
		t.Errorf("%d bytes at once, want at most 64 KiB", largest)
	}
}

// TestValidateCommand: one line for each good file, problems with places for
// each bad one, and code 2 if there is any.
func TestValidateCommand(t *testing.T) {
	folder := t.TempDir()
	good, bad := filepath.Join(folder, "good.yaml"), filepath.Join(folder, "bad.yaml")
	for file, text := range map[string]string{good: smallFile,
		bad: strings.Replace(smallFile, "hosts: 2", "hosts: 0", 1)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := railbed("", "validate", good)
	if code != 0 || out != good+": ok, 2 nodes, 1 switch, 2 links\n" || errs != "" {
		t.Errorf("code %d, %q, %q", code, out, errs)
	}
	code, out, errs = railbed("", "validate", bad, good)
	problem := bad + ":2:51: single-switch: hosts is 0; want a whole number from 1 to 4096\n"
	if code != 2 || out != good+": ok, 2 nodes, 1 switch, 2 links\n" || errs != problem {
		t.Errorf("code %d, %q, %q", code, out, errs)
	}
	code, out, _ = railbed("", "validate", "-o", "json", bad, good)
	var found []struct {
		File     string
		OK       bool
		Nodes    int
		Problems []struct{ Line, Column int }
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != 2 || len(found) != 2 {
		t.Fatalf("code %d, %v: %s", code, err, out)
	}
	if found[0].OK || len(found[0].Problems) != 1 || found[0].Problems[0].Line != 2 || !found[1].OK ||
		found[1].Nodes != 2 {
		t.Errorf("got %+v", found)
	}
	if code, _, errs := railbed("", "validate", filepath.Join(folder, "none.yaml")); code != 2 ||
		!strings.Contains(errs, "none.yaml:1:1: the file cannot be read") {
		t.Errorf("code %d, %q", code, errs)
	}
}

// TestProblemsStartTheLine: every command prints problems so that an editor
// finds the place.
func TestProblemsStartTheLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(file, []byte("nmae: x\nseed: 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"plan", "graph", "validate", "up"} {
		code, out, errs := railbed("", command, file)
		lines := strings.Split(strings.TrimSpace(errs), "\n")
		if code != 2 || out != "" || len(lines) < 2 {
			t.Errorf("%s: code %d, %q, %q", command, code, out, errs)
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, file+":") {
				t.Errorf("%s: %q does not start with the place", command, line)
			}
		}
	}
}

// TestGenerateCommand: the file of each topology is valid as it is, names the
// schema first, and takes parameters.
func TestGenerateCommand(t *testing.T) {
	for _, name := range append(topology.Names(), spec.Explicit) {
		code, text, errs := railbed("", "generate", name)
		if code != 0 || !strings.HasPrefix(text, "# yaml-language-server: $schema=railbed.schema.json\n") {
			t.Errorf("%s: code %d, %s", name, code, errs)
		}
		if code, out, errs := railbed(text, "validate", "-"); code != 0 {
			t.Errorf("%s is not valid: %s%s", name, out, errs)
		}
		// What it offers in comments is right as well.
		hints := strings.NewReplacer("    # fabric:", "    fabric:", "    # \"", "    \"", "  # \"",
			"  \"").Replace(text)
		if name == topology.SingleSwitch { // it has no links of that class
			hints = strings.ReplaceAll(hints, "    fabric: {rate", "    # fabric: {rate")
		}
		if code, out, errs := railbed(hints, "validate", "-"); code != 0 || hints == text {
			t.Errorf("%s with its hints is not valid: %s%s", name, out, errs)
		}
	}
	code, text, _ := railbed("", "generate", "single-switch", "--param", "hosts=3", "--name", "three")
	if _, out, _ := railbed(text, "validate", "-"); code != 0 ||
		out != "-: ok, 3 nodes, 1 switch, 3 links\n" || !strings.Contains(text, "\nname: three\n") {
		t.Errorf("code %d, %s", code, out)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"clos"}, `topology "clos" does not exist; want single-switch, leaf-spine`},
		{[]string{"fat-tree", "--param", "k=3"}, "fat-tree: k is 3; want an even number from 2 to 24"},
		{[]string{"fat-tree", "--param", "k"}, `parameter "k": want NAME=NUMBER, as in hosts=8`},
		{[]string{"fat-tree", "--param", "k=4", "--param", "k=6"}, `parameter "k" is given twice`},
		{[]string{"fat-tree", "--param", "pods=4"}, `fat-tree has no parameter "pods"; want k`},
		{[]string{"explicit", "--param", "k=4"}, "topology explicit has no parameters"},
		{[]string{"torus", "--name", "A B"}, `name "A B"`},
		{nil, "0 arguments"},
	} {
		code, out, errs := railbed("", append([]string{"generate"}, c.args...)...)
		if code != 2 || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("generate %v: code %d, %q, %q, want %q", c.args, code, out, errs, c.want)
		}
	}
}

func TestGraphAndSchemaCommands(t *testing.T) {
	for format, want := range map[string]string{"svg": "<svg ", "dot": "graph \"small\" {",
		"mermaid": "flowchart TB"} {
		code, out, errs := railbed(smallFile, "graph", "-", "--format", format)
		if code != 0 || !strings.HasPrefix(out, want) {
			t.Errorf("%s: code %d, %.60q, %s", format, code, out, errs)
		}
	}
	if code, out, errs := railbed(smallFile, "graph", "-", "--format", "png"); code != 2 || out != "" ||
		!strings.Contains(errs, "want dot, mermaid, svg") {
		t.Errorf("code %d, %q, %q", code, out, errs)
	}
	if code, out, _ := railbed("", "schema"); code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("schema: code %d, %.60q", code, out)
	}
}

// TestPlanRates checks that rates are printed for the pairs to which "control: offline" applies.
func TestPlanRates(t *testing.T) {
	code, out, errs := railbed(smallFile, "plan", "--rates", "ring", "-")
	if want := `{"from":0,"to":1,"rate":"980mbit","bottleneck":"h0:eth0 to leaf1:p0"}`; code != 0 ||
		errs != "" || !strings.Contains(out, want) {
		t.Errorf("code %d, %s%s, want %s", code, out, errs, want)
	}
	code, out, _ = railbed(smallFile, "plan", "--rates", "all-to-all", "--method", "conflict-free",
		"--headroom", "0%", "-")
	if code != 0 || strings.Count(out, "1gbit") != 2 || strings.Count(out, `{"rates"`) != 1 {
		t.Errorf("code %d, %s", code, out)
	}
	for want, args := range map[string][]string{
		"want a pattern (ring, all-to-all, tree, halving-doubling)": {"--rates", "star"},
		"want max-min or":              {"--rates", "ring", "--method", "best"},
		"headroom 100% leaves no rate": {"--rates", "ring", "--headroom", "100%"},
	} {
		if code, _, errs := railbed(smallFile, append([]string{"plan", "-"}, args...)...); code != 2 ||
			!strings.Contains(errs, want) {
			t.Errorf("%v: code %d, %s", args, code, errs)
		}
	}
}

// TestPlanStepRates checks that a step's rates follow its demand, out and back, and that impossible
// rates are an error.
func TestPlanStepRates(t *testing.T) {
	const file = "name: t\nfabric: {topology: single-switch, params: {hosts: 3}, links: {default: {rate: " +
		"100mbit}}}\nsteps: [{workload: {name: experts, kind: moe, algorithm: direct, moe: {experts: 3, " +
		"tokens: 40, hidden: 128, top-k: 1, skew: 1}, transport: rd, rd: {control: offline}}}]\n"
	var printed []string
	for _, args := range [][]string{{"--rates", "experts"}, {"--rates", "experts", "--back"},
		{"--rates", "all-to-all"}} {
		code, out, errs := railbed(file, append(append([]string{"plan"}, args...), "-")...)
		if _, err := allocation.Read("r.json", []byte(out)); code != 0 || err != nil {
			t.Errorf("%v: exit %d, %v, %s", args, code, err, errs)
		}
		printed = append(printed, out)
	}
	if printed[0] == printed[1] || printed[0] == printed[2] || printed[1] == printed[2] {
		t.Errorf("out, back and even rates are not three: %s", printed)
	}
	for want, args := range map[string][]string{
		`or a step with "control: offline" (experts)`: {"--rates", "expert"},
		"--method and --headroom need a pattern":      {"--rates", "experts", "--method", "max-min"},
		"--back needs a step":                         {"--rates", "ring", "--back"},
	} {
		if code, _, errs := railbed(file, append(append([]string{"plan"}, args...), "-")...); code != 2 ||
			!strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s, want %s", args, code, errs, want)
		}
	}
}

// TestPlanLoad: two NICs of 10 Mbit/s send 20 Mbit/s, which any host carries.
func TestPlanLoad(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	hosttest.Long(t)
	const idle = "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: soft}, " +
		"links: {default: {rate: 10mbit}}}\n"
	file := writeFile(t, idle+"steps: [{workload: {name: ar, kind: all-reduce, size: 256KiB}}]\n")
	shown := must(t, "plan", "--load", file).stdout
	row := regexp.MustCompile(`(?m)^ar +tcp +20 Mbit/s +[0-9.]+ [GM]bit/s +[0-9]+% +keeps up$`)
	if !row.MatchString(shown) {
		t.Error(shown)
	}
	code, _, errs := railbed(idle, "plan", "--load", "-")
	if code == 0 || !strings.Contains(errs, "has no collective whose ranks send to each other") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
