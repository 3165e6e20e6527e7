package arbiter

import (
	"crypto/rand"
	"encoding/binary"

	"railbed/transports/rd/privacy"
)

// channel is one end of the communication between a host and the arbiter. With a secret, both ends
// seal their messages and accept no others: neither forged, nor changed, nor replayed ones. Without
// a secret, messages are plain.
//
// Each end draws a number for its life. Keys depend on the sender's life. Keys of the arbiter's
// messages also depend on the host's life, because a grant is for one life of one host. The first
// authentic life that arrives remains the other end's. An end that restarts needs a new arbiter, as
// a restarted job has.
type channel struct {
	secret  *privacy.Secret
	own     uint64
	peer    uint64 // 0 until an authentic message arrived
	out, in *privacy.Box
	sealed  []byte // memory of seal
}

// lifeLen is the length in bytes of the life in a sealed message, between its head and the Box's
// bytes.
const lifeLen = 8

// keyPurpose separates an arbiter's keys from packet keys.
const keyPurpose = "arbiter"

// newChannel makes the end of a host, or the arbiter's end towards a host. The secret may be nil.
func newChannel(secret *privacy.Secret, own uint64) *channel {
	return &channel{secret: secret, own: own}
}

// newLife draws a life, which is not 0.
func newLife() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:]) | 1
}

// key returns the direction of a kind of message between two lives. The receiver's life is 0 in a
// request: a host has no record of the arbiter's life before its first request.
func key(kind uint8, from, to uint64) privacy.Direction {
	if kind == typeRequest {
		to = 0
	}
	return privacy.Direction{From: from, To: to, Source: kind}
}

// seal returns the bytes to send for a message, valid until the next call. It returns nil if
// nothing may be sent.
func (c *channel) seal(m []byte) []byte {
	if c.secret == nil {
		return m
	}
	if c.out == nil {
		c.out = c.secret.Box(keyPurpose, key(m[5], c.own, c.peer))
	}
	head := append(c.sealed[:0], m[:headLen]...)
	head[4] = sealedVersion
	b, err := c.out.Seal(binary.BigEndian.AppendUint64(head, c.own), m[headLen:])
	if err != nil {
		return nil
	}
	c.sealed = b
	return b
}

// open returns the message in the received bytes b, which it changes. It returns false if the
// message is not authentic.
func (c *channel) open(b []byte) ([]byte, bool) {
	if c.secret == nil {
		return b, true
	}
	if len(b) < headLen+lifeLen+privacy.BoxLen || binary.BigEndian.Uint32(b) != magic ||
		b[4] != sealedVersion {
		return nil, false
	}
	life, in := binary.BigEndian.Uint64(b[headLen:]), c.in
	if life == 0 || c.peer != 0 && life != c.peer {
		return nil, false
	}
	if in == nil {
		in = c.secret.Box(keyPurpose, key(b[5], life, c.own))
	}
	body, outcome := in.Open(b, headLen+lifeLen)
	if outcome != privacy.Opened {
		return nil, false
	}
	c.peer, c.in = life, in
	b[4] = version
	return append(b[:headLen], body...), true
}
