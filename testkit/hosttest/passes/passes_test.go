package passes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module writes a module with these test files.
func module(t *testing.T, files map[string]string) []Package {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	packages, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

var files = map[string]string{
	"a/a_test.go": `package a
func TestMain(m *testing.M) {}
func TestGuest(t *testing.T) { boot(t) }
func boot(t *testing.T) { vmtest.InGuest(t) }
func TestShort(t *testing.T) {}
func Testify(t *testing.T) {}
func ExampleA() {}
`,
	"b/b_test.go": `package b
var _ = hosttest.MarkPackage(hosttest.Unraced, hosttest.Alone, hosttest.AsNobody)
func TestTable(t *testing.T) { for range rows {} }
var rows = []func() { func() { hosttest.Long(nil) } }
func TestRaced(t *testing.T) { hosttest.MarkTest(t, hosttest.Raced) }
func TestRoot(t *testing.T) { hosttest.MarkTest(t, hosttest.NotAsNobody) }
func TestOther(t *testing.T) { other.Long(t) }
`,
	"b/b_windows_test.go":     "package b\nfunc TestElsewhere(t *testing.T) {}\n",
	"b/testdata/data_test.go": "package data\nfunc TestData(t *testing.T) {}\n",
	"nested/nested_test.go":   "package nested\nfunc TestNested(t *testing.T) {}\n",
	"nested/go.mod":           "module nested\n",
	"c/c_test.go":             "package c\nfunc FuzzC(f *testing.F) { hosttest.Sampled(f, 1) }\n",
	"fabric/x/x_test.go": `package x
func TestLink(t *testing.T) { hosttest.Need(t, hosttest.Netns) }
`,
	"none/none.go": "package none\n",
	"alone/alone_linux_test.go": `package alone
var _ = hosttest.MarkPackage(hosttest.Alone)
func TestRate(t *testing.T) {}
`,
}

func TestDivide(t *testing.T) {
	packages := module(t, files)
	for pass, want := range map[string][]string{
		"root": {
			"-race -p=2 -skip=^(TestGuest)$ ./fabric/x ./c ./a",
			"-race -p=1 ./alone",
			"-race -p=1 -run=^(TestRaced)$ ./b",
			"-p=2 -run=^(TestGuest)$ ./a",
			"-p=1 ./b",
		},
		"userns": {"-p=2 ./fabric/x"},
		"user":   {"-p=1 -skip=^(TestRoot)$ ./b"},
		"long":   {"-race -p=2 ./c", "-p=1 -run=^(TestTable)$ ./b"},
	} {
		runs, err := Divide(packages, pass, "-race")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, run := range runs {
			got = append(got, strings.Join(run.Args(), " "))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant:\n%s", pass, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	_, err := Divide(packages, "rot", "")
	if err == nil || !strings.Contains(err.Error(), "want one of root, user, long, userns") {
		t.Errorf("a pass that does not exist: %v", err)
	}
}

// A run that leaves a test out leaves out all tests of this name.
func TestRuns(t *testing.T) {
	run := Run{Skip: []string{"TestA"}, Packages: []string{"a", "b"}}
	for _, test := range []struct {
		folder, name string
		want         bool
	}{{"a", "TestA", false}, {"b", "TestA", false}, {"a", "TestAB", true}, {"c", "TestAB", false}} {
		if got := run.Runs(test.folder, test.name); got != test.want {
			t.Errorf("%s.%s: %v, want %v", test.folder, test.name, got, test.want)
		}
	}
}
