package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table in ARCHITECTURE.md")

const (
	module           = "railbed"
	maxFileLines     = 500
	maxFunctionLines = 70
)

// folder is a package's row in the import table.
type folder struct {
	level int
	// siblings are the packages of its own level that it may import, and why.
	siblings map[string]string
}

// levels is the import table: a package imports packages of lower levels, and
// of its own level those that its row names. Test files obey it too, except
// that they may import every sibling and the test support packages.
var levels = map[string]folder{
	"fabric/units":     {level: 0},
	"fabric/clock":     {level: 0},
	"fabric/pressure":  {level: 0},
	"fabric/occupancy": {level: 0},
	"fabric/topology":  {level: 0},
	"transports/wire":  {level: 0},
	"testbed/frame":    {level: 0},
	"testbed/input":    {level: 0},
	"testbed/peer":     {level: 0},
	"testbed/reexec":   {level: 0},
	"testbed/verdict":  {level: 0},
	"testbed/hosttest": {level: 0, siblings: map[string]string{
		"nodes/vm/image": "whether there is a kernel for VMs",
	}},
	"nodes/vm/image": {level: 0, siblings: map[string]string{
		"testbed/verdict": "it says what the host lacks",
	}},

	"testbed/printable": {level: 0},

	"testbed/hosttest/vmtest":     {level: 1},
	"testbed/hosttest/dockertest": {level: 1},
	"transports/infiniband":       {level: 1},

	"testbed/spec": {level: 1},
	"testbed/plan": {level: 1, siblings: map[string]string{
		"testbed/spec":          "it compiles a spec",
		"transports/infiniband": "the path MTU of RDMA devices",
	}},

	"fabric/kernel":  {level: 2},
	"capture/pcapng": {level: 2},
	"capture/layers": {level: 2},
	"capture/filter": {level: 2},
	"capture/feed":   {level: 2},
	"testbed/rundir": {level: 1},

	"testbed/plan/picture":  {level: 2},
	"testbed/plan/plantest": {level: 2},
	"testbed/plan/rates":    {level: 2},
	"testbed/convert":       {level: 2},

	"nodes":        {level: 3},
	"nodes/cgroup": {level: 2},
	"nodes/frr": {level: 3, siblings: map[string]string{
		"nodes": "its daemons run in one",
	}},
	"nodes/netns": {level: 3, siblings: map[string]string{
		"nodes": "it is one of its runtimes",
	}},
	"nodes/docker": {level: 3, siblings: map[string]string{
		"nodes": "it is one of its runtimes",
	}},
	"nodes/vm": {level: 3, siblings: map[string]string{
		"nodes":       "it is one of its runtimes",
		"fabric":      "a guest's stack is set up as other nodes' are",
		"fabric/port": "its NICs are taps",
	}},
	"nodes/cni": {level: 3, siblings: map[string]string{
		"nodes":       "it is one of its runtimes",
		"fabric":      "its plugin makes a node's stack in a container",
		"fabric/port": "whose NIC's far end it hands to the testbed",
	}},
	"nodes/nodestest": {level: 3, siblings: map[string]string{
		"nodes": "the conformance suite of its runtimes",
	}},
	"fabric/softswitch/protocoltest": {level: 0},
	"fabric/softswitch/calculustest": {level: 1},
	"fabric/softswitch/draw":         {level: 2},
	"fabric/softswitch/packet":       {level: 2},
	"fabric/softswitch/aggregate":    {level: 3},
	"fabric/softswitch/queue":        {level: 3},
	"fabric/softswitch/forward":      {level: 3},
	"fabric/softswitch/medium":       {level: 3},
	"fabric/softswitch/live": {level: 3, siblings: map[string]string{
		"fabric/port":       "the ways to the nodes",
		"fabric/softswitch": "it runs an engine in real time",
	}},
	"fabric/softswitch": {level: 3, siblings: map[string]string{
		"fabric/softswitch/aggregate": "what it adds up for workers",
		"fabric/softswitch/queue":     "the egress of its ports",
		"fabric/softswitch/forward":   "how it finds the port",
		"fabric/softswitch/medium":    "the links between its ports",
	}},
	"fabric/port": {level: 3},
	"fabric/port/porttest": {level: 3, siblings: map[string]string{
		"fabric/port": "the conformance suite of its drivers",
	}},
	"fabric/link":         {level: 3},
	"fabric/kernelswitch": {level: 3},
	"fabric": {level: 3, siblings: map[string]string{
		"fabric/link":            "it makes a plan's links",
		"fabric/port":            "it opens the ways between nodes and soft switches",
		"fabric/softswitch":      "it shows the state of their ports",
		"fabric/softswitch/live": "it starts a plan's soft switches",
		"fabric/kernelswitch":    "it makes a plan's switches",
	}},
	"transports":             {level: 3},
	"transports/aggregation": {level: 3},
	"transports/completion": {level: 3, siblings: map[string]string{
		"transports": "it queues its completions",
	}},
	"transports/datagram": {level: 1},
	"transports/order":    {level: 0},
	"transports/rd": {level: 3, siblings: map[string]string{
		"transports":            "it is one of its endpoints",
		"transports/completion": "what it reports waits there",
		"transports/rd/engine":  "it drives engines over sockets",
		"transports/rd/path":    "it makes the choosers that a user asks for",
		"transports/rd/rate":    "it hands controllers to its engines",
	}},
	"transports/rd/privacy": {level: 1},
	"transports/rd/privacy/privacytest": {level: 1, siblings: map[string]string{
		"transports/rd/privacy": "it has one of its secrets",
	}},
	"transports/rd/engine": {level: 3, siblings: map[string]string{
		"transports":         "it speaks of its completions and errors",
		"transports/rd/path": "its packets take paths by a chooser",
		"transports/rd/rate": "its controllers say how fast it may send",
	}},
	"transports/rd/rate": {level: 3},
	"transports/rd/rate/arbiter": {level: 3, siblings: map[string]string{
		"transports/rd/rate": "its clients are controllers",
	}},
	"transports/rd/rate/train": {level: 3, siblings: map[string]string{
		"transports/rd/rate":       "it trains one of its controllers",
		"transports/rd/rate/arena": "it plays its scenarios",
	}},
	"transports/rd/rate/arena": {level: 3, siblings: map[string]string{
		"transports":           "it speaks of its completions",
		"transports/rd/engine": "it drives engines in virtual time",
		"transports/rd/path":   "its engines have paths",
		"transports/rd/rate":   "it compares modes of control",
	}},
	"transports/rd/path": {level: 3},
	"transports/roce": {level: 3, siblings: map[string]string{
		"transports":                "it is one of its endpoints",
		"transports/completion":     "what it reports waits there",
		"transports/roce/cm":        "its connections are made by it",
		"transports/roce/dcqcn":     "it hands its numbers to queue pairs",
		"transports/roce/queuepair": "it drives them over sockets",
	}},
	"transports/roce/cm":    {level: 3},
	"transports/roce/dcqcn": {level: 3},
	"transports/roce/perftest": {level: 3, siblings: map[string]string{
		"transports/roce":           "it opens devices",
		"transports/roce/cm":        "it dials again where nobody listens yet",
		"transports/roce/queuepair": "it posts to queue pairs",
	}},
	"transports/roce/queuepair": {level: 3, siblings: map[string]string{
		"transports/roce/dcqcn": "its rate follows marks by it",
	}},
	"transports/tcp": {level: 3, siblings: map[string]string{
		"transports":            "it is one of its endpoints",
		"transports/completion": "what it reports waits there",
	}},
	"transports/transportstest": {level: 3, siblings: map[string]string{
		"transports": "the conformance suite of its endpoints",
	}},
	"capture":        {level: 3},
	"capture/verify": {level: 3},
	"capture/report": {level: 3},
	"testbed/doctor": {level: 3, siblings: map[string]string{
		"nodes/cni": "which plugins it needs, and where they are",
	}},

	"testbed/supervisor": {level: 4},

	"testbed":                       {level: 5},
	"workloads/collective":          {level: 5},
	"workloads/collective/element":  {level: 0},
	"workloads/collective/schedule": {level: 0},
	"workloads/collective/perf":     {level: 1},
	"workloads/collective/msccl":    {level: 1},
	"workloads/probe": {level: 5, siblings: map[string]string{
		"testbed": "it starts its two ends in nodes",
	}},
	"workloads/flows":              {level: 5},
	"workloads/moe":                {level: 0, siblings: map[string]string{"workloads/collective/element": "tokens are its bfloat16"}},
	"workloads/sgd":                {level: 0},
	"workloads/traffic":            {level: 5},
	"workloads/training":           {level: 2},
	"workloads/training/placement": {level: 2},
	"workloads/training/trace": {level: 2, siblings: map[string]string{
		"workloads/training": "what it reads is one of its programs",
	}},
	"workloads/stacks": {level: 5, siblings: map[string]string{
		"testbed":              "it runs programs in nodes",
		"workloads/stacks/rsh": "launchers start ranks in other nodes by it",
	}},
	"workloads/stacks/rsh": {level: 5, siblings: map[string]string{
		"testbed": "it starts commands in nodes",
	}},
	"workloads/worker": {level: 5, siblings: map[string]string{
		"testbed":              "it starts workers in nodes",
		"workloads/flows":      "it is the process of one rank that sends messages",
		"workloads/collective": "it is the process of one rank of a collective",
	}},

	"scenarios/proof":         {level: 4},
	"scenarios/engine":        {level: 6},
	"transports/roce/interop": {level: 6},

	"testbed/cli": {level: 7},
	".": {level: 7, siblings: map[string]string{
		"testbed/cli": "main calls it and nothing else",
	}},
}

