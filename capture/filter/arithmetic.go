package filter

import (
	"math/bits"

	"golang.org/x/net/bpf"
)

// named are the named constants of pcap-filter(7).
var named = map[string]uint32{
	"tcpflags": 13, "icmptype": 0, "icmpcode": 1, "icmp6type": 0, "icmp6code": 1,
	"tcp-fin": 1, "tcp-syn": 2, "tcp-rst": 4, "tcp-push": 8, "tcp-ack": 16, "tcp-urg": 32, "tcp-ece": 64,
	"tcp-cwr":        128,
	"icmp-echoreply": 0, "icmp-unreach": 3, "icmp-sourcequench": 4, "icmp-redirect": 5, "icmp-echo": 8,
	"icmp-routeradvert": 9, "icmp-routersolicit": 10, "icmp-timxceed": 11, "icmp-paramprob": 12,
	"icmp-tstamp": 13, "icmp-tstampreply": 14, "icmp-ireq": 15, "icmp-ireqreply": 16,
	"icmp-maskreq": 17, "icmp-maskreply": 18,
	"icmp6-destinationunreach": 1, "icmp6-packettoobig": 2, "icmp6-timeexceeded": 3,
	"icmp6-parameterproblem": 4,
	"icmp6-echo":             128, "icmp6-echoreply": 129, "icmp6-routersolicit": 133,
	"icmp6-routeradvert":    134,
	"icmp6-neighborsolicit": 135, "icmp6-neighboradvert": 136,
}

// value is an arithmetic expression: a constant, or code that leaves its result in the accumulator,
// and the tests that must hold before the code may run.
type value struct {
	constant bool
	number   uint32
	code     []bpf.Instruction
	guards   all
	// slots is how many scratch cells the code uses.
	slots int
}

// maxSlots is the number of scratch cells of the machine (BPF_MEMWORDS).
const maxSlots = 16

func constant(n uint32) value { return value{constant: true, number: n} }

func (v value) load() []bpf.Instruction {
	if v.constant {
		return []bpf.Instruction{bpf.LoadConstant{Dst: bpf.RegA, Val: v.number}}
	}
	return v.code
}

// startsArithmetic reports whether a relation follows, and no other test.
func (p *parser) startsArithmetic() bool {
	t, after := p.peek(), p.following()
	switch t.kind {
	case number:
		return after.kind == operator && after.text != ")" && after.text != "&&" && after.text != "||"
	case word:
		if _, ok := named[t.text]; ok || t.text == "len" {
			return true
		}
		return after.kind == operator && after.text == "["
	case operator:
		return t.text == "-" || t.text == "(" && p.arithmeticFollows()
	}
	return false
}

// arithmeticFollows looks at the token after the matching parenthesis: (A) = 5 is a relation, (A)
// and B is not.
func (p *parser) arithmeticFollows() bool {
	depth := 0
	for i := p.at; p.tokens[i].kind != end; i++ {
		if p.tokens[i].kind != operator {
			continue
		}
		switch p.tokens[i].text {
		case "(":
			depth++
		case ")":
			depth--
		}
		if depth == 0 {
			after := p.tokens[i+1]
			switch after.text {
			case ")":
				continue // ((A)) = 5: look after the outer parenthesis
			case "&&", "||", "!", "(", "[", "]", ":":
				return false
			}
			return after.kind == operator
		}
		if depth < 0 {
			after := p.tokens[i+1]
			return after.kind == operator && after.text != "&&" && after.text != "||" && after.text != ")"
		}
	}
	return false
}

// relation parses A relop B.
func (p *parser) relation() (node, error) {
	left, err := p.binary(0)
	if err != nil {
		return nil, err
	}
	op, ok := p.accept("=", "==", "!=", ">=", "<=", ">", "<")
	if !ok {
		return nil, p.problem("%q where a comparison is wanted", p.peek().text)
	}
	right, err := p.binary(0)
	if err != nil {
		return nil, err
	}
	var compare bpf.JumpTest
	negate := false
	switch op {
	case "=", "==":
		compare = bpf.JumpEqual
	case "!=":
		compare, negate = bpf.JumpEqual, true
	case ">":
		compare = bpf.JumpGreaterThan
	case "<=":
		compare, negate = bpf.JumpGreaterThan, true
	case ">=":
		compare = bpf.JumpGreaterOrEqual
	case "<":
		compare, negate = bpf.JumpGreaterOrEqual, true
	}
	var n node = test{load: left.load(), op: compare, value: right.number}
	if !right.constant {
		load, _, err := p.operands(left, right)
		if err != nil {
			return nil, err
		}
		n = testX{load: load, op: compare}
	}
	if negate {
		n = not{n}
	}
	return append(append(append(all{}, left.guards...), right.guards...), n), nil
}

// operands emits code that computes two values into A and X.
func (p *parser) operands(left, right value) (code []bpf.Instruction, slots int, err error) {
	slot := max(left.slots, right.slots)
	if slot >= maxSlots {
		return nil, 0, p.problem("arithmetic nested more than %d deep", maxSlots)
	}
	code = append(code, right.load()...)
	code = append(code, bpf.StoreScratch{Src: bpf.RegA, N: slot})
	code = append(code, left.load()...)
	return append(code, bpf.LoadScratch{Dst: bpf.RegX, N: slot}), slot + 1, nil
}

// levels are the binary operators, those with the lowest precedence first.
var levels = [][]string{{"|"}, {"^"}, {"&"}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}}

