package arbiter

import (
	"crypto/rand"
	"encoding/binary"

	"railbed/transports/rd/privacy"
)

// channel is one end of what a host and the arbiter say to each other. With a secret,
// both ends seal what they send and take nothing else: neither forged messages, nor
// changed ones, nor any a second time. Without one, messages are plain.
//
// Each end draws a number for its life. Keys are of the sender's life and, what the
// arbiter sends, of the host's, too: a grant is for one life of one host. The first
// authentic life that is heard stays the other end's; an end that starts again needs
// another arbiter, as a job that starts again has.
type channel struct {
	secret  *privacy.Secret
	own     uint64
	peer    uint64 // 0 until something authentic came
	out, in *privacy.Box
	sealed  []byte // memory
}

// lifeLen is what a sealed message has behind its head, before what a Box adds.
const lifeLen = 8

// keyPurpose tells an arbiter's keys from those of packets.
const keyPurpose = "arbiter"

// newChannel makes the end of a host, or of the arbiter towards one. The secret may be
// nil.
func newChannel(secret *privacy.Secret, own uint64) *channel {
	return &channel{secret: secret, own: own}
}

// newLife is not 0.
func newLife() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:]) | 1
}

// key is the direction of a kind of message between two lives. A host does not know the
// arbiter's before it has asked.
func key(kind uint8, from, to uint64) privacy.Direction {
	if kind == typeRequest {
		to = 0
	}
	return privacy.Direction{From: from, To: to, Source: kind}
}

// seal is what travels of a message, good until the next call; nil is that nothing may.
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

// open is the message of what came, which it changes; false is that nobody who may
// says so.
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
