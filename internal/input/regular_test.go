package input

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestReadRegular(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadRegular(path, 5); string(text) != "12345" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	var large *LargeError
	if _, err := ReadRegular(path, 4); !errors.As(err, &large) || *large != (LargeError{5, 4}) ||
		err.Error() != "has 5 bytes; want at most 4" {
		t.Errorf("got %v", err)
	}
	if _, err := ReadRegular("/dev/zero", 4); !errors.Is(err, ErrNotRegular) ||
		err.Error() != "is a device, not a file" {
		t.Errorf("got %v", err)
	}
	if _, err := ReadRegular(path+"x", 4); !errors.Is(err, fs.ErrNotExist) ||
		err.Error() != "cannot be read: no such file or directory" {
		t.Errorf("got %v", err)
	}
}
