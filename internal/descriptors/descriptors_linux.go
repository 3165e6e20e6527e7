// Package descriptors passes values with file descriptors over Unix sockets, as one message each: the value
// as JSON, the descriptors beside it (SCM_RIGHTS).
package descriptors

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Socket returns a connection over which descriptors can be passed.
func Socket(conn net.Conn) (*net.UnixConn, error) {
	socket, isUnix := conn.(*net.UnixConn)
	if !isUnix {
		return nil, errors.New("the connection is not a Unix socket, so it cannot pass descriptors")
	}
	return socket, nil
}

// Send sends a value with descriptors, which stay open here.
func Send(to *net.UnixConn, v any, files ...*os.File) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, file := range files {
			fds[i] = int(file.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	n, _, err := to.WriteMsgUnix(text, rights, nil)
	if err == nil && n != len(text) {
		err = fmt.Errorf("sent %d of %d bytes", n, len(text))
	}
	return err
}

// Receive receives a value that Send sent, of at most the length of the buffer, with at most so many
// descriptors. With an error, no descriptor stays open. When the other side has ended, the error is io.EOF.
func Receive(from *net.UnixConn, v any, buffer []byte, most int) ([]*os.File, error) {
	var rights []byte
	if most > 0 {
		rights = make([]byte, unix.CmsgSpace(4*most))
	}
	n, length, flags, _, err := from.ReadMsgUnix(buffer, rights)
	if err != nil { // io.EOF also for an empty message, which may carry descriptors
		files, _ := filesOf(rights[:max(length, 0)])
		_ = Close(files)
		return nil, err
	}
	files, err := filesOf(rights[:length])
	// The kernel may have delivered some of too many descriptors, and CmsgSpace has room for one more.
	if err == nil && (flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || len(files) > most) {
		err = fmt.Errorf("message exceeds %d bytes or %d descriptors", len(buffer), most)
	}
	if err == nil {
		err = json.Unmarshal(buffer[:n], v)
	}
	if err != nil {
		return nil, errors.Join(err, Close(files))
	}
	return files, nil
}

// filesOf returns the descriptors in control messages. Package net has set close-on-exec.
func filesOf(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	for i := range messages {
		fds, parseErr := unix.ParseUnixRights(&messages[i])
		err = errors.Join(err, parseErr)
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, err
}

// Close closes files.
func Close(files []*os.File) error {
	var errs []error
	for _, file := range files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
