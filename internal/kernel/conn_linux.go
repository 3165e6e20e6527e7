package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Conn is a netlink socket. It stays in the namespace in which it was opened, whichever thread uses
// it later. It is not safe for concurrent use.
type Conn struct {
	fd   int
	seq  uint32
	recv *[receiveBytes]byte
}

// Limits of one system call. The kernel refuses a message longer than the socket's send buffer,
// 212,992 bytes by default, which a user namespace has no right to raise. Errors come back one
// message each and must fit into the receive buffer, about 160 of them.
const (
	chunkBytes    = 32 << 10
	chunkMessages = 128
)

// receiveBytes is the size of the receive buffer. The kernel fills dump messages up to 32 KiB if
// the reader's buffer is large enough.
const receiveBytes = 64 << 10

// receiveBuffers holds the buffers of closed connections. A connection is opened for each visit to
// a namespace, so that there need not be a descriptor for each namespace.
var receiveBuffers = sync.Pool{New: func() any { return new([receiveBytes]byte) }}

// dumpAttempts limits the repetitions of a dump that was interrupted by a change, according to the
// kernel. Each repetition may succeed. Changes by other programs are rare: a namespace of ours has
// one owner.
const dumpAttempts = 50

// Open opens a rtnetlink socket in the calling thread's network namespace.
func Open() (*Conn, error) { return openNetlink(unix.NETLINK_ROUTE) }

func openNetlink(protocol int) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	// The first two options are optional; kernels before 4.12 and 4.20 lack them. They add the
	// kernel's text to an error, and leave the copy of the request out of it. The third option
	// makes dumps filter by the fields of the request.
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK, unix.NETLINK_GET_STRICT_CHK} {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, option, 1); err != nil &&
			!errors.Is(err, unix.ENOPROTOOPT) {
			return nil, errors.Join(fmt.Errorf("set netlink socket option %d: %w", option, err),
				unix.Close(fd))
		}
	}
	return &Conn{fd: fd, recv: receiveBuffers.Get().(*[receiveBytes]byte)}, nil
}

// OpenIn opens a rtnetlink socket in a namespace.
func OpenIn(ns *Namespace) (conn *Conn, err error) {
	err = ns.Do(func() error {
		conn, err = Open()
		return err
	})
	return conn, err
}

// Close closes the socket. A second Close does nothing.
func (c *Conn) Close() error {
	if c.fd < 0 {
		return nil
	}
	receiveBuffers.Put(c.recv)
	fd := c.fd
	c.fd, c.recv = -1, nil
	return unix.Close(fd)
}

// RequestError is one request that the kernel refused.
type RequestError struct {
	Line   string // the ip or tc line that equals the request
	Errno  unix.Errno
	Detail string // the kernel's error text, if any
}

// Error implements error.
func (e *RequestError) Error() string {
	text := fmt.Sprintf("apply %q: %v", e.Line, e.Errno)
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	return text
}

// Unwrap returns the errno.
func (e *RequestError) Unwrap() error { return e.Errno }

// Do sends the batch and returns when the kernel has processed all of it. A request that fails does
// not stop those after it. Do joins all failures, each a RequestError.
func (c *Conn) Do(b *Batch) error {
	var failed []error
	for first := 0; first < len(b.starts); {
		last := first + 1
		for last < len(b.starts) && last-first < chunkMessages &&
			b.endOf(last)-b.starts[first] <= chunkBytes {
			last++
		}
		errs, err := c.doChunk(b, first, last)
		failed = append(failed, errs...)
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		first = last
	}
	return errors.Join(failed...)
}

func (b *Batch) endOf(i int) int {
	if i+1 < len(b.starts) {
		return b.starts[i+1]
	}
	return len(b.buf)
}

// doChunk sends requests first..last-1 in one system call. Only the last one requests an
// acknowledgement. The kernel works in order and answers the others only if they fail.
func (c *Conn) doChunk(b *Batch, first, last int) (refused []error, err error) {
	base := c.seq + 1
	for i := first; i < last; i++ {
		c.seq++
		binary.NativeEndian.PutUint32(b.buf[b.starts[i]+8:], c.seq)
		if b.trace != nil {
			b.trace(b.lines[i]())
		}
	}
	lastFlags := b.buf[b.starts[last-1]+6:]
	binary.NativeEndian.PutUint16(lastFlags, binary.NativeEndian.Uint16(lastFlags)|unix.NLM_F_ACK)
	if err := c.send(b.buf[b.starts[first]:b.endOf(last-1)]); err != nil {
		return nil, fmt.Errorf("send %d requests to %s: %w", last-first, b.node, err)
	}
	for done := false; !done; {
		err := c.receive(func(header unix.NlMsghdr, body []byte) error {
			if header.Type != unix.NLMSG_ERROR || header.Seq-base >= uint32(last-first) || len(body) < 4 {
				return nil
			}
			index := first + int(header.Seq-base)
			if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
				refused = append(refused, &RequestError{Line: b.lines[index](), Errno: unix.Errno(errno),
					Detail: extendedAck(header, body)})
			}
			done = done || index == last-1
			return nil
		})
		if err != nil {
			return refused, fmt.Errorf("read answers of %s: %w", b.node, err)
		}
	}
	return refused, nil
}

