package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the floors in ARCHITECTURE.md")

const (
	module           = "railbed"
	maxFileLines     = 500
	maxFunctionLines = 70
	maxColumns       = 110 // with tabs of 4
	testkit          = "testkit"
)

// floors are the top-level folders, the lowest first: a package imports packages of its
// own folder and of those on lower floors. Tests of all floors import the testkit.
var floors = []struct {
	folders []string
	holds   string
}{
	{[]string{"internal"}, "units, strict YAML, clock, verdicts, packet headers, netlink, run directories"},
	{[]string{"plan"}, "the file, its schema, the compiler, topologies, collectives, rates, pictures"},
	{[]string{"transports"}, "rd, roce, tcp and quic behind one interface"},
	{[]string{"capture"}, "the packet language, recordings, and what they prove"},
	{[]string{"fabric"}, "links and switches of a plan, and faults at them"},
	{[]string{"nodes"}, "nodes of a plan: namespaces, containers, virtual machines"},
	{[]string{"testbed"}, "the Go API, the supervisor, the doctor, probes"},
	{[]string{"workloads"}, "collectives, training, messages, other people's programs, traffic"},
	{[]string{"reporting"}, "reports as text, page and JUnit, their figures, and comparisons of runs"},
	{[]string{"scenarios"}, "the runner and the library"},
	{[]string{"cli"}, "parsing and printing, one file per command"},
	{[]string{testkit}, "support of tests, of which the command has none"},
	{[]string{"."}, "the command"},
}

// floorOf is the floor of a package's top-level folder.
func floorOf(folder string) (floor int, known bool) {
	for i, f := range floors {
		if slices.Contains(f.folders, topOf(folder)) {
			return i, true
		}
	}
	return 0, false
}

func topOf(folder string) string {
	top, _, _ := strings.Cut(folder, "/")
	return top
}

// fence keeps an import in the places that allow it.
type fence struct {
	imported string // a path, or a prefix that ends in /
	allowed  func(source) bool
	where    string // the allowed places, in words
	reason   string
}

var fences = []fence{
	{"github.com/vishvananda/", in("internal/kernel"), "internal/kernel",
		"one place speaks netlink, and reads back what it set"},
	{"github.com/google/nftables", source.isTest, "tests", "it makes no tables that end with their owner"},
	{"github.com/cilium/", in("fabric/bpf"), "fabric/bpf", "one place makes programs for the kernel"},
	{"github.com/chromedp/", source.isTestSupport, "tests", "it drives a browser"},
	{"github.com/google/gopacket", inCaptureOrTest, "capture and tests",
		"one decoder; the data path does not allocate layers"},
	{"github.com/packetcap/", in("capture"), "capture", "filters are compiled where packets are captured"},
	{"github.com/docker/", in("nodes/docker"), "nodes/docker",
		"its client drags in half of a container engine"},
	{"github.com/containernetworking/", inCNIOrTest, "nodes/cni and tests",
		"what runtimes of containers ask for, and what plugins are asked for, is said in one place"},
	{"github.com/quic-go/", inQUICOrTest, "transports/quic and tests", "one transport speaks QUIC"},
	{"golang.org/x/sys/unix", source.isLinux, "files named *_linux.go", "what is portable stays portable"},
	{"go.yaml.in/yaml/", inYAMLOrTest, "internal/strictyaml, plan/spec, plan/convert and tests",
		"files are decoded strictly, in one place, and those of other tools in another"},
	{"github.com/goccy/go-yaml", nowhere, "no place",
		"one YAML library is enough, and it is go.yaml.in/yaml"},
	{"github.com/spf13/", in("cli"), "cli", "the command line only parses and prints"},
	{"github.com/google/go-cmp/", source.isTest, "tests", "it panics where a program must not"},
	{"math/rand", nowhere, "no place", "draws come from seeded math/rand/v2 sources that are handed down"},
	{"C", nowhere, "no place", "the command is one static binary without cgo"},
	{"testing", source.isTestSupport, "tests and test support", "it registers flags in the command"},
	{"testing/", source.isTestSupport, "tests and test support", "it registers flags in the command"},
	{module + "/" + testkit + "/", source.isTestSupport, "tests and test support",
		"it is no part of the command"},
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
func (s source) isTestSupport() bool { return s.isTest() || topOf(s.folder()) == testkit }

func in(folder string) func(source) bool {
	return func(s source) bool { return s.folder() == folder || strings.HasPrefix(s.folder(), folder+"/") }
}

func nowhere(source) bool { return false }

func inCaptureOrTest(s source) bool { return in("capture")(s) || s.isTestSupport() }

func inCNIOrTest(s source) bool { return in("nodes/cni")(s) || s.isTestSupport() }

func inQUICOrTest(s source) bool { return in("transports/quic")(s) || s.isTestSupport() }

func inYAMLOrTest(s source) bool {
	return in("internal/strictyaml")(s) || in("plan/spec")(s) || in("plan/convert")(s) || s.isTest()
}

// violations are all the rules that the sources break, one line each.
func violations(sources []source) []string {
	var found []string
	files := token.NewFileSet()
	documented := map[string]bool{} // packages, whether they have a comment
	for _, s := range sources {
		if _, known := floorOf(s.folder()); !known {
			found = append(found, fmt.Sprintf("%s: folder %s has no floor", s.path, topOf(s.folder())))
			continue
		}
		if in("scenarios")(s) && !in("scenarios/runner")(s) {
			found = append(found, s.path+": Go is in scenarios/runner, all other folders have testbed files")
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
		found = append(found, verbViolations(files, parsed)...)
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
		matches := imported == f.imported ||
			strings.HasSuffix(f.imported, "/") && strings.HasPrefix(imported, f.imported)
		if matches && !f.allowed(s) {
			found = append(found, fmt.Sprintf("%s: imports %s, allowed in %s: %s", at, imported, f.where,
				f.reason))
		}
	}
	target, own := strings.CutPrefix(imported, module+"/")
	if !own || topOf(target) == topOf(s.folder()) || topOf(target) == testkit {
		return found
	}
	from, _ := floorOf(s.folder())
	if to, known := floorOf(target); !known || to >= from {
		found = append(found, fmt.Sprintf("%s: imports %s, which is on no lower floor", at, target))
	}
	return found
}

// lengthViolations judges the length of a file and of its functions.
func lengthViolations(s source, files *token.FileSet, parsed *ast.File) (found []string) {
	found = columnViolations(s, files, parsed)
	if s.isTestSupport() {
		return found
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
		if _, excused := longFunctions[s.folder()+"."+function.Name.Name]; lines > maxFunctionLines &&
			!excused {
			found = append(found, fmt.Sprintf("%s: %s has %d lines, limit %d", from, function.Name.Name,
				lines, maxFunctionLines))
		}
	}
	return found
}

// verb matches a verb of package fmt with its flags, width and precision; the verb is its only group.
var verb = regexp.MustCompile(`%[-+# 0]*(?:\[\d+\])?[*\d]*(?:\.[*\d]*)?(?:\[\d+\])?([[:alpha:]])`)

// verbViolations finds verbs of fmt.Errorf that fmt does not have. Vet does not, where the argument is an
// error: such a type may have verbs of its own.
func verbViolations(files *token.FileSet, parsed *ast.File) (found []string) {
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is || len(call.Args) == 0 {
			return true
		}
		if f, is := call.Fun.(*ast.SelectorExpr); !is || f.Sel.Name != "Errorf" {
			return true
		}
		ast.Inspect(call.Args[0], func(n ast.Node) bool {
			text, is := n.(*ast.BasicLit)
			if !is || text.Kind != token.STRING {
				return true
			}
			for _, v := range verb.FindAllStringSubmatch(strings.ReplaceAll(text.Value, "%%", ""), -1) {
				if !strings.Contains("vTtbcdoOqxXUeEfFgGspw", v[1]) {
					found = append(found, fmt.Sprintf("%s: no verb %s", files.Position(text.Pos()), v[0]))
				}
			}
			return true
		})
		return true
	})
	return found
}

