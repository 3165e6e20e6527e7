package filter

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"
)

// qualifiers precede an id: ip src host 10.0.0.1.
type qualifiers struct {
	proto     string
	direction direction
	directed  bool   // a direction was written
	kind      string // host, net, port, portrange, proto; empty for none
}

type parser struct {
	text   string
	tokens []token
	at     int
	depth  int
	// last are the qualifiers of the previous id. An id without qualifiers uses them.
	last  qualifiers
	known bool // last is set
}

func parse(text string) (node, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{text: text, tokens: tokens}
	if p.peek().kind == end {
		return all{}, nil
	}
	tree, err := p.expression()
	if err != nil {
		return nil, err
	}
	if p.peek().kind != end {
		return nil, p.problem(`%q where "and", "or" or the end is wanted`, p.peek().text)
	}
	return tree, nil
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) following() token { return p.tokens[min(p.at+1, len(p.tokens)-1)] }

func (p *parser) problem(format string, values ...any) error {
	return &Error{Expression: p.text, Column: p.peek().column, Problem: fmt.Sprintf(format, values...)}
}

// accept consumes a word or an operator.
func (p *parser) accept(texts ...string) (string, bool) {
	t := p.peek()
	if t.kind == word || t.kind == operator {
		for _, text := range texts {
			if t.text == text {
				p.at++
				return text, true
			}
		}
	}
	return "", false
}

func (p *parser) expect(text string) error {
	if _, ok := p.accept(text); !ok {
		return p.problem("%q where %q is wanted", p.peek().text, text)
	}
	return nil
}

// expression joins terms from the left: "and" and "or" have the same precedence.
func (p *parser) expression() (node, error) {
	left, err := p.term()
	if err != nil {
		return nil, err
	}
	for {
		op, ok := p.accept("and", "&&", "or", "||")
		if !ok {
			return left, nil
		}
		right, err := p.term()
		if err != nil {
			return nil, err
		}
		if op == "and" || op == "&&" {
			left = all{left, right}
		} else {
			left = some{left, right}
		}
	}
}

func (p *parser) term() (node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.problem("nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	if _, ok := p.accept("not", "!"); ok {
		inner, err := p.term()
		return not{inner}, err
	}
	if p.startsArithmetic() {
		return p.relation()
	}
	if _, ok := p.accept("("); ok {
		return p.closing()
	}
	return p.primitive()
}

// closing parses an expression up to its closing parenthesis.
func (p *parser) closing() (node, error) {
	inner, err := p.expression()
	if err != nil {
		return nil, err
	}
	return inner, p.expect(")")
}

// primitive parses one test that is not a relation.
func (p *parser) primitive() (node, error) {
	if n, found, err := p.special(); found || err != nil {
		return n, err
	}
	t := p.peek()
	if t.kind != word {
		if !p.known {
			return nil, p.problem("%q without host, net or port before it", t.text)
		}
		return p.id(p.last)
	}
	var q qualifiers
	if name, ok := p.accept("ether", "ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6"); ok {
		q.proto = name
	}
	if err := p.direction(&q); err != nil {
		return nil, err
	}
	if name, ok := p.accept("host", "net", "portrange", "port", "proto"); ok {
		q.kind = name
	}
	if q == (qualifiers{}) {
		return nil, p.problem("%q is not known, want host, net, port, portrange, proto or a protocol such "+
			"as tcp", t.text)
	}
	if !q.directed && q.kind == "" {
		return p.protocolOnly(q.proto)
	}
	p.last, p.known = q, true
	if _, ok := p.accept("("); ok {
		return p.closing()
	}
	return p.id(q)
}

func (p *parser) direction(q *qualifiers) error {
	first, ok := p.accept("src", "dst")
	if !ok {
		return nil
	}
	q.directed = true
	q.direction = map[string]direction{"src": source, "dst": target}[first]
	joined := p.peek().text
	if second := p.following(); joined != "or" && joined != "and" && joined != "||" && joined != "&&" ||
		first != "src" || second.kind != word || second.text != "dst" {
		return nil
	}
	// "src or dst port 80", but "src 10.0.0.1 or dst ..." has an id between.
	p.at += 2
	if q.direction = either; joined == "and" || joined == "&&" {
		q.direction = both
	}
	return nil
}

