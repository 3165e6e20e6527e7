package perftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"railbed/internal/infiniband"
)

const (
	// version is the version that this end announces; see the package comment.
	version    = "6.27"
	oldest     = 5.70
	versionLen = 16
	// cycleBuffer is the least number of bytes of a queue pair's buffer, within which small
	// messages rotate. cacheLine is the least distance between them. The larger values of both ends
	// apply.
	cycleBuffer    = 4096
	cacheLine      = 64
	maxCycleBuffer = 1 << 20
	// keysLen is the length in bytes of encoded Keys with a GID, including the final zero byte. Keys
	// of RoCE always have a GID.
	keysLen = 108
	// patience is how long the peer may take for its next message while connections are made.
	patience = 30 * time.Second
)

// Keys describe a queue pair to the other end.
type Keys struct {
	LID   uint16
	Reads uint16 // READs and atomics that it accepts at once
	QPN   infiniband.QPN
	PSN   infiniband.PSN // of its first request
	RKey  uint32
	VAddr uint64 // of memory that the peer writes or reads
	GID   netip.Addr
	SRQN  uint32
}

// Encode writes the keys as text.
func (k *Keys) Encode() []byte {
	b := fmt.Appendf(make([]byte, 0, keysLen), "%04x:%04x:%06x:%06x:%08x:%016x:", k.LID, k.Reads,
		uint32(k.QPN), uint32(k.PSN), k.RKey, k.VAddr)
	for _, c := range k.GID.As16() {
		b = fmt.Appendf(b, "%02x:", c)
	}
	return append(fmt.Appendf(b, "%08x:", k.SRQN), 0)
}

// decodeKeys reads keys. It accepts the same text as perftest's C code: numbers of any length
// between colons.
func decodeKeys(b []byte) (k Keys, err error) {
	text, _, _ := bytes.Cut(b, []byte{0})
	if len(b) != keysLen {
		return k, fmt.Errorf("%w: keys of %d bytes, want %d", errPeer, len(b), keysLen)
	}
	fields := strings.Split(string(text), ":")
	var gid [16]byte
	if len(fields) != 6+len(gid)+2 || fields[len(fields)-1] != "" {
		return k, fmt.Errorf("%w: keys %q, want hex numbers separated by colons", errPeer, text)
	}
	number := func(i, bits int) uint64 {
		n, bad := strconv.ParseUint(fields[i], 16, 64)
		if bad == nil && bits < 64 && n>>bits != 0 {
			bad = strconv.ErrRange
		}
		if bad != nil && err == nil {
			err = fmt.Errorf("%w: keys %q: field %d is not a hex number, or too large", errPeer, text, i)
		}
		return n
	}
	k.LID, k.Reads = uint16(number(0, 16)), uint16(number(1, 16))
	k.QPN, k.PSN = infiniband.QPN(number(2, 24)), infiniband.PSN(number(3, 24))
	k.RKey, k.VAddr = uint32(number(4, 32)), number(5, 64)
	for i := range gid {
		gid[i] = byte(number(6+i, 8))
	}
	k.GID, k.SRQN = netip.AddrFrom16(gid).Unmap(), uint32(number(22, 32))
	return k, err
}

// Report is an end's measurement of one size.
type Report struct {
	Size, Iterations uint64
	// Peak and Average are in the unit of both ends, MiB/s or Gb/s. Messages is in millions a
	// second.
	Peak, Average, Messages float64
}

// carrier is the transport of a dialogue: TCP, or a queue pair.
type carrier interface {
	io.ReadWriteCloser
	SetDeadline(at time.Time) error
}

// dialogue is a connection to the other end. Each step is an exchange of messages of one length:
// the client writes and then reads, the server reads and then writes. The programs read a message
// with one call, so each message is one write.
type dialogue struct {
	conn    carrier
	binary  bool // keys are structures rather than text
	client  bool
	version float64 // of the peer
	cycle   int     // least bytes of a buffer
	line    int     // bytes between small messages
}

// exchange does one step.
func (d *dialogue) exchange(what string, mine []byte) (theirs []byte, err error) {
	theirs = make([]byte, len(mine))
	write := func() error {
		_, err := d.conn.Write(mine)
		return err
	}
	read := func() error {
		_, err := io.ReadFull(d.conn, theirs)
		return err
	}
	first, second := read, write
	if d.client {
		first, second = write, read
	}
	if err = first(); err == nil {
		err = second()
	}
	if err != nil {
		return nil, fmt.Errorf("exchange %s: %w", what, err)
	}
	return theirs, nil
}