// columnViolations judges the width of lines. What stands in raw strings, struct tags among them, cannot be
// broken.
func columnViolations(s source, files *token.FileSet, parsed *ast.File) (found []string) {
	raw := map[int]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if text, is := n.(*ast.BasicLit); is && strings.HasPrefix(text.Value, "`") {
			for line := files.Position(text.Pos()).Line; line <= files.Position(text.End()).Line; line++ {
				raw[line] = true
			}
		}
		return true
	})
	return wideLines(s, raw)
}

// wideLines lists lines that are too wide, except for some.
func wideLines(s source, except map[int]bool) (found []string) {
	number := 0
	for line := range strings.Lines(string(s.text)) {
		number++
		columns := 0
		for _, r := range strings.TrimSuffix(line, "\n") {
			if columns++; r == '\t' {
				columns += 3 - (columns-1)%4
			}
		}
		if columns > maxColumns && !except[number] {
			found = append(found, fmt.Sprintf("%s:%d: %d columns, limit %d", s.path, number, columns,
				maxColumns))
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
		if entry.IsDir() && name != "." &&
			(strings.HasPrefix(base, ".") || base == "testdata" || base == "out" || base == "bin") {
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
		folders[s.folder()], folders[topOf(s.folder())] = true, true
	}
	for _, floor := range floors {
		for _, name := range floor.folders {
			if !folders[name] {
				t.Errorf("there is no folder %s", name)
			}
		}
	}
}

// TestScriptsAreNarrow holds the width of lines in the Makefile and in scripts.
func TestScriptsAreNarrow(t *testing.T) {
	names, err := filepath.Glob("scripts/*")
	if err != nil || len(names) < 5 {
		t.Fatalf("scripts %v, %v", names, err)
	}
	for _, name := range append(names, "Makefile", ".ci/run") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range wideLines(source{name, text}, nil) {
			t.Error(v)
		}
	}
}

// Every rule is broken once and must say so.
func TestLayoutFindsViolations(t *testing.T) {
	const doc = "// Package x is x.\npackage x\n"
	long := strings.Repeat("\t_ = 0\n", maxFunctionLines)
	for _, test := range []struct{ name, path, text, want string }{
		{"downward", "fabric/link/a.go", doc + `import "railbed/internal/kernel"`, ""},
		{"in the folder", "nodes/netns/a.go", doc + `import "railbed/nodes"`, ""},
		{"upward", "plan/a.go", doc + `import "railbed/testbed"`, "on no lower floor"},
		{"upward in a test", "plan/a_test.go", doc + `import "railbed/testbed"`, "on no lower floor"},
		{"the floor above", "capture/a.go", doc + `import "railbed/fabric/link"`, "on no lower floor"},
		{"a folder without a floor", "helpers/a.go", doc, "has no floor"},
		{"Go beside the scenarios", "scenarios/faults/a.go", doc, "Go is in scenarios/runner"},
		{"Go of the runner", "scenarios/runner/judge/a.go", doc, ""},
		{"an import without a floor", "fabric/link/a.go", doc + `import "railbed/helpers"`,
			"on no lower floor"},
		{"netlink", "fabric/link/a.go", doc + `import "github.com/vishvananda/netlink"`,
			"one place speaks netlink"},
		{"netns in a test", "fabric/link/a_test.go", doc + `import "github.com/vishvananda/netns"`,
			"one place speaks netlink"},
		{"gopacket", "fabric/link/a.go", doc + `import "github.com/google/gopacket"`, "one decoder"},
		{"gopacket in a test", "fabric/link/a_test.go", doc + `import "github.com/google/gopacket"`, ""},
		{"docker", "nodes/netns/a.go", doc + `import "github.com/docker/docker/client"`, "container engine"},
		{"unix", "fabric/link/a.go", doc + `import "golang.org/x/sys/unix"`, "portable"},
		{"unix on linux", "fabric/link/a_linux.go", doc + `import "golang.org/x/sys/unix"`, ""},
		{"yaml", "plan/a.go", doc + `import "go.yaml.in/yaml/v4"`, "decoded strictly"},
		{"rand", "fabric/link/a.go", doc + `import "math/rand"`, "seeded"},
		{"rand v2", "fabric/link/a.go", doc + `import "math/rand/v2"`, ""},
		{"testing", "fabric/link/a.go", doc + `import "testing"`, "registers flags"},
		{"synctest", "fabric/link/a.go", doc + `import "testing/synctest"`, "registers flags"},
		{"hosttest", "fabric/link/a.go", doc + `import "railbed/testkit/hosttest"`, "no part of the command"},
		{"hosttest in a test", "fabric/link/a_test.go", doc + `import "railbed/testkit/hosttest"`, ""},
		{"no comment", "fabric/link/a.go", "package x\n", "has no comment"},
		{"long file", "fabric/link/a.go", doc + strings.Repeat("\n", maxFileLines), "lines, limit 500"},
		{"long function", "fabric/link/a.go", doc + "func f() {\n" + long + "}\n",
			"f has 72 lines, limit 70"},
		{"longest function", "fabric/link/a.go",
			doc + "func f() {\n" + long[:len(long)-2*len("\t_ = 0\n")] + "}\n", ""},
		{"long test", "fabric/link/a_test.go", doc + "func f() {\n" + long + "}\n", ""},
		{"wide line", "fabric/link/a.go", doc + "// " + strings.Repeat("x", maxColumns-2),
			"111 columns, limit 110"},
		{"line of full width", "fabric/link/a.go", doc + "// " + strings.Repeat("x", maxColumns-3), ""},
		{"wide line of tabs", "fabric/link/a_test.go", doc + "//\t\t" + strings.Repeat("x", 103),
			"111 columns"},
		{"wide raw string", "fabric/link/a.go", doc + "const x = `" + strings.Repeat("x", maxColumns) + "`",
			""},
		{"unknown verb", "fabric/link/a.go", doc + "var x = fmt.Errorf(\"a %s: \" + \"%n\", 1, err)",
			"no verb %n"},
		{"known verbs", "fabric/link/a.go",
			doc + "var x = fmt.Errorf(\"%-5.*f of 5 %% nodes: %w\", 1, 2, err)", ""},
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

// table is the floors as ARCHITECTURE.md shows them, the highest first.
func table() string {
	var out strings.Builder
	out.WriteString("| floor | folder | what it holds |\n|---|---|---|\n")
	for i, floor := range slices.Backward(floors) {
		names := strings.Replace("`"+strings.Join(floor.folders, "/`, `")+"/`", "./", "main.go", 1)
		fmt.Fprintf(&out, "| %d | %s | %s |\n", i, names, floor.holds)
	}
	return out.String()
}

func TestArchitectureShowsTheFloors(t *testing.T) {
	const file = "ARCHITECTURE.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile(`(?s)(<!-- floors -->\n).*(<!-- end of floors -->)`)
	want := marked.ReplaceAll(text, []byte("${1}"+table()+"${2}"))
	switch {
	case !marked.Match(text):
		t.Fatalf("%s has no marked table of floors", file)
	case bytes.Equal(text, want):
	case *update:
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s shows other floors; go test -run %s -update . writes it", file, t.Name())
	}
}
