package filter

import (
	"encoding/binary"

	"golang.org/x/net/bpf"
)

// Pattern stands for all packets that have certain bytes at certain offsets, and any bytes
// elsewhere.
type Pattern struct {
	// Bytes are the packet's first bytes. A bit of them that is 0 in Known may have any value. The
	// packets are at least as long as Bytes.
	Bytes, Known []byte
}

// coversSteps bounds the instructions that Covers follows, over all paths through a program.
const coversSteps = 1 << 16

// Covers reports whether an expression accepts every packet of every pattern, or, without a
// pattern, every packet at all. It reports false if that is not certain. It treats the bytes that a
// pattern leaves open as unknown each time that the program loads them.
func Covers(expression string, patterns []Pattern) bool {
	instructions, err := compile(expression, 1)
	if err != nil {
		return false
	}
	if len(patterns) == 0 {
		patterns = []Pattern{{}}
	}
	for _, p := range patterns {
		w := walker{program: instructions, packet: p, left: coversSteps}
		if !w.takes(registers{}) {
			return false
		}
	}
	return true
}

// open is a number of which only the bits in known are known. The other bits are 0 in value.
type open struct{ value, known uint32 }

const allBits = ^uint32(0)

func fixed(v uint32) open { return open{v, allBits} }

// certain reports whether every bit is known.
func (o open) certain() bool { return o.known == allBits }

// registers is the state of the BPF machine. It is copied at each branch.
type registers struct {
	at      int
	a, x    open
	scratch [16]open
}

type walker struct {
	program []bpf.Instruction
	packet  Pattern
	left    int
}

// takes reports whether all paths from here accept the packet. Jumps only go forward, so that every
// path ends.
func (w *walker) takes(r registers) bool {
	for ; r.at < len(w.program); r.at++ {
		if w.left--; w.left < 0 {
			return false
		}
		switch i := w.program[r.at].(type) {
		case bpf.RetConstant:
			return i.Val != 0
		case bpf.RetA:
			return r.a.value != 0
		case bpf.Jump:
			r.at += int(i.Skip)
		case bpf.JumpIf:
			return w.both(r, i.Cond, fixed(i.Val), i.SkipTrue, i.SkipFalse)
		case bpf.JumpIfX:
			return w.both(r, i.Cond, r.x, i.SkipTrue, i.SkipFalse)
		default:
			if !w.step(&r, i) {
				return false
			}
		}
	}
	return false
}

// both follows the paths that a branch may take.
func (w *walker) both(r registers, cond bpf.JumpTest, against open, skipTrue, skipFalse uint8) bool {
	may, must := compare(cond, r.a, against)
	for _, way := range []struct {
		open bool
		skip uint8
	}{{may, skipTrue}, {!must, skipFalse}} {
		next := r
		next.at += 1 + int(way.skip)
		if way.open && !w.takes(next) {
			return false
		}
	}
	return true
}

// compare reports whether a condition may hold, and whether it must.
func compare(cond bpf.JumpTest, a, b open) (may, must bool) {
	both := a.known & b.known
	differ := (a.value^b.value)&both != 0
	set := a.value & b.value
	switch cond {
	case bpf.JumpEqual:
		return !differ, a.certain() && b.certain() && !differ
	case bpf.JumpNotEqual:
		return !a.certain() || !b.certain() || differ, differ
	case bpf.JumpBitsSet:
		return set != 0 || (a.value|^a.known)&(b.value|^b.known) != 0, set != 0
	case bpf.JumpBitsNotSet:
		return set == 0, (a.value|^a.known)&(b.value|^b.known) == 0
	}
	// The least and the greatest value of each side.
	a0, a1, b0, b1 := a.value, a.value|^a.known, b.value, b.value|^b.known
	switch cond {
	case bpf.JumpGreaterThan:
		return a1 > b0, a0 > b1
	case bpf.JumpLessThan:
		return a0 < b1, a1 < b0
	case bpf.JumpGreaterOrEqual:
		return a1 >= b0, a0 >= b1
	default: // bpf.JumpLessOrEqual
		return a0 <= b1, a1 <= b0
	}
}

