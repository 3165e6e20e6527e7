package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// mostDescriptors is the most descriptors that a message can carry.
const mostDescriptors = 4

// packets is a socket that carries messages, each with descriptors.
type packets struct {
	conn   *net.UnixConn
	buffer []byte // of the only reader

	mu sync.Mutex // held while a message is sent
}

// newPackets wraps a connected socket. most bounds the size of received messages in bytes.
func newPackets(conn *net.UnixConn, most int) (*packets, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	err = raw.Control(func(fd uintptr) {
		// Only root may exceed wmem_max; others keep the limit.
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, maxMessage) != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, maxMessage)
		}
	})
	return &packets{conn: conn, buffer: make([]byte, most)}, err
}

// send sends a message. The descriptors stay the caller's.
func (p *packets) send(v any, files ...*os.File) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(text) > maxMessage/2 { // the kernel counts its own overhead, too
		return fmt.Errorf("message of %d bytes, want at most %d", len(text), maxMessage/2)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, file := range files {
			fds[i] = int(file.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _, err = p.conn.WriteMsgUnix(text, rights, nil)
	return err
}

// receive receives a message. When the other side has ended, the error is io.EOF.
func (p *packets) receive(v any) (files []*os.File, err error) {
	rights := make([]byte, unix.CmsgSpace(4*mostDescriptors))
	n, rightsLength, flags, _, err := p.conn.ReadMsgUnix(p.buffer, rights)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	files, err = filesOf(rights[:rightsLength])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = fmt.Errorf("message exceeds %d bytes or %d descriptors", len(p.buffer), mostDescriptors)
	}
	if err == nil {
		err = json.Unmarshal(p.buffer[:n], v)
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

func filesOf(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	for i := range messages {
		fds, parseErr := unix.ParseUnixRights(&messages[i])
		err = errors.Join(err, parseErr)
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, err
}

func (p *packets) close() error { return p.conn.Close() }

func closeAll(files []*os.File) {
	for _, file := range files {
		if file != nil {
			file.Close()
		}
	}
}
