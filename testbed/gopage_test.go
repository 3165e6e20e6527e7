package testbed_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"railbed/testkit/hosttest"
)

// TestProgramOfTheGoPage builds the program of docs/how-to/go.md as a module of its own, which cannot import
// packages below railbed/internal, and runs it.
func TestProgramOfTheGoPage(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody, hosttest.Unraced)
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	if _, err := exec.LookPath("go"); err != nil || testing.Short() {
		t.Skipf("it builds a program: %v", err)
	}
	page, err := os.ReadFile("../docs/how-to/go.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```go title=\"four/main.go\"\n")
	program, _, found := strings.Cut(rest, "```\n")
	dir, err := filepath.Abs("..")
	if err != nil || !found {
		t.Fatalf("program found: %v, %v", found, err)
	}
	folder := t.TempDir()
	for name, text := range map[string]string{"main.go": program, "go.mod": "module four\n\ngo 1.26.0\n",
		"go.work": "go 1.26.0\n\nuse (\n\t.\n\t" + dir + "\n)\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "four", ".")
	build.Dir = folder
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), "./four")
	run.Dir = folder
	out, err := run.CombinedOutput()
	for _, want := range []string{"3 received", "PASS: "} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, want %q in\n%s", err, want, out)
		}
	}
}
