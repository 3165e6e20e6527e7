// Package peer reads the credentials of the process at the other end of a Unix connection. The
// kernel records them (SO_PEERCRED, unix(7)): a client's at connect(2), a server's at listen(2).
// Without privileges, no process can claim another process's credentials.
//
// The kernel translates the PID and the user into the namespaces of the calling process. A user
// that its user namespace does not map is the overflow user, never 0. A process that is neither in
// its PID namespace nor in one below has the PID 0.
package peer

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Outside is the PID of a process that is neither in this process's PID namespace nor in a
// namespace below it.
const Outside = 0

// Credentials are the credentials of a process.
type Credentials struct {
	PID int // Outside if the PID namespace shows no such process
	UID int
}

// Of returns the credentials of the process that connected, or of the process that listens.
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

// OfUsers returns the reason why a client may not start commands in nodes, or nil. The client must be a
// process of one of the users, in this process's PID namespace or in one below. A process that has dropped
// its privileges must not regain them in another node. Nor may processes outside start commands, because a
// container that has joined the node's network is root as well.
func OfUsers(conn syscall.Conn, users ...int) error {
	who, err := Of(conn)
	want := users[len(users)-1]
	switch {
	case err != nil:
		return err
	case who.PID == Outside:
		return fmt.Errorf("a process outside this node may not start commands in nodes; want a process of "+
			"user %d in this node", want)
	case !slices.Contains(users, who.UID):
		return fmt.Errorf("user %d may not start commands in nodes; want user %d", who.UID, want)
	}
	return nil
}
