package bpf

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"railbed/capture/display"
	"railbed/fabric/softswitch/draw"
	"railbed/internal/wire"
)

// Offsets of fields of struct __sk_buff (include/uapi/linux/bpf.h).
const (
	skbLen      = 0
	skbMark     = 8
	skbIfindex  = 40
	skbSegments = 164
)

// Results of a program (include/uapi/linux/pkt_cls.h).
const (
	passes = -1 // TC_ACT_UNSPEC: the next filter, if there is one
	// TC_ACT_STOLEN loses the packet without a word. TC_ACT_SHOT would tell the sending socket, and a TCP
	// connection would slow down although it has not missed an acknowledgement.
	dropped = 4
)

// copied is the mark of a copy that a program sends, by which it recognises the copy. It spells "RALB".
const copied = 0x52414c42

// Offsets of a fault's counters in its map. The lock (struct bpf_spin_lock) guards countMatched.
const (
	countLock = 8 * iota
	countMatched
	countHit
	countJoined
	countRefused
	countUnreported
	countBytes
)

// counters returns the reference to the counters of the i-th fault.
func counters(i int) string { return fmt.Sprintf("fault%d", i) }

// program generates the program of a port with faults, which act in their order. It refers to the counters of
// each fault, and to reports.
func program(faults []*Fault) (asm.Instructions, error) {
	a := &assembler{frame: -scratch}
	copies := a.reserve()
	start := a.label("start")
	a.add(
		asm.Mov.Reg(packet, asm.R1),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, copies, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, packet, skbMark, asm.Word),
		asm.JNE.Imm(asm.R1, copied, start),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(packet, skbMark, asm.R1, asm.Word),
	)
	a.exit(passes)
	a.place(start)
	used, most, last := a.frame, a.frame, 0
	duplicates := 0
	for i, f := range faults {
		a.frame = used // a fault's memory is free after it
		h := &harm{assembler: a, Fault: f, number: i, copies: copies, next: a.label("next")}
		h.generate()
		a.place(h.next)
		most = max(most, a.frame)
		if f.Duplicate != nil {
			duplicates, last = duplicates+1, i
		}
	}
	a.frame = most
	out := a.label("out")
	for n := range duplicates {
		sent := a.label("sent")
		a.add(
			asm.LoadMem(asm.R1, asm.RFP, copies, asm.DWord),
			asm.JLE.Imm(asm.R1, int32(n), out),
			asm.LoadMem(asm.R7, packet, skbMark, asm.Word),
			asm.Mov.Imm(asm.R1, copied),
			asm.StoreMem(packet, skbMark, asm.R1, asm.Word),
			asm.Mov.Reg(asm.R1, packet),
			asm.LoadMem(asm.R2, packet, skbIfindex, asm.Word),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnCloneRedirect.Call(),
			asm.StoreMem(packet, skbMark, asm.R7, asm.Word),
			asm.JEq.Imm(asm.R0, 0, sent),
		)
		a.count(last, countRefused)
		a.place(sent)
	}
	a.place(out)
	a.exit(passes)
	return a.finish()
}

func (a *assembler) exit(result int32) { a.add(asm.Mov.Imm(asm.R0, result), asm.Return()) }

// count adds 1 to a counter of the i-th fault.
func (a *assembler) count(i int, counter uint32) {
	a.add(asm.LoadMapValue(asm.R1, 0, counter).WithReference(counters(i)), asm.Mov.Imm(asm.R0, 1),
		asm.AddAtomic.Mem(asm.R1, asm.R0, asm.DWord, 0))
}

// countMatch adds 1 to the number of packets that matched the i-th fault, and leaves it in matched. It takes
// a lock in place of an atomic operation that returns the sum, which kernels have from 5.12 on.
func (a *assembler) countMatch(i int) {
	lock := a.reserve()
	a.add(
		asm.LoadMapValue(asm.R1, 0, countLock).WithReference(counters(i)),
		asm.StoreMem(asm.RFP, lock, asm.R1, asm.DWord),
		asm.FnSpinLock.Call(),
		asm.LoadMem(asm.R1, asm.RFP, lock, asm.DWord),
		asm.LoadMem(matched, asm.R1, countMatched, asm.DWord),
		asm.Add.Imm(matched, 1),
		asm.StoreMem(asm.R1, countMatched, matched, asm.DWord),
		asm.FnSpinUnlock.Call(),
	)
}

