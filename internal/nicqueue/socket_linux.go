package nicqueue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"railbed/internal/descriptors"
)

// socketName is the name of the NICs' socket in each node. An abstract name belongs to a network namespace,
// so that programs of all kinds of a node reach it, and no others.
const socketName = "@railbed-nic"

// Request asks a NIC for a pair of queues.
type Request struct {
	// NIC is the interface's name in its node.
	NIC string `json:"nic"`
	// First and Last are the UDP ports whose frames the NIC gives to the program instead of the kernel.
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
	// Key, if it matches any frames, limits the frames to those that it matches. Programs with the same ports
	// need different values of it.
	Key      Match    `json:"key"`
	Geometry Geometry `json:"geometry"`
	// Unsolicited matches the frames that need not wake the program at once.
	Unsolicited Match `json:"unsolicited"`
}

// Match matches frames by four bytes of their UDP payload, at an offset (compare the flexible bytes of
// ethtool's flow rules). A mask of 0 matches none, and payloads shorter than Least bytes do not match.
type Match struct {
	Least uint16 `json:"least,omitempty"`
	At    uint8  `json:"at,omitempty"`
	Mask  uint32 `json:"mask,omitempty"`
	Value uint32 `json:"value,omitempty"`
}

// Matches reports whether the UDP payload of a frame matches.
func (m Match) Matches(payload []byte) bool {
	return m.Mask != 0 && len(payload) >= max(int(m.At)+4, int(m.Least)) &&
		binary.BigEndian.Uint32(payload[m.At:])&m.Mask == m.Value
}

// Excludes reports whether no frame matches both m and other.
func (m Match) Excludes(other Match) bool {
	return m.Mask != 0 && m.At == other.At && m.Mask == other.Mask && m.Value != other.Value
}

// answer is the answer to a Request. The descriptors of Files come with it.
type answer struct {
	Error string `json:"error,omitempty"`
	InUse bool   `json:"in_use,omitempty"` // the error is EADDRINUSE
}

// ErrNoBypass means that the node's NICs have no queues for programs.
var ErrNoBypass = errors.New("the node's NICs offer no kernel bypass")

const (
	messageLen = 1 << 12
	filesCount = 3
)

// Listen opens the socket by which programs reach the NICs of the node in whose network namespace the calling
// thread is.
func Listen() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("offer NIC queues: open socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), socketName)
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: socketName}); err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("offer NIC queues: %w", err), file.Close())
	}
	return file, nil
}

// Open asks a NIC of the calling process's node for a pair of queues. The error is ErrNoBypass where there
// is no such NIC, and wraps EADDRINUSE if another program has one of the ports. The queues end with Close,
// or with the process.
func Open(r Request) (*Program, error) {
	p, err := open(r)
	if err != nil {
		return nil, fmt.Errorf("open queues of NIC %s: %w", r.NIC, err)
	}
	return p, nil
}

func open(r Request) (*Program, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socketName, Net: "unixpacket"})
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, ErrNoBypass
	}
	if err != nil {
		return nil, err
	}
	var a answer
	var files *Files
	err = descriptors.Send(conn, r)
	if err == nil {
		files, err = receiveAnswer(conn, &a)
	}
	switch {
	case err != nil:
	case a.InUse:
		err = fmt.Errorf("%s: %w", a.Error, unix.EADDRINUSE)
	case a.Error != "":
		err = errors.New(a.Error)
	case files == nil:
		err = errors.New("the answer has no descriptors")
	default:
		var p *Program
		if p, err = Map(files, r.Geometry); err == nil {
			p.conn = conn
			return p, files.Close()
		}
	}
	if files != nil {
		err = errors.Join(err, files.Close())
	}
	return nil, errors.Join(err, conn.Close())
}

// receiveAnswer reads an answer and its descriptors, which are none or all.
func receiveAnswer(conn *net.UnixConn, a *answer) (*Files, error) {
	all, err := descriptors.Receive(conn, a, make([]byte, messageLen), filesCount)
	if err != nil || len(all) != filesCount {
		return nil, errors.Join(err, descriptors.Close(all))
	}
	return &Files{Memory: all[0], Device: all[1], Program: all[2]}, nil
}

// Asking is the request of a program for queues, with the NICs' end of its connection.
type Asking struct {
	conn    *net.UnixConn
	Request Request
}

// Ask reads the request of a program that connected to the socket of Listen.
func Ask(conn *net.UnixConn) (*Asking, error) {
	a := &Asking{conn: conn}
	_, err := descriptors.Receive(conn, &a.Request, make([]byte, messageLen), 0)
	return a, err
}

// Grant hands the files of its queues to the program.
func (a *Asking) Grant(files *Files) error {
	return descriptors.Send(a.conn, answer{}, files.Memory, files.Device, files.Program)
}

// Refuse sends the program an error in place of queues.
func (a *Asking) Refuse(err error) error {
	return descriptors.Send(a.conn, answer{Error: err.Error(), InUse: errors.Is(err, unix.EADDRINUSE)})
}

// Wait returns when the program has closed its queues or has ended. A program has nothing more to send over
// the connection: if it does, Wait returns too, so that no flood keeps the caller busy.
func (a *Asking) Wait() {
	var text [1]byte
	_, _ = a.conn.Read(text[:])
}
