// Package fabricchecks has the checks of links and switches, whatever transport the packets have. They judge
// whether packets are conserved, arrive in order and in time, and use all paths. They also judge marks,
// trims, drops, pauses and the lengths of queues.
//
// Most of these checks take a selection of packets. Several match packets that leave one port with
// packets that arrive at another (journeys).
package fabricchecks

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"railbed/capture/verify/evidence"
	"railbed/plan/spec"
)

// selection selects the packets that a check is about.
type selection struct {
	// At selects ports as taps name them: all, nics, switches, a switch, a node, node:port or a
	// glob of these. Empty means all.
	At string
	// From and To are globs over the nodes of the flows. Empty means any packet.
	From, To string
	// Workload is the workload whose packets count. Nil means all packets.
	Workload *evidence.Workload
}

// String returns the selection's name in results.
func (s selection) String() string {
	var words []string
	if s.At != "" {
		words = append(words, s.At)
	}
	if s.From != "" || s.To != "" {
		words = append(words, either(s.From)+" > "+either(s.To))
	}
	if s.Workload != nil {
		words = append(words, s.Workload.Name)
	}
	return strings.Join(words, " ")
}

func either(pattern string) string { return cmp.Or(pattern, "*") }

// titled returns the name of a check with its selection.
func (s selection) titled(name string) string {
	if text := s.String(); text != "" {
		return name + " " + text
	}
	return name
}

// tap reports whether a port is selected.
func (s selection) tap(t *evidence.Tap) bool { return t.Selected(s.At) }

// selector applies a selection to one capture.
type selector struct {
	selection
	capture *evidence.Capture
	taps    evidence.Slots[bool] // by tap
	flows   evidence.Slots[int8] // by flow: 0 not looked up, 1 selected, -1 not
	nodes   map[netip.Addr]evidence.Owner
	roles   *evidence.Roles // of the workload, if one is selected
	times   *evidence.Times // nil for all times
}

// Begin implements Check.
func (s *selector) Begin(c *evidence.Capture) {
	s.capture = c
	s.nodes = evidence.OwnersOf(c.Plan)
	if s.Workload != nil {
		s.roles = evidence.NewRoles(*s.Workload)
	}
}

// of reports whether a packet belongs to the workload.
func (s *selector) of(p *evidence.Packet) bool { return s.roles == nil || s.roles.Of(p).Relevant }

// at reports whether a port is selected.
func (s *selector) at(t *evidence.Tap) bool {
	return s.taps.Made(t.Index, func(i int) bool { return s.tap(s.capture.Taps[i]) })
}

// flow reports whether a packet's flow is selected. With neither From nor To all packets are
// selected, also those without a flow.
func (s *selector) flow(f *evidence.Flow) bool {
	if s.From == "" && s.To == "" {
		return true
	}
	if f == nil {
		return false
	}
	slot := s.flows.At(f.Index)
	if *slot == 0 {
		*slot = -1
		if s.end(s.From, f.Src) && s.end(s.To, f.Dst) {
			*slot = 1
		}
	}
	return *slot > 0
}

func (s *selector) end(pattern string, addr netip.AddrPort) bool {
	of, known := s.nodes[addr.Addr()]
	return pattern == "" || known && spec.Match(pattern, of.Node)
}

// chosen returns the captured taps that are selected.
func (s *selector) chosen() (taps []*evidence.Tap) {
	for _, tap := range s.capture.Taps {
		if s.at(tap) {
			taps = append(taps, tap)
		}
	}
	return taps
}

// ports returns the selected ports, as "node:port".
func (s *selector) ports() []string { return s.capture.Ports(s.tap) }

// nics returns the NICs of the nodes that packets of the selection leave and arrive at.
func (s *selector) nics() []string { return s.nicsOf(s.From, s.To) }

// nicsOf returns the NICs of the nodes that a pattern matches, or an empty one.
func (s *selector) nicsOf(patterns ...string) []string {
	return s.capture.Ports(func(t *evidence.Tap) bool {
		return t.NIC && slices.ContainsFunc(patterns, func(pattern string) bool {
			return spec.Match(either(pattern), t.Node)
		})
	})
}

// leaves reports whether a packet leaves its node for another. Without a plan every packet may.
func (s *selector) leaves(p *evidence.Packet) bool {
	if len(s.nodes) == 0 {
		return !p.Group
	}
	_, leaves := s.capture.Departure(p, s.nodes)
	return leaves
}

// planned returns what is known of the selected traffic without packets. These are the pairs of nodes between
// which the workload sends, or the flows of steps that were active in the selected time.
func (s *selector) planned() (sends []evidence.Send) {
	all := s.capture.Sends
	if s.Workload != nil {
		all = nil
		for _, pair := range s.Workload.NodePairs() {
			all = append(all, evidence.Send{Step: "workload " + s.Workload.Name, Pair: pair,
				Begun: s.Workload.From, Ended: s.Workload.To})
		}
	}
	all = s.times.Sends(all)
	for i := range all {
		if spec.Match(either(s.From), all[i].From) && spec.Match(either(s.To), all[i].To) {
			sends = append(sends, all[i])
		}
	}
	return sends
}

// unknownSenders returns a reason why flows may be unknown of which nothing arrived: the capture lacks NICs
// of their sources, and no step has the traffic of the sources.
func (s *selector) unknownSenders() []string {
	if s.Workload != nil || len(s.times.Sends(s.capture.Sends)) > 0 {
		return nil
	}
	return s.capture.UnknownSenders(s.nicsOf(s.From), s.times)
}

// neverSeen names the packets of senders that are in no recording, because the senders' links were down or
// lose packets. They may be of the selected flows.
func (s *selector) neverSeen() (lines []string) {
	if s.capture.Plan == nil {
		return nil
	}
	for _, nic := range s.nicsOf(s.From) {
		for _, what := range s.capture.NeverSeen(nic) {
			lines = append(lines, what+"; their flows are not known")
		}
	}
	return lines
}

// destination reports whether a packet that arrives at a NIC is for this NIC. Its destination is
// the NIC's address, or an address of the node that belongs to no other NIC. Without a plan every
// NIC may be the destination.
func (s *selector) destination(p *evidence.Packet) bool {
	if len(s.nodes) == 0 {
		return true
	}
	to := s.nodes[p.Flow.Dst.Addr()]
	return to.Node == p.Tap.Node && (to.NIC == "" || to.NIC == p.Tap.Port)
}

// crosses reports whether a packet passes a port on its way: the packet leaves a switch, or arrives
// at a node.
func crosses(p *evidence.Packet) bool {
	return p.Drop == "" && (p.Tap.NIC && p.Direction == evidence.In || !p.Tap.NIC &&
		p.Direction == evidence.Out)
}

// priority returns a queue's number, or -1 for any queue.
func priority(q *int) int {
	if q == nil {
		return -1
	}
	return *q
}