// harm generates the part of one fault.
type harm struct {
	*assembler
	*Fault
	number int // among the port's faults
	copies int16
	next   string // label of the code after the fault
	slots  map[display.Header][]int16
}

// matched has the number of the packet among those that matched, from 1.
const matched = asm.R9

func (h *harm) generate() {
	if h.Until > 0 {
		h.add(asm.FnKtimeGetNs.Call(), asm.LoadImm(asm.R1, int64(h.Until), asm.DWord),
			asm.JGE.Reg(asm.R0, asm.R1, h.next))
	}
	m := &matcher{parser: newParser(h.assembler, h.needs), left: h.reserve(), right: h.reserve()}
	h.slots = m.slots
	m.parse()
	if h.filter == nil || h.filter.Root() == nil {
		// Pauses come at times that no file knows. A filter such as macc chooses them.
		h.add(asm.JEq.Imm(next, wire.EtherTypeMACControl, h.next))
	} else {
		yes := h.label("match")
		m.expression(h.filter.Root(), yes, h.next)
		h.place(yes)
	}
	h.countMatch(h.number)
	single := h.label("single")
	h.add(
		asm.LoadMem(asm.R1, packet, skbSegments, asm.Word),
		asm.JLE.Imm(asm.R1, 1, single),
	)
	h.count(h.number, countJoined)
	h.place(single)
	h.picks()
	h.act()
}

// picks jumps to the next part unless the fault picks the packet.
func (h *harm) picks() {
	switch {
	case len(h.pick.Nth) > 0:
		picked := h.label("picked")
		h.search(h.pick.Nth, picked)
		h.place(picked)
	case h.pick.Every > 0:
		h.add(asm.Mov.Reg(asm.R1, matched), number(asm.R2, uint64(h.pick.Every)), asm.Mod.Reg(asm.R1, asm.R2),
			asm.JNE.Imm(asm.R1, 0, h.next))
	case !h.pick.Share.IsZero():
		below, always := h.chance.Below()
		if always {
			return
		}
		h.draw(draw.FaultHit)
		h.add(asm.LoadImm(asm.R1, int64(below), asm.DWord), asm.JGE.Reg(asm.R0, asm.R1, h.next))
	}
}

// search jumps to picked if the packet's number is in an ascending list, and to the next part otherwise.
func (h *harm) search(list []int, picked string) {
	middle := len(list) / 2
	h.add(number(asm.R1, uint64(list[middle])), asm.JEq.Reg(matched, asm.R1, picked))
	below, above := list[:middle], list[middle+1:]
	if len(below) == 0 && len(above) == 0 {
		h.jump(h.next)
		return
	}
	smaller := h.label("smaller")
	h.add(asm.JLT.Reg(matched, asm.R1, smaller))
	for i, part := range [][]int{above, below} {
		if i == 1 {
			h.place(smaller)
		}
		if len(part) == 0 {
			h.jump(h.next)
		} else {
			h.search(part, picked)
		}
	}
}

// draw draws a random number for the packet in R0. It is the number that a soft switch draws for a packet
// without a number in its flow (draw.Nth).
func (h *harm) draw(purpose uint64) {
	h.add(asm.Mov.Reg(asm.R0, matched), asm.LoadImm(asm.R1, golden, asm.DWord), asm.Mul.Reg(asm.R0, asm.R1),
		asm.LoadImm(asm.R1, int64(draw.Pair(h.seed, 0)), asm.DWord), asm.Add.Reg(asm.R0, asm.R1))
	h.mix()
	h.add(asm.LoadImm(asm.R1, int64(purpose*draw.Golden), asm.DWord), asm.Add.Reg(asm.R0, asm.R1))
	h.mix()
}

// The constants of package draw as the assembler takes them.
const (
	golden = draw.Golden - 1<<64
	first  = draw.First - 1<<64
	second = draw.Second - 1<<64
)

// mix is draw.Mix of R0.
func (h *harm) mix() {
	for _, step := range []struct {
		shift  int32
		factor int64
	}{{30, first}, {27, second}, {31, 1}} {
		h.add(asm.Mov.Reg(asm.R1, asm.R0), asm.RSh.Imm(asm.R1, step.shift), asm.Xor.Reg(asm.R0, asm.R1))
		if step.factor != 1 {
			h.add(asm.LoadImm(asm.R1, step.factor, asm.DWord), asm.Mul.Reg(asm.R0, asm.R1))
		}
	}
}