// fence keeps an import in the places that allow it.
type fence struct {
	imported string // a path, or a prefix that ends in /
	allowed  func(source) bool
	where    string // the allowed places, in words
	reason   string
}

var fences = []fence{
	{"github.com/vishvananda/", in("fabric/kernel"), "fabric/kernel", "one place speaks netlink, and reads back what it set"},
	{"github.com/google/nftables", source.isTest, "tests", "it makes no tables that end with their owner"},
	{"github.com/google/gopacket", inCaptureOrTest, "capture and tests", "one decoder; the data path does not allocate layers"},
	{"github.com/packetcap/", in("capture"), "capture", "filters are compiled where packets are captured"},
	{"github.com/docker/", in("nodes/docker"), "nodes/docker", "its client drags in half of a container engine"},
	{"github.com/containernetworking/", inCNIOrTest, "nodes/cni and tests", "what runtimes of containers ask for, and what plugins are asked for, is said in one place"},
	{"golang.org/x/sys/unix", source.isLinux, "files named *_linux.go", "what is portable stays portable"},
	{"go.yaml.in/yaml/", inSpecConvertOrPlanTest, "testbed/spec, testbed/convert and tests of testbed/plan and nodes/cni", "files are decoded strictly, in one place, and those of other tools in another"},
	{"github.com/goccy/go-yaml", nowhere, "no place", "one YAML library is enough, and it is go.yaml.in/yaml"},
	{"github.com/spf13/", in("testbed/cli"), "testbed/cli", "the command line only parses and prints"},
	{"github.com/google/go-cmp/", source.isTest, "tests", "it panics where a program must not"},
	{"math/rand", nowhere, "no place", "draws come from seeded math/rand/v2 sources that are handed down"},
	{"C", nowhere, "no place", "the command is one static binary without cgo"},
	{"testing", source.isTestSupport, "tests and packages named *test", "it registers flags in the command"},
	{"testing/", source.isTestSupport, "tests and packages named *test", "it registers flags in the command"},
	{module + "/testbed/hosttest", source.isTestSupport, "tests and packages named *test", "its init plays a part that no command has"},
}

