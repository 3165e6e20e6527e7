package input

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What is no regular file is refused at once, whoever is at the other end.
func TestOpenRefusesWhatMayNeverEnd(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{fifo: "a FIFO", dir: "a directory", "/dev/zero": "a device"} {
		_, err := Open(path)
		var wrong *KindError
		if !errors.As(err, &wrong) || wrong.Kind != kind || wrong.Path != path {
			t.Errorf("open %s: %v, want that it is %s", path, err, kind)
		}
	}
}

// A descriptor that the shell has opened is read whatever it is.
func TestOpenTakesInheritedDescriptors(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	go func() {
		fmt.Fprint(to, "text")
		to.Close()
	}()
	path := fmt.Sprintf("/dev/fd/%d", from.Fd())
	if text, err := ReadFile(path, 4); err != nil || string(text) != "text" {
		t.Errorf("read %s: %q, %v", path, text, err)
	}
}

func TestReadFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(path, 5); err != nil || string(text) != "12345" {
		t.Errorf("5 of 5 bytes: %q, %v", text, err)
	}
	if _, err := ReadFile(path, 4); err == nil || !strings.Contains(err.Error(), "more than 4 bytes") {
		t.Errorf("5 bytes, at most 4: %v", err)
	}
}
