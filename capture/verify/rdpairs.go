package verify

import (
	"fmt"

	"railbed/capture/filter"
	"railbed/internal/wire"
)

// rdPair names a sequence space: what one engine of a life sends to one of another.
// It is the same for data and for what is said about it.
type rdPair struct {
	src, dst            [16]byte
	from, to            uint32 // low halves of the lives
	source, destination uint8
}

// pair is that of a packet; said is for what the receiver says.
func (p *Packet) pair(said bool) rdPair {
	d := p.RD
	if said {
		return rdPair{src: p.key.dst, dst: p.key.src, from: d.Tag, to: uint32(d.Life), source: d.Destination,
			destination: d.Source}
	}
	return rdPair{src: p.key.src, dst: p.key.dst, from: uint32(d.Life), to: d.Tag, source: d.Source,
		destination: d.Destination}
}

// pairName is what people read of the pair of a packet that leaves.
func (p *Packet) pairName() string {
	return fmt.Sprintf("%s port %d to %s", p.Flow.Src.Addr(), wire.PortRD+int(p.RD.Source), p.Flow.Dst)
}

// maxRDPairs bounds the sequence spaces of which packets are followed.
const maxRDPairs = 1 << 13

// rdNICs is what checks of reliable datagrams know of the taps that they need:
// those of all NICs.
type rdNICs struct {
	selector
	hints  uint64 // trimmed packets that came, of encrypted ones
	unread uint64 // packets that cannot be read, but for damage that came to a NIC
	// damaged are packets that came to a NIC and that it was to throw away.
	damaged uint64
	// strays are packets that came, or that were spoken of, and were not seen to
	// leave.
	strays uint64
	full   bool // there was more at once than is remembered
}

// readable says that a packet at a NIC is one to follow.
func (k *rdNICs) readable(p *Packet) bool {
	switch {
	case p.RD != nil && !p.RD.clear() && p.RD.Trimmed && p.Direction == In:
		k.hints++
		return false // nothing vouches for it, so that it moves nobody
	case p.RD == nil && p.RDFault == RDDamaged && p.Direction == In:
		k.damaged++
		return false
	case p.RD == nil && p.RDFault != RDSound, p.RD != nil && !p.RD.clear():
		k.unread++
		return false
	}
	return p.RD != nil
}

// doubts are reasons why what was not seen may have been there all the same.
func (k *rdNICs) doubts() (lines []string) {
	if k.capture.Plan == nil {
		lines = append(lines, "without a plan it is not known which NICs there are")
	}
	if k.unread > 0 {
		lines = append(lines, fmt.Sprintf("%d datagrams cannot be read: cut off by the capture, encrypted, "+
			"or damaged where they left", k.unread))
	}
	if k.strays > 0 {
		lines = append(lines, fmt.Sprintf("%d datagrams came, or were spoken of, and were not seen to leave",
			k.strays))
	}
	if k.full {
		lines = append(lines, "more datagrams at once than are remembered")
	}
	return lines
}

// need is what checks of reliable datagrams rest on: what passes all NICs.
func (k *rdNICs) need() Need {
	n := Need{Ports: k.capture.portsOf(everyNIC), Clocks: true}
	for engine := range wire.PortsRD {
		n.Packets = append(n.Packets, filter.Transport(protoUDP, 0, wire.PortRD+uint16(engine))...)
	}
	return n
}

// serial is how far a number is ahead of another.
func serial(n, of uint32) int32 { return int32(n - of) }

// firstPSN is where a life begins to count, if a PSN is of its first window, and
// else the PSN.
func firstPSN(d *RD) uint32 {
	first := uint32(d.Life >> 32)
	if ahead := serial(d.PSN, first); ahead >= 0 && ahead < rdWindow {
		return first
	}
	return d.PSN
}

// claims calls a function for each PSN from one on, of those up to another, that an
// acknowledgement says has come.
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