// special parses the primitives that consist of words alone, or of a word and a number.
func (p *parser) special() (n node, found bool, err error) {
	proto := p.peek().text
	if p.peek().kind == word && p.following().kind == word &&
		(proto == "ether" || proto == "ip" || proto == "ip6") {
		switch p.following().text {
		case "broadcast", "multicast":
			p.at++
		default:
			return nil, false, nil
		}
	} else {
		proto = "ether"
	}
	name, ok := p.accept("broadcast", "multicast", "inbound", "outbound", "less", "greater")
	if !ok {
		return nil, false, nil
	}
	switch name {
	case "broadcast":
		if proto != "ether" {
			return nil, true, p.problem("%s broadcast needs the netmask of an interface", proto)
		}
		return etherAddress(offEtherDst, []byte{255, 255, 255, 255, 255, 255}), true, nil
	case "multicast":
		return multicast(proto), true, nil
	case "inbound", "outbound":
		return packetDirection(name == "outbound"), true, nil
	}
	size := p.peek()
	if size.kind != number {
		return nil, true, p.problem("%q where a length is wanted", size.text)
	}
	p.at++
	length := []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtLen}}
	if name == "less" { // less than or equal, by pcap-filter(7)
		return not{test{load: length, op: bpf.JumpGreaterThan, value: size.number}}, true, nil
	}
	return test{load: length, op: bpf.JumpGreaterOrEqual, value: size.number}, true, nil
}

func multicast(proto string) node {
	switch proto {
	case "ip":
		return all{etherType(typeIPv4),
			test{load: absolute(offTarget4, 1), op: bpf.JumpGreaterOrEqual, value: 0xE0}}
	case "ip6":
		return all{etherType(typeIPv6), equal(offTarget6, 1, 0xFF)}
	}
	return test{load: absolute(offEtherDst, 1), op: bpf.JumpBitsSet, value: 1}
}

var etherTypes = map[string]uint32{"ip": typeIPv4, "ip6": typeIPv6, "arp": typeARP, "rarp": typeRARP}

var protocolNumbers = map[string]uint32{
	"tcp": protoTCP, "udp": protoUDP, "sctp": protoSCTP, "icmp": protoICMP, "icmp6": protoICMPv6,
}

func (p *parser) protocolOnly(name string) (node, error) {
	if number, ok := etherTypes[name]; ok {
		return etherType(number), nil
	}
	switch name {
	case "icmp":
		return protocol4(protoICMP), nil
	case "icmp6":
		return protocol6(protoICMPv6), nil
	case "tcp", "udp", "sctp":
		return protocol(protocolNumbers[name]), nil
	}
	return nil, p.problem("%q where proto, host, src or dst is wanted after %s", p.peek().text, name)
}

// id parses the id that follows the qualifiers.
func (p *parser) id(q qualifiers) (node, error) {
	switch q.kind {
	case "port", "portrange":
		return p.ports(q)
	case "proto":
		return p.protocolNumber(q)
	case "net":
		return p.network(q)
	}
	t := p.peek()
	if q.proto == "ether" {
		if t.kind != mac {
			return nil, p.problem("%q where a MAC address is wanted", t.text)
		}
		p.at++
		return byDirection(q.direction, etherAddress(offEtherSrc, t.mac), etherAddress(offEtherDst, t.mac)),
			nil
	}
	if t.kind == ipv6 {
		return p.network(q)
	}
	if t.kind == ipv4 {
		return p.network(q)
	}
	return nil, p.problem("%q where an address is wanted", t.text)
}