// longFunctions are functions over the limit, with the reason.
var longFunctions = map[string]string{}

// source is one Go file, by its slash path within the module.
type source struct {
	path string
	text []byte
}

func (s source) folder() string { return path.Dir(s.path) }
func (s source) isTest() bool   { return strings.HasSuffix(s.path, "_test.go") }
func (s source) isLinux() bool {
	return strings.HasSuffix(strings.TrimSuffix(strings.TrimSuffix(s.path, ".go"), "_test"), "_linux")
}
func (s source) isTestSupport() bool { return s.isTest() || isTestPackage(s.folder()) }

// isTestPackage says that a folder is a package for tests: hosttest, nodestest.
func isTestPackage(folder string) bool { return strings.HasSuffix(folder, "test") }

func in(folder string) func(source) bool {
	return func(s source) bool { return s.folder() == folder || strings.HasPrefix(s.folder(), folder+"/") }
}

func nowhere(source) bool { return false }

func inCaptureOrTest(s source) bool { return in("capture")(s) || s.isTest() }

func inCNIOrTest(s source) bool { return in("nodes/cni")(s) || s.isTest() }

func inSpecConvertOrPlanTest(s source) bool {
	return in("testbed/spec")(s) || in("testbed/convert")(s) || s.isTest() && (in("testbed/plan")(s) || in("nodes/cni")(s))
}

