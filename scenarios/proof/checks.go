package proof

import (
	"cmp"
	"fmt"
	"slices"

	"railbed/capture/verify/rules"
	"railbed/fabric/softswitch"
	"railbed/plan"
	"railbed/plan/spec"
)

// check examines whether a check of packets can get the evidence that it needs.
func (l *prover) check(path string, c *spec.PacketsCheck) {
	path += "." + c.Kind()
	if (c.Trims != nil || c.Pauses != nil || c.Deadlock != "" || c.QueueDepth != nil) && !l.plan.Soft() {
		l.never(path, "want fabric: {switch: {kind: soft}}, whose ports record it",
			"%s needs soft switches, and the testbed has none", c.Kind())
		return
	}
	l.need = l.needOf(path, c)
	defer l.filteredAnywhere()
	switch {
	case c.Conservation != "":
		l.seen(path, l.which(func(p *port) bool {
			return !p.NIC && spec.Match(c.Conservation, p.Node)
		}), true)
	case c.PathSpread != nil:
		l.pathSpread(path, c.PathSpread)
	case c.Marks != nil:
		l.marks(path, c.Marks)
	case c.Drops != nil:
		l.drops(path, c.Drops)
	case c.Trims != nil:
		l.trims(path, c.Trims)
	case c.Pauses != nil:
		l.pauses(path, c.Pauses)
	case c.Deadlock != "":
		l.deadlock(path, c.Deadlock)
	case c.QueueDepth != nil:
		l.queueDepth(path, c.QueueDepth)
	case c.Lossless != nil:
		l.ends(path, c.Lossless.From, c.Lossless.To)
		l.lossless(path, l.crossed(c.Lossless.From, c.Lossless.To), "")
	case c.Reordering != nil:
		l.ends(path, c.Reordering.From, c.Reordering.To)
		l.reordering(path+".share", c.Reordering)
	case c.Outage != nil:
		l.ends(path, c.Outage.From, c.Outage.To)
		l.datagrams(path)
	case c.Throughput != nil:
		l.throughput(path, c.Throughput)
	case c.RailLocal != "":
		between := l.which(func(p *port) bool {
			link := l.plan.Link(p.at.Link)
			return link != nil && link.Class == spec.FabricLink
		})
		if len(between) == 0 {
			l.never(path, "remove the check", "rail-local needs a link between switches, and there is none")
		}
		l.seen(path, between, true)
		l.seen(path, l.which(isNIC), true)
	case c.PartialSums != "":
		l.seen(path, l.which(func(p *port) bool { return !p.NIC }), true)
	case c.That != "":
		l.speaks(path, "rd")
		l.encrypted(path, l.never)
		l.seen(path, l.which(isNIC), true)
	case c.RoCE != nil:
		l.roce(path, c.RoCE)
	case c.Pacing != nil:
		l.speaks(path, "rd")
		l.seen(path, l.which(isNIC), true)
	case c.Latency != nil, c.LinkBytes != nil, c.Rule != nil:
		l.generic(path, c)
	default: // bytes-per-rank, rank-nic, crossed
		l.countsPayload(path, c)
		l.seen(path, l.which(isNIC), true)
	}
	l.begins(path, workloadOf(c))
}

// generic examines checks of any packets.
func (l *prover) generic(path string, c *spec.PacketsCheck) {
	switch {
	case c.Latency != nil:
		l.ends(path, c.Latency.From, c.Latency.To)
	case c.LinkBytes != nil:
		l.linkBytes(path, c.LinkBytes)
	case c.Rule != nil:
		if rules.ReadsRecords(c.Rule) && !l.plan.Soft() && !l.faults {
			l.never(path, "want fabric: {switch: {kind: soft}}, whose ports write them, or faults, which "+
				"record the packets that they hit",
				"the rule reads records of switches, and the testbed has neither soft switches nor faults")
		}
		if rules.ReadsSealed(c.Rule) { // other packets may still decide
			l.encrypted(path, l.hardly)
		}
		l.seen(path, l.which(func(p *port) bool { return p.matches(c.Rule.At) }), true)
	}
}

// ends checks that the NICs of the flows' sources and destinations are captured.
func (l *prover) ends(path, from, to string) {
	l.seen(path, l.which(func(p *port) bool {
		return p.NIC && (spec.Match(cmp.Or(from, "*"), p.Node) || spec.Match(cmp.Or(to, "*"), p.Node))
	}), true)
}

// throughput checks that the NICs are captured at which packets arrive. If no pair may get too little, the
// check also needs the NICs of all senders, unless a traffic step sends.
func (l *prover) throughput(path string, k *spec.ThroughputCheck) {
	l.seen(path, l.which(func(p *port) bool { return p.NIC && spec.Match(cmp.Or(k.To, "*"), p.Node) }), true)
	least := demands(k.Rate, spec.RateBound) || demands(k.Fairness, spec.ShareBound)
	known := k.Workload != "" || slices.ContainsFunc(l.file.Steps, func(s spec.Step) bool {
		return s.Traffic != nil
	})
	missing := l.which(func(p *port) bool {
		return p.NIC && !p.captured && spec.Match(cmp.Or(k.From, "*"), p.Node)
	})
	if least && !known && len(missing) > 0 {
		l.never(path, "want at: [nics] there, or add "+listed(missing), "throughput needs the NICs of all "+
			"senders to know who sent in vain, and the capture at %s lacks %d of them", l.where("at"),
			len(missing))
	}
}