// act generates the action. A packet on which it has no effect is not hit.
func (h *harm) act() {
	length := func(least int32) {
		h.add(asm.LoadMem(asm.R7, packet, skbLen, asm.Word), asm.JLE.Imm(asm.R7, least, h.next))
		h.report()
	}
	switch {
	case h.Drop != nil || h.Partition != nil:
		h.report()
	case h.Duplicate != nil:
		h.report()
		h.add(asm.LoadMem(asm.R1, asm.RFP, h.copies, asm.DWord), asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.RFP, h.copies, asm.R1, asm.DWord))
	case h.Corrupt != nil && h.Corrupt.At > 0:
		length(max(wire.EthernetLen, int32(h.Corrupt.At)))
		h.add(asm.Mov.Imm(asm.R7, int32(h.Corrupt.At)), asm.Mov.Imm(asm.R8, int32(h.Corrupt.Bits)))
		h.flip()
	case h.Corrupt != nil:
		length(wire.EthernetLen)
		h.draw(draw.FaultBit)
		h.add( // draw.Within: the product of the draw and the number of bits has at most 64+22 bits
			asm.Sub.Imm(asm.R7, wire.EthernetLen),
			asm.LSh.Imm(asm.R7, 3),
			asm.Mov.Reg(asm.R1, asm.R0),
			asm.RSh.Imm(asm.R1, 32),
			asm.Mul.Reg(asm.R1, asm.R7),
			asm.LSh.Imm(asm.R0, 32),
			asm.RSh.Imm(asm.R0, 32),
			asm.Mul.Reg(asm.R0, asm.R7),
			asm.RSh.Imm(asm.R0, 32),
			asm.Add.Reg(asm.R0, asm.R1),
			asm.RSh.Imm(asm.R0, 32),
			asm.Mov.Reg(asm.R7, asm.R0),
			asm.RSh.Imm(asm.R7, 3),
			asm.Add.Imm(asm.R7, wire.EthernetLen),
			asm.And.Imm(asm.R0, 7),
			asm.Mov.Imm(asm.R8, 1),
			asm.LSh.Reg(asm.R8, asm.R0),
		)
		h.flip()
	case h.Truncate != nil:
		length(int32(h.Truncate.To))
		h.add(asm.Mov.Reg(asm.R1, packet), asm.Mov.Imm(asm.R2, int32(h.Truncate.To)), asm.Mov.Imm(asm.R3, 0),
			asm.FnSkbChangeTail.Call())
		h.unlessRefused()
	case h.Mark != nil:
		h.mark()
	}
	h.count(h.number, countHit)
	if h.Drop != nil || h.Partition != nil {
		h.exit(dropped)
	}
}

// unlessRefused counts a refusal of the kernel, which R0 reports, and jumps to the next part.
func (h *harm) unlessRefused() {
	done := h.label("done")
	h.add(asm.JEq.Imm(asm.R0, 0, done))
	h.count(h.number, countRefused)
	h.jump(h.next)
	h.place(done)
}

// flip flips the bits of R8 in the byte at R7.
func (h *harm) flip() {
	h.load(asm.R7, 0, 1, h.next)
	h.add(asm.Mov.Reg(asm.R9, asm.R0), asm.Xor.Reg(asm.R8, asm.R0), asm.Mov.Reg(asm.R0, asm.R8))
	h.store(asm.R7, 0)
	h.keepChecksum()
}

// The TCP checksum (RFC 9293, 3.1).
const (
	tcpChecksum    = 16 // its offset in the header
	checksumBytes  = 2
	ofPseudoHeader = 1 << 4 // BPF_F_PSEUDO_HDR
)

