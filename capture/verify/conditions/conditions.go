// Package conditions finds, before a run, whether a check of packets can get the evidence that it needs. It
// examines only the file and the plan. Each check has its own Conditions, which a Prover examines.
package conditions

import (
	"cmp"
	"fmt"
	"slices"

	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// Conditions are the needs of a kind of check: of the file and of the plan.
type Conditions struct {
	// Soft means that only ports of soft switches record the evidence.
	Soft bool
	// Packets are the packets that the check needs. Default: the packets of its workload's transport.
	Packets Packets
	// Examine adds the problems and warnings of a check. Nil is Prover.Named.
	Examine func(l *Prover, path string, p *spec.PacketsCheck)
}

// Check examines whether a check of packets can get the evidence that it needs.
func (l *Prover) Check(path string, p *spec.PacketsCheck, of Conditions) {
	path += "." + p.Kind()
	if of.Soft && !l.Plan.Soft() {
		l.Never(path, "want fabric: {switch: {kind: soft}}, whose ports record it",
			"%s needs soft switches, and the testbed has none", p.Kind())
		return
	}
	l.need = l.needOf(path, p, of.Packets)
	defer l.filteredAnywhere()
	if of.Packets.transport != "" {
		l.carried(path, of.Packets.transport)
	}
	if of.Examine == nil {
		l.Named(path, p)
	} else {
		of.Examine(l, path, p)
	}
	l.begins(path, p.Work())
}

// Named checks that the ports are captured that the names of a check select: ports, the ports of switches, or
// the NICs of the flows' sources and destinations. A check without such names needs all NICs.
func (l *Prover) Named(path string, p *spec.PacketsCheck) {
	var ends []string
	is := IsNIC
	for _, n := range p.Names() {
		switch n.Kind {
		case spec.NamesPort:
			is = func(at *Port) bool { return at.Matches(n.Text) }
		case spec.NamesSwitch:
			is = func(at *Port) bool { return !at.NIC && spec.Match(n.Text, at.Node) }
		case spec.NamesNode:
			ends = append(ends, cmp.Or(n.Text, "*"))
			is = func(at *Port) bool {
				match := func(end string) bool { return spec.Match(end, at.Node) }
				return at.NIC && slices.ContainsFunc(ends, match)
			}
		}
	}
	l.Seen(path, l.Which(is), true)
}

// IsNIC reports whether a port is a NIC.
func IsNIC(p *Port) bool { return p.NIC }

// IsSwitch reports whether a port is a switch's.
func IsSwitch(p *Port) bool { return !p.NIC }

// Can reports whether Foresee predicts an action for any of the ports.
func (l *Prover) Can(ports []*Port, what func(Foreseen) bool) bool {
	return slices.ContainsFunc(ports, func(p *Port) bool { return slices.ContainsFunc(l.foreseen(p), what) })
}

// Marking reports whether a port can mark packets.
func Marking(f Foreseen) bool { return f.Marks }

// Trimming reports whether a port can trim packets.
func Trimming(f Foreseen) bool { return f.Trims }

// begins checks that the capture begins before the workload of a check. If steps have times of
// their own, the order is not known.
func (l *Prover) begins(path, workload string) {
	for i, step := range l.File.Steps[:l.step] {
		if workload == "" || step.Work() != workload ||
			slices.ContainsFunc(l.File.Steps[:l.step+1], func(s spec.Step) bool {
				return s.At != nil
			}) {
			continue
		}
		at := l.File.Source.Pos(fmt.Sprintf("steps[%d]", l.step))
		if step.Lasts() == "" {
			l.Never(path, "want the capture above the workload",
				"workload %s of step %d has ended before the capture at %v begins", workload, i+1, at)
		} else {
			l.Hardly(path, "want the capture above the workload",
				"workload %s begins before the capture at %v", workload, at)
		}
	}
}

// Carried is a step of ranks and the transport that it uses.
type Carried struct {
	Path, Name, Transport string
	*spec.Carriage
	// Whole is the message size that the step has for certain, or 0 if it is not known.
	Whole units.Bytes
}

// ReactsToMarks reports whether a step of roce slows down for marks.
func (c Carried) ReactsToMarks() bool { return c.RoCE != nil && c.RoCE.Congestion == spec.RoCEDCQCN }

// Carriers returns the steps that run workers.
func (l *Prover) Carriers() (found []Carried) {
	for i := range l.File.Steps {
		key, action := l.File.Steps[i].Action()
		t := action.Traits()
		if t.Carriage == nil {
			continue
		}
		c := Carried{Path: fmt.Sprintf("steps[%d].%s", i, key), Name: t.Name, Transport: t.Transport,
			Carriage: t.Carriage}
		if w, is := action.(*spec.Workload); is {
			c.Whole = w.Size / units.Bytes(max(1, len(l.Plan.RanksOf(w.Ranks))*max(1, w.Channels)))
		}
		found = append(found, c)
	}
	return found
}

// Over returns the steps that use a transport.
func (l *Prover) Over(transport string) []Carried {
	return slices.DeleteFunc(l.Carriers(), func(c Carried) bool { return c.Transport != transport })
}

// carried checks that some step uses a transport. Programs may use it too.
func (l *Prover) carried(path, transport string) {
	if len(l.Over(transport)) == 0 && !l.Programs {
		l.Never(path, "want a step with transport: "+transport, "no step sends over %s", transport)
	}
}

// Datagrams checks that some step sends datagrams. Programs may send them too.
func (l *Prover) Datagrams(path string) {
	sends := func(s spec.Step) bool { return s.Traffic != nil && s.Traffic.Pause == nil }
	if len(l.Over("tcp")) == len(l.Carriers()) && !slices.ContainsFunc(l.File.Steps, sends) {
		l.NeverUnlessPrograms(path, "want a step of traffic, or transport: rd",
			"%s judges datagrams, and no step sends any", key(path))
	}
}

// Encrypted checks that reliable datagrams can be decrypted, and reports it otherwise.
func (l *Prover) Encrypted(path string, report func(path, want, what string, args ...any)) {
	all := l.Over("rd")
	readable := func(c Carried) bool { return !c.RD.Encrypt || c.RD.KeyLog }
	if len(all) == 0 || slices.ContainsFunc(all, func(c Carried) bool {
		return c.RD == nil || !c.RD.Encrypt
	}) {
		return
	}
	longest := units.Bytes(l.Widest() + wire.EthernetLen)
	switch {
	case !slices.ContainsFunc(all, readable):
		report(path, "want rd: {key-log: true}",
			"all reliable datagrams are encrypted, and no step writes keys")
	case l.Capture.SnapLen < longest:
		report(path, fmt.Sprintf("want snaplen: %s there", longest),
			"encrypted datagrams must be captured whole, and the capture at %s keeps %s of each",
			l.Where("snaplen"), l.Capture.SnapLen)
	}
}

// Widest returns the largest MTU of a NIC.
func (l *Prover) Widest() (mtu int) {
	for _, n := range l.Plan.Nodes {
		for _, nic := range n.NICs {
			mtu = max(mtu, nic.MTU)
		}
	}
	return mtu
}
