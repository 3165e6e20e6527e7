package privacy

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
)

// Limits bound the use of a key. The zero value stands for the defaults of PROTOCOL.md.
type Limits struct {
	// Packets is the number of packets that a key seals before the next key is used, if the peer is
	// known to have this key. Default 2^22.
	Packets uint64
	// Age is the age of a key at which the next key is used, under the same condition. Default 10
	// min.
	Age time.Duration
	// Overlap is the time for which packets of the previous epoch are still opened. Default 1 s.
	Overlap time.Duration
	// Most is the largest number of packets that one key seals. Default 2^32.
	Most uint64
}

func (l Limits) withDefaults() Limits {
	if l.Packets == 0 {
		l.Packets = 1 << 22
	}
	if l.Age == 0 {
		l.Age = 10 * time.Minute
	}
	if l.Overlap == 0 {
		l.Overlap = time.Second
	}
	if l.Most == 0 {
		l.Most = 1 << 32
	}
	return l
}

// errUsedUp means that the keys for a peer may not seal more: the peer has confirmed no packet for
// too long.
var errUsedUp = errors.New("the keys for it are used up: it confirmed no packet for too long")

// cryptor is AES-GCM with one key.
type cryptor struct {
	aead  cipher.AEAD
	iv    [nonceLen]byte
	nonce [nonceLen]byte // on the heap once rather than for each packet
}

func newCryptor(k Key) cryptor {
	block, err := aes.NewCipher(k.AES[:])
	if err != nil {
		panic(err) // the length is a constant
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return cryptor{aead: aead, iv: k.IV}
}

// at returns the nonce of a counter: the IV with the counter XORed into its end, as in TLS 1.3 (RFC
// 8446, 5.3).
func (c *cryptor) at(counter uint64) []byte {
	c.nonce = c.iv
	tail := c.nonce[nonceLen-8:]
	binary.BigEndian.PutUint64(tail, binary.BigEndian.Uint64(tail)^counter)
	return c.nonce[:]
}

// Sealer encrypts the packets of one direction.
type Sealer struct {
	secret    *Secret
	direction Direction
	limits    Limits
	crypt     cryptor
	epoch     uint16
	counter   uint64     // of the next packet
	began     clock.Time // when the first packet of the epoch was sealed
	confirmed bool       // the peer received one of them
}

// NewSealer makes the sealer of a direction. An endpoint must not have two sealers of one
// direction: they would use a nonce twice.
func NewSealer(s *Secret, d Direction, l Limits) *Sealer {
	return &Sealer{secret: s, direction: d, limits: l.withDefaults(), crypt: newCryptor(s.Key(d, 0))}
}

// Epoch is the epoch of the next packet, unless a new key is due.
func (s *Sealer) Epoch() uint16 { return s.epoch }

// Confirm processes the epoch that the peer reports as received.
func (s *Sealer) Confirm(heard uint8) {
	if heard == uint8(s.epoch) {
		s.confirmed = true
	}
}

// Seal encrypts a plain datagram, given as header and payload. Its result is in memory, which must
// have room for the datagram and wire.RDSealedLen bytes, and must not overlap it. With readable,
// the header is only authenticated. The argument confirmed is the epoch from the other direction's
// Opener.Heard.
func (s *Sealer) Seal(memory []byte, header, payload []byte, readable bool, confirmed uint8,
	now clock.Time) (wire.RD, error) {
	if s.counter == 0 {
		s.began = now
	}
	if s.confirmed && s.epoch != 1<<16-1 &&
		(s.counter >= s.limits.Packets || now.Sub(s.began) >= s.limits.Age) {
		s.epoch++
		s.crypt = newCryptor(s.secret.Key(s.direction, s.epoch))
		s.counter, s.began, s.confirmed = 0, now, false
	}
	if s.counter >= s.limits.Most {
		return nil, errUsedUp
	}
	f := wire.RDSecurity{Heard: confirmed, Epoch: s.epoch, Counter: s.counter}
	s.counter++
	if readable {
		f.Readable = uint8((len(header) - wire.RDBaseLen) / 4)
	}
	b := wire.RD(memory[:len(header)+len(payload)+wire.RDSecurityLen])
	copy(b, header[:wire.RDBaseLen])
	b.EncodeSecurity(&f)
	copy(b[wire.RDSealedLeast:], header[wire.RDBaseLen:])
	copy(b[wire.RDSecurityLen+len(header):], payload)
	clear := wire.RDSealedLeast + 4*int(f.Readable)
	s.crypt.aead.Seal(b[clear:clear], s.crypt.at(f.Counter), b[clear:], b[:clear])
	return b[:len(b)+wire.RDTagLen], nil
}
