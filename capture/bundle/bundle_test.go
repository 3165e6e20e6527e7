package bundle_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"railbed/capture/bundle"
	"railbed/capture/report"
	"railbed/testkit/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text),
			0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBundleReadsAsItsDirectory bundles results and reads the same from both. Secrets, hidden files, links
// and FIFOs stay out.
func TestBundleReadsAsItsDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		report.JSONFile: `{"format": "` + report.Format + `", "captures": [{"file": "second.pcapng"}]}`,
		"first.pcapng":  "one", "second.pcapng": "two", "logs/h0/ping.out": "hello",
		bundle.WorkloadsFile: `[{"name": "ar"}]`, "ar.keys": "secret", ".railbed-results": "list",
	})
	if err := errors.Join(os.Symlink("/etc/passwd", filepath.Join(dir, "link")),
		syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	read := int64(0)
	written, err := bundle.Write(t.Context(), &archive, dir, func(bytes int64) { read = bytes })
	want := []string{"first.pcapng", "logs/h0/ping.out", report.JSONFile, "second.pcapng",
		bundle.WorkloadsFile}
	if err != nil || !slices.Equal(written.Files, want) || !slices.Equal(written.LeftOut,
		[]string{"ar.keys"}) ||
		written.Bytes != read {
		t.Fatalf("%+v, %d bytes read, %v", written, read, err)
	}
	path := filepath.Join(t.TempDir(), "run.zip")
	if err := os.WriteFile(path, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, path} {
		run, err := bundle.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := run.OpenCapture(run.Captures()[0])
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(file)
		if err != nil || string(text) != "two" || run.Captures()[0] != "second.pcapng" ||
			len(run.Workloads) != 1 ||
			run.Workloads[0].Name != "ar" || run.Plan != nil || run.Report == nil {
			t.Errorf("%s: %+v with %q, %v", name, run, text, err)
		}
		if err := errors.Join(file.Close(), run.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestCaptureAlone: a capture is a run of which nothing else is known.
func TestCaptureAlone(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"x.pcap": "packets", "y.keys": "secret"})
	run, err := bundle.Open(filepath.Join(dir, "x.pcap"))
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if keys, err := run.Keys(); keys != nil || err != nil {
		t.Errorf("keys %v, %v", keys, err)
	}
	file, err := run.OpenCapture(run.Captures()[0])
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(file); err != nil || string(text) != "packets" ||
		run.Captures()[0] != "x.pcap" {
		t.Errorf("%q, %v, %+v", text, err, run)
	}
}

// TestBadRuns: what is no run gives an error that names it.
func TestBadRuns(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"not.zip": "no zip", "plan/" + bundle.PlanFile: "{", "empty/x": ""})
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	if _, err := z.Create("../../outside"); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"outside.zip": archive.String()})
	for _, name := range []string{"not.zip", "plan", "missing"} {
		if run, err := bundle.Open(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s opens as %+v", name, run)
		}
	}
	for _, name := range []string{"empty", "outside.zip"} {
		run, err := bundle.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Recordings(run.Captures()); !errors.Is(err, bundle.ErrNoCapture) {
			t.Errorf("%s: %v", name, err)
		}
		run.Close()
	}
	if _, err := bundle.Write(t.Context(), io.Discard, filepath.Join(dir, "empty"), nil); err == nil {
		t.Error("a directory without a report makes a bundle")
	}
}

// TestRecordingsWithoutAReport finds recordings by their names. The files of a recording count once, and the
// first that exists stands for it.
func TestRecordingsWithoutAReport(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"run-10.pcapng": "ten", "run-2.pcapng": "two", "nics.pcapng": "nics",
		"nics-2.pcapng": "more"})
	run, err := bundle.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if want := []string{"nics.pcapng", "run-2.pcapng"}; !slices.Equal(run.Captures(), want) {
		t.Errorf("recordings %q, want %q", run.Captures(), want)
	}
}

// TestBundleNamesWhatIsMissing: files that the report names and the directory lacks.
func TestBundleNamesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"run.pcapng": "one", "run-3.pcapng": "three",
		report.JSONFile: `{"format": "` + report.Format + `", "captures": [{"file": "run.pcapng", "files": 3},
			{"file": "nics.pcapng"}]}`})
	written, err := bundle.Write(t.Context(), io.Discard, dir, nil)
	if want := []string{"run-2.pcapng", "nics.pcapng"}; err != nil || !slices.Equal(written.Missing, want) {
		t.Errorf("missing %q, %v, want %q", written.Missing, err, want)
	}
}

// TestBundleOnAFullDisk: the error wraps ENOSPC, and its text has the cause once.
func TestBundleOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{report.JSONFile: "{}"})
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("cannot run here: ", err)
	}
	defer full.Close()
	_, err = bundle.Write(t.Context(), full, dir, nil)
	if !errors.Is(err, syscall.ENOSPC) || strings.Count(err.Error(), "no space left") != 1 {
		t.Errorf("got %v", err)
	}
}
