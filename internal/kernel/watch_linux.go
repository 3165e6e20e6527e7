package kernel

import (
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
	file, err := listen(ns, unix.RTMGRP_IPV4_ROUTE|unix.RTMGRP_IPV6_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("listen to changes of routes: %w", err)
	}
	return &RouteWatch{file: file}, nil
}

// listen opens a rtnetlink socket that receives the messages of multicast groups (RTMGRP_).
func listen(ns *Namespace, groups uint32) (*os.File, error) {
	fd := -1
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "rtnetlink")
	address := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}
	if err := unix.Bind(fd, address); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
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
		err = eachMessage(w.buf[:n], func(header unix.NlMsghdr, body []byte) error {
			if header.Type != unix.RTM_NEWROUTE && header.Type != unix.RTM_DELROUTE {
				return nil
			}
			route, err := parseRoute(body)
			if err == nil && route.Daemon {
				changes++
			}
			return err
		})
		if err != nil {
			return changes, err
		}
	}
	return changes, nil
}

// Close ends the watch. A waiting Next returns.
func (w *RouteWatch) Close() error { return w.file.Close() }
