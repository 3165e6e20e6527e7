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
	// Device is the device's doorbell. Program is the program's end of its own doorbell.
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
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, files, fmt.Errorf("make eventfd: %w", err)
	}
	files.Device = os.NewFile(uintptr(fd), "doorbell")
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, files, fmt.Errorf("make doorbell: %w", err)
	}
	files.Program = os.NewFile(uintptr(ends[1]), "doorbell")
	d = &Device{bell: line{ends[0]}, own: bell{-1}}
	if err = unix.Shutdown(ends[0], unix.SHUT_RD); err == nil { // the program can send nothing
		err = d.mapMemory(files, g, 0)
	}
	if err == nil {
		d.own.fd, err = duplicate(files.Device)
	}
	if err != nil {
		err = errors.Join(err, d.Close())
	}
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
	p := &Program{bell: bell{-1}, own: line{-1}}
	// Without its pages, the first packets would cost a page fault each.
	if err = p.mapMemory(files, g, unix.MAP_POPULATE); err == nil {
		p.bell.fd, err = duplicate(files.Device)
	}
	if err == nil {
		p.own.fd, err = duplicate(files.Program)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map NIC queues: %w", err), p.Close())
	}
	return p, nil
}

func (m *memory) mapMemory(files *Files, g Geometry, flags int) error {
	bytes, err := unix.Mmap(int(files.Memory.Fd()), 0, g.size(), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|flags)
	if err == nil {
		*m = newMemory(bytes, g)
	}
	return err
}

func duplicate(file *os.File) (int, error) {
	return unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

// closeSide unmaps the memory and closes the descriptors of a side's doorbells.
func closeSide(m *memory, bells ...*int) error {
	var errs []error
	if m.bytes != nil {
		errs = append(errs, unix.Munmap(m.bytes))
		m.bytes = nil
	}
	for _, fd := range bells {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
		}
		*fd = -1
	}
	return errors.Join(errs...)
}

// wants reports whether the other side's flag asks for its doorbell, and resets the flag.
func wants(flag *atomic.Uint64) bool { return flag.Load() != 0 && flag.Swap(0) != 0 }

// bell is the device's doorbell, an eventfd.
type bell struct{ fd int }

func (b bell) ring() error {
	one := [8]byte{1}
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(b.fd), uintptr(unsafe.Pointer(&one)),
		uintptr(len(one)))
	if errno != 0 && errno != unix.EAGAIN { // a full counter wakes as well
		return fmt.Errorf("ring doorbell: %w", errno)
	}
	return nil
}

// line is an end of the program's doorbell, a pair of sockets. The two sides of an eventfd share one file, of
// which the program could clear O_NONBLOCK. A full counter would then block the thread of the NICs. An end of
// a socket has a file of its own.
type line struct{ fd int }

// ring makes the program's end readable. It never waits. An end that holds many rings is readable already,
// and a program that has closed its end needs none.
func (l line) ring() error {
	one := [1]byte{1}
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(l.fd), uintptr(unsafe.Pointer(&one)),
		uintptr(len(one)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	switch errno {
	case 0, unix.EAGAIN, unix.EPIPE, unix.ECONNRESET:
		return nil
	}
	return fmt.Errorf("ring doorbell: %w", errno)
}

// quiet makes the program's end unreadable again. It returns false if the device has closed its end.
func (l line) quiet() bool {
	var rings [64]byte
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(l.fd), uintptr(unsafe.Pointer(&rings)),
		uintptr(len(rings)), unix.MSG_DONTWAIT, 0, 0)
	return n > 0 || errno != 0
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
