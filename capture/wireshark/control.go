package wireshark

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"

	"railbed/internal/printable"
)

// Messages of Wireshark's control pipes (developer's guide, 8.2.3.2): 'T', the length of the rest in 3
// bytes, the control's number, a command, and a payload.
const (
	controlMark   = 'T'
	controlHeader = 6

	setCommand     = 1
	addCommand     = 2
	warningCommand = 8
	statusCommand  = 6

	mostPayload = 65535
)

// controlMessage is a message of a control pipe.
type controlMessage struct {
	control, command byte
	payload          []byte
}

// readControl reads a message. It allocates no more than the pipe's longest message.
func readControl(r *bufio.Reader) (m controlMessage, err error) {
	var head [controlHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return m, err
	}
	length := int(head[1])<<16 | int(binary.BigEndian.Uint16(head[2:]))
	if head[0] != controlMark || length < 2 || length-2 > mostPayload {
		return m, fmt.Errorf("read control message: % x is not a header", head)
	}
	m.control, m.command = head[4], head[5]
	m.payload = make([]byte, length-2)
	_, err = io.ReadFull(r, m.payload)
	return m, err
}

// encode returns the bytes of a message.
func (m controlMessage) encode() []byte {
	length := len(m.payload) + 2
	return append([]byte{controlMark, byte(length >> 16), byte(length >> 8), byte(length), m.control,
		m.command},
		m.payload...)
}

// controls connects the toolbar with a narrowing.
type controls struct {
	narrowing *narrowing

	mu  sync.Mutex
	out *os.File // nil if Wireshark reads nothing
}

// run serves the toolbar until ctx ends or Wireshark closes its pipe. The names of the testbed's taps are
// added to the selector.
func (c *controls) run(ctx context.Context, in, out string, names func() ([]string, error)) {
	if out != "" {
		file, err := openFIFO(ctx, out)
		if err == nil {
			defer file.Close()
			c.out = file
			go c.offer(names)
		}
	}
	if in == "" {
		<-ctx.Done()
		return
	}
	file, err := os.OpenFile(in, os.O_RDONLY, 0)
	if err != nil {
		return
	}
	defer file.Close()
	defer context.AfterFunc(ctx, func() { file.Close() })()
	for messages := bufio.NewReader(file); ; {
		m, err := readControl(messages)
		if err != nil {
			return
		}
		if m.command == setCommand {
			c.set(m)
		}
	}
}

// set does what the user has set in the toolbar.
func (c *controls) set(m controlMessage) {
	switch m.control {
	case tapsControl:
		c.narrowing.setTaps(string(m.payload))
	case filterControl:
		if err := c.narrowing.setFilter(string(m.payload)); err != nil {
			c.send(controlMessage{command: warningCommand,
				payload: []byte(printable.Line("Filter: " + err.Error()))})
			return
		}
		c.send(controlMessage{command: statusCommand, payload: []byte("Railbed: filter set")})
	case dropsControl:
		c.narrowing.setDrops(len(m.payload) == 1 && m.payload[0] == 1)
	}
}

// offer adds the testbed's own words to the selector of taps.
func (c *controls) offer(names func() ([]string, error)) {
	all, err := names()
	if err != nil {
		return // the selector keeps the words that every testbed has
	}
	for _, name := range ownWords(all) {
		c.send(controlMessage{control: tapsControl, command: addCommand, payload: []byte(name)})
	}
}

// send writes a message. If Wireshark reads no more, the toolbar is gone, and the message with it.
func (c *controls) send(m controlMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out != nil {
		_, _ = c.out.Write(m.encode())
	}
}
