package kernel

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Sysctl is a setting of a network namespace: its path below /proc/sys, as
// "net/ipv4/ip_forward", and its value as the kernel prints it.
type Sysctl struct {
	Path  string
	Value string
	// Optional settings are skipped where the kernel has no such file.
	Optional bool
}

// Line is the sysctl line that equals the setting.
func (s Sysctl) Line(node string) string {
	return fmt.Sprintf("ip netns exec %s sysctl -w %s=%q", node, strings.ReplaceAll(s.Path, "/", "."), s.Value)
}

// SetSysctl writes a setting of the calling thread's network namespace, so it
// belongs inside Namespace.Do or Each, and reads it back through the same
// descriptor.
func SetSysctl(s Sysctl) error {
	fd, err := unix.Open("/proc/sys/"+s.Path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) && s.Optional {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", s.Path, s.Value, err)
	}
	defer unix.Close(fd)
	if err := writeRestarting(fd, s.Value); err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", s.Path, s.Value, err)
	}
	got, err := readSysctl(fd)
	if err != nil {
		return fmt.Errorf("read sysctl %s: %w", s.Path, err)
	}
	return s.compare(got)
}

// writeRestarting repeats a write that was interrupted: settings that take the
// kernel's configuration lock give up with EINTR rather than wait for it when a
// signal is pending, and the Go runtime sends itself signals.
func writeRestarting(fd int, value string) error {
	for {
		n, err := unix.Pwrite(fd, []byte(value), 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n != len(value):
			return fmt.Errorf("wrote %d of %d bytes", n, len(value))
		default:
			return nil
		}
	}
}

func readSysctl(fd int) (string, error) {
	var buf [512]byte
	for {
		n, err := unix.Pread(fd, buf[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return "", err
		}
		return strings.TrimSpace(string(buf[:n])), nil
	}
}

// CheckSysctl reads a setting of the calling thread's network namespace and
// compares it.
func CheckSysctl(s Sysctl) error {
	fd, err := unix.Open("/proc/sys/"+s.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) && s.Optional {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read sysctl %s: %w", s.Path, err)
	}
	defer unix.Close(fd)
	got, err := readSysctl(fd)
	if err != nil {
		return fmt.Errorf("read sysctl %s: %w", s.Path, err)
	}
	return s.compare(got)
}

// compare ignores how much white space stands between several numbers.
func (s Sysctl) compare(got string) error {
	if strings.Join(strings.Fields(got), " ") == strings.Join(strings.Fields(s.Value), " ") {
		return nil
	}
	return fmt.Errorf("sysctl %s: kernel has %s, want %s", s.Path, got, s.Value)
}
