// Package peer reads who is at the other end of a Unix connection. The kernel records
// the credentials (SO_PEERCRED, unix(7)): those of a client at connect(2), those of a
// server at listen(2). No process can name others there without privileges over them.
//
// The kernel translates both numbers into the namespaces of the process that asks. A user
// that its user namespace does not map is the overflow user, never 0. A process that is
// neither in its PID namespace nor in one below has the number 0.
package peer

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Outside is the PID of a process that is neither in this process's PID namespace nor in
// one below.
const Outside = 0

// Credentials are those of a process.
type Credentials struct {
	PID int // Outside if the PID namespace shows no such process
	UID int
}

// Of returns the credentials of the process that connected, or that listens.
func Of(conn syscall.Conn) (Credentials, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Credentials{}, fmt.Errorf("read credentials of peer: %w", err)
	}
	var ucred *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) {
		ucred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(controlErr, err); err != nil {
		return Credentials{}, fmt.Errorf("read credentials of peer: %w", err)
	}
	return Credentials{PID: int(ucred.Pid), UID: int(ucred.Uid)}, nil
}
