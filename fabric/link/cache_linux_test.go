package link

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"railbed/testkit/hosttest"
)

// Where nothing can be stored, each process measures, and knows the first reason.
func TestCalibrationThatCannotBeStored(t *testing.T) {
	var measurements atomic.Int64
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(file, "calibration.json") // below a file
	for run := range int64(2) {
		c := counted(t, path, &measurements)
		for range 2 {
			if _, err := c.Burst(context.Background(), 1e9, 1500); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.NotStored(); !errors.Is(err, syscall.ENOTDIR) || measurements.Load() != run+1 {
			t.Errorf("process %d: %d measurements, %v", run, measurements.Load(), err)
		}
	}
}

// Another user who can write to the directory of the calibrations can neither set bursts nor keep a process
// waiting.
func TestAnotherUsersCalibrationIsNotRead(t *testing.T) {
	var measurements atomic.Int64
	path := filepath.Join(t.TempDir(), "calibration.json")
	first := counted(t, path, &measurements)
	if _, err := first.Burst(context.Background(), 1e9, 1500); err != nil || first.NotStored() != nil {
		t.Fatal(err, first.NotStored())
	}
	if info, err := os.Stat(path + ".lock"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("other users can open the lock: %v, %v", info.Mode(), err)
	}
	real := path + ".real"
	for name, plant := range map[string]func(t *testing.T) error{
		"a symbolic link": func(*testing.T) error {
			return errors.Join(os.Rename(path, real), os.Symlink(real, path))
		},
		"a FIFO": func(*testing.T) error {
			return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o666))
		},
		"a large file": func(*testing.T) error {
			text, err := os.ReadFile(path)
			text = append(text, strings.Repeat(" ", mostStored)...)
			return errors.Join(err, os.WriteFile(path, text, 0o600))
		},
		"another user's file": func(t *testing.T) error {
			hosttest.Need(t, hosttest.Root)
			return os.Chown(path, 61002, 61002)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := plant(t); err != nil {
				t.Fatal(err)
			}
			before := measurements.Load()
			c := counted(t, path, &measurements)
			if _, err := c.Burst(context.Background(), 1e9, 1500); err != nil || c.NotStored() != nil ||
				measurements.Load() != before+1 {
				t.Errorf("%d measurements, %v, %v", measurements.Load()-before, err, c.NotStored())
			}
			if _, known := counted(t, path, &measurements).Known(1e9, 1500); !known {
				t.Error("the file was not replaced")
			}
		})
	}
}