// network parses an address with an optional prefix length or mask.
func (p *parser) network(q qualifiers) (node, error) {
	t := p.peek()
	octets := t.octets
	switch {
	case t.kind == number && q.kind == "net" && t.number < 256: // net 10
		octets = 1
		t.addr = netip.AddrFrom4([4]byte{byte(t.number)})
	case t.kind != ipv4 && t.kind != ipv6:
		return nil, p.problem("%q where an address is wanted", t.text)
	}
	if t.kind == ipv6 && q.proto != "" && q.proto != "ip6" ||
		t.kind != ipv6 && q.proto != "" && q.proto != "ip" && q.proto != "arp" && q.proto != "rarp" {
		return nil, p.problem("address %s is of another family than %s, want one family", t.text, q.proto)
	}
	p.at++
	if t.kind == ipv6 {
		return p.network6(q, t)
	}
	value4 := t.addr.As4()
	value, mask := binary.BigEndian.Uint32(value4[:]), uint32(0xFFFFFFFF)<<(32-8*octets)
	if q.kind == "net" {
		if _, ok := p.accept("/"); ok {
			length, err := p.prefixLength(32)
			if err != nil {
				return nil, err
			}
			mask = uint32(uint64(0xFFFFFFFF) << (32 - length))
		} else if _, ok := p.accept("mask"); ok {
			given := p.peek()
			if given.kind != ipv4 || given.octets != 4 {
				return nil, p.problem("%q where a mask is wanted", given.text)
			}
			p.at++
			bytes := given.addr.As4()
			mask = binary.BigEndian.Uint32(bytes[:])
		}
		if value&^mask != 0 {
			p.at--
			return nil, p.problem("network %s has bits outside its mask %#08x", t.text, mask)
		}
	}
	return address4(q, value, mask), nil
}

func (p *parser) network6(q qualifiers, t token) (node, error) {
	length := 128
	if _, ok := p.accept("/"); ok && q.kind == "net" {
		var err error
		if length, err = p.prefixLength(128); err != nil {
			return nil, err
		}
	} else if ok {
		return nil, p.problem("a prefix length needs net before the address")
	}
	prefix := netip.PrefixFrom(t.addr, length)
	if prefix.Masked() != prefix {
		p.at--
		return nil, p.problem("network %s has bits outside its prefix of %d", t.text, length)
	}
	return address6(q.direction, prefix), nil
}

func (p *parser) prefixLength(most uint32) (int, error) {
	t := p.peek()
	if t.kind != number || t.number > most {
		return 0, p.problem("%q where a prefix length up to %d is wanted", t.text, most)
	}
	p.at++
	return int(t.number), nil
}

func (p *parser) ports(q qualifiers) (node, error) {
	transports := []uint32{protoSCTP, protoTCP, protoUDP}
	switch q.proto {
	case "tcp", "udp", "sctp":
		transports = []uint32{protocolNumbers[q.proto]}
	case "":
	default:
		return nil, p.problem("%s has no ports", q.proto)
	}
	low, err := p.port()
	if err != nil {
		return nil, err
	}
	high := low
	if q.kind == "portrange" {
		if _, ok := p.accept("-"); ok {
			if high, err = p.port(); err != nil {
				return nil, err
			}
		}
	}
	return ports(q.direction, transports, min(low, high), max(low, high)), nil
}

func (p *parser) port() (uint32, error) {
	t := p.peek()
	if t.kind != number || t.number > 65535 {
		return 0, p.problem("%q where a port number is wanted", t.text)
	}
	p.at++
	return t.number, nil
}

// protocolNumber parses "ether proto X", "ip proto X", "ip6 proto X" and "proto X".
func (p *parser) protocolNumber(q qualifiers) (node, error) {
	t := p.peek()
	name := t.text
	if t.kind == escaped {
		name = name[1:]
	}
	numbers := protocolNumbers
	if q.proto == "ether" {
		numbers = etherTypes
	}
	value, known := numbers[name]
	if t.kind == number {
		value, known = t.number, true
	}
	if !known {
		return nil, p.problem("protocol %q is not known, want a name such as tcp, or a number", t.text)
	}
	if q.directed {
		return nil, p.problem("src or dst before a protocol, which has no direction: want none")
	}
	switch {
	case q.proto == "ether" && value < 0x600:
		return nil, p.problem("Ethernet type %#x is an 802.3 length, want 0x600 or more", value)
	case q.proto != "ether" && value > 255:
		return nil, p.problem("IP protocol %d, want 0 to 255", value)
	}
	p.at++
	switch q.proto {
	case "ether":
		return etherType(value), nil
	case "ip":
		return protocol4(value), nil
	case "ip6":
		return protocol6(value), nil
	case "":
		return protocol(value), nil
	}
	return nil, p.problem("%s proto is not known, want ether, ip or ip6 before proto", q.proto)
}
