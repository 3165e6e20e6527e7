package rdchecks

import (
	"fmt"

	"railbed/capture/filter"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/internal/wire"
)

// pairName returns the name of the pair in reports, for a packet that leaves.
func pairName(p *evidence.Packet) string {
	return fmt.Sprintf("%s port %d to %s", p.Flow.Src.Addr(), wire.PortRD+int(p.RD.Source), p.Flow.Dst)
}

// maxPairs bounds the number of sequence spaces that are followed.
const maxPairs = 1 << 13

// nics is the state that checks of reliable datagrams share about the taps of all NICs.
type nics struct {
	capture *evidence.Capture
	hints   uint64 // trimmed encrypted packets that arrived
	unread  uint64 // unreadable packets, except damaged ones that arrived at a NIC
	// damaged counts damaged packets that arrived at a NIC, which has to discard them.
	damaged uint64
	// strays counts packets that arrived, or were acknowledged, and were not seen to leave.
	strays uint64
	full   bool // more packets at once than are remembered
}

// readable reports whether a packet at a NIC can be followed.
func (k *nics) readable(p *evidence.Packet) bool {
	switch {
	case p.RD != nil && !p.RD.Clear() && p.RD.Trimmed && p.Direction == evidence.In:
		k.hints++
		return false // unauthenticated, so receivers ignore it
	case p.RD == nil && p.RDFault == evidence.RDDamaged && p.Direction == evidence.In:
		k.damaged++
		return false
	case p.RD == nil && p.RDFault != evidence.RDSound, p.RD != nil && !p.RD.Clear():
		k.unread++
		return false
	}
	return p.RD != nil
}

// doubts returns reasons why packets that were not seen may have existed.
func (k *nics) doubts() (lines []string) {
	if k.capture.Plan == nil {
		lines = append(lines, "without a plan it is not known which NICs there are")
	}
	if k.unread > 0 {
		lines = append(lines, plural.Text("%d datagrams cannot be read: cut off by the capture, encrypted, "+
			"or damaged where they left", k.unread))
	}
	if k.strays > 0 {
		lines = append(lines, plural.Text(
			"%d datagrams came, or were acknowledged, and were not seen to leave",
			k.strays))
	}
	if k.full {
		lines = append(lines, "more datagrams at once than the check can remember")
	}
	return lines
}

// need returns the need of checks of reliable datagrams: the packets at all NICs.
func (k *nics) need() evidence.Need {
	n := evidence.Need{Ports: k.capture.NICs(), Clocks: true}
	for engine := range wire.PortsRD {
		n.Packets = append(n.Packets, filter.Transport(evidence.ProtoUDP, 0, wire.PortRD+uint16(engine))...)
	}
	return n
}

// serial returns how far a number is ahead of another.
func serial(n, of uint32) int32 { return int32(n - of) }

// firstPSN returns the PSN at which a life begins, if the datagram's PSN is within the first
// window. Otherwise it returns the datagram's PSN.
func firstPSN(d *evidence.RD) uint32 {
	first := uint32(d.Life >> 32)
	if ahead := serial(d.PSN, first); ahead >= 0 && ahead < evidence.RDWindow {
		return first
	}
	return d.PSN
}

// claims calls claim for each PSN in [from, to) that an acknowledgement says was received.
func claims(b wire.RD, from, to uint32, claim func(psn uint32)) {
	cumulative := b.Base().PSN
	for psn := from; serial(psn, cumulative) < 0 && serial(psn, to) < 0; psn++ {
		claim(psn)
	}
	if b.Type() != wire.RDAck {
		return
	}
	for i := range int(b.Ack().Words) {
		psn := cumulative + 1 + uint32(64*i)
		for word := b.AckWord(i); word != 0; word, psn = word<<1, psn+1 {
			if word>>63 != 0 && serial(psn, from) >= 0 && serial(psn, to) < 0 {
				claim(psn)
			}
		}
	}
}
