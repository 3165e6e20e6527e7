package filter

import (
	"math"
	"slices"

	"golang.org/x/net/bpf"
)

// label is the position of an instruction, counted from the end of the program.
type label int

// program is built from its end, so that every jump's target is known when the jump is emitted.
type program struct {
	reversed []bpf.Instruction
}

func (p *program) push(i bpf.Instruction) label {
	p.reversed = append(p.reversed, i)
	return label(len(p.reversed) - 1)
}

func (p *program) instructions() []bpf.Instruction {
	forward := slices.Clone(p.reversed)
	slices.Reverse(forward)
	return forward
}

// near makes target reachable for a conditional jump, whose distance is one byte, by adding a long
// jump if needed. room is how many instructions may come between the long jump and the conditional
// jump.
func (p *program) near(target label, room int) label {
	if len(p.reversed)+room-1-int(target) <= math.MaxUint8 {
		return target
	}
	return p.push(bpf.Jump{Skip: uint32(len(p.reversed) - 1 - int(target))})
}

// branch appends a conditional jump to t and f, and before it the instructions that load the
// compared values.
func (p *program) branch(load []bpf.Instruction, jump func(skipTrue, skipFalse uint8) bpf.Instruction, t,
	f label) label {
	t = p.near(t, 2)
	f = p.near(f, 1)
	here := len(p.reversed)
	entry := p.push(jump(uint8(here-1-int(t)), uint8(here-1-int(f))))
	for _, instruction := range slices.Backward(load) {
		entry = p.push(instruction)
	}
	return entry
}

// node is a condition. emit appends code that jumps to t or to f, and returns the label of its
// beginning.
type node interface {
	emit(p *program, t, f label) label
}

// all holds if every part holds, tested in order. Without parts it holds.
type all []node

func (n all) emit(p *program, t, f label) label {
	for _, part := range slices.Backward(n) {
		t = part.emit(p, t, f)
	}
	return t
}

// some holds if at least one part holds.
type some []node

func (n some) emit(p *program, t, f label) label {
	for _, part := range slices.Backward(n) {
		f = part.emit(p, t, f)
	}
	return f
}

type not struct{ node }

func (n not) emit(p *program, t, f label) label { return n.node.emit(p, f, t) }

// test compares the value that load leaves in the accumulator with a constant.
type test struct {
	load  []bpf.Instruction
	op    bpf.JumpTest
	value uint32
}

func (n test) emit(p *program, t, f label) label {
	return p.branch(n.load, func(skipTrue, skipFalse uint8) bpf.Instruction {
		return bpf.JumpIf{Cond: n.op, Val: n.value, SkipTrue: skipTrue, SkipFalse: skipFalse}
	}, t, f)
}

// testX compares the accumulator with the index register.
type testX struct {
	load []bpf.Instruction
	op   bpf.JumpTest
}

func (n testX) emit(p *program, t, f label) label {
	return p.branch(n.load, func(skipTrue, skipFalse uint8) bpf.Instruction {
		return bpf.JumpIfX{Cond: n.op, SkipTrue: skipTrue, SkipFalse: skipFalse}
	}, t, f)
}
