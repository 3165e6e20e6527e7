package verify

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"railbed/testbed/plan"
	"railbed/testbed/spec"
)

// Selection says which packets a check is about.
type Selection struct {
	// At are ports as taps name them: all, nics, switches, a switch, a node,
	// node:port or a glob of these. Empty is all.
	At string
	// From and To are globs over the nodes of the flows; empty is any packet.
	From, To string
	// Workload is whose packets count; nil is all.
	Workload *Workload
}

// String names the selection, for results.
func (s Selection) String() string {
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

func either(pattern string) string {
	if pattern == "" {
		return "*"
	}
	return pattern
}

// titled is the name of a check with its selection.
func (s Selection) titled(name string) string {
	if text := s.String(); text != "" {
		return name + " " + text
	}
	return name
}

// tap reports whether a port is meant.
func (s Selection) tap(t *Tap) bool {
	switch {
	case t.Node == "":
		return false
	case s.At == "" || s.At == "all":
		return true
	case s.At == "nics":
		return t.NIC
	case s.At == "switches":
		return !t.NIC
	case strings.Contains(s.At, ":"):
		return spec.Match(s.At, t.Name)
	}
	return spec.Match(s.At, t.Node)
}

// selector is a Selection at work on one capture.
type selector struct {
	Selection
	capture *Capture
	taps    []bool // by tap index
	flows   []int8 // by flow index: 0 not looked up, 1 meant, -1 not
	nodes   map[netip.Addr]string
	roles   *roles // of the workload, if one is meant
}

func (s *selector) begin(c *Capture) {
	s.capture = c
	s.nodes = nodesByAddr(c.Plan)
	if s.Workload != nil {
		s.roles = newRoles(*s.Workload)
	}
}

// of reports whether a packet is the workload's.
func (s *selector) of(p *Packet) bool { return s.roles == nil || s.roles.of(p).relevant }

// nodesByAddr are the nodes of a plan by each of their addresses.
func nodesByAddr(p *plan.Plan) map[netip.Addr]string {
	found := map[netip.Addr]string{}
	if p == nil {
		return found
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, prefix := range n.Loopbacks {
			found[prefix.Addr()] = n.Name
		}
		for _, nic := range n.NICs {
			for _, prefix := range nic.Addrs {
				found[prefix.Addr()] = n.Name
			}
		}
	}
	return found
}

// at reports whether a port is meant.
func (s *selector) at(t *Tap) bool {
	for len(s.taps) <= t.Index {
		s.taps = append(s.taps, s.tap(s.capture.Taps[len(s.taps)]))
	}
	return s.taps[t.Index]
}

// flow reports whether a packet's flow is meant. With neither From nor To all
// are, those of no flow too.
func (s *selector) flow(f *Flow) bool {
	if s.From == "" && s.To == "" {
		return true
	}
	if f == nil {
		return false
	}
	for len(s.flows) <= f.Index {
		s.flows = append(s.flows, 0)
	}
	if s.flows[f.Index] == 0 {
		s.flows[f.Index] = -1
		if s.end(s.From, f.Src) && s.end(s.To, f.Dst) {
			s.flows[f.Index] = 1
		}
	}
	return s.flows[f.Index] > 0
}

func (s *selector) end(pattern string, addr netip.AddrPort) bool {
	node, known := s.nodes[addr.Addr()]
	return pattern == "" || known && spec.Match(pattern, node)
}

// chosen are the captured taps that are meant.
func (s *selector) chosen() (taps []*Tap) {
	for _, tap := range s.capture.Taps {
		if s.at(tap) {
			taps = append(taps, tap)
		}
	}
	return taps
}

// crosses reports whether a packet passes a port on its way: it leaves a switch,
// or arrives at a node.
func crosses(p *Packet) bool {
	return p.Drop == "" && (p.Tap.NIC && p.Direction == In || !p.Tap.NIC && p.Direction == Out)
}

// judgeBound compares a number that was counted in packets. Where taps lost some,
// there may have been more, so that only too many is certain.
func judgeBound(what string, b *spec.Bound, value float64, shown string, lossy bool) (wrong, unclear []string) {
	if b == nil || b.Holds(value) {
		return nil, nil
	}
	line := fmt.Sprintf("%s: %s, want %s", what, shown, b)
	if lossy && !(b.Upper() && value > b.Limit) {
		return nil, []string{line}
	}
	return []string{line}, nil
}

// judgeShare is judgeEither of a share.
func judgeShare(what string, b *spec.Bound, value float64, lossy bool) (wrong, unclear []string) {
	return judgeEither(what, b, value, percent(value), lossy)
}

// judgeEither is judgeBound of what lost packets make too low or too high.
func judgeEither(what string, b *spec.Bound, value float64, shown string, lossy bool) (wrong, unclear []string) {
	wrong, unclear = judgeBound(what, b, value, shown, false)
	if lossy {
		wrong, unclear = nil, wrong
	}
	return wrong, unclear
}

func percent(v float64) string { return fmt.Sprintf("%.3g%%", v*100) }

// lingers is for how long a packet may be under way between two NICs, in
// nanoseconds: as long as the slowest link takes for the largest buffer, and as all delays of
// a path are at most, within bounds.
func lingers(c *Capture) int64 {
	longest := lingerUnknown
	if p := c.Plan; p != nil {
		slowest, delay := int64(math.MaxInt64), time.Duration(0)
		for _, l := range p.Links {
			for _, d := range []plan.Direction{l.AToB, l.BToA} {
				if d.Rate > 0 {
					slowest = min(slowest, int64(d.Rate))
				}
				delay = max(delay, time.Duration(d.Delay)+time.Duration(d.Jitter))
			}
		}
		for i := range p.Switches {
			if soft := p.Switches[i].Soft; soft != nil && slowest != math.MaxInt64 {
				longest = max(longest, time.Duration(float64(soft.Buffer)*8*float64(time.Second)/float64(slowest)))
			}
		}
		longest += pathLinks * delay
	}
	return int64(min(longest, lingerMost)) * int64(c.Dilation)
}

// generationOf is how old a generation of what is remembered becomes, so that what may be under
// way for so long has its time.
func generationOf(linger int64) int64 { return max(int64(time.Second), 2*linger) }
