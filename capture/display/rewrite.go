package display

import (
	"bytes"
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"railbed/internal/nearest"
)

// Rewrite is a new value for a field of packets.
type Rewrite struct {
	part part
	// value has the length of the part, with the bits of mask in their place.
	value []byte
	mask  []byte
}

// CompileRewrite returns the change of a field at a fixed place of a header. The value is a literal of the
// field's kind, as in filters.
func CompileRewrite(field, to string) (*Rewrite, error) {
	at := slices.IndexFunc(parts, func(one part) bool { return one.name == field })
	if at < 0 {
		names := make([]string, len(parts))
		for i := range parts {
			names[i] = parts[i].name
		}
		return nil, fmt.Errorf("%q is no field at a fixed place of a header; want one such as %s", field,
			cmp.Or(nearest.Word(field, names), "ip.ttl"))
	}
	r := &Rewrite{part: parts[at]}
	mask := r.part.mask
	if mask == 0 {
		mask = ^uint64(0)
	}
	bad := fmt.Errorf("%q is no value of %s; want %s", to, field, r.part.kind.example())
	switch r.part.kind {
	case Unsigned, Boolean:
		n, ok := parseNumber(to)
		if r.part.kind == Boolean {
			var truth int64
			truth, ok = parseBoolean(to)
			n = uint64(truth)
		}
		if !ok {
			return nil, bad
		}
		most := mask & (^uint64(0) >> (64 - 8*min(r.part.length, 8)))
		if n > most>>bits.TrailingZeros64(most) {
			return nil, fmt.Errorf("%s is too large for %s; want at most %d", to, field,
				most>>bits.TrailingZeros64(most))
		}
		r.value = bigEndian(n<<bits.TrailingZeros64(most), r.part.length)
		r.mask = bigEndian(most, r.part.length)
	case IPv4, IPv6:
		b, prefix, ok := parseAddress(to, r.part.kind)
		if !ok || prefix >= 0 {
			return nil, bad
		}
		r.value, r.mask = b, bytes.Repeat([]byte{0xFF}, len(b))
	default:
		b, ok := parseBytes(to)
		if !ok || len(b) != r.part.length {
			return nil, bad
		}
		r.value, r.mask = b, bytes.Repeat([]byte{0xFF}, len(b))
	}
	return r, nil
}

// bigEndian returns the low bytes of a number.
func bigEndian(n uint64, length int) []byte {
	b := make([]byte, length)
	for i := range b {
		b[length-1-i] = byte(n >> (8 * i))
	}
	return b
}

// Changes reports whether the packet has the field, with another value.
func (r *Rewrite) Changes(p *Packet) bool {
	field := r.of(p)
	for i := range field {
		if field[i]&r.mask[i] != r.value[i] {
			return true
		}
	}
	return false
}

// Apply writes the value into the outermost header of a packet that has the field.
func (r *Rewrite) Apply(p *Packet) {
	for i, field := 0, r.of(p); i < len(field); i++ {
		field[i] = field[i]&^r.mask[i] | r.value[i]
	}
}

// of returns the bytes of the field, or nothing.
func (r *Rewrite) of(p *Packet) []byte {
	for _, l := range p.layers {
		from := l.At + r.part.at
		if l.Header == r.part.layer && from+r.part.length <= min(l.End, len(p.Raw.Data)) {
			return p.Raw.Data[from : from+r.part.length]
		}
	}
	return nil
}
