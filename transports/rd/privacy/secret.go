// Package privacy encrypts the packets between endpoints of reliable datagrams, by
// transports/rd/PROTOCOL.md, section 10. It has keys by pair and direction, AES-GCM for each
// packet, and a window that rejects replayed packets.
//
// It has no clock and no socket. A Sealer and an Opener must be used by one goroutine at a time; a
// Secret can be shared.
package privacy

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

const (
	// SecretLen is the length of a secret in bytes.
	SecretLen = 32

	keyLen   = 32 // AES-256
	nonceLen = 12
	extract  = "railbed rd 1" // HKDF's salt
	purpose  = "packets"      // the prefix of HKDF's info
)

// Secret is shared by the endpoints that communicate. Printed by any verb, logged or encoded, it
// shows that it is a secret, but not its bytes.
type Secret struct{ root [sha256.Size]byte }

// Material holds the bytes of a secret, to pass them to an endpoint's process. JSON encodes them in
// base64. Printed or logged, it shows only that it is a secret.
type Material []byte

// Format implements fmt.Formatter. No verb shows the bytes.
func (Material) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hidden) }

// LogValue implements slog.LogValuer.
func (Material) LogValue() slog.Value { return slog.StringValue(hidden) }

// Generate returns a new random secret.
func Generate() Material {
	b := make(Material, SecretLen)
	rand.Read(b)
	return b
}

// New makes a Secret from its bytes, which it does not keep.
func New(b Material) (*Secret, error) {
	if len(b) != SecretLen {
		return nil, fmt.Errorf("take secret: %d bytes, want %d", len(b), SecretLen)
	}
	root, err := hkdf.Extract(sha256.New, b, []byte(extract))
	if err != nil {
		return nil, fmt.Errorf("take secret: %w", err)
	}
	return &Secret{root: [sha256.Size]byte(root)}, nil
}

const hidden = "(secret)"

// Format implements fmt.Formatter. No verb shows the bytes.
func (*Secret) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hidden) }

// MarshalText implements encoding.TextMarshaler, for JSON and logs.
func (*Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It always fails: the text does not have the
// secret.
func (*Secret) UnmarshalText([]byte) error {
	return errors.New("decode secret: the text of a secret does not contain its bytes")
}

// Direction identifies a sequence of packets: from one engine of an endpoint to one engine of another
// endpoint.
type Direction struct {
	From, To            uint64 // the endpoints' lives: see rd.Endpoint.Life
	Source, Destination uint8  // ports, as in a datagram's base
}

// Back returns the opposite direction.
func (d Direction) Back() Direction {
	return Direction{From: d.To, To: d.From, Source: d.Destination, Destination: d.Source}
}

// Key is the key for the packets of one direction and epoch.
type Key struct {
	AES [keyLen]byte
	IV  [nonceLen]byte
}

// Key derives the key of an epoch: HKDF-Expand (RFC 5869) with SHA-256.
func (s *Secret) Key(d Direction, epoch uint16) Key { return s.derive(purpose, d, epoch) }

// derive is Key for a purpose, which separates keys of different uses.
func (s *Secret) derive(purpose string, d Direction, epoch uint16) Key {
	info := make([]byte, 0, 32)
	info = append(info, purpose...)
	info = binary.BigEndian.AppendUint64(info, d.From)
	info = binary.BigEndian.AppendUint64(info, d.To)
	info = append(info, d.Source, d.Destination)
	info = binary.BigEndian.AppendUint16(info, epoch)
	out, err := hkdf.Expand(sha256.New, s.root[:], string(info), keyLen+nonceLen)
	if err != nil {
		panic(err) // lengths are constants
	}
	return Key{AES: [keyLen]byte(out), IV: [nonceLen]byte(out[keyLen:])}
}