// open exchanges versions, sizes of buffers and MTUs, and returns the MTU for both ends.
func (d *dialogue) open(mtu int) (int, error) {
	d.conn.SetDeadline(time.Now().Add(patience))
	var mine [versionLen]byte
	copy(mine[:], version)
	theirs, err := d.exchange("versions", mine[:])
	if err != nil {
		return 0, err
	}
	if d.version, err = parseVersion(theirs); err != nil {
		return 0, err
	}
	if d.cycle, err = d.number("buffer sizes", cycleBuffer); err != nil {
		return 0, err
	}
	if d.line, err = d.number("cache lines", cacheLine); err != nil {
		return 0, err
	}
	code := []byte{'0' + infiniband.MTUCode(mtu), 0}
	if theirs, err = d.exchange("MTUs", code); err != nil {
		return 0, err
	}
	if other := infiniband.MTU(theirs[0] - '0'); other > 0 { // else the programs keep their own
		mtu = min(mtu, other)
	}
	return mtu, nil
}

// parseVersion parses a version as atof does.
func parseVersion(b []byte) (float64, error) {
	text, _, _ := bytes.Cut(b, []byte{0})
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsNaN(v) {
		return 0, fmt.Errorf("%w: version %q, want a number", errPeer, text)
	}
	if v < oldest {
		return 0, fmt.Errorf("the peer is perftest %s, want %.2f or later", text, oldest)
	}
	return v, nil
}

// number exchanges an integer and returns the larger one.
func (d *dialogue) number(what string, mine int) (int, error) {
	theirs, err := d.exchange(what, binary.BigEndian.AppendUint32(nil, uint32(mine)))
	if err != nil {
		return 0, err
	}
	n := int32(binary.BigEndian.Uint32(theirs))
	if n > maxCycleBuffer {
		return 0, fmt.Errorf("%w: %s of %d bytes, limit %d", errPeer, what, n, maxCycleBuffer)
	}
	return max(mine, int(n)), nil
}

// keys exchanges the keys of a queue pair. Both ends also use it to wait for each other.
func (d *dialogue) keys(mine *Keys) (Keys, error) {
	encode, decode := mine.Encode, decodeKeys
	if d.binary {
		encode, decode = mine.encodeStruct, decodeStruct
	}
	theirs, err := d.exchange("keys", encode())
	if err != nil {
		return Keys{}, err
	}
	return decode(theirs)
}

// wait waits for the other end, without a limit.
func (d *dialogue) wait(mine *Keys) error {
	d.conn.SetDeadline(time.Time{})
	_, err := d.keys(mine)
	return err
}

// report exchanges measurements.
func (d *dialogue) report(mine Report) (theirs Report, err error) {
	d.conn.SetDeadline(time.Now().Add(patience))
	defer d.conn.SetDeadline(time.Time{})
	numbers := [...]uint64{mine.Size, mine.Iterations, math.Float64bits(mine.Peak),
		math.Float64bits(mine.Average), math.Float64bits(mine.Messages)}
	for i := range numbers {
		b, err := d.exchange("reports", binary.BigEndian.AppendUint64(nil, numbers[i]))
		if err != nil {
			return Report{}, err
		}
		numbers[i] = binary.BigEndian.Uint64(b)
	}
	return Report{numbers[0], numbers[1], math.Float64frombits(numbers[2]), math.Float64frombits(numbers[3]),
		math.Float64frombits(numbers[4])}, nil
}

// close ends the dialogue once the other end has received the last message. Over TCP it first reads
// all data: unread data would make the kernel reset the connection and drop the message. Over a
// queue pair the server sends the last message, so the client waits until the server has left.
func (d *dialogue) close() error {
	const patience = time.Second
	switch conn := d.conn.(type) {
	case *net.TCPConn:
		conn.CloseWrite()
		conn.SetDeadline(time.Now().Add(patience))
		io.Copy(io.Discard, io.LimitReader(conn, 1<<10))
	case *verbs:
		if d.client {
			select {
			case <-conn.Ended():
			case <-time.After(patience):
			}
		}
	}
	return d.conn.Close()
}