func (l *prover) pathSpread(path string, k *spec.PathSpread) {
	choice := l.which(func(p *port) bool {
		return p.sw != nil && spec.Match(k.Switch, p.Node) && p.sw.Routes.Choices()[p.Name]
	})
	if len(choice) == 0 {
		l.never(path+".switch", "want a switch with several paths of equal cost",
			"no switch %q has equal-cost paths", k.Switch)
	}
	l.seen(path, choice, true)
}

func isNIC(p *port) bool { return p.NIC }

// can reports whether Foresee predicts an action for any of the ports.
func (l *prover) can(ports []*port, what func(softswitch.Foreseen) bool) bool {
	return slices.ContainsFunc(ports, func(p *port) bool { return slices.ContainsFunc(l.foreseen(p), what) })
}

func marking(f softswitch.Foreseen) bool  { return len(f.Marks) > 0 }
func trimming(f softswitch.Foreseen) bool { return len(f.Trims) > 0 }

func (l *prover) marks(path string, k *spec.MarksCheck) {
	at := l.which(func(p *port) bool { return p.matches(k.At) })
	l.seen(path, at, k.Share != "" || limits(k.Count, spec.CountBound))
	if demands(k.Count, spec.CountBound) {
		l.seen(path+".count", slices.DeleteFunc(slices.Clone(at), isNIC), false)
	}
	if demands(k.Count, spec.CountBound) && !l.can(at, marking) && !l.faults {
		l.never(path+".count", "want fabric: {switch: {ecn: true}} of soft switches",
			"no selected port can mark a packet")
	}
	if demands(k.Share, spec.ShareBound) && !l.can(l.ports, marking) {
		l.neverUnlessPrograms(path+".share", "want fabric: {switch: {ecn: true}} of soft switches",
			"no switch can mark a packet")
	}
}

func (l *prover) drops(path string, k *spec.DropsCheck) {
	at := l.which(func(p *port) bool { return p.matches(k.At) })
	l.seen(path, at, limits(k.Count, spec.CountBound))
	if l.plan.Soft() && none(k.Count, spec.CountBound) {
		crossed := l.crossed(k.From, k.To)
		elsewhere := func(p *port) bool { return !slices.Contains(crossed, p) }
		l.lossless(path+".count", slices.DeleteFunc(at, elsewhere), k.Reason)
	}
	if !demands(k.Count, spec.CountBound) {
		return
	}
	if !l.plan.Soft() {
		told := k.Reason == "" || l.faults && k.Reason == softswitch.FromFault.String()
		if !told || k.From != "" || k.To != "" {
			l.never(path, "want soft switches, or remove reason, from and to",
				"kernel queues count drops without reasons and flows")
		}
		return
	}
	if k.Reason == "" || k.Reason == softswitch.Refused.String() ||
		k.Reason == softswitch.FromFault.String() && l.faults ||
		l.can(at, func(f softswitch.Foreseen) bool {
			for why := range f.Drops {
				if why.String() == k.Reason {
					return true
				}
			}
			return false
		}) {
		return
	}
	if k.Reason == softswitch.LinkDown.String() { // commands can take links down too
		l.hardly(path+".reason", "want a step with link: {state: down}, or flap of a link",
			"no step takes down a link of the selected ports")
	} else {
		l.never(path+".reason", "want another reason, or switch and link settings that cause such drops",
			"no selected port can drop a packet for reason %s", k.Reason)
	}
}

// reordering checks that packets can overtake others or, for a check that wants none, that no link
// setting reorders packets.
func (l *prover) reordering(path string, k *spec.ReorderingCheck) {
	reorders := func(_ *port, now plan.Direction) bool { return !now.Reorder.IsZero() }
	if none(k.Share, spec.ShareBound) {
		l.disturbed(path, l.crossed(k.From, k.To), reorders, "reorders",
			"want a link without reorder, or a check of other packets")
	}
	changes := slices.ContainsFunc(l.file.Steps, func(s spec.Step) bool { return s.Link != nil })
	if !demands(k.Share, spec.ShareBound) || !l.plan.Soft() || l.programs || l.faults || changes ||
		len(l.over("rd")) > 0 {
		return
	}
	if !l.can(l.ports, trimming) && !slices.ContainsFunc(l.ports, func(p *port) bool {
		return p.sw != nil && !slices.Contains([]string{spec.Flow, spec.Polarised}, p.sw.Soft.LoadBalance) ||
			slices.ContainsFunc(l.settings(p), func(now plan.Direction) bool { return reorders(p, now) })
	}) {
		l.hardly(path, "want reorder of a link, or load-balance: spray",
			"all packets of a flow take one path and keep their order")
	}
}

