package rocechecks

import (
	"railbed/capture/filter"
	"railbed/capture/layers"
	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// icrc checks that every RoCEv2 packet has a correct invariant CRC (IBTA, 9.2.8 and A17.3.3),
// at every tap. A wrong ICRC in a packet that leaves a NIC was computed wrongly. A wrong ICRC
// elsewhere shows that the packet was damaged on its way.
//
// It applies to packets that the capture has whole, with an IP header without options or extension
// headers. A run in which packets are damaged on purpose fails the check.
type icrc struct {
	capture        *evidence.Capture
	right, unknown uint64
	made, damaged  uint64 // wrong where they leave a NIC, and elsewhere
	faulty, cut    uint64 // packets that are not RoCEv2, and unreadable packets
	found          evidence.Tally
}

// newICRC makes the check.
func newICRC() *icrc { return new(icrc) }

// Begin implements Check.
func (k *icrc) Begin(c *evidence.Capture) { k.capture = c }

// Packet implements Check.
func (k *icrc) Packet(p *evidence.Packet) {
	switch {
	case p.RoCEFault == evidence.RoCEDamaged:
		k.faulty++
		k.found.Exemplify("%s at %s: not a valid RoCEv2 packet", p.Tap.Name, evidence.ClockTime(p.Time))
		return
	case p.RoCEFault == evidence.RoCECut:
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
	if p.Tap.NIC && p.Direction == evidence.Out {
		k.made++
	} else {
		k.damaged++
	}
	k.found.Exemplify("%s at %s: %v to QP %#06x, PSN %d, has ICRC %08x", p.Tap.Name,
		evidence.ClockTime(p.Time),
		p.RoCE.BTH.Opcode, uint32(p.RoCE.BTH.DestQP), p.RoCE.BTH.PSN, p.RoCE.Bytes.ICRC())
}

// Result implements Check.
func (k *icrc) Result() evidence.Result {
	r := evidence.Result{Name: title(spec.RoCERuleICRC)}
	wrong := k.made + k.damaged
	k.found.Count(k.made, "packets left a NIC with a wrong ICRC")
	k.found.Count(k.damaged, "packets had a wrong ICRC at other taps")
	k.found.Count(k.faulty, "packets had the UDP port of RoCEv2 but not its format")
	f := evidence.Finding{Wrong: k.found.All()}
	if not := k.unknown + k.cut; not > 0 {
		f.Unclear = append(f.Unclear, notApplicable(
			"%d packets are not whole in the capture, or have IP options", not))
	}
	if k.right+wrong+k.faulty == 0 {
		f.Unclear = append(f.Unclear, "no packet of RoCEv2 was seen whole")
	}
	r.Measured = map[string]float64{
		"right": float64(k.right), "wrong": float64(wrong), "not-applicable": float64(k.unknown + k.cut),
	}
	r.Summary = plural.Text(
		"%d packets had a right ICRC and %d a wrong one at all taps; %d could not be checked",
		k.right, wrong, k.unknown+k.cut)
	ports := k.capture.NICs()
	if k.capture.Plan == nil {
		ports = k.capture.Recorded()
	}
	k.capture.Conclude(&r, evidence.Need{Ports: ports, Packets: filter.Transport(evidence.ProtoUDP, 0,
		infiniband.Port)}, f)
	return r
}
