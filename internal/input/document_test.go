package input

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDocumentsAreBounded: a document that would take much more memory than its bytes is refused before it is
// decoded.
func TestDocumentsAreBounded(t *testing.T) {
	type element struct{ Data [1 << 10]byte }
	type document struct {
		Elements []element         `json:"elements"`
		Names    map[string]string `json:"names"`
	}
	many := func(one string) string {
		return `{"elements": [` + strings.Repeat(one+",", 600<<10) + one + `]}`
	}
	for text, want := range map[string]string{
		many("{}"):                         "of memory, want at most 512 MiB",
		many("null"):                       "of memory, want at most 512 MiB",
		strings.Repeat(" ", maxDocument+1): "more than the limit of 64 MiB",
		`{"elements": [{}`:                 "unexpected EOF",
		`{"names": {"a": "` + strings.Repeat("{[null,", 1<<20) + `"}}`: "",
	} {
		var into document
		err := DecodeDocument(strings.NewReader(text), &into)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	var into document
	if err := DecodeKnownFields(strings.NewReader(`{"other": 1}`), &into); err == nil {
		t.Error("an unknown field is accepted")
	}
}

// TestFolderOpensRegularFiles: no name in a directory of somebody else's makes the reader wait, or leads out.
func TestFolderOpensRegularFiles(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"out": "/etc/passwd", "device": "/dev/zero", "self": "fifo"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "below/file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	for _, name := range []string{"fifo", "self", "out", "device", "below", "../x", "missing"} {
		if file, err := folder.Open(name); err == nil {
			file.Close()
			t.Errorf("%s is opened", name)
		}
	}
	file, err := folder.Open("below/file")
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	if entries, err := folder.ReadDir("below"); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
