package bpf

import "github.com/cilium/ebpf/asm"

// reports is the reference to the map through which a program reports packets that faults hit.
const reports = "reports"

// Layout of a report. The first bytes of the packet follow it.
const (
	reportTime   = 0 // on the kernel's monotonic clock, in ns
	reportSite   = 8
	reportLength = 12 // of the packet
	reportBytes  = 16
)

// reportSnap is the number of bytes of a packet in a report. A report has at most 64 KiB.
const reportSnap = 16 << 10

const (
	currentCPU = 0xffffffff // BPF_F_CURRENT_CPU
	noRoom     = -28        // ENOSPC
)

// report reports the packet as it is, before the fault changes it. Without a reader the kernel refuses the
// report, which costs nothing else. It keeps R7, R8 and R9.
func (h *harm) report() {
	h.reserve()
	at := h.reserve() // the lower of the two
	fits, reported := h.label("fits"), h.label("reported")
	h.add(
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.RFP, at+reportTime, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R1, int32(h.site)),
		asm.StoreMem(asm.RFP, at+reportSite, asm.R1, asm.Word),
		asm.LoadMem(asm.R3, packet, skbLen, asm.Word),
		asm.StoreMem(asm.RFP, at+reportLength, asm.R3, asm.Word),
		asm.JLE.Imm(asm.R3, reportSnap, fits),
		asm.Mov.Imm(asm.R3, reportSnap),
	)
	h.place(fits)
	h.add(
		asm.LSh.Imm(asm.R3, 32), // the kernel appends so many bytes of the packet
		asm.LoadImm(asm.R1, currentCPU, asm.DWord),
		asm.Or.Reg(asm.R3, asm.R1),
		asm.Mov.Reg(asm.R1, packet),
		asm.LoadMapPtr(asm.R2, 0).WithReference(reports),
		asm.Mov.Reg(asm.R4, asm.RFP),
		asm.Add.Imm(asm.R4, int32(at)),
		asm.Mov.Imm(asm.R5, reportBytes),
		asm.FnPerfEventOutput.Call(),
		asm.JNE.Imm(asm.R0, noRoom, reported),
	)
	h.count(h.number, countUnreported)
	h.place(reported)
}
