package aggregation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// heldUp is how late a worker reads what came that was no longer waiting for it: its process was
// stopped. Up to that the host may have run somebody else, which is nobody's fault.
const heldUp = 20 * time.Millisecond

// stamp asks the kernel to say when datagrams arrive.
func stamp(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	if err = errors.Join(err, set); err != nil {
		return fmt.Errorf("have arrivals stamped: %w", err)
	}
	return nil
}

// receive reads a datagram into the buffer, and counts how long it had to wait for it. The wait
// ends when the datagram arrives, or the deadline is there, and not when the process runs again.
func (c *Client) receive(deadline time.Time) (int, error) {
	begin := time.Now()
	n, control, _, _, err := c.conn.ReadMsgUDPAddrPort(c.buffer, c.control[:])
	end := time.Now()
	ready := end
	if errors.Is(err, os.ErrDeadlineExceeded) {
		ready = deadline
	} else if at, stamped := arrival(c.control[:control]); stamped {
		ready = at
	}
	if end.Sub(ready) < heldUp {
		ready = end
	}
	c.waited += max(0, ready.Sub(begin))
	return n, err
}

// arrival is the time in the one control message that there is: the kernel's clock, 64 bits of
// seconds and of nanoseconds.
func arrival(control []byte) (time.Time, bool) {
	header, data, _, err := unix.ParseOneSocketControlMessage(control)
	if err != nil || header.Level != unix.SOL_SOCKET || header.Type != unix.SO_TIMESTAMPNS || len(data) < 16 {
		return time.Time{}, false
	}
	return time.Unix(int64(binary.NativeEndian.Uint64(data)), int64(binary.NativeEndian.Uint64(data[8:]))), true
}
