package port

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/internal/verdict"
)

// tapPort is a tap device that is the node's NIC. A frame takes one system call in each direction
// and crosses no other device and no softirq: the node's stack receives it within the write.
type tapPort struct {
	description Description
	fd          int
	counts      counters

	statsMu sync.Mutex
	devices int // /proc/net/dev of the node's namespace, guarded by statsMu
	dropped uint64
}

// tunPath is the device for creating taps.
const tunPath = "/dev/net/tun"

// tapSlotOverhead estimates the memory of a waiting frame besides its bytes: struct sk_buff, its
// shared info, head room, and rounding up.
const tapSlotOverhead = 1024

// openTap creates a tap in the calling thread's network namespace. It is left down, and is deleted
// when its descriptors are closed.
func openTap(name string, options Options) (h *Handle, err error) {
	if options.MTU == 0 {
		options.MTU = 1500
	}
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &verdict.UnsupportedError{
			Feature: "tap", Reason: fmt.Sprintf("open %s: %v", tunPath, err),
			Remedy: "load the module tun, and let your user open it: chmod 0666 " + tunPath,
		}
	}
	h = &Handle{Files: []*os.File{os.NewFile(uintptr(fd), "tap "+name)}}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
			h = nil
		}
	}()
	if err := makeTap(fd, name, options); err != nil {
		return h, err
	}
	slot := options.MTU + HeaderLen + TagLen + tapSlotOverhead
	slots := max(options.RingBytes/slot, MinSlots)
	index, err := configureTap(name, slots, options)
	if err != nil {
		return h, err
	}
	// This file has the device's only counter of drops by its queue. The file shows the namespace
	// in which it was opened, whichever process reads it.
	devices, err := os.Open("/proc/thread-self/net/dev")
	if err != nil {
		return h, fmt.Errorf("open counters of %s: %w", name, err)
	}
	h.Files = append(h.Files, devices)
	h.Description = Description{Driver: Tap, Name: name, Index: index, MTU: options.MTU, Slots: slots,
		SlotBytes: slot}
	return h, nil
}

func makeTap(fd int, name string, options Options) error {
	if options.Index != 0 {
		index := int32(options.Index)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFINDEX,
			uintptr(unsafe.Pointer(&index))); errno != 0 {
			return fmt.Errorf("make tap %s: choose index %d: %w", name, options.Index, errno)
		}
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("name tap %q: %w", name, err)
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_TUN_EXCL)
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	if errors.Is(err, unix.EPERM) {
		return &verdict.UnsupportedError{
			Feature: "tap", Reason: fmt.Sprintf("make tap %s: %v", name, err),
			Remedy: "open the port as root or in a user namespace of your own (CAP_NET_ADMIN)",
		}
	}
	if err != nil {
		return fmt.Errorf("make tap %s: %w", name, err)
	}
	return nil
}

// configureTap sets queue length, MTU and address, and reads them back.
func configureTap(name string, slots int, options Options) (index int, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	request.SetUint32(uint32(options.MTU))
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFMTU, request); err != nil {
		return 0, fmt.Errorf("set mtu of tap %s to %d: %w", name, options.MTU, err)
	}
	if options.MAC != ([6]byte{}) {
		hardware := struct {
			name   [unix.IFNAMSIZ]byte
			family uint16
			mac    [22]byte // the rest of struct ifreq's union
		}{family: unix.ARPHRD_ETHER}
		copy(hardware.name[:unix.IFNAMSIZ-1], name)
		copy(hardware.mac[:], options.MAC[:])
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFHWADDR,
			uintptr(unsafe.Pointer(&hardware))); errno != 0 {
			return 0, fmt.Errorf("set address of tap %s: %w", name, errno)
		}
	}
	index, mtu, err := interfaceOf(fd, name)
	if err != nil {
		return 0, err
	}
	conn, err := kernel.Open()
	if err != nil {
		return 0, err
	}
	batch := kernel.NewBatch("tap", nil)
	batch.SetQueueLength(name, index, slots)
	if err := errors.Join(conn.Do(batch), conn.Close()); err != nil {
		return 0, fmt.Errorf("set queue of tap %s to %d frames: %w", name, slots, err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFTXQLEN, request); err != nil {
		return 0, fmt.Errorf("read queue of tap %s: %w", name, err)
	}
	if got := int(request.Uint32()); got != slots {
		return 0, fmt.Errorf("set queue of tap %s: kernel has %d frames, want %d", name, got, slots)
	}
	if mtu != options.MTU || options.Index != 0 && index != options.Index {
		return 0, fmt.Errorf("make tap %s: kernel has mtu %d and index %d, want %d and %d", name, mtu, index,
			options.MTU, options.Index)
	}
	return index, nil
}

func newTap(d Description, fd, devices int) *tapPort {
	return &tapPort{description: d, fd: fd, devices: devices}
}

