package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

var limits = regexp.MustCompile(`(?m)^ *(cpu|memory|ports): .*\n`)

// TestImportedLabRuns brings up two topologies of containerlab, one with bridges and one with
// routers. Their nodes reach each other. After an export and an import the plan is the same.
func TestImportedLabRuns(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	hosttest.Need(t, hosttest.Ping)
	for _, test := range []struct{ lab, name, from, to string }{
		{"office", "the-office", "desk-1", "printer"},
		{"ring", "ring", "a", "b"},
	} {
		text, err := os.ReadFile(filepath.Join("..", "plan", "convert", "testdata", test.lab+".clab.yml"))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		lab := filepath.Join(dir, "lab.clab.yml")
		// An ordinary user has no limits of cpu and memory, and no ports of the host.
		if err := os.WriteFile(lab, limits.ReplaceAll(text, nil), 0o644); err != nil {
			t.Fatal(err)
		}
		file, clab, again := filepath.Join(dir, "lab.yaml"), filepath.Join(dir, "again.clab.yml"),
			filepath.Join(dir, "again.yaml")
		made := must(t, "import", "containerlab", lab, "--runtime", "netns", "--out", file)
		if !strings.Contains(made.stderr, lab+":") {
			t.Errorf("nothing is said to be left out: %s", made.stderr)
		}
		if strict := do(t, "import", "containerlab", lab, "--strict"); strict.code != 2 ||
			strict.stdout != "" {
			t.Errorf("--strict: exit %d, %q", strict.code, strict.stdout)
		}
		if strict := do(t, "import", "containerlab", lab, "--strict", "-o", "json"); strict.code != 2 ||
			!strings.Contains(strict.stdout, `"file": ""`) {
			t.Errorf("--strict -o json: exit %d, %q", strict.code, strict.stdout)
		}
		must(t, "up", file)
		got := do(t, "exec", test.from, "--testbed", test.name, "--", "ping", "-c1", "-W2", test.to)
		must(t, "down", test.name)
		if got.code != 0 {
			t.Errorf("%s: %s%s", test.lab, got.stdout, got.stderr)
		}
		if err := os.WriteFile(clab, []byte(must(t, "export", "containerlab", file).stdout),
			0o644); err != nil {
			t.Fatal(err)
		}
		must(t, "import", "containerlab", clab, "--out", again)
		if first, second := must(t, "plan", file).stdout, must(t, "plan", again).stdout; first != second {
			t.Errorf("%s: the plan was\n%s\nand is\n%s", test.lab, first, second)
		}
	}
}

// TestImportedRoutersRun runs a lab whose routers run FRRouting. Its command that needs another node's
// address reaches the node by name. With an address that leads nowhere the run fails, although the
// command itself would pass.
func TestImportedRoutersRun(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Root, hosttest.FRR, hosttest.Ping)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "plan", "convert", "testdata"))); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "interior.clab.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for command, passes := range map[string]bool{
		"ping -c1 -W5 192.168.11.2":                true,
		`sh -c "ping -c1 -W1 192.168.11.99; true"`: false,
	} {
		lab, file := filepath.Join(dir, "lab.clab.yml"), filepath.Join(dir, "lab.yaml")
		changed := strings.ReplaceAll(string(text), "ping -c1 8.8.8.8", command)
		if err := os.WriteFile(lab, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("gen-clab-%d", os.Getpid())
		must(t, "import", "containerlab", lab, "--runtime", "netns", "--name", name, "--out", file)
		got := do(t, "run", file, "--out", filepath.Join(dir, "out"))
		if (got.code == verdict.ExitPass) != passes || got.code == verdict.ExitUnsupported ||
			strings.Contains(got.stdout, "exec address-") == passes {
			t.Errorf("%s: exit code %d\n%s%s", command, got.code, got.stdout, got.stderr)
		}
	}
	if got := do(t, "import", "containerlab", filepath.Join(dir, "interior.clab.yml"), "--name",
		"A B"); got.code != verdict.ExitUsage || !strings.Contains(got.stderr, `name "A B"`) {
		t.Errorf("--name: exit code %d, %s", got.code, got.stderr)
	}
}
