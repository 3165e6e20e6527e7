package outdir

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/testkit/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// Directories that were there are not among those that were made.
func TestMakeDirs(t *testing.T) {
	base := t.TempDir()
	want := []string{filepath.Join(base, "a"), filepath.Join(base, "a/b")}
	for _, want := range [][]string{want, nil} {
		made, err := makeDirs(filepath.Join(base, "a/b"))
		if err != nil || strings.Join(made, " ") != strings.Join(want, " ") {
			t.Errorf("made %v, error %v; want %v", made, err, want)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := makeDirs(filepath.Join(base, "file/c")); err == nil {
		t.Error("made a directory in a file")
	}
}

// What another user planted in a directory leads nowhere: neither a directory nor a file outside is written.
func TestPlantedLinksLeadNowhere(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	victim := filepath.Join(outside, "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("keep"), 0o600),
		os.Symlink(outside, filepath.Join(dir, "folder")), os.Symlink(victim, filepath.Join(dir, "file")),
		os.Symlink(victim, filepath.Join(dir, "file.new"))); err != nil {
		t.Fatal(err)
	}
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ours := func(w io.Writer) error {
		_, err := io.WriteString(w, "ours")
		return err
	}
	for _, at := range []string{"folder", "folder/run-1"} {
		if below, err := d.Below(at); err == nil {
			below.Close()
			t.Errorf("%s was opened", at)
		}
	}
	if err := d.Replace("folder/victim", ours); err == nil {
		t.Error("a file outside was written")
	}
	if err := d.Replace("file", ours); err != nil {
		t.Error(err)
	}
	if err := d.Replace("new/file", ours); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]string{victim: "keep", filepath.Join(dir, "file"): "ours",
		filepath.Join(dir, "new/file"): "ours"} {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s has %q, %v; want %q", path, text, err, want)
		}
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
		t.Errorf("outside are %v, %v", names, err)
	}
}
