package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/testbed/hosttest"
	"railbed/testbed/verdict"
)

// schemaLine makes editors complete and check a file.
const schemaLine = "# yaml-language-server: $schema=../testbed/spec/railbed.schema.json\n"

// Every file of the library does what it says. A machine that is too busy for a
// scenario's rates makes it OVERLOADED or, when its captures lost packets,
// INCONCLUSIVE; that is the machine's and not the file's, and a test that runs
// beside others cannot ask for more. What must not be is a failure.
func TestLibrary(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	files, err := filepath.Glob("../*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d scenario files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil || !strings.HasPrefix(string(text), schemaLine) {
				t.Errorf("the first line is not %s(%v)", schemaLine, err)
			}
			r := runAll(t, t.Context(), load(t, path))
			busy := r.Fidelity != nil && r.Fidelity.Verdict != report.Faithful
			switch {
			case r.Verdict == verdict.Pass:
			case busy && (r.Verdict == verdict.Overloaded || r.Verdict == verdict.Inconclusive):
				t.Logf("%s on this busy machine: %s", r.Verdict, r.Reason)
			default:
				want(t, r, verdict.Pass)
			}
			for _, c := range r.Checks {
				if c.Verdict == verdict.Fail {
					t.Errorf("%s: %s", c.Name, c.Summary)
				}
			}
		})
	}
}
