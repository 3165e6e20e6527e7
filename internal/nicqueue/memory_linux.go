package nicqueue

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
)

// Now returns the time in nanoseconds of CLOCK_MONOTONIC, which all processes of a host read alike. It
// makes no system call.
func Now() int64 { return At(time.Now()) }

// At returns the time in nanoseconds of CLOCK_MONOTONIC at a time of this process, which package time read.
func At(t time.Time) int64 { return monotonic + int64(t.Sub(started)) }

// Time returns a time in nanoseconds of CLOCK_MONOTONIC as package time has it.
func Time(at int64) time.Time { return started.Add(time.Duration(at - monotonic)) }

// Package time does not show the monotonic reading of its times.
var (
	started   = time.Now()
	monotonic = readMonotonic()
)

// readMonotonic returns CLOCK_MONOTONIC at started. It takes the reading that was interrupted least.
func readMonotonic() (at int64) {
	least := time.Hour
	for range 5 {
		var now unix.Timespec
		before := time.Since(started)
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
			return 0 // no Linux lacks it
		}
		if took := time.Since(started) - before; took < least {
			least, at = took, now.Nano()-int64(before+took/2)
		}
	}
	return at
}

// Files has the descriptors that a program needs to map its side: the memory and the doorbells.
type Files struct {
	Memory *os.File
	// Device is the device's doorbell, Program the program's.
	Device, Program *os.File
}

// Close closes the files. What is mapped stays.
func (f *Files) Close() error {
	var errs []error
	for _, file := range []*os.File{f.Memory, f.Device, f.Program} {
		if file != nil {
			errs = append(errs, file.Close())
		}
	}
	return errors.Join(errs...)
}

// Create makes a pair of queues and returns the NIC's side, and the files for the program.
func Create(g Geometry) (d *Device, files *Files, err error) {
	if err := g.check(); err != nil {
		return nil, nil, err
	}
	files = &Files{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make NIC queues: %w", err), files.Close())
			d, files = nil, nil
		}
	}()
	if files.Memory, err = kernel.SealedMemory("railbed-nic", g.size()); err != nil {
		return nil, files, err
	}
	for _, at := range []**os.File{&files.Device, &files.Program} {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return nil, files, fmt.Errorf("make eventfd: %w", err)
		}
		*at = os.NewFile(uintptr(fd), "doorbell")
	}
	d = &Device{}
	d.memory, d.own, d.bell, err = mapSide(files, g, files.Device, files.Program, 0)
	return d, files, err
}

// Map maps the program's side of queues that Create made. The files stay the caller's.
func Map(files *Files, g Geometry) (*Program, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	info, err := files.Memory.Stat()
	if err != nil {
		return nil, fmt.Errorf("map NIC queues: %w", err)
	}
	if info.Size() != int64(g.size()) {
		return nil, fmt.Errorf("map NIC queues: memory of %d bytes, want %d", info.Size(), g.size())
	}
	p := &Program{}
	// Without its pages, the first packets would cost a page fault each.
	p.memory, p.own, p.bell, err = mapSide(files, g, files.Program, files.Device, unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map NIC queues: %w", err)
	}
	return p, nil
}

// mapSide maps the memory, and copies the descriptors of a side's own doorbell and of the other's.
func mapSide(files *Files, g Geometry, own, other *os.File, flags int) (m memory, ours, theirs bell,
	err error) {
	ours, theirs = bell{-1}, bell{-1}
	bytes, err := unix.Mmap(int(files.Memory.Fd()), 0, g.size(), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|flags)
	if err != nil {
		return m, ours, theirs, err
	}
	m = newMemory(bytes, g)
	if ours.fd, err = duplicate(own); err == nil {
		theirs.fd, err = duplicate(other)
	}
	if err != nil {
		err = errors.Join(err, closeSide(&m, &ours, &theirs))
	}
	return m, ours, theirs, err
}

func duplicate(file *os.File) (int, error) {
	return unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

func closeSide(m *memory, bells ...*bell) error {
	if m.bytes == nil {
		return nil
	}
	errs := []error{unix.Munmap(m.bytes)}
	m.bytes = nil
	for _, b := range bells {
		if b.fd >= 0 {
			errs = append(errs, unix.Close(b.fd))
		}
		b.fd = -1
	}
	return errors.Join(errs...)
}

// bell is an eventfd.
type bell struct{ fd int }

// ringIf rings if the flag is set, and resets it.
func (b bell) ringIf(flag *atomic.Uint64) error {
	if flag.Load() == 0 || flag.Swap(0) == 0 {
		return nil
	}
	one := [8]byte{1}
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(b.fd), uintptr(unsafe.Pointer(&one)),
		uintptr(len(one)))
	if errno != 0 && errno != unix.EAGAIN { // a full counter wakes as well
		return fmt.Errorf("ring doorbell: %w", errno)
	}
	return nil
}

// quiet resets the eventfd.
func (b bell) quiet() {
	var count [8]byte
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(b.fd), uintptr(unsafe.Pointer(&count)),
		uintptr(len(count)))
}

// rest sets a side's flag to a value that is not 0. It reports whether nothing was posted beyond the known
// count; otherwise it resets the flag.
func rest(flag *atomic.Uint64, value uint64, posted *atomic.Uint64, known uint64) bool {
	flag.Store(value)
	if posted.Load() == known {
		return true
	}
	flag.Store(0)
	return false
}
