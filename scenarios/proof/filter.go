package proof

import (
	"encoding/binary"

	"railbed/capture/filter"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// IP protocols.
const (
	protoTCP = 6
	protoUDP = 17
)

// pfcFrames matches all frames of priority flow control.
var pfcFrames = func() []filter.Pattern {
	frame := make([]byte, 60) // the minimum Ethernet frame, without the FCS
	known := make([]byte, len(frame))
	copy(frame, []byte{0x01, 0x80, 0xc2, 0, 0, 1})
	binary.BigEndian.PutUint16(frame[wire.EthernetLen-2:], wire.EtherTypeMACControl)
	binary.BigEndian.PutUint16(frame[wire.EthernetLen:], wire.OpcodePFC)
	for _, at := range []int{0, 1, 2, 3, 4, 5, 12, 13, 14, 15} {
		known[at] = 0xff
	}
	return []filter.Pattern{{Bytes: frame, Known: known}}
}()

// filtered checks that the capture's filter accepts the packets that a check needs.
func (l *prover) filtered(path string, c *spec.PacketsCheck) {
	text := l.capture.Filter
	if text == "" {
		return
	}
	var needed, all []filter.Pattern // nil is every packet
	what, transport := "packets", ""
	if name := workloadOf(c); name != "" {
		for _, step := range l.carriers() {
			if step.name == name {
				transport = step.transport
			}
		}
	}
	switch {
	case c.Pauses != nil || c.Deadlock != "":
		// To see whether ports react to pauses, a check needs all packets.
		needed, what = pfcFrames, "PFC frames"
	case c.That != "" || c.Pacing != nil:
		needed, what = filter.Transport(protoUDP, 0, 0), "reliable datagrams"
	case c.RoCE != nil:
		needed, what = filter.Transport(protoUDP, 0, 0), "packets of RoCEv2"
	case transport == "tcp":
		needed, what = filter.Transport(protoTCP, 0, 0), "packets of TCP"
	case transport != "":
		needed, what = filter.Transport(protoUDP, 0, 0), "datagrams"
	}
	if what != "PFC frames" {
		all = needed
	}
	switch {
	case filter.Covers("not ("+text+")", needed):
		l.never(path, "remove the filter, or let it accept them",
			"%s needs %s, and the filter at %s accepts none", key(path), what, l.where("filter"))
	case !filter.Covers(text, all):
		l.hardly(path, "remove the filter", "%s needs more packets than the filter at %s accepts", key(path),
			l.where("filter"))
	}
}
