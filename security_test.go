package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// promise is a row of SECURITY.md.
type promise struct{ text, test string }

// promises reads the rows of SECURITY.md that name a test.
func promises(t *testing.T) (all []promise) {
	t.Helper()
	text, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| party | other party | promise | test |\n|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 4 {
			t.Errorf("SECURITY.md: row of %d cells, want 4: %s", len(cells), line)
			continue
		}
		all = append(all, promise{cells[2], cells[3]})
	}
	return all
}

// Each promise of SECURITY.md names a test that is there.
func TestSecurityNamesItsTests(t *testing.T) {
	form := regexp.MustCompile("^`([a-z0-9/]+)\\.(Test[A-Za-z0-9]+)`$")
	rows := promises(t)
	if len(rows) < 20 {
		t.Errorf("SECURITY.md has %d rows", len(rows))
	}
	for _, row := range rows {
		if row.test == "none yet" {
			t.Logf("no test holds: %s", row.text)
			continue
		}
		parts := form.FindStringSubmatch(row.test)
		if parts == nil {
			t.Errorf("SECURITY.md: %q names the test %s; want `package.TestName`", row.text, row.test)
			continue
		}
		files, err := filepath.Glob(filepath.Join(parts[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(source), "\nfunc "+parts[2]+"(t *testing.T)")
		}
		if !found {
			t.Errorf("SECURITY.md: %q names the test %s of package %s, which has none of this name", row.text,
				parts[2], parts[1])
		}
	}
}

// The script runs what the page names.
func TestRedTeamRunsTheNamedTests(t *testing.T) {
	output, err := exec.Command("scripts/red-team", "-n").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for _, row := range promises(t) {
		folder, name, named := strings.Cut(strings.Trim(row.test, "`"), ".")
		line := regexp.MustCompile(
			`(?m)^go test .*-run '\^\((.*\|)?` + name + `(\|.*)?\)\$' \./` + folder + `$`)
		if named && !line.Match(output) {
			t.Errorf("scripts/red-team does not run %s:\n%s", row.test, output)
		}
	}
}