// step executes an instruction that continues with the next one. It reports false if the machine
// may stop, as for a load beyond the packet's end.
func (w *walker) step(r *registers, i bpf.Instruction) (goesOn bool) {
	switch i := i.(type) {
	case bpf.LoadAbsolute:
		r.a, goesOn = w.load(int(i.Off), i.Size)
		return goesOn
	case bpf.LoadIndirect:
		if !r.x.certain() {
			return false // the load may be beyond the packet's end
		}
		r.a, goesOn = w.load(int(r.x.value)+int(i.Off), i.Size)
		return goesOn
	case bpf.LoadMemShift:
		var header open
		header, goesOn = w.load(int(i.Off), 1)
		r.x = open{4 * (header.value & 0xF), ^uint32(0xF*4) | 4*(header.known&0xF)}
		return goesOn
	case bpf.LoadConstant:
		if i.Dst == bpf.RegX {
			r.x = fixed(i.Val)
		} else {
			r.a = fixed(i.Val)
		}
	case bpf.LoadScratch:
		if i.Dst == bpf.RegX {
			r.x = r.scratch[i.N]
		} else {
			r.a = r.scratch[i.N]
		}
	case bpf.StoreScratch:
		if i.Src == bpf.RegX {
			r.scratch[i.N] = r.x
		} else {
			r.scratch[i.N] = r.a
		}
	case bpf.ALUOpConstant:
		r.a, goesOn = apply(i.Op, r.a, fixed(i.Val))
		return goesOn
	case bpf.ALUOpX:
		r.a, goesOn = apply(i.Op, r.a, r.x)
		return goesOn
	case bpf.NegateA:
		if r.a, goesOn = apply(bpf.ALUOpSub, fixed(0), r.a); !goesOn {
			return false
		}
	case bpf.TAX:
		r.x = r.a
	case bpf.TXA:
		r.a = r.x
	default: // a length, or an instruction that Compile never emits
		r.a = open{}
	}
	return true
}

// load loads bytes of the packet.
func (w *walker) load(at, size int) (v open, within bool) {
	if at < 0 || at+size > len(w.packet.Bytes) {
		return open{}, false
	}
	var value, known [4]byte
	copy(value[4-size:], w.packet.Bytes[at:at+size])
	copy(known[4-size:], w.packet.Known[at:at+size])
	v = open{binary.BigEndian.Uint32(value[:]), binary.BigEndian.Uint32(known[:])}
	v.value &= v.known
	v.known |= uint32(uint64(allBits) << (8 * size)) // bits above one or two bytes are 0
	return v, true
}

// apply computes an operation. For operations that are not bitwise, the result is known only if
// both sides are. Dividing by a value that may be zero stops the machine.
func apply(op bpf.ALUOp, a, b open) (open, bool) {
	switch op {
	case bpf.ALUOpAnd:
		zeros := a.known&^a.value | b.known&^b.value
		return open{a.value & b.value, a.known&b.known | zeros}, true
	case bpf.ALUOpOr:
		ones := a.value | b.value
		return open{ones, a.known&b.known | ones}, true
	case bpf.ALUOpDiv, bpf.ALUOpMod:
		if !b.certain() || b.value == 0 {
			return open{}, false
		}
	}
	if !a.certain() || !b.certain() {
		return open{}, true
	}
	switch op {
	case bpf.ALUOpAdd:
		return fixed(a.value + b.value), true
	case bpf.ALUOpSub:
		return fixed(a.value - b.value), true
	case bpf.ALUOpMul:
		return fixed(a.value * b.value), true
	case bpf.ALUOpXor:
		return fixed(a.value ^ b.value), true
	case bpf.ALUOpShiftLeft:
		return fixed(a.value << (b.value & 31)), true
	case bpf.ALUOpShiftRight:
		return fixed(a.value >> (b.value & 31)), true
	case bpf.ALUOpDiv:
		return fixed(a.value / b.value), true
	case bpf.ALUOpMod:
		return fixed(a.value % b.value), true
	}
	return open{}, true
}

// Transport returns patterns for the packets of a protocol over IP with the ports src and dst, 0
// for any. It leaves out fragments, IPv4 packets with options and IPv6 packets with extension
// headers.
func Transport(protocol uint8, src, dst uint16) []Pattern {
	v4 := Pattern{make([]byte, offNetwork+20+8), make([]byte, offNetwork+20+8)}
	v6 := Pattern{make([]byte, offNetwork+40+8), make([]byte, offNetwork+40+8)}
	v4.set16(offEtherType, typeIPv4)
	v4.set(offNetwork, 0x45)
	v4.set(offProtocol4, protocol)
	v4.Known[offFragment], v4.Known[offFragment+1] = 0x3F, 0xFF // neither more fragments nor an offset
	v6.set16(offEtherType, typeIPv6)
	v6.set(offNext6, protocol)
	for _, p := range []struct {
		Pattern
		at int
	}{{v4, offNetwork + 20}, {v6, offNetwork + 40}} {
		if src != 0 {
			p.set16(p.at, src)
		}
		if dst != 0 {
			p.set16(p.at+2, dst)
		}
	}
	return []Pattern{v4, v6}
}

func (p Pattern) set(at int, value byte) { p.Bytes[at], p.Known[at] = value, 0xFF }

func (p Pattern) set16(at int, value uint16) {
	p.set(at, byte(value>>8))
	p.set(at+1, byte(value))
}
