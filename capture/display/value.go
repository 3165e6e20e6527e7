package display

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Kind is the kind of values of a field.
type Kind uint8

// Kinds of fields.
const (
	Protocol Kind = iota // the bytes of a header and of everything in it
	Unsigned             // a number
	Boolean
	Seconds // a duration or a time, as nanoseconds
	IPv4
	IPv6
	Ethernet
	Bytes
	Text
)

var kindNames = [...]string{"a protocol", "a number", "a boolean", "a time", "an IPv4 address",
	"an IPv6 address", "an Ethernet address", "bytes", "text"}

// String returns the kind with an article, for error messages.
func (k Kind) String() string { return kindNames[k] }

func (k Kind) isNumber() bool { return k == Unsigned || k == Boolean || k == Seconds }
func (k Kind) isBytes() bool  { return !k.isNumber() }

// value is a value of a field: n for numbers, booleans and times, b for all others. For a protocol b is the
// header with everything in it, and n is the length of the header alone.
type value struct {
	n int64
	b []byte
	// cut reports whether the capture lacks bytes of a protocol, and cutHeader of its header.
	cut, cutHeader bool
}

// whole notes whether the bytes of protocols are incomplete.
func (p *Packet) whole(values []value, kind Kind) {
	for i := range values {
		if kind == Protocol && values[i].cut {
			p.unseen |= CutOff
		}
	}
}

// compare orders two values of a kind. Unsigned numbers of 64 bits compare as unsigned.
func compare(a, b *value, kind Kind) int {
	switch {
	case kind == Seconds:
		return cmp.Compare(a.n, b.n)
	case kind.isNumber():
		return cmp.Compare(uint64(a.n), uint64(b.n))
	}
	return bytes.Compare(a.b, b.b)
}

// Literal is a value in a filter.
type Literal struct {
	value
	kind Kind
	bits int // prefix length of an address, or -1
}

// Number returns the value of a number, boolean or time.
func (l *Literal) Number() uint64 { return uint64(l.n) }

// Bytes returns the value of any other kind.
func (l *Literal) Bytes() []byte { return l.b }

// Prefix returns the length of an address's prefix in bits, or -1 for a whole address.
func (l *Literal) Prefix() int { return l.bits }

// compare orders a field's value against the literal. A value in the prefix of a literal is equal to it.
func (l *Literal) compare(v *value) int {
	if l.bits < 0 {
		return compare(v, &l.value, l.kind)
	}
	whole := l.bits / 8
	if order := bytes.Compare(v.b[:whole], l.b[:whole]); order != 0 || l.bits%8 == 0 {
		return order
	}
	mask := byte(0xFF) << (8 - l.bits%8)
	return cmp.Compare(v.b[whole]&mask, l.b[whole]&mask)
}

// literal reads a value for a field.
func (p *parser) literal(of *Operand) (Literal, error) {
	t := p.take()
	l := Literal{kind: of.Kind, bits: -1}
	if t.kind != tokenWord && t.kind != tokenString {
		return l, p.wrong(t, found(t)+" where a value of "+of.Name+" belongs", of.Kind.example())
	}
	ok := false
	switch of.Kind {
	case Unsigned:
		var n uint64
		n, ok = parseNumber(t.text)
		l.n, ok = int64(n), ok && t.kind == tokenWord
		if ok {
			if err := p.fits(of, t, n); err != nil {
				return l, err
			}
		}
	case Boolean:
		l.n, ok = parseBoolean(t.text)
	case Seconds:
		l.n, ok = parseSeconds(t.text)
	case IPv4, IPv6:
		l.b, l.bits, ok = parseAddress(t.text, of.Kind)
	case Ethernet:
		l.b, ok = parseBytes(t.text)
		ok = ok && len(l.b) == 6
	case Text:
		l.b, ok = []byte(t.text), true
		if err := p.word(of, t); err != nil {
			return l, err
		}
	case Bytes, Protocol:
		if l.b, ok = []byte(t.text), true; t.kind == tokenWord {
			l.b, ok = parseBytes(t.text)
		}
	}
	if !ok {
		return l, p.wrong(t, fmt.Sprintf("%q for %s, which is %s", t.text, of.Name, of.Kind),
			of.Kind.example())
	}
	return l, nil
}

// example returns an example of a value, for error messages.
func (k Kind) example() string {
	return [...]string{"bytes such as 0a:0b", "a number such as 17 or 0x11", "true or false",
		"seconds such as 0.04, or a duration such as 40ms", "an address such as 10.0.0.1 or 10.0.0.0/24",
		"an address such as fd00::1 or fd00::/64", "an address such as 02:00:00:00:00:01",
		"bytes such as 0a:0b",
		`a string such as "drop"`}[k]
}

// parseNumber reads a number: decimal, 0x, 0b, or octal with a leading 0.
func parseNumber(text string) (uint64, bool) {
	if strings.Contains(text, "_") {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 0, 64)
	return n, err == nil
}

func parseBoolean(text string) (int64, bool) {
	switch text {
	case "true", "True", "TRUE", "1":
		return 1, true
	case "false", "False", "FALSE", "0":
		return 0, true
	}
	return 0, false
}

// parseSeconds reads seconds or a Go duration, and returns nanoseconds.
func parseSeconds(text string) (int64, bool) {
	if whole, fraction, _ := strings.Cut(text, "."); len(fraction) <= 9 {
		s, err := strconv.ParseInt(whole, 10, 33)
		ns, fractionErr := strconv.ParseUint((fraction + "000000000")[:9], 10, 31)
		if err == nil && fractionErr == nil {
			if strings.HasPrefix(whole, "-") {
				return s*1e9 - int64(ns), true
			}
			return s*1e9 + int64(ns), true
		}
	}
	d, err := time.ParseDuration(text)
	return int64(d), err == nil
}

// parseAddress reads an address, with the length of a prefix or without.
func parseAddress(text string, kind Kind) (b []byte, bits int, ok bool) {
	addr, err := netip.ParseAddr(text)
	bits = -1
	if prefix, prefixErr := netip.ParsePrefix(text); prefixErr == nil {
		addr, bits, err = prefix.Addr(), prefix.Bits(), nil
	}
	if err != nil || addr.Is4() != (kind == IPv4) || addr.Zone() != "" {
		return nil, 0, false
	}
	return addr.AsSlice(), bits, true
}

// parseBytes reads pairs of hexadecimal digits, separated by colons, dashes or dots.
func parseBytes(text string) ([]byte, bool) {
	b, err := hex.DecodeString(strings.NewReplacer(":", "", "-", "", ".", "").Replace(text))
	if err != nil || len(b) == 0 {
		return nil, false
	}
	if len(b) > 1 {
		sep := text[2]
		if sep != ':' && sep != '-' && sep != '.' || len(text) != 3*len(b)-1 {
			return nil, false
		}
		for i := 2; i < len(text); i += 3 {
			if text[i] != sep {
				return nil, false
			}
		}
	}
	return b, true
}
