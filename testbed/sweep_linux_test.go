package testbed_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"railbed/testbed/rundir"
	"railbed/testbed/verdict"
)

// TestHangingEngine: an engine that takes connections and says nothing keeps those
// waiting that want a dead testbed's name, and nobody else.
func TestHangingEngine(t *testing.T) {
	if os.Getuid() != 0 {
		t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	}
	folder, err := os.MkdirTemp("", "engine") // of a short name
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	socket := filepath.Join(folder, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	asked := make(chan net.Conn, 1)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			asked <- conn
		}
	}()
	dir, lock, err := rundir.Claim("go-hanging")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir.Path)
	if _, err := dir.Publish(rundir.Published{Containers: "unix://" + socket}); err != nil {
		t.Fatal(err)
	}
	lock.Close() // it is dead
	swept := make(chan error, 1)
	go func() {
		_, err := rundir.Sweep(rundir.SweepOptions{Patience: time.Minute})
		swept <- err
	}()
	engine := <-asked
	same := make(chan error, 1)
	go func() {
		_, _, err := rundir.Claim("go-hanging")
		same <- err
	}()
	other := make(chan error, 1)
	go func() {
		dir, lock, err := rundir.Claim("go-beside")
		if err == nil {
			err = errors.Join(dir.Remove(), lock.Close())
		}
		other <- err
	}()
	select {
	case err := <-other:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("another testbed waits for the engine")
	}
	select {
	case err := <-same:
		t.Errorf("the name is had, or refused, while it is swept: %v", err)
	case err := <-swept:
		t.Errorf("the sweep is over, error %v", err)
	default:
	}
	listener.Close()
	engine.Close()
	if err := <-swept; !errors.Is(err, rundir.ErrEngineAway) {
		t.Errorf("sweep: %v, want that the engine does not answer", err)
	}
	if err := <-same; !errors.Is(err, verdict.ErrUnsupported) || !strings.Contains(err.Error(), "railbed gc") {
		t.Errorf("claim of the dead testbed's name: %v", err)
	}
	forgot, err := rundir.Sweep(rundir.SweepOptions{Forget: true})
	if err != nil || !strings.Contains(strings.Join(leftOf(forgot, dir.Name), ""), socket) {
		t.Errorf("swept %+v, error %v; want what it left in %s", forgot, err, socket)
	}
	if _, err := os.Lstat(dir.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left", dir.Path)
	}
}

func leftOf(all []rundir.Swept, name string) (left []string) {
	for _, swept := range all {
		if swept.Name == name {
			left = append(left, swept.Left...)
		}
	}
	return left
}
