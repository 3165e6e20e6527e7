package bpf

import (
	"fmt"
	"math"

	"github.com/cilium/ebpf/asm"
)

// assembler collects the instructions of a program. Registers of the whole program: R6 has the packet. R7, R8
// and R9 keep their values over calls of the kernel's helpers, all others do not.
type assembler struct {
	code   asm.Instructions
	labels int
	frame  int16 // bytes of the stack in use
}

// stackBytes is the size of a program's stack.
const stackBytes = 512

// packet has the packet (struct __sk_buff).
const packet = asm.R6

// reserve reserves eight bytes of the stack, and returns their place.
func (a *assembler) reserve() int16 {
	a.frame += 8
	return -a.frame
}

func (a *assembler) add(code ...asm.Instruction) { a.code = append(a.code, code...) }

// label returns a new label. Place sets it.
func (a *assembler) label(name string) string {
	a.labels++
	return fmt.Sprintf("%s%d", name, a.labels)
}

// place puts a label at the next instruction.
func (a *assembler) place(label string) {
	a.add(asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)}.WithSymbol(label)) // goto +0 does nothing
}

func (a *assembler) jump(label string) { a.add(asm.Ja.Label(label)) }

// scratch is the place of the eight bytes that load uses.
const scratch int16 = -8

// load loads up to eight bytes of the packet, from the offset in register at plus plus on, to R0 as a number
// in network order. It jumps to missing if the packet does not have all these bytes.
func (a *assembler) load(at asm.Register, plus, length int, missing string) {
	a.add(
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, scratch, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, packet),
		asm.Mov.Reg(asm.R2, at),
		asm.Add.Imm(asm.R2, int32(plus)),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, int32(scratch)+8-int32(length)),
		asm.Mov.Imm(asm.R4, int32(length)),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, missing),
		asm.LoadMem(asm.R0, asm.RFP, scratch, asm.DWord),
		asm.HostTo(asm.BE, asm.R0, asm.DWord),
	)
}

// atMost jumps to beyond unless at plus length is at most end.
func (a *assembler) atMost(at asm.Register, length int, end asm.Register, beyond string) {
	a.add(
		asm.Mov.Reg(asm.R1, at),
		asm.Add.Imm(asm.R1, int32(length)),
		asm.JGT.Reg(asm.R1, end, beyond),
	)
}

// number sets a register to a number.
func number(to asm.Register, n uint64) asm.Instruction {
	if n <= math.MaxInt32 {
		return asm.Mov.Imm(to, int32(n))
	}
	return asm.LoadImm(to, int64(n), asm.DWord)
}

// finish returns the program without the instructions that no path reaches: the kernel refuses such programs.
func (a *assembler) finish() (asm.Instructions, error) {
	if a.frame > stackBytes {
		return nil, fmt.Errorf("the filter reads too many headers: it needs %d bytes of a stack of %d",
			a.frame, stackBytes)
	}
	at, err := a.code.SymbolOffsets()
	if err != nil {
		return nil, err
	}
	reached := make([]bool, len(a.code))
	for open := []int{0}; len(open) > 0; {
		i := open[len(open)-1]
		open = open[:len(open)-1]
		if reached[i] {
			continue
		}
		reached[i] = true
		ins := a.code[i]
		if label := ins.Reference(); label != "" && ins.OpCode.JumpOp() != asm.InvalidJumpOp {
			open = append(open, at[label])
			if ins.OpCode.JumpOp() == asm.Ja {
				continue
			}
		}
		if ins.OpCode.JumpOp() != asm.Exit {
			open = append(open, i+1)
		}
	}
	var live asm.Instructions
	for i, ins := range a.code {
		if reached[i] {
			live = append(live, ins)
		}
	}
	return live, nil
}
