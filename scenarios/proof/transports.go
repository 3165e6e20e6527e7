package proof

import (
	"fmt"
	"slices"

	"railbed/fabric/softswitch"
	"railbed/internal/infiniband"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

// carried is a step of ranks and the transport that it uses.
type carried struct {
	path, name, transport string
	*spec.Carriage
	// whole is the message size that the step has for certain, or 0 if it is not known.
	whole units.Bytes
}

// carriers returns the steps that run workers.
func (l *prover) carriers() (found []carried) {
	for i := range l.file.Steps {
		key, action := l.file.Steps[i].Action()
		t := action.Traits()
		if t.Carriage == nil {
			continue
		}
		c := carried{path: fmt.Sprintf("steps[%d].%s", i, key), name: t.Name, transport: t.Transport,
			Carriage: t.Carriage}
		if w, is := action.(*spec.Workload); is {
			c.whole = w.Size / units.Bytes(max(1, len(l.plan.RanksOf(w.Ranks))*max(1, w.Channels)))
		}
		found = append(found, c)
	}
	return found
}

// over returns the steps that use a transport.
func (l *prover) over(transport string) []carried {
	return slices.DeleteFunc(l.carriers(), func(c carried) bool { return c.transport != transport })
}

// speaks checks that some step uses a transport. Programs may use it too.
func (l *prover) speaks(path, transport string) {
	if len(l.over(transport)) == 0 && !l.programs {
		l.never(path, "want a step with transport: "+transport, "no step sends over %s", transport)
	}
}

// datagrams checks that some step sends datagrams. Programs may send them too.
func (l *prover) datagrams(path string) {
	sends := func(s spec.Step) bool { return s.Traffic != nil && s.Traffic.Pause == nil }
	if len(l.over("tcp")) == len(l.carriers()) && !slices.ContainsFunc(l.file.Steps, sends) {
		l.neverUnlessPrograms(path, "want a step of traffic, or transport: rd",
			"%s judges datagrams, and no step sends any", key(path))
	}
}

// encrypted checks that reliable datagrams can be decrypted, and reports it otherwise.
func (l *prover) encrypted(path string, report func(path, want, what string, args ...any)) {
	all := l.over("rd")
	readable := func(c carried) bool { return !c.RD.Encrypt || c.RD.KeyLog }
	if len(all) == 0 || slices.ContainsFunc(all, func(c carried) bool {
		return c.RD == nil || !c.RD.Encrypt
	}) {
		return
	}
	longest := units.Bytes(l.widest() + wire.EthernetLen)
	switch {
	case !slices.ContainsFunc(all, readable):
		report(path, "want rd: {key-log: true}",
			"all reliable datagrams are encrypted, and no step writes keys")
	case l.capture.SnapLen < longest:
		report(path, fmt.Sprintf("want snaplen: %s there", longest),
			"encrypted datagrams must be captured whole, and the capture at %s keeps %s of each",
			l.where("snaplen"), l.capture.SnapLen)
	}
}

// countsPayload checks that the packets of a workload whose bytes are counted show their payload.
func (l *prover) countsPayload(path string, c *spec.PacketsCheck) {
	if c.BytesPerRank == nil {
		return
	}
	for _, step := range l.over("quic") {
		if step.name == c.BytesPerRank.Workload {
			l.never(path, "want transport: tcp, rd or roce there, or the check rank-nic",
				"packets of %s do not show which bytes are payload, because QUIC encrypts them", step.name)
		}
	}
}

// widest returns the largest MTU of a NIC.
func (l *prover) widest() (mtu int) {
	for _, n := range l.plan.Nodes {
		for _, nic := range n.NICs {
			mtu = max(mtu, nic.MTU)
		}
	}
	return mtu
}

// dscpRoCE is the default DSCP of packets from roce endpoints, and dscpCNP the DSCP of their CNPs.
const dscpRoCE, dscpCNP = 26, 48

// congestion checks that senders with ECN-based congestion control can receive marks.
func (l *prover) congestion() {
	for _, c := range l.over("roce") {
		if !reactsToMarks(c) {
			continue
		}
		dscp := dscpsOf(c)[0]
		if !slices.ContainsFunc(l.plan.Switches, func(s plan.Switch) bool {
			return s.Soft != nil && s.Soft.ECN != nil &&
				slices.Contains(s.Soft.ECN.Priorities, int(s.Soft.Priorities[dscp]))
		}) {
			l.neverUnlessPrograms(c.path+".roce.congestion",
				"want fabric: {switch: {ecn: true}} of soft switches, or congestion: none",
				"dcqcn needs marks, and no switch marks RoCEv2 packets (DSCP %d)", dscp)
		}
	}
}

// roceFrame returns the length of a RoCEv2 packet with a payload of a whole path MTU: Ethernet, IP,
// UDP, the BTH, the RETH of a WRITE, and the ICRC.
func roceFrame(version, payload int) units.Bytes {
	ip := 20
	if version == 6 {
		ip = 40
	}
	return units.Bytes(wire.EthernetLen + ip + wire.UDPLen + infiniband.BTHLen + infiniband.RETHLen +
		payload + infiniband.ICRCLen)
}

func (l *prover) roce(path string, k *spec.RoCECheck) {
	l.speaks(path, "roce")
	steps := l.over("roce")
	switch k.Rule {
	case spec.RoCERuleCNP, spec.RoCERuleRate:
		if len(steps) > 0 && !slices.ContainsFunc(steps, reactsToMarks) {
			l.neverUnlessPrograms(path+".rule", "want roce: {congestion: dcqcn} in a step",
				"no step with transport: roce reacts to marks")
		} else if !l.can(l.ports, func(f softswitch.Foreseen) bool { return len(f.Marks) > 0 }) {
			l.neverUnlessPrograms(path+".rule", "want fabric: {switch: {ecn: true}} of soft switches",
				"no switch can mark a packet")
		}
	case spec.RoCERulePSN:
		if none(k.Again, spec.CountBound) {
			l.lossless(path+".again", l.crossed("", ""), "")
		}
	case spec.RoCERuleICRC:
		l.icrc(path, steps)
	}
}

// icrc checks that the capture keeps packets whole, because an ICRC covers the whole packet.
func (l *prover) icrc(path string, steps []carried) {
	payload := infiniband.PathMTU(l.widest())
	for _, c := range steps {
		longest := roceFrame(c.Version(), payload)
		want := fmt.Sprintf("want snaplen: %s there", longest)
		what := fmt.Sprintf("an ICRC covers whole packets: those of %s have up to %s, and the capture at %s "+
			"keeps %s of each", c.name, longest, l.where("snaplen"), l.capture.SnapLen)
		switch {
		case l.capture.SnapLen >= longest:
			continue
		case c.whole >= units.Bytes(payload) || l.capture.SnapLen < roceFrame(c.Version(), 0)+c.whole:
			l.never(path+".rule", want, "%s", what)
		default:
			l.hardly(path+".rule", want, "%s", what)
		}
		return
	}
	if longest := roceFrame(6, payload); len(steps) == 0 && l.capture.SnapLen < longest {
		l.hardly(path+".rule", fmt.Sprintf("want snaplen: %s there", longest),
			"an ICRC covers whole packets, and the capture at %s keeps %s of each", l.where("snaplen"),
			l.capture.SnapLen)
	}
}
