package privacy

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"railbed/internal/wire"
)

// A key log decrypts the packets of a recording, as browsers' SSLKEYLOGFILE files do. It is text:
// lines with a secret, each followed by lines with the lives that shared it. Other lines are
// ignored.
//
//	RD_SECRET 64 hexadecimal digits
//	RD_LIFE 16 hexadecimal digits

const (
	secretLine = "RD_SECRET "
	lifeLine   = "RD_LIFE "
	// maxLives bounds the lives that are read from a log.
	maxLives = 1 << 16
	// maxKeys bounds the keys that are kept at once.
	maxKeys = 1 << 12
)

// WriteKeyLog writes a secret and the lives of the endpoints that shared it (see rd.Endpoint.Life).
// Anyone who can read the output can decrypt their packets.
func WriteKeyLog(w io.Writer, secret Material, lives []uint64) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s%s\n", secretLine, hex.EncodeToString(secret))
	for _, life := range lives {
		fmt.Fprintf(&text, "%s%016x\n", lifeLine, life)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// KeyLog decrypts packets if it has the secret and the lives of both endpoints. It is not safe for
// concurrent use.
type KeyLog struct {
	lives  map[uint32][]member // by their low half: a tag has no more
	count  int
	keys   map[logged]*cryptor
	memory []byte
}

// member is a life that shares a secret.
type member struct {
	secret *Secret
	life   uint64
}

type logged struct {
	secret *Secret
	Direction
	epoch uint16
}

// NewKeyLog makes a log without keys.
func NewKeyLog() *KeyLog {
	return &KeyLog{lives: make(map[uint32][]member), keys: make(map[logged]*cryptor)}
}

// Add adds a secret and the lives that shared it.
func (l *KeyLog) Add(secret Material, lives []uint64) error {
	s, err := New(secret)
	if err != nil {
		return err
	}
	for _, life := range lives {
		l.add(s, life)
	}
	return nil
}

func (l *KeyLog) add(s *Secret, life uint64) {
	if m := (member{s, life}); l.count < maxLives && !slices.Contains(l.lives[uint32(life)], m) {
		l.lives[uint32(life)] = append(l.lives[uint32(life)], m)
		l.count++
	}
}

// ReadKeyLog reads key logs, one after the other.
func ReadKeyLog(r io.Reader) (*KeyLog, error) {
	l := NewKeyLog()
	var secret *Secret
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if digits, is := strings.CutPrefix(line, secretLine); is {
			b, err := hex.DecodeString(digits)
			if err == nil {
				secret, err = New(b)
			}
			if err != nil {
				// the error does not show the line's content
				return nil, fmt.Errorf("read key log: line %d: want %s with %d hex digits", n,
					strings.TrimSpace(secretLine), 2*SecretLen)
			}
		}
		if digits, is := strings.CutPrefix(line, lifeLine); is {
			life, err := strconv.ParseUint(digits, 16, 64)
			if err != nil || secret == nil {
				return nil, fmt.Errorf("read key log: line %d: want %s with 16 hex digits, after %s", n,
					strings.TrimSpace(lifeLine), strings.TrimSpace(secretLine))
			}
			l.add(secret, life)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read key log: %w", err)
	}
	if l.count == 0 {
		return nil, errors.New("read key log: no keys, want a line RD_SECRET and lines RD_LIFE after it")
	}
	return l, nil
}

// Open decrypts a sealed datagram that is Valid. It returns the plain datagram with that datagram's
// Check. It returns false without the datagram's key, and if any part of it is missing or changed.
// The bytes are valid until the next call.
func (l *KeyLog) Open(b wire.RD) (wire.RD, bool) {
	if len(b) < wire.RDSealedLeast+wire.RDTagLen || b.SealedTrimmed() {
		return nil, false
	}
	f, base := b.Security(), b.Base()
	clear := wire.RDSealedLeast + 4*int(f.Readable)
	if clear+wire.RDTagLen > len(b) {
		return nil, false
	}
	for _, to := range l.lives[base.Tag] {
		if !slices.Contains(l.lives[uint32(base.Life)], member{to.secret, base.Life}) {
			continue
		}
		k := l.key(logged{to.secret, Direction{From: base.Life, To: to.life, Source: base.Source,
			Destination: base.Destination}, f.Epoch})
		l.memory = append(l.memory[:0], b...)
		m := wire.RD(l.memory)
		if _, err := k.aead.Open(m[clear:clear], k.at(f.Counter), m[clear:], m[:clear]); err != nil {
			continue
		}
		plain := m.Unseal()
		if !plain.Formed() {
			return nil, false
		}
		plain.Recheck()
		return plain, true
	}
	return nil, false
}

func (l *KeyLog) key(at logged) *cryptor {
	if k := l.keys[at]; k != nil {
		return k
	}
	if len(l.keys) == maxKeys {
		clear(l.keys) // a recording can have more keys than fit
	}
	k := newCryptor(at.secret.Key(at.Direction, at.epoch))
	l.keys[at] = &k
	return &k
}