// keepChecksum keeps the TCP checksum of a packet that changed as it was before, so that it is wrong now. At
// the NIC of a node the kernel computes the checksum only later, over the changed bytes. Until then the field
// has the sum of the pseudo-header. keepChecksum subtracts the change from this sum. R7 has the offset of the
// byte that changed, R8 the byte, and R9 its former value.
func (h *harm) keepChecksum() {
	kept, low := h.label("kept"), h.label("low")
	slot := h.slots[display.TCPHeader][0]
	h.add(
		asm.LoadMem(asm.R2, asm.RFP, slot+4, asm.Word),
		asm.JEq.Imm(asm.R2, 0, kept), // no TCP
		asm.LoadMem(asm.R1, asm.RFP, slot, asm.Word),
		asm.JLT.Reg(asm.R7, asm.R1, kept),
		asm.JGE.Reg(asm.R7, asm.R2, kept),
		asm.Sub.Reg(asm.R7, asm.R1),
		asm.JEq.Imm(asm.R7, tcpChecksum, kept),
		asm.JEq.Imm(asm.R7, tcpChecksum+1, kept),
		asm.And.Imm(asm.R7, 1),
		asm.JNE.Imm(asm.R7, 0, low),
		asm.LSh.Imm(asm.R8, 8),
		asm.LSh.Imm(asm.R9, 8),
	)
	h.place(low)
	h.add(
		asm.HostTo(asm.BE, asm.R8, asm.Half),
		asm.HostTo(asm.BE, asm.R9, asm.Half),
		asm.LoadMem(asm.R7, asm.RFP, slot, asm.Word),
		asm.Add.Imm(asm.R7, tcpChecksum),
	)
	// The first call changes every checksum. The second changes back those that the kernel computes no more.
	for _, call := range []struct {
		from, to asm.Register
		flags    int32
	}{{asm.R8, asm.R9, checksumBytes | ofPseudoHeader}, {asm.R9, asm.R8, checksumBytes}} {
		h.add(
			asm.Mov.Reg(asm.R1, packet),
			asm.Mov.Reg(asm.R2, asm.R7),
			asm.Mov.Reg(asm.R3, call.from),
			asm.Mov.Reg(asm.R4, call.to),
			asm.Mov.Imm(asm.R5, call.flags),
			asm.FnL4CsumReplace.Call(),
		)
		h.unlessRefused()
	}
	h.place(kept)
}

// store stores the byte in R0 in the packet.
func (h *harm) store(at asm.Register, plus int32) {
	h.add(
		asm.StoreMem(asm.RFP, scratch, asm.R0, asm.Byte),
		asm.Mov.Reg(asm.R1, packet),
		asm.Mov.Reg(asm.R2, at),
		asm.Add.Imm(asm.R2, plus),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, int32(scratch)),
		asm.Mov.Imm(asm.R4, 1),
		asm.Mov.Imm(asm.R5, 0),
		asm.FnSkbStoreBytes.Call(),
	)
	h.unlessRefused()
}

// mark sets Congestion Experienced (RFC 3168, 5).
func (h *harm) mark() {
	marked, sixth := h.label("marked"), h.label("sixth")
	ecn := func(shift int32) {
		h.add(
			asm.Mov.Reg(asm.R8, asm.R0),
			asm.Mov.Reg(asm.R1, asm.R0),
			asm.RSh.Imm(asm.R1, shift),
			asm.And.Imm(asm.R1, ce),
			asm.JEq.Imm(asm.R1, 0, h.next),
			asm.JEq.Imm(asm.R1, ce, h.next),
		)
		h.report()
	}
	outer := func(of display.Header, missing string) {
		h.add(asm.LoadMem(asm.R7, asm.RFP, h.slots[of][0], asm.Word),
			asm.LoadMem(asm.R1, asm.RFP, h.slots[of][0]+4, asm.Word), asm.JEq.Imm(asm.R1, 0, missing))
	}
	outer(display.IPv4Header, sixth)
	h.load(asm.R7, 0, 2, h.next)
	ecn(0)
	h.add(
		asm.Mov.Reg(asm.R1, packet),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Add.Imm(asm.R2, ipv4Checksum),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.HostTo(asm.BE, asm.R3, asm.Half),
		asm.Mov.Reg(asm.R4, asm.R8),
		asm.Or.Imm(asm.R4, ce),
		asm.HostTo(asm.BE, asm.R4, asm.Half),
		asm.Mov.Imm(asm.R5, 2),
		asm.FnL3CsumReplace.Call(),
	)
	h.unlessRefused()
	h.add(asm.Mov.Reg(asm.R0, asm.R8), asm.Or.Imm(asm.R0, ce))
	h.store(asm.R7, 1)
	h.jump(marked)
	h.place(sixth)
	outer(display.IPv6Header, h.next)
	h.load(asm.R7, 1, 1, h.next)
	ecn(4)
	h.add(asm.Mov.Reg(asm.R0, asm.R8), asm.Or.Imm(asm.R0, ce<<4))
	h.store(asm.R7, 1)
	h.place(marked)
}

// ce is the mark of Congestion Experienced.
const ce = int32(wire.CE)

// ipv4Checksum is the offset of the checksum in an IPv4 header.
const ipv4Checksum = 10
