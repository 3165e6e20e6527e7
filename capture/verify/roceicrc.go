package verify

import (
	"fmt"

	"railbed/capture/filter"
	"railbed/capture/layers"
	"railbed/internal/infiniband"
	"railbed/plan/spec"
)

// RoCEICRC checks that every RoCEv2 packet has a correct invariant CRC (IBTA, 9.2.8 and A17.3.3),
// at every tap. A wrong ICRC in a packet that leaves a NIC was computed wrongly. A wrong ICRC
// elsewhere shows that the packet was damaged on its way.
//
// It applies to packets that the capture has whole, with an IP header without options or extension
// headers. A run in which packets are damaged on purpose fails the check.
type RoCEICRC struct {
	capture        *Capture
	right, unknown uint64
	made, damaged  uint64 // wrong where they leave a NIC, and elsewhere
	faulty, cut    uint64 // packets that are not RoCEv2, and unreadable packets
	found          findings
}

// NewRoCEICRC makes the check.
func NewRoCEICRC() *RoCEICRC { return new(RoCEICRC) }

// Begin implements Check.
func (k *RoCEICRC) Begin(c *Capture) { k.capture = c }

// Packet implements Check.
func (k *RoCEICRC) Packet(p *Packet) {
	switch {
	case p.RoCEFault == RoCEDamaged:
		k.faulty++
		k.found.exemplify("%s at %s: no packet of RoCEv2", p.Tap.Name, clockTime(p.Time))
		return
	case p.RoCEFault == RoCECut:
		k.cut++
		return
	case p.RoCE == nil:
		return
	}
	switch p.RoCE.ICRC() {
	case layers.ICRCRight:
		k.right++
		return
	case layers.ICRCUnknown:
		k.unknown++
		return
	}
	if p.Tap.NIC && p.Direction == Out {
		k.made++
	} else {
		k.damaged++
	}
	k.found.exemplify("%s at %s: %v to QP %#06x, PSN %d, has ICRC %08x", p.Tap.Name, clockTime(p.Time),
		p.RoCE.BTH.Opcode, uint32(p.RoCE.BTH.DestQP), p.RoCE.BTH.PSN, p.RoCE.Bytes.ICRC())
}

// Result implements Check.
func (k *RoCEICRC) Result() Result {
	r := Result{Name: roceName(spec.RoCERuleICRC)}
	wrong := k.made + k.damaged
	k.found.count(k.made, "packets left a NIC with a wrong ICRC")
	k.found.count(k.damaged, "packets had a wrong ICRC at other taps")
	k.found.count(k.faulty, "packets to the port of RoCEv2 are none")
	f := finding{wrong: k.found.all()}
	if not := k.unknown + k.cut; not > 0 {
		f.unclear = append(f.unclear, notApplicable(
			"%d packets are not whole in the capture, or behind IP with options", not))
	}
	if k.right+wrong+k.faulty == 0 {
		f.unclear = append(f.unclear, "no packet of RoCEv2 was seen whole")
	}
	r.Measured = map[string]float64{
		"right": float64(k.right), "wrong": float64(wrong), "not-applicable": float64(k.unknown + k.cut),
	}
	r.Summary = fmt.Sprintf("%d packets had their ICRC right and %d wrong at all taps; %d could not be "+
		"looked at", k.right, wrong, k.unknown+k.cut)
	ports := k.capture.NICs()
	if k.capture.Plan == nil {
		ports = k.capture.recorded()
	}
	k.capture.conclude(&r, Need{Ports: ports, Packets: filter.Transport(protoUDP, 0, infiniband.Port)}, f)
	return r
}
