package proof

import (
	"encoding/binary"
	"regexp"

	"golang.org/x/net/bpf"

	"railbed/capture/filter"
	"railbed/testbed/spec"
	"railbed/transports/wire"
)

// keeper says which frames a capture's filter takes.
type keeper struct {
	text string
	vm   *bpf.VM // nil where frames alone do not decide
	// narrow says that the filter also looks at addresses, ports or lengths, of which a
	// sample of IP proves nothing; ether that it looks at what differs among PFC frames.
	narrow, ether bool
}

var (
	narrowWord = regexp.MustCompile(`\[|\b(host|net|port|portrange|src|dst|ether|proto|less|greater|len|broadcast|multicast)\b`)
	etherWord  = regexp.MustCompile(`\[|\b(ether|less|greater|len)\b`)
)

func newKeeper(c *spec.Capture) *keeper {
	k := &keeper{text: c.Filter, narrow: narrowWord.MatchString(c.Filter), ether: etherWord.MatchString(c.Filter)}
	raw, err := filter.Compile(c.Filter, 1<<16)
	if err != nil || c.Filter == "" {
		return k // what cannot be compiled is another problem
	}
	program, known := bpf.Disassemble(raw)
	if known {
		k.vm, _ = bpf.NewVM(program)
	}
	return k
}

// takes reports of pauseFrame, or of samples of IP, whether the filter can take any, and
// whether it takes all.
func (k *keeper) takes(frames ...[]byte) (some, all bool) {
	if k.text == "" {
		return true, true
	}
	if pause := len(frames) == 1; k.vm == nil || k.narrow && !pause || k.ether && pause {
		return true, false
	}
	all = true
	for _, frame := range frames {
		n, err := k.vm.Run(frame)
		some, all = some || err != nil || n > 0, all && n > 0
	}
	return some, all
}

const etherTypeRARP = 0x8035

// Samples of frames.
var (
	pauseFrame = sample(wire.EtherTypeMACControl, func(b []byte) {
		copy(b, []byte{0x01, 0x80, 0xc2, 0, 0, 1})
		binary.BigEndian.PutUint16(b[wire.EthernetLen:], wire.OpcodePFC)
	})
	tcpFrames = [][]byte{ipFrame(4, 6), ipFrame(6, 6)}
	udpFrames = [][]byte{ipFrame(4, 17), ipFrame(6, 17)}
	anyFrames = [][]byte{ipFrame(4, 6), ipFrame(6, 6), ipFrame(4, 17), ipFrame(6, 17), ipFrame(4, 1), ipFrame(6, 58), ipFrame(4, 132), ipFrame(6, 132),
		sample(wire.EtherTypeARP, func([]byte) {}), sample(etherTypeRARP, func([]byte) {})}
)

func sample(etherType uint16, fill func(frame []byte)) []byte {
	frame := make([]byte, 100)
	binary.BigEndian.PutUint16(frame[12:], etherType)
	fill(frame)
	return frame
}

// ipFrame is a packet of an IP version and a protocol.
func ipFrame(version, protocol byte) []byte {
	if version == 6 {
		return sample(wire.EtherTypeIPv6, func(b []byte) { b[14], b[14+6] = 0x60, protocol })
	}
	return sample(wire.EtherTypeIPv4, func(b []byte) { b[14], b[14+9] = 0x45, protocol })
}