func (l *prover) trims(path string, k *spec.TrimsCheck) {
	at := l.which(func(p *port) bool { return !p.NIC && p.matches(k.At) })
	count := cmp.Or(k.Count, ">= 1")
	l.seen(path, at, limits(count, spec.CountBound))
	l.seen(path, l.which(isNIC), true)
	if demands(count, spec.CountBound) && !l.can(at, trimming) {
		l.never(path, "want fabric: {switch: {trim: true}} of soft switches",
			"no selected port can trim a packet")
	}
}

// asks reports whether a port can send PFC frames.
func (l *prover) asks(p *port) bool {
	if !p.NIC {
		return p.at.PFC != nil
	}
	return slices.ContainsFunc(l.file.Steps, func(s spec.Step) bool {
		return s.Traffic != nil && s.Traffic.Pause != nil &&
			slices.ContainsFunc(s.Traffic.From, func(from string) bool {
				return spec.Match(from, p.Node)
			})
	})
}

const wantPFC = "want fabric: {switch: {pfc: true}} of soft switches, or a step of traffic with pause"

func (l *prover) pauses(path string, k *spec.PausesCheck) {
	at := l.which(func(p *port) bool { return p.matches(k.At) })
	askers := slices.DeleteFunc(slices.Clone(at), func(p *port) bool { return !l.asks(p) })
	l.seen(path, at, true) // to see that ports react to pauses
	l.seen(path, askers, false)
	if (demands(k.Count, spec.CountBound) || demands(k.Paused, spec.DurationBound)) && len(askers) == 0 {
		l.neverUnlessPrograms(path, wantPFC, "no selected port can request a pause")
	}
	for i, name := range k.Order {
		path := fmt.Sprintf("%s.order[%d]", path, i)
		ports := l.which(func(p *port) bool { return p.matches(name) })
		if l.seen(path, ports, false); !slices.ContainsFunc(ports, l.asks) {
			l.neverUnlessPrograms(path, wantPFC, "%s cannot request a pause", name)
		}
	}
}

func (l *prover) deadlock(path, want string) {
	l.seen(path, l.which(func(p *port) bool { return !p.NIC }), want == "none")
	if want == "some" && !slices.ContainsFunc(l.ports, func(p *port) bool { return p.at.PFC != nil }) {
		l.never(path, "want fabric: {switch: {pfc: true}} of soft switches", "no switch pauses another")
	}
}

func (l *prover) queueDepth(path string, k *spec.QueueDepthCheck) {
	// Packets entering and leaving an emulated NIC are recorded only with events: all.
	at := l.which(func(p *port) bool { return p.matches(k.At) && (!p.NIC || l.capture.Events == "all") })
	if len(at) == 0 {
		// The record of an overrun drop has the length of the NIC's queue.
		tell := l.never
		if demands(k.Max, spec.BytesBound) || demands(k.P99, spec.BytesBound) {
			tell = l.hardly
		}
		tell(path+".at", "want ports of switches, or events: all in the capture at "+l.where("at"),
			"NICs do not record their send queues")
	}
	l.seen(path, at, true)
}

// linkBytes checks that an end of each link is captured.
func (l *prover) linkBytes(path string, k *spec.LinkBytesCheck) {
	pattern, _ := k.Target()
	for i := range l.plan.Links {
		if link := &l.plan.Links[i]; spec.Match(pattern, link.Name) {
			ends := l.which(func(p *port) bool { return p.end() == link.A || p.end() == link.B })
			if !slices.ContainsFunc(ends, func(p *port) bool { return p.captured }) {
				l.seen(path, ends, false)
				return
			}
		}
	}
}

// workloadOf returns the workload that a check names. Empty means no workload, or the only one.
func workloadOf(c *spec.PacketsCheck) string {
	switch {
	case c.BytesPerRank != nil:
		return c.BytesPerRank.Workload
	case c.Pacing != nil:
		return c.Pacing.Workload
	case c.Trims != nil:
		return c.Trims.Workload
	case c.Throughput != nil:
		return c.Throughput.Workload
	case c.QueueDepth != nil:
		return c.QueueDepth.Workload
	case c.Latency != nil:
		return c.Latency.Workload
	case c.LinkBytes != nil:
		return c.LinkBytes.Workload
	case c.Rule != nil:
		return c.Rule.Workload
	}
	return cmp.Or(c.RankNIC, c.RailLocal, c.PartialSums)
}

// begins checks that the capture begins before the workload of a check. If steps have times of
// their own, the order is not known.
func (l *prover) begins(path, workload string) {
	for i, step := range l.file.Steps[:l.step] {
		if workload == "" || step.Work() != workload ||
			slices.ContainsFunc(l.file.Steps[:l.step+1], func(s spec.Step) bool {
				return s.At != nil
			}) {
			continue
		}
		at := l.file.Source.Pos(fmt.Sprintf("steps[%d]", l.step))
		if step.Lasts() == "" {
			l.never(path, "want the capture above the workload",
				"workload %s of step %d has ended before the capture at %v begins", workload, i+1, at)
		} else {
			l.hardly(path, "want the capture above the workload",
				"workload %s begins before the capture at %v", workload, at)
		}
	}
}
