// Package frame implements the framing of Railbed's control streams. These are the exec and shell
// connections to the supervisor, and the channel between a worker and the process that started it.
// One frame is a type byte, a 4-byte big-endian length and the payload. So the same bytes travel
// over a Unix socket, an inherited descriptor, `docker exec -i` or a serial port.
package frame

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
)

// MaxPayload is the largest payload of a frame, in bytes. A peer that announces more is broken. The
// largest frame is a plan: some 60 MB for 4,096 nodes in a fat-tree.
const MaxPayload = 128 << 20

const headerLen = 5

// Type specifies the contents of a frame. Values below 64 belong to the supervisor's exec
// connections; a worker's channel may give the other values any meaning.
type Type byte

// Frames of an exec or shell connection.
const (
	Stdin      Type = 1  // Client to process; empty closes it. At most StdinAhead are unacknowledged.
	Stdout     Type = 2  // Process to client.
	Stderr     Type = 3  // Process to client.
	WindowSize Type = 4  // Client to terminal: {"rows":24,"cols":80}.
	Signal     Type = 5  // Client to process: {"signal":15}.
	Exit       Type = 6  // Last frame to the client: {"code":0,"signal":0}.
	Channel    Type = 7  // Both directions: bytes of the process's descriptor 3; empty closes it.
	Failure    Type = 8  // Last frame to the client: {"error":"..."}; nothing was started.
	Started    Type = 9  // First frame to the client: {"pid":7}.
	StdinTaken Type = 10 // To the client: one Stdin frame was passed on.
	// ChannelTaken is sent to the process: the client has read one Channel frame. At most
	// ChannelAhead frames may be unread.
	ChannelTaken Type = 11
	Message      Type = 64 // a worker's JSON message
)

// StdinAhead is the number of Stdin frames that a client may have in flight. If the command does
// not read, memory stays bounded, and a signal or the client's end is not stuck behind unread
// input.
const StdinAhead = 8

// ChannelAhead is the number of Channel frames to a client that may be in flight or unread there. A
// process whose messages are not read then waits, and neither side needs more memory. Bytes still
// buffered at the process's end come on top.
const ChannelAhead = 16

// Writer writes frames. It is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
	// buf joins header and payload so that a frame is one write.
	buf []byte
}

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes one frame.
func (f *Writer) Write(t Type, payload []byte) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("write frame type %d: payload of %d bytes, limit %d", t, len(payload), MaxPayload)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = append(f.buf[:0], byte(t))
	f.buf = binary.BigEndian.AppendUint32(f.buf, uint32(len(payload)))
	f.buf = append(f.buf, payload...)
	if _, err := f.w.Write(f.buf); err != nil {
		return fmt.Errorf("write frame type %d: %w", t, err)
	}
	return nil
}

// WriteJSON writes v as the JSON payload of one frame.
func (f *Writer) WriteJSON(t Type, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write frame type %d: %w", t, err)
	}
	return f.Write(t, payload)
}

// Reader reads frames. It is not safe for concurrent use.
type Reader struct {
	r      io.Reader
	header [headerLen]byte
	buf    []byte
}

// NewReader returns a Reader on r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Read reads one frame. The payload is valid until the next Read. It returns io.EOF if the stream
// ends between frames, and io.ErrUnexpectedEOF if it ends within a frame.
func (f *Reader) Read() (Type, []byte, error) {
	if _, err := io.ReadFull(f.r, f.header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(f.header[1:])
	if length > MaxPayload {
		return 0, nil, fmt.Errorf("read frame type %d: payload of %d bytes, limit %d", f.header[0], length,
			MaxPayload)
	}
	if err := f.payload(int(length)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, fmt.Errorf("read frame type %d: %w", f.header[0], err)
	}
	return Type(f.header[0]), f.buf, nil
}

// firstPayload is the number of bytes of a payload allocated before any of it arrives.
const firstPayload = 64 << 10

// payload reads length bytes into buf. The length is only the peer's announcement, so buf at most
// doubles as bytes arrive.
func (f *Reader) payload(length int) error {
	f.buf = f.buf[:0]
	for len(f.buf) < length {
		have := len(f.buf)
		next := min(length, max(cap(f.buf), 2*have, firstPayload))
		f.buf = slices.Grow(f.buf, next-have)[:next]
		if _, err := io.ReadFull(f.r, f.buf[have:]); err != nil {
			return err
		}
	}
	return nil
}
