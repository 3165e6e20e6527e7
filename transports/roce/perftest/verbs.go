package perftest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"railbed/internal/infiniband"
	"railbed/transports/roce"
	"railbed/transports/roce/queuepair"
)

// verbs carries a dialogue over a queue pair that rdma_cm connects, as perftest's -z does: each
// message is a SEND.
type verbs struct {
	*roce.QueuePair
	deadline time.Time
	buffers  [2][verbsLen]byte
	came     [][]byte // not read yet
}

// verbsLen exceeds any message of the dialogue, of which there is one at a time.
const verbsLen = 256

// newVerbs makes a queue pair that is not connected yet.
func newVerbs(d *roce.Device) (*verbs, error) {
	q, err := d.NewQueuePair(queuepair.Config{}, nil)
	if err != nil {
		return nil, err
	}
	v := &verbs{QueuePair: q}
	for i := range v.buffers {
		if err := v.PostReceive(uint64(i), v.buffers[i][:]); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// SetDeadline bounds waits that begin from now on. The zero time sets no bound.
func (v *verbs) SetDeadline(at time.Time) error {
	v.deadline = at
	return nil
}

// Write sends a message, and returns when the other end has received it.
func (v *verbs) Write(b []byte) (int, error) {
	if _, err := v.Post(queuepair.Request{Op: queuepair.Send, Local: [][]byte{b}}); err != nil {
		return 0, err
	}
	for {
		if sent, err := v.reap(); sent || err != nil {
			return len(b), err
		}
	}
}

// Read returns the next message, which must have the length of b.
func (v *verbs) Read(b []byte) (int, error) {
	for len(v.came) == 0 {
		if _, err := v.reap(); err != nil {
			return 0, err
		}
	}
	one := v.came[0]
	v.came = v.came[1:]
	if len(one) != len(b) {
		return 0, fmt.Errorf("%w: %d bytes, want %d", errPeer, len(one), len(b))
	}
	return copy(b, one), nil
}

// reap takes one completion, and reports whether a sent message completed.
func (v *verbs) reap() (sent bool, err error) {
	ctx := context.Background()
	if !v.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, v.deadline)
		defer cancel()
	}
	var one [1]roce.Completion
	if err := v.Completions().Wait(ctx); err != nil {
		return false, err
	}
	v.Completions().Poll(one[:])
	c := one[0]
	switch {
	case c.Err != nil:
		return false, errors.Join(c.Err, v.Err())
	case c.Op != queuepair.Receive:
		return true, nil
	}
	buffer := v.buffers[c.ID][:]
	v.came = append(v.came, bytes.Clone(buffer[:c.Bytes]))
	v.PostReceive(c.ID, buffer) // if the peer has left since, the other receive's completion reports it
	return false, nil
}

// Keys over a queue pair are perftest's struct pingpong_dest with the layout of 64-bit machines.
// Its numbers are big-endian.
const (
	structLID   = 0
	structReads = 4
	structQPN   = 8
	structPSN   = 12
	structRKey  = 16
	structVAddr = 24
	structGID   = 32
	structSRQN  = 48
	// structLen is the length in bytes of the structure of keys. The last four bytes are the index
	// of the GID.
	structLen = 56
)

// encodeStruct writes the keys as a structure.
func (k *Keys) encodeStruct() []byte {
	b := make([]byte, structLen)
	binary.BigEndian.PutUint32(b[structLID:], uint32(k.LID))
	binary.BigEndian.PutUint32(b[structReads:], uint32(k.Reads))
	binary.BigEndian.PutUint32(b[structQPN:], uint32(k.QPN))
	binary.BigEndian.PutUint32(b[structPSN:], uint32(k.PSN))
	binary.BigEndian.PutUint32(b[structRKey:], k.RKey)
	binary.BigEndian.PutUint64(b[structVAddr:], k.VAddr)
	binary.BigEndian.PutUint32(b[structSRQN:], k.SRQN)
	gid := k.GID.As16()
	copy(b[structGID:], gid[:])
	return b
}

// decodeStruct reads keys from a structure.
func decodeStruct(b []byte) (k Keys, err error) {
	if len(b) != structLen {
		return k, fmt.Errorf("%w: keys of %d bytes, want %d", errPeer, len(b), structLen)
	}
	number := func(at int, most uint32) uint32 {
		n := binary.BigEndian.Uint32(b[at:])
		if n > most && err == nil {
			err = fmt.Errorf("%w: keys: %#x at byte %d, want at most %#x", errPeer, n, at, most)
		}
		return n
	}
	k.LID, k.Reads = uint16(number(structLID, 0xFFFF)), uint16(number(structReads, 0xFFFF))
	k.QPN, k.PSN = infiniband.QPN(number(structQPN, uint32(infiniband.MaxQPN))),
		infiniband.PSN(number(structPSN, uint32(infiniband.MaxPSN)))
	k.RKey, k.VAddr, k.SRQN = binary.BigEndian.Uint32(b[structRKey:]),
		binary.BigEndian.Uint64(b[structVAddr:]), binary.BigEndian.Uint32(b[structSRQN:])
	k.GID = netip.AddrFrom16([16]byte(b[structGID:])).Unmap()
	return k, err
}