// violations are all the rules that the sources break, one line each.
func violations(sources []source) []string {
	var found []string
	files := token.NewFileSet()
	documented := map[string]bool{} // packages, whether they have a comment
	for _, s := range sources {
		if _, listed := levels[s.folder()]; !listed {
			found = append(found, fmt.Sprintf("%s: package %s is not in the import table", s.path, s.folder()))
			continue
		}
		parsed, err := parser.ParseFile(files, s.path, s.text, parser.ParseComments)
		if err != nil {
			found = append(found, err.Error())
			continue
		}
		if !s.isTest() {
			documented[s.folder()] = documented[s.folder()] || parsed.Doc != nil
		}
		for _, spec := range parsed.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			at := files.Position(spec.Pos()).String()
			found = append(found, importViolations(s, at, imported)...)
		}
		found = append(found, lengthViolations(s, files, parsed)...)
	}
	for name, has := range documented {
		if !has {
			found = append(found, name+": package has no comment that says what it is")
		}
	}
	slices.Sort(found)
	return found
}

// importViolations judges one import.
func importViolations(s source, at, imported string) (found []string) {
	for _, f := range fences {
		matches := imported == f.imported || strings.HasSuffix(f.imported, "/") && strings.HasPrefix(imported, f.imported)
		if matches && !f.allowed(s) {
			found = append(found, fmt.Sprintf("%s: imports %s, allowed in %s: %s", at, imported, f.where, f.reason))
		}
	}
	target, own := strings.CutPrefix(imported, module+"/")
	if !own || target == s.folder() || isTestPackage(target) && s.isTestSupport() {
		return found
	}
	from := levels[s.folder()]
	to, listed := levels[target]
	_, agreed := from.siblings[target]
	switch {
	case !listed:
		found = append(found, fmt.Sprintf("%s: imports %s, which is not in the import table", at, target))
	case to.level > from.level:
		found = append(found, fmt.Sprintf("%s: level %d imports %s of level %d, imports point down", at, from.level, target, to.level))
	case to.level == from.level && !agreed && !s.isTest():
		found = append(found, fmt.Sprintf("%s: imports its sibling %s without an entry in the table that says why", at, target))
	}
	return found
}

// lengthViolations judges the length of a file and of its functions.
func lengthViolations(s source, files *token.FileSet, parsed *ast.File) (found []string) {
	if s.isTestSupport() {
		return nil
	}
	if lines := bytes.Count(s.text, []byte("\n")); lines > maxFileLines {
		found = append(found, fmt.Sprintf("%s: %d lines, limit %d", s.path, lines, maxFileLines))
	}
	for _, declaration := range parsed.Decls {
		function, is := declaration.(*ast.FuncDecl)
		if !is {
			continue
		}
		from, to := files.Position(function.Pos()), files.Position(function.End())
		lines := to.Line - from.Line + 1
		if _, excused := longFunctions[s.folder()+"."+function.Name.Name]; lines > maxFunctionLines && !excused {
			found = append(found, fmt.Sprintf("%s: %s has %d lines, limit %d", from, function.Name.Name, lines, maxFunctionLines))
		}
	}
	return found
}

