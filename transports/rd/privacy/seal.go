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

// Limits bound how long a key is used. The zero value is the document's.
type Limits struct {
	// Packets are sealed by a key before the next one is used, if the peer is known
	// to have this one. Default 2^22.
	Packets uint64
	// Age is how old a key gets before the next is used, likewise. Default 10 min.
	Age time.Duration
	// Overlap is how long packets of the epoch before are still opened. Default 1 s.
	Overlap time.Duration
	// Most is packets that are sealed by one key at all. Default 2^32.
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

// ErrUsedUp says that a peer took none of so many packets that its keys may not
// seal more.
var ErrUsedUp = errors.New("its keys are used up")

// cryptor is AES-GCM by one key.
type cryptor struct {
	aead  cipher.AEAD
	iv    [nonceLen]byte
	nonce [nonceLen]byte // on the heap once, not for each packet
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

// at is the nonce of a counter: the IV with the counter added bit by bit to its
// end, as in TLS 1.3 (RFC 8446, 5.3).
func (c *cryptor) at(counter uint64) []byte {
	c.nonce = c.iv
	tail := c.nonce[nonceLen-8:]
	binary.BigEndian.PutUint64(tail, binary.BigEndian.Uint64(tail)^counter)
	return c.nonce[:]
}

// Sealer encrypts what goes in one direction.
type Sealer struct {
	secret    *Secret
	direction Direction
	limits    Limits
	crypt     cryptor
	epoch     uint16
	counter   uint64     // of the next packet
	began     clock.Time // when the first packet of the epoch was sealed
	confirmed bool       // the peer had one of them
}

// NewSealer makes the sealer of a direction. There must be no two of one in a
// life: they would use a nonce twice.
func NewSealer(s *Secret, d Direction, l Limits) *Sealer {
	return &Sealer{secret: s, direction: d, limits: l.withDefaults(), crypt: newCryptor(s.Key(d, 0))}
}

// Epoch is that of the next packet, unless its key is due.
func (s *Sealer) Epoch() uint16 { return s.epoch }

// Confirm takes what the peer says that it has heard.
func (s *Sealer) Confirm(heard uint8) {
	if heard == uint8(s.epoch) {
		s.confirmed = true
	}
}

// Seal encrypts a plain datagram, of which header and payload are given apart, into
// memory that must have room for it and wire.RDSealedLen bytes, and must not
// overlap. With readable, the header is only authenticated. Heard is of the
// Opener of the other direction.
func (s *Sealer) Seal(memory []byte, header, payload []byte, readable bool, heard uint8,
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
		return nil, ErrUsedUp
	}
	f := wire.RDSecurity{Heard: heard, Epoch: s.epoch, Counter: s.counter}
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
