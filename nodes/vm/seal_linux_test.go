package vm

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Sealing waits until nothing else holds the file's pages.
func TestSealWaits(t *testing.T) {
	fd, err := unix.MemfdCreate("held", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "held")
	defer file.Close()
	if _, err := file.WriteString("kernel"); err != nil {
		t.Fatal(err)
	}
	memory, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan error)
	time.AfterFunc(50*time.Millisecond, func() { released <- unix.Munmap(memory) })
	err = seal(file)
	if err := errors.Join(err, <-released); err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("more"); !errors.Is(err, unix.EPERM) {
		t.Errorf("the sealed file could be written: %v", err)
	}
}