// readSources reads every Go file of the module. It does not ask the go
// command, which would see one platform's files only.
func readSources(t *testing.T) []source {
	t.Helper()
	var sources []source
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "out" || base == "bin") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(base, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		sources = append(sources, source{filepath.ToSlash(name), text})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

func TestLayout(t *testing.T) {
	sources := readSources(t)
	if len(sources) < 10 {
		t.Fatalf("found %d Go files, this cannot be the module", len(sources))
	}
	for _, v := range violations(sources) {
		t.Error(v)
	}
	folders := map[string]bool{}
	for _, s := range sources {
		folders[s.folder()] = true
	}
	for name, row := range levels {
		for sibling, reason := range row.siblings {
			if levels[sibling].level != row.level || reason == "" {
				t.Errorf("table: the entry %s -> %s is not about siblings or has no reason", name, sibling)
			}
		}
		if !folders[name] {
			t.Errorf("table: there is no package %s", name)
		}
	}
}

// Every rule is broken once and must say so.
func TestLayoutFindsViolations(t *testing.T) {
	const doc = "// Package x is x.\npackage x\n"
	long := strings.Repeat("\t_ = 0\n", maxFunctionLines)
	for _, test := range []struct{ name, path, text, want string }{
		{"allowed", "fabric/link/a.go", doc + `import "railbed/fabric/kernel"`, ""},
		{"allowed sibling", "nodes/netns/a.go", doc + `import "railbed/nodes"`, ""},
		{"upward", "fabric/units/a.go", doc + `import "railbed/testbed/plan"`, "imports point down"},
		{"upward in a test", "fabric/units/a_test.go", doc + `import "railbed/testbed/plan"`, "imports point down"},
		{"sibling", "fabric/link/a.go", doc + `import "railbed/nodes"`, "sibling"},
		{"unlisted package", "fabric/helpers/a.go", doc, "not in the import table"},
		{"unlisted import", "fabric/link/a.go", doc + `import "railbed/fabric/helpers"`, "not in the import table"},
		{"netlink", "fabric/link/a.go", doc + `import "github.com/vishvananda/netlink"`, "one place speaks netlink"},
		{"netns in a test", "fabric/link/a_test.go", doc + `import "github.com/vishvananda/netns"`, "one place speaks netlink"},
		{"gopacket", "fabric/link/a.go", doc + `import "github.com/google/gopacket"`, "one decoder"},
		{"gopacket in a test", "fabric/link/a_test.go", doc + `import "github.com/google/gopacket"`, ""},
		{"docker", "nodes/netns/a.go", doc + `import "github.com/docker/docker/client"`, "container engine"},
		{"unix", "fabric/link/a.go", doc + `import "golang.org/x/sys/unix"`, "portable"},
		{"unix on linux", "fabric/link/a_linux.go", doc + `import "golang.org/x/sys/unix"`, ""},
		{"yaml", "testbed/plan/a.go", doc + `import "go.yaml.in/yaml/v4"`, "decoded strictly"},
		{"rand", "fabric/link/a.go", doc + `import "math/rand"`, "seeded"},
		{"rand v2", "fabric/link/a.go", doc + `import "math/rand/v2"`, ""},
		{"testing", "fabric/link/a.go", doc + `import "testing"`, "registers flags"},
		{"synctest", "fabric/link/a.go", doc + `import "testing/synctest"`, "registers flags"},
		{"hosttest", "fabric/link/a.go", doc + `import "railbed/testbed/hosttest"`, "plays a part"},
		{"hosttest in a test", "fabric/link/a_test.go", doc + `import "railbed/testbed/hosttest"`, ""},
		{"no comment", "fabric/link/a.go", "package x\n", "has no comment"},
		{"long file", "fabric/link/a.go", doc + strings.Repeat("\n", maxFileLines), "lines, limit 500"},
		{"long function", "fabric/link/a.go", doc + "func f() {\n" + long + "}\n", "f has 72 lines, limit 70"},
		{"longest function", "fabric/link/a.go", doc + "func f() {\n" + long[:len(long)-2*len("\t_ = 0\n")] + "}\n", ""},
		{"long test", "fabric/link/a_test.go", doc + "func f() {\n" + long + "}\n", ""},
		{"syntax", "fabric/link/a.go", "package", "expected"},
	} {
		t.Run(test.name, func(t *testing.T) {
			found := strings.Join(violations([]source{{test.path, []byte(test.text)}}), "\n")
			if test.want == "" && found != "" || !strings.Contains(found, test.want) {
				t.Errorf("found %q, want %q", found, test.want)
			}
		})
	}
}

// table is the import table as ARCHITECTURE.md shows it.
func table() string {
	names := slices.SortedFunc(maps.Keys(levels), func(a, b string) int {
		return cmp.Or(cmp.Compare(levels[a].level, levels[b].level), cmp.Compare(a, b))
	})
	var out strings.Builder
	out.WriteString("| level | packages |\n|---|---|\n")
	for level := range levels[names[len(names)-1]].level + 1 {
		var row, reasons []string
		for _, name := range names {
			if levels[name].level != level {
				continue
			}
			shown := "`" + name + "`"
			if name == "." {
				shown = "main"
			}
			row = append(row, shown)
			for _, sibling := range slices.Sorted(maps.Keys(levels[name].siblings)) {
				reasons = append(reasons, fmt.Sprintf("%s imports `%s`: %s", shown, sibling, levels[name].siblings[sibling]))
			}
		}
		text := strings.Join(row, ", ")
		if len(reasons) > 0 {
			text += "<br>" + strings.Join(reasons, "<br>")
		}
		fmt.Fprintf(&out, "| %d | %s |\n", level, text)
	}
	return out.String()
}

func TestArchitectureShowsTheTable(t *testing.T) {
	const file = "ARCHITECTURE.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile(`(?s)(<!-- import table -->\n).*(<!-- end of import table -->)`)
	want := marked.ReplaceAll(text, []byte("${1}"+table()+"${2}"))
	switch {
	case !marked.Match(text):
		t.Fatalf("%s has no marked import table", file)
	case bytes.Equal(text, want):
	case *update:
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s shows another import table; go test -run %s -update . writes it", file, t.Name())
	}
}