func (p *tapPort) Description() Description { return p.description }
func (p *tapPort) Fd() int                  { return p.fd }
func (p *tapPort) Flush() error             { return nil }

// Receive implements Port.
func (p *tapPort) Receive(frames []Frame) (n int, err error) {
	if p.fd < 0 {
		return 0, os.ErrClosed
	}
	total := 0
	for range p.description.Slots {
		if n == len(frames) {
			break
		}
		frame := &frames[n]
		if cap(frame.Data) < p.description.Room() {
			err = smallFrame(p.description, *frame)
			break
		}
		data := frame.Data[:cap(frame.Data)]
		length, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(p.fd), uintptr(unsafe.Pointer(&data[0])),
			uintptr(len(data)))
		if errno == unix.EAGAIN {
			break
		}
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			err = p.failure("receive on", errno)
			break
		}
		data = data[:length]
		switch {
		case len(data) < HeaderLen:
			p.counts.refused.Add(1)
		case !frameFits(data, len(data), p.description.MTU):
			p.counts.truncated.Add(1)
		default:
			frame.Data = data
			total += len(data)
			n++
		}
	}
	if n > 0 {
		now := time.Now().UnixNano()
		for i := range frames[:n] {
			frames[i].Stamp = now
		}
		p.counts.received(n, total)
	}
	return n, err
}

// failure interprets an error of the device.
func (p *tapPort) failure(verb string, errno unix.Errno) error {
	if errno == unix.EBADFD {
		return fmt.Errorf("%s %s: %w", verb, p.description.Name, ErrGone)
	}
	return fmt.Errorf("%s %s: %w", verb, p.description.Name, errno)
}

// Send implements Port.
func (p *tapPort) Send(frames [][]byte) (taken int, err error) {
	if p.fd < 0 {
		return 0, os.ErrClosed
	}
	sent, total := 0, 0
loop:
	for taken < len(frames) {
		frame := frames[taken]
		// The device itself accepts frames of any length.
		if len(frame) < HeaderLen || !frameFits(frame, len(frame), p.description.MTU) {
			p.counts.failed.Add(1)
			taken++
			continue
		}
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(p.fd), uintptr(unsafe.Pointer(&frame[0])),
			uintptr(len(frame)))
		switch errno {
		case 0:
			sent++
			total += len(frame)
			taken++
		case unix.EINTR:
		case unix.EAGAIN:
			break loop
		case unix.EIO, unix.ENOMEM, unix.ENOBUFS, unix.EINVAL: // EIO: the device is down
			p.counts.failed.Add(1)
			taken++
		default:
			err = p.failure("send on", errno)
			break loop
		}
	}
	p.counts.sent(sent, total)
	return taken, err
}

// Recover implements Port.
func (p *tapPort) Recover() error {
	var request [unix.IFNAMSIZ + 24]byte // struct ifreq
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(p.fd), unix.TUNGETIFF,
		uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return p.failure("port", errno)
	}
	return nil
}

// Stats implements Port.
func (p *tapPort) Stats() (Stats, error) {
	p.statsMu.Lock()
	defer p.statsMu.Unlock()
	stats := p.counts.read()
	if p.devices < 0 {
		stats.KernelDropped = p.dropped
		return stats, nil
	}
	dropped, found, err := transmitDrops(p.devices, p.description.Name)
	if err != nil {
		return stats, fmt.Errorf("read counters of port %s: %w", p.description.Name, err)
	}
	if found { // otherwise the device is gone, and its last count stays valid
		p.dropped = dropped
	}
	stats.KernelDropped = p.dropped
	return stats, nil
}

// transmitDrops reads an interface's dropped frames from an open /proc/net/dev. A line has the
// name, a colon, eight receive counters and eight transmit counters, the fourth of which counts
// drops.
func transmitDrops(fd int, name string) (drops uint64, found bool, err error) {
	const column = 8 + 3
	var text []byte
	for buf := make([]byte, 8<<10); ; {
		n, err := unix.Pread(fd, buf, int64(len(text)))
		if err != nil {
			return 0, false, err
		}
		if n == 0 {
			break
		}
		text = append(text, buf[:n]...)
	}
	for line := range bytes.Lines(text) {
		device, values, _ := bytes.Cut(line, []byte(":"))
		if string(bytes.TrimSpace(device)) != name {
			continue
		}
		if fields := bytes.Fields(values); len(fields) > column {
			drops, err = strconv.ParseUint(string(fields[column]), 10, 64)
			return drops, true, err
		}
		return 0, false, fmt.Errorf("line %q; want more than %d fields", line, column)
	}
	return 0, false, nil
}

// Close implements Port.
func (p *tapPort) Close() error {
	p.statsMu.Lock()
	defer p.statsMu.Unlock()
	if p.fd < 0 {
		return nil
	}
	err := errors.Join(unix.Close(p.fd), unix.Close(p.devices))
	p.fd, p.devices = -1, -1
	return err
}
