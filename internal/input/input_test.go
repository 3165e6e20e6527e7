package input

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file that is not regular is refused at once, whichever process has the other end.
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

// A descriptor that the shell has opened is read, of whatever kind.
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
	_, err := ReadFile(path, 4)
	if err == nil || !strings.Contains(err.Error(), "more than the limit of 4 bytes") {
		t.Errorf("5 bytes, at most 4: %v", err)
	}
}

func writeText(path, text string) error {
	return Write(path, 0, 0o644, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

// TestCreateInSharedDirectories: what another user put into a directory that everybody can write to
// is refused and stays as it is.
func TestCreateInSharedDirectories(t *testing.T) {
	dir := t.TempDir()
	victim, shared := filepath.Join(dir, "victim"), filepath.Join(dir, "shared")
	link, name, foreign := filepath.Join(shared, "link"), filepath.Join(shared, "name"),
		filepath.Join(shared, "foreign")
	for _, err := range []error{
		os.WriteFile(victim, []byte("precious"), 0o644), os.Mkdir(shared, 0o700), os.Symlink(victim, link),
		os.Link(victim, name), os.WriteFile(foreign, []byte("precious"), 0o666),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := map[string]string{link: "is a symbolic link", name: "has 2 hard links"}
	if os.Geteuid() == 0 {
		if err := os.Chown(foreign, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		refused[foreign] = "belongs to user 65534"
	}
	for _, mode := range []os.FileMode{0o777, 0o777 | os.ModeSticky} {
		if err := os.Chmod(shared, mode); err != nil {
			t.Fatal(err)
		}
		for path, why := range refused {
			if err := writeText(path, "new"); err == nil ||
				!strings.Contains(err.Error(), why) {
				t.Errorf("%v: write %s: %v, want that it %s", mode, filepath.Base(path), err, why)
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
				t.Errorf("%v: %s has %q, %v", mode, filepath.Base(path), text, err)
			}
		}
		own := filepath.Join(shared, "own")
		for _, text := range []string{"longer", "new"} {
			if err := writeText(own, text); err != nil {
				t.Error(err)
			}
			if got, err := os.ReadFile(own); err != nil || string(got) != text {
				t.Errorf("%v: own file has %q, %v; want %q", mode, got, err, text)
			}
		}
	}
	if err := os.Chmod(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeText(link, "new"); err != nil {
		t.Errorf("a link in a directory of one's own: %v", err)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "new" {
		t.Errorf("it leads to %q, %v", text, err)
	}
}

// TestFillNamesTheCauseOnce: an error of the file is returned once and without the file's name, also when the
// writer of the content ignores the error or adds words to it.
func TestFillNamesTheCauseOnce(t *testing.T) {
	long := strings.Repeat("x", 1<<16)
	for name, write := range map[string]func(io.Writer) error{
		"returns the error": func(w io.Writer) error {
			_, err := io.WriteString(w, long)
			return fmt.Errorf("write page: %w", err)
		},
		"ignores the error": func(w io.Writer) error {
			_, _ = io.WriteString(w, long)
			return nil
		},
		"is short": func(w io.Writer) error {
			_, err := io.WriteString(w, "x")
			return err
		},
	} {
		file, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := Fill(file, write); !Full(err) || err.Error() != syscall.ENOSPC.Error() {
			t.Errorf("the content's writer %s: %v, want only %v", name, err, syscall.ENOSPC)
		}
		if err := file.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("the file is open: %v", err)
		}
	}
}

// TestWriteLeavesNoPart: if the content has an error, the file is removed, also in place of an earlier file.
func TestWriteLeavesNoPart(t *testing.T) {
	path, wrong := filepath.Join(t.TempDir(), "file"), errors.New("wrong content")
	for _, before := range []string{"", "earlier"} {
		if before != "" {
			if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := Write(path, 0, 0o644, func(w io.Writer) error {
			fmt.Fprint(w, "part")
			return wrong
		})
		if !errors.Is(err, wrong) || Full(err) || strings.Count(err.Error(), path) != 1 {
			t.Errorf("%v, want that %s is not written: %v", err, path, wrong)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file is there (%v)", err)
		}
	}
}
