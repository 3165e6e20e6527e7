package filter

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

type kind int

const (
	end kind = iota
	word
	escaped // \tcp: a name that is not a keyword here
	number
	ipv4 // also with fewer than four octets
	ipv6
	mac
	operator
)

type token struct {
	kind   kind
	text   string
	column int
	number uint32
	octets int // of ipv4, 1 to 4
	addr   netip.Addr
	mac    net.HardwareAddr
}

// operators are the operators, longer ones first.
var operators = []string{"&&", "||", "<<", ">>", "==", "!=", ">=", "<=", "(", ")", "[", "]", ":", "/", "&",
	"|", "^", "=", ">", "<", "+", "-", "*", "%", "!"}

func lex(text string) ([]token, error) {
	var tokens []token
	for at := 0; at < len(text); {
		if strings.IndexByte(" \t\n\r", text[at]) >= 0 {
			at++
			continue
		}
		t, problem := next(text[at:])
		t.column = at + 1
		if problem != "" {
			return nil, &Error{Expression: text, Column: at + 1, Problem: problem}
		}
		at += len(t.text)
		tokens = append(tokens, t)
	}
	return append(tokens, token{kind: end, text: "the end", column: len(text) + 1}), nil
}

func next(text string) (t token, problem string) {
	if t, ok := address(text); ok {
		return t, ""
	}
	switch c := text[0]; {
	case c == '\\':
		name := run(text[1:], isWord)
		if name == "" {
			return t, "a backslash without a name"
		}
		return token{kind: escaped, text: text[:1+len(name)]}, ""
	case c >= '0' && c <= '9':
		digits := run(text, isWord)
		if dash := strings.IndexByte(digits, '-'); dash >= 0 {
			digits = digits[:dash] // 80-90 is a range
		}
		value, err := strconv.ParseUint(digits, 0, 32)
		if err != nil || strings.Contains(digits, "_") {
			return t, "number " + strconv.Quote(digits) + " is not decimal, octal or hexadecimal of 32 bits"
		}
		return token{kind: number, text: digits, number: uint32(value)}, ""
	case c != '-' && isWord(c):
		return token{kind: word, text: run(text, isWord)}, ""
	}
	for _, op := range operators {
		if strings.HasPrefix(text, op) {
			return token{kind: operator, text: op}, ""
		}
	}
	return t, "character " + strconv.QuoteToASCII(text[:1]) + " is not of the language"
}

// address reads a MAC, IPv6 or IPv4 address. A text such as 0:2, an index with a size, is not an
// address.
func address(text string) (token, bool) {
	digits := run(text, func(c byte) bool {
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' || c == ':' || c == '.'
	})
	if rest := text[len(digits):]; rest != "" && isWord(rest[0]) && rest[0] != '-' {
		return token{}, false
	}
	if strings.Count(digits, ":") == 5 {
		if hardware, err := net.ParseMAC(digits); err == nil && len(hardware) == 6 {
			return token{kind: mac, text: digits, mac: hardware}, true
		}
	}
	if strings.Contains(digits, ":") {
		if addr, err := netip.ParseAddr(digits); err == nil && addr.Is6() {
			return token{kind: ipv6, text: digits, addr: addr}, true
		}
		return token{}, false
	}
	octets := strings.Count(digits, ".") + 1
	if octets == 1 || octets > 4 {
		return token{}, false
	}
	addr, err := netip.ParseAddr(digits + strings.Repeat(".0", 4-octets))
	return token{kind: ipv4, text: digits, addr: addr, octets: octets}, err == nil
}

// isWord accepts all characters of host names, so that a host name is refused as a whole.
func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '-' ||
		c == '.'
}

func run(text string, in func(byte) bool) string {
	for i := range len(text) {
		if !in(text[i]) {
			return text[:i]
		}
	}
	return text
}