var operations = map[string]bpf.ALUOp{
	"|": bpf.ALUOpOr, "^": bpf.ALUOpXor, "&": bpf.ALUOpAnd, "<<": bpf.ALUOpShiftLeft,
	">>": bpf.ALUOpShiftRight,
	"+":  bpf.ALUOpAdd, "-": bpf.ALUOpSub, "*": bpf.ALUOpMul, "/": bpf.ALUOpDiv, "%": bpf.ALUOpMod,
}

func (p *parser) binary(level int) (value, error) {
	if level == len(levels) {
		return p.unary()
	}
	left, err := p.binary(level + 1)
	if err != nil {
		return value{}, err
	}
	for {
		op, ok := p.accept(levels[level]...)
		if !ok {
			return left, nil
		}
		right, err := p.binary(level + 1)
		if err != nil {
			return value{}, err
		}
		if left, err = p.apply(op, left, right); err != nil {
			return value{}, err
		}
	}
}

func (p *parser) apply(op string, left, right value) (value, error) {
	if right.constant && right.number == 0 && (op == "/" || op == "%") {
		return value{}, p.problem("division by zero, want another divisor")
	}
	if right.constant && right.number > 31 && (op == "<<" || op == ">>") {
		return value{}, p.problem("shift by %d, want at most 31", right.number)
	}
	if left.constant && right.constant {
		return constant(fold(op, left.number, right.number)), nil
	}
	result := value{guards: append(append(all{}, left.guards...), right.guards...)}
	if right.constant {
		result.slots = left.slots
		result.code = append(append(result.code, left.load()...),
			bpf.ALUOpConstant{Op: operations[op], Val: right.number})
		return result, nil
	}
	code, slots, err := p.operands(left, right)
	result.slots, result.code = slots, append(code, bpf.ALUOpX{Op: operations[op]})
	return result, err
}

func fold(op string, a, b uint32) uint32 {
	switch op {
	case "|":
		return a | b
	case "^":
		return a ^ b
	case "&":
		return a & b
	case "<<":
		return a << b
	case ">>":
		return a >> b
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "/":
		return a / b
	}
	return a % b
}

func (p *parser) unary() (value, error) {
	if p.depth++; p.depth > maxDepth {
		return value{}, p.problem("nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	if _, ok := p.accept("-"); ok {
		inner, err := p.unary()
		if err != nil || inner.constant {
			return constant(-inner.number), err
		}
		inner.code = append(append([]bpf.Instruction{}, inner.code...), bpf.NegateA{})
		return inner, nil
	}
	if _, ok := p.accept("("); ok {
		inner, err := p.binary(0)
		if err != nil {
			return value{}, err
		}
		return inner, p.expect(")")
	}
	t := p.peek()
	if t.kind == number {
		p.at++
		return constant(t.number), nil
	}
	if number, ok := named[t.text]; ok && t.kind == word {
		p.at++
		return constant(number), nil
	}
	if _, ok := p.accept("len"); ok {
		return value{code: []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtLen}}}, nil
	}
	return p.field()
}

// layer gives the offset of a protocol's bytes, and the tests for its presence.
type layer struct {
	offset uint32
	// transport is set if the layer is the payload of IPv4, after a header of variable length.
	transport bool
	guards    all
}

func layerOf(name string) (layer, bool) {
	if frameType, ok := etherTypes[name]; ok {
		return layer{offset: offNetwork, guards: all{etherType(frameType)}}, true
	}
	switch name {
	case "ether":
		return layer{}, true
	case "tcp", "udp", "sctp", "icmp":
		return layer{offset: offNetwork, transport: true,
			guards: all{protocol4(protocolNumbers[name]), firstFragment()}}, true
	case "icmp6":
		return layer{offset: offPayload6, guards: all{etherType(typeIPv6), equal(offNext6, 1, protoICMPv6)}},
			true
	}
	return layer{}, false
}

// field parses proto[index] or proto[index:size].
func (p *parser) field() (value, error) {
	name := p.peek()
	from, known := layerOf(name.text)
	if !known || name.kind != word {
		return value{}, p.problem("%q where a number, len or a protocol's bytes are wanted", name.text)
	}
	p.at++
	if err := p.expect("["); err != nil {
		return value{}, err
	}
	index, err := p.binary(0)
	if err != nil {
		return value{}, err
	}
	size := uint32(1)
	if _, ok := p.accept(":"); ok {
		t := p.peek()
		if t.kind != number || t.number > 4 || bits.OnesCount32(t.number) != 1 {
			return value{}, p.problem("size %q, want 1, 2 or 4", t.text)
		}
		size = t.number
		p.at++
	}
	if err := p.expect("]"); err != nil {
		return value{}, err
	}
	return from.bytes(index, int(size)), nil
}

func (l layer) bytes(index value, size int) value {
	result := value{guards: append(append(all{}, index.guards...), l.guards...), slots: index.slots}
	switch {
	case index.constant && !l.transport:
		result.code = absolute(l.offset+index.number, size)
	case index.constant:
		result.code = []bpf.Instruction{bpf.LoadMemShift{Off: offNetwork},
			bpf.LoadIndirect{Off: l.offset + index.number, Size: size}}
	case l.transport:
		result.code = append(append(result.code, index.code...), bpf.LoadMemShift{Off: offNetwork},
			bpf.ALUOpX{Op: bpf.ALUOpAdd}, bpf.TAX{}, bpf.LoadIndirect{Off: l.offset, Size: size})
	default:
		result.code = append(append(result.code, index.code...), bpf.TAX{},
			bpf.LoadIndirect{Off: l.offset, Size: size})
	}
	return result
}