func (c *Conn) send(buf []byte) error {
	for {
		err := unix.Sendto(c.fd, buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// receive reads one datagram and passes each of its messages to each.
func (c *Conn) receive(each func(header unix.NlMsghdr, body []byte) error) error {
	n, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, _, err = unix.Recvfrom(c.fd, c.recv[:], 0)
	}
	if err != nil {
		return err
	}
	return eachMessage(c.recv[:n], each)
}

// eachMessage passes each message of a datagram to each.
func eachMessage(data []byte, each func(header unix.NlMsghdr, body []byte) error) error {
	for len(data) >= unix.SizeofNlMsghdr {
		header := unix.NlMsghdr{
			Len:   binary.NativeEndian.Uint32(data),
			Type:  binary.NativeEndian.Uint16(data[4:]),
			Flags: binary.NativeEndian.Uint16(data[6:]),
			Seq:   binary.NativeEndian.Uint32(data[8:]),
		}
		if header.Len < unix.SizeofNlMsghdr || int(header.Len) > len(data) {
			return fmt.Errorf("netlink message of length %d in %d bytes", header.Len, len(data))
		}
		if err := each(header, data[unix.SizeofNlMsghdr:header.Len]); err != nil {
			return err
		}
		data = data[min(int(header.Len+3)&^3, len(data)):]
	}
	return nil
}

// extendedAck returns the kernel's text for an error, if there is one. The attributes follow the
// errno and the request, which NETLINK_CAP_ACK truncates to its header.
func extendedAck(header unix.NlMsghdr, body []byte) string {
	const errnoAndHeader = 4 + unix.SizeofNlMsghdr
	if header.Flags&unix.NLM_F_ACK_TLVS == 0 || len(body) < errnoAndHeader {
		return ""
	}
	text := ""
	// With ExtAck but without CAP_ACK the whole request would come first; Open sets both.
	_ = eachAttr(body[errnoAndHeader:], func(kind uint16, value []byte) {
		if kind == unix.NLMSGERR_ATTR_MSG {
			text = cString(value)
		}
	})
	return text
}

// dump sends a dump request and calls each for every message of the answer. If the kernel reports
// that a change interrupted the dump, dump calls restart and starts over.
func (c *Conn) dump(what string, request *Batch, restart func(),
	each func(kind uint16, body []byte) error) error {
	for range dumpAttempts {
		restart()
		interrupted, err := c.dumpOnce(request, each)
		if err != nil {
			return fmt.Errorf("list %s: %w", what, err)
		}
		if !interrupted {
			return nil
		}
	}
	return fmt.Errorf("list %s: interrupted by changes %d times", what, dumpAttempts)
}

func (c *Conn) dumpOnce(request *Batch, each func(kind uint16, body []byte) error) (interrupted bool,
	err error) {
	c.seq++
	binary.NativeEndian.PutUint32(request.buf[8:], c.seq)
	if err := c.send(request.buf); err != nil {
		return false, err
	}
	var failed error
	for done := false; !done; {
		err := c.receive(func(header unix.NlMsghdr, body []byte) error {
			if header.Seq != c.seq {
				return nil
			}
			interrupted = interrupted || header.Flags&unix.NLM_F_DUMP_INTR != 0
			switch header.Type {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				done = true
				if errno := errnoOf(body); errno != 0 {
					failed = errno
				}
			default:
				failed = errors.Join(failed, each(header.Type, body))
			}
			return nil
		})
		if err != nil {
			return interrupted, err
		}
	}
	return interrupted, failed
}

func errnoOf(body []byte) unix.Errno {
	if len(body) < 4 {
		return 0
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
}

// eachAttr walks netlink attributes.
func eachAttr(data []byte, each func(kind uint16, value []byte)) error {
	for len(data) >= unix.SizeofRtAttr {
		length := int(binary.NativeEndian.Uint16(data))
		kind := binary.NativeEndian.Uint16(data[2:]) & nlaTypeMask
		if length < unix.SizeofRtAttr || length > len(data) {
			return fmt.Errorf("netlink attribute %d of length %d in %d bytes", kind, length, len(data))
		}
		each(kind, data[unix.SizeofRtAttr:length])
		data = data[min((length+3)&^3, len(data)):]
	}
	return nil
}

// nlaTypeMask removes NLA_F_NESTED and NLA_F_NET_BYTEORDER.
const nlaTypeMask = 0x3fff

func cString(value []byte) string { return strings.TrimRight(string(value), "\x00") }

// IgnoreMissing removes the errors of a Batch about an object to be deleted that does not exist.
func IgnoreMissing(err error) error {
	joined, many := err.(interface{ Unwrap() []error })
	if !many {
		return err
	}
	return errors.Join(slices.DeleteFunc(slices.Clone(joined.Unwrap()), func(err error) bool {
		for _, missing := range []unix.Errno{unix.ENODEV, unix.ENOENT, unix.ESRCH, unix.EADDRNOTAVAIL} {
			if errors.Is(err, missing) {
				return true
			}
		}
		return false
	})...)
}
