package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"railbed/cli"
	"railbed/internal/verdict"
)

// Each command has a manual page with its flags. The same date gives the same pages, in any directory.
func TestManualPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	first, again := filepath.Join(t.TempDir(), "man"), t.TempDir()
	for _, dir := range []string{first, again} {
		if code, out, errors := railbed("", "man", dir); code != 0 || out+errors != "" {
			t.Fatalf("exit code %d, %s%s", code, out, errors)
		}
		t.Chdir(t.TempDir())
	}
	for _, path := range cli.CommandPaths() {
		cmd, _, err := cli.Root().Find(strings.Fields(path))
		if err != nil || cmd.Hidden || strings.HasPrefix(path, "help") ||
			strings.HasPrefix(path, "completion") {
			continue
		}
		name := "railbed-" + strings.ReplaceAll(path, " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Error(err)
			continue
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(string(page), "--"+f.Name) {
				t.Errorf("%s has no --%s", name, f.Name)
			}
		})
		other, err := os.ReadFile(filepath.Join(again, name))
		if err != nil || string(other) != string(page) {
			t.Errorf("%s differs when made again: %v", name, err)
		}
	}
	// Lists in descriptions stay lists.
	page, err := os.ReadFile(filepath.Join(first, "railbed-capture.1"))
	if err != nil || !strings.Contains(string(page), "\n100th FILTER ") {
		t.Errorf("events are not in lines of their own: %v, %s", err, page)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, _ := railbed("", "man", file); code != verdict.ExitFail {
		t.Errorf("into a file: exit code %d", code)
	}
}
