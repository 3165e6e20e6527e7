package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"railbed/internal/verdict"
)

// Sysctl is a setting of a network namespace: its path below /proc/sys, as
// "net/ipv4/ip_forward", and its value as the kernel prints it.
type Sysctl struct {
	Path  string
	Value string
	// Optional settings are skipped where the kernel has no such file.
	Optional bool
	// Asked is set for settings that the user's file requests. If the kernel does not have such a
	// setting, or not this value, the error is a *RefusedSysctlError.
	Asked bool
}

// RefusedSysctlError reports that the kernel refuses a setting that the user's file requests.
type RefusedSysctlError struct {
	Sysctl
	verdict.UnsupportedError
}

// Unwrap implements errors.
func (e *RefusedSysctlError) Unwrap() error { return &e.UnsupportedError }

// refused turns the error for a setting into a *RefusedSysctlError if the user's file requested it.
func (s Sysctl) refused(err error) error {
	if err == nil || !s.Asked {
		return err
	}
	name := strings.ReplaceAll(s.Path, "/", ".")
	return &RefusedSysctlError{s, verdict.UnsupportedError{
		Feature: "sysctl " + name,
		Reason:  err.Error(),
		Remedy:  s.remedy(name, err),
	}}
}

// remedy returns what helps against the refusal of a setting.
func (s Sysctl) remedy(name string, err error) string {
	denied := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS)
	switch algorithm := strings.TrimSpace(s.Value); {
	case s.Path == congestionControl && errors.Is(err, unix.ENOENT):
		return fmt.Sprintf("load its module on the host, modprobe tcp_%s, and allow it there: %s", algorithm,
			allowed(algorithm))
	case s.Path == congestionControl && denied:
		return "allow it on the host: " + allowed(algorithm)
	case denied:
		return "the host has one value for all network namespaces: set it there, and remove it here"
	}
	return "want a setting below net that this kernel has, with a value as sysctl " + name + " prints it"
}

const congestionControl = "net/ipv4/tcp_congestion_control"

// allowed returns the command that lets network namespaces use an algorithm of TCP. The kernel refuses
// others there, since a namespace must not choose them for the host.
func allowed(algorithm string) string {
	return fmt.Sprintf(`sysctl -w net.ipv4.tcp_allowed_congestion_control="reno %s"`, algorithm)
}

// Line is the equivalent sysctl line.
func (s Sysctl) Line(node string) string {
	return fmt.Sprintf("ip netns exec %s sysctl -w %s=%q", node, strings.ReplaceAll(s.Path, "/", "."),
		s.Value)
}

// SetSysctls writes settings of the calling thread's network namespace, so it must run inside
// Namespace.Do or Each. It reads each setting back through the descriptor that wrote it, and stops
// at the first that fails.
func SetSysctls(sysctls []Sysctl) error {
	var files sysctlFiles
	defer files.close()
	for _, s := range sysctls {
		if err := s.refused(files.set(s)); err != nil {
			return err
		}
	}
	return nil
}

// CheckSysctls reads settings of the calling thread's network namespace and returns the differences
// as joined errors.
func CheckSysctls(sysctls []Sysctl) error {
	var files sysctlFiles
	defer files.close()
	var errs []error
	for _, s := range sysctls {
		errs = append(errs, files.check(s))
	}
	return errors.Join(errs...)
}

// sysctlFiles keeps the parent directories of most settings open. Below /proc/sys/net every
// namespace has its own ipv4 and ipv6. The kernel finds the right one by trying those of all
// namespaces in turn; below these directories it does not.
type sysctlFiles struct {
	dirs map[string]int
}

func (f *sysctlFiles) close() {
	for _, fd := range f.dirs {
		_ = unix.Close(fd) // opened only for its path: no data can be lost
	}
}

// file opens the file of a setting.
func (f *sysctlFiles) file(path string, flags int) (int, error) {
	dir, rest := "", path
	for _, family := range []string{"net/ipv4/", "net/ipv6/"} {
		if below, found := strings.CutPrefix(path, family); found {
			dir, rest = family, below
		}
	}
	parent, opened := f.dirs[dir]
	if !opened {
		var err error
		parent, err = unix.Open("/proc/sys/"+dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		if f.dirs == nil {
			f.dirs = map[string]int{}
		}
		f.dirs[dir] = parent
	}
	return unix.Openat(parent, rest, flags|unix.O_CLOEXEC, 0)
}

func (f *sysctlFiles) set(s Sysctl) error {
	fd, err := f.file(s.Path, unix.O_RDWR)
	if errors.Is(err, unix.ENOENT) && s.Optional {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", s.Path, s.Value, err)
	}
	defer unix.Close(fd)
	if err := writeSysctl(fd, s.Value); err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", s.Path, s.Value, err)
	}
	return s.compare(fd)
}

func (f *sysctlFiles) check(s Sysctl) error {
	fd, err := f.file(s.Path, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) && s.Optional {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read sysctl %s: %w", s.Path, err)
	}
	defer unix.Close(fd)
	return s.compare(fd)
}

// writeSysctl repeats a write that was interrupted. Settings that take the kernel's configuration
// lock return EINTR instead of waiting for it if a signal is pending, and the Go runtime sends
// itself signals.
func writeSysctl(fd int, value string) error {
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

// sameValue compares a word that the kernel prints with one of the file. The kernel reads 01 and 0x1, and
// prints 1.
func sameValue(got, want string) bool {
	a, err := strconv.ParseInt(got, 10, 64)
	b, other := strconv.ParseInt(want, 0, 64)
	return got == want || err == nil && other == nil && a == b
}

// compare reads the setting and compares it. The amount of white space between several numbers does
// not matter.
func (s Sysctl) compare(fd int) error {
	var buf [512]byte
	n, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Pread(fd, buf[:], 0)
	}
	if err != nil {
		return fmt.Errorf("read sysctl %s: %w", s.Path, err)
	}
	got, want := strings.Fields(string(buf[:n])), strings.Fields(s.Value)
	if !slices.EqualFunc(got, want, sameValue) {
		return fmt.Errorf("sysctl %s: kernel has %s, want %s", s.Path, strings.Join(got, " "),
			strings.Join(want, " "))
	}
	return nil
}
