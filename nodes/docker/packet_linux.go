package docker

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"railbed/internal/descriptors"
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
	p.mu.Lock()
	defer p.mu.Unlock()
	return descriptors.Send(p.conn, json.RawMessage(text), files...)
}

// receive receives a message. When the other side has ended, the error is io.EOF.
func (p *packets) receive(v any) (files []*os.File, err error) {
	return descriptors.Receive(p.conn, v, p.buffer, mostDescriptors)
}

func (p *packets) close() error { return p.conn.Close() }

func closeAll(files []*os.File) {
	for _, file := range files {
		if file != nil {
			file.Close()
		}
	}
}
