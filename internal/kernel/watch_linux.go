package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// RouteWatch reports changes of a namespace's routes that come from routing daemons.
type RouteWatch struct {
	file *os.File
	buf  [receiveBytes]byte
}

// WatchRoutes starts watching the namespace.
func WatchRoutes(ns *Namespace) (*RouteWatch, error) {
	var fd int
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	w := &RouteWatch{file: os.NewFile(uintptr(fd), "rtnetlink")}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK,
		Groups: unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE}); err != nil {
		return nil, errors.Join(fmt.Errorf("listen to changes of routes: %w", err), w.Close())
	}
	return w, nil
}

// Next waits for changes and counts them. After Close it returns os.ErrClosed.
func (w *RouteWatch) Next() (changes int, err error) {
	for changes == 0 {
		n, err := w.file.Read(w.buf[:])
		if errors.Is(err, unix.ENOBUFS) {
			return 1, nil // the buffer overflowed; the number of changes is not known
		}
		if err != nil {
			return 0, err
		}
		for data := w.buf[:n]; len(data) >= unix.SizeofNlMsghdr; {
			length, kind := int(binary.NativeEndian.Uint32(data)), binary.NativeEndian.Uint16(data[4:])
			if length < unix.SizeofNlMsghdr || length > len(data) {
				return changes, fmt.Errorf("netlink message of length %d in %d bytes", length, len(data))
			}
			if kind == unix.RTM_NEWROUTE || kind == unix.RTM_DELROUTE {
				route, err := parseRoute(data[unix.SizeofNlMsghdr:length])
				if err != nil {
					return changes, err
				}
				if route.Daemon {
					changes++
				}
			}
			data = data[min((length+3)&^3, len(data)):]
		}
	}
	return changes, nil
}

// Close ends the watch. A waiting Next returns.
func (w *RouteWatch) Close() error { return w.file.Close() }
