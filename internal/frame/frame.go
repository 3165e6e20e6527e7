// Package frame is the framing of Railbed's control streams: exec and shell
// connections to the supervisor, and the channel between a worker and whoever
// started it. One frame is a type byte, a 4-byte big-endian length and the
// payload, so the same bytes travel over a unix socket, an inherited
// descriptor, `docker exec -i` or a serial port.
package frame

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
)

// MaxPayload bounds one frame, in bytes; a longer one is a broken peer. The
// largest frame is a plan: some 60 MB for 4,096 nodes in a fat-tree.
const MaxPayload = 128 << 20

const headerLen = 5

// Type says what a frame carries. Values below 64 belong to the supervisor's
// exec connections; a worker's channel is free in its use of the others.
type Type byte

// Frames of an exec or shell connection.
const (
	Stdin      Type = 1  // client to process; empty closes it; at most StdinAhead not yet taken
	Stdout     Type = 2  // process to client
	Stderr     Type = 3  // process to client
	WindowSize Type = 4  // client to terminal: {"rows":24,"cols":80}
	Signal     Type = 5  // client to process: {"signal":15}
	Exit       Type = 6  // last frame to the client: {"code":0,"signal":0}
	Channel    Type = 7  // both ways: bytes of the process's descriptor 3; empty closes it
	Failure    Type = 8  // last frame to the client: {"error":"..."}; nothing was started
	Started    Type = 9  // first frame to the client: {"pid":7}
	StdinTaken Type = 10 // to the client: one Stdin frame was passed on
	// ChannelTaken is to the process: one Channel frame to the client was read;
	// at most ChannelAhead are not.
	ChannelTaken Type = 11
	Message      Type = 64 // a worker's JSON message
)

// StdinAhead is how many Stdin frames a client may have under way, so that a
// command that does not read costs bounded memory and never hides a signal or
// the client's end behind unread input.
const StdinAhead = 8

// ChannelAhead is how many Channel frames to a client may be under way or
// unread there, so that a process whose messages nobody reads waits, and costs
// neither side more memory. What is left at the process's end comes on top.
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

// Read reads one frame. The payload is valid until the next Read. At a clean
// end it returns io.EOF; an end within a frame is io.ErrUnexpectedEOF.
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

// firstPayload is how much of a payload is allocated before any of it arrives, in bytes.
const firstPayload = 64 << 10

// payload reads length bytes into buf. The length is only what the peer announces, so
// buf at most doubles with what has arrived.
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
