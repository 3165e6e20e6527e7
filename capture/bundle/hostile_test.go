package bundle_test

import (
	"archive/zip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"railbed/capture/bundle"
	"railbed/capture/report"
	"railbed/internal/input"
)

// TestRunsWithFIFOs: a FIFO in place of a file of a run is an error, and nothing waits for its writer.
func TestRunsWithFIFOs(t *testing.T) {
	refused := func(err error) bool {
		var wrong *input.KindError
		return errors.As(err, &wrong) && wrong.Kind == "a FIFO"
	}
	for _, name := range []string{report.JSONFile, bundle.PlanFile, bundle.WorkloadsFile, "run.pcapng",
		"run-2.pcapng", "a.keys"} {
		dir := t.TempDir()
		write(t, dir, map[string]string{report.JSONFile: `{"format": "` + report.Format +
			`", "captures": [{"file": "run.pcapng", "files": 2}]}`, "run.pcapng": "packets"})
		path := filepath.Join(dir, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		run, err := bundle.Open(dir)
		if err != nil {
			if !refused(err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		defer run.Close()
		_, keysErr := run.Keys()
		file, err := run.OpenCapture("run.pcapng")
		if err == nil {
			_, err = file.NextPart(2)
			file.Close()
		}
		if !refused(err) && !refused(keysErr) {
			t.Errorf("%s: %v, %v", name, err, keysErr)
		}
	}
}

// TestBundlesThatFillTheMemory: a document of a bundle that unpacks to millions of elements is refused. A
// bundle of 97 KB took 10 GB.
func TestBundlesThatFillTheMemory(t *testing.T) {
	many := func(one string) string { return "[" + strings.Repeat(one+",", 2<<20) + one + "]" }
	for name, text := range map[string]string{
		bundle.PlanFile:      `{"nodes": ` + many("null") + "}",
		bundle.WorkloadsFile: many("{}"),
		report.JSONFile:      `{"format": "` + report.Format + `", "checks": ` + many("{}") + "}",
	} {
		path := filepath.Join(t.TempDir(), "run.zip")
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		archive := zip.NewWriter(file)
		entry, err := archive.Create(name)
		if err == nil {
			_, err = entry.Write([]byte(text))
		}
		if err := errors.Join(err, archive.Close(), file.Close()); err != nil {
			t.Fatal(err)
		}
		run, err := bundle.Open(path)
		if err == nil {
			run.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "of memory, want at most") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
