package port

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"railbed/internal/descriptors"
	"railbed/internal/verdict"
)

// Handle is an open port that is not in use yet: its description and its descriptors. This process
// or another process makes a Port of it.
type Handle struct {
	Description Description
	Files       []*os.File
}

// Close closes the descriptors. A second Close, or one after Port, does nothing.
func (h *Handle) Close() error {
	err := descriptors.Close(h.Files)
	h.Files = nil
	return err
}

// Open opens the port of an interface in the calling thread's network namespace. The interface is
// the switch's end of a veth or, with Tap, the node's NIC, which Open creates. If the kernel lacks
// a feature or the caller a right, the error is a verdict.UnsupportedError.
func Open(driver Driver, name string, options Options) (*Handle, error) {
	if options.MTU < 0 || options.MTU > maxMTU {
		return nil, fmt.Errorf("open port %s: mtu %d is not between 1 and %d", name, options.MTU, maxMTU)
	}
	if options.RingBytes <= 0 {
		options.RingBytes = DefaultRingBytes
	}
	open, known := openers[driver]
	if !known {
		return nil, fmt.Errorf("open port %s: unknown driver %q, want packet, tap or xdp", name, driver)
	}
	return open(name, options)
}

var openers = map[Driver]func(string, Options) (*Handle, error){
	Packet: openPacket,
	Tap:    openTap,
	XDP:    openXDP,
}

// OpenBest opens the switch's end of a veth with XDP or, if the host or a limit refuses that, with
// Packet. In that case the description's Reason is the cause.
func OpenBest(name string, options Options) (*Handle, error) {
	h, refused := Open(XDP, name, options)
	if refused == nil || !errors.Is(refused, verdict.ErrUnsupported) {
		return h, refused
	}
	h, err := Open(Packet, name, options)
	if err == nil {
		h.Description.Reason = refused.Error()
	}
	return h, err
}

// Port makes a Port of the handle, which is empty afterwards. It needs no privilege.
func (h *Handle) Port() (Port, error) {
	files := h.Files
	if err := h.Description.check(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	if want := descriptorsOf[h.Description.Driver]; len(files) != want || want == 0 {
		return nil, errors.Join(fmt.Errorf("make port %s: driver %q with %d descriptors, want %d",
			h.Description.Name, h.Description.Driver, len(files), want), h.Close())
	}
	// A port reads and writes by descriptor number and waits with the caller's epoll. So the
	// descriptors are taken out of the runtime's files.
	fds := make([]int, len(files))
	for i, file := range files {
		fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("make port %s: duplicate descriptor: %w", h.Description.Name,
				err), closeAll(fds[:i]), h.Close())
		}
		fds[i] = fd
	}
	if err := h.Close(); err != nil {
		return nil, errors.Join(err, closeAll(fds))
	}
	var port Port
	var err error
	switch h.Description.Driver {
	case Packet:
		port, err = newPacket(h.Description, fds[0])
	case Tap:
		port = newTap(h.Description, fds[0], fds[1])
	case XDP:
		port, err = newXDP(h.Description, fds[0], fds[1], fds[2])
	}
	if err != nil {
		return nil, errors.Join(err, closeAll(fds))
	}
	// os.File.Fd may have made them blocking.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(fmt.Errorf("make port %s: %w", h.Description.Name, err), port.Close())
	}
	return port, nil
}

// descriptorsOf is the number of descriptors that belong to a driver's description.
var descriptorsOf = map[Driver]int{Packet: 1, Tap: 2, XDP: 3}

func closeAll(fds []int) error {
	var errs []error
	for _, fd := range fds {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}

// interfaceOf returns the index and MTU of an interface in the socket's namespace.
func interfaceOf(fd int, name string) (index, mtu int, err error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0, 0, fmt.Errorf("name interface %q: %w", name, err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return 0, 0, fmt.Errorf("find interface %q: %w", name, err)
	}
	index = int(request.Uint32())
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFHWADDR, request); err != nil {
		return 0, 0, fmt.Errorf("read hardware type of %q: %w", name, err)
	}
	// Uint16 is the address family field, here the ARPHRD_ type.
	if hardware := request.Uint16(); hardware != unix.ARPHRD_ETHER {
		return 0, 0, fmt.Errorf("open port %q: hardware type %d is not Ethernet", name, hardware)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFMTU, request); err != nil {
		return 0, 0, fmt.Errorf("read mtu of %q: %w", name, err)
	}
	return index, int(request.Uint32()), nil
}

// smallFrame returns the error for a frame whose memory is too small.
func smallFrame(d Description, frame Frame) error {
	return fmt.Errorf("receive on %s: frame memory of %d bytes, want %d", d.Name, cap(frame.Data), d.Room())
}

// needRaw adds the remedy to an error about missing rights.
func needRaw(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EAFNOSUPPORT) {
		return err
	}
	return &verdict.UnsupportedError{
		Feature: "packet-socket", Reason: err.Error(),
		Remedy: "open the port as root or in a user namespace of your own (CAP_NET_RAW), on a kernel with " +
			"CONFIG_PACKET",
	}
}
