package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestForeignResults: results that somebody else wrote neither block a reader nor fill the memory.
func TestForeignResults(t *testing.T) {
	fifo, many := t.TempDir(), t.TempDir()
	if err := unix.Mkfifo(filepath.Join(fifo, ResultsFile), 0o600); err != nil {
		t.Fatal(err)
	}
	text := `{"format":"` + Format + `","cases":[` + strings.Repeat("{},", 3_000_000) + "{}]}"
	if err := os.WriteFile(filepath.Join(many, ResultsFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{fifo: "a FIFO", many: "MiB of memory"} {
		if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v, want one that says %q", err, says)
		}
	}
}
