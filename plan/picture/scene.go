package picture

import (
	"fmt"
	"slices"
	"strings"

	"railbed/plan"
	"railbed/plan/spec"
)

// manyNodes is the largest number of servers that a picture shows one by one. Above it, servers
// behind the same switches share a box.
const manyNodes = 32

// serverTier is the tier of servers, below the lowest tier of switches.
const serverTier = -1

// palette is the number of colours of groups. neutral is not one of them.
const (
	palette = 9
	neutral = -1
)

// scene is the contents of a picture: boxes, and lines between them.
type scene struct {
	plan  *plan.Plan
	boxes []box
	lines []line
	// groups holds the named groups in the order of their colours.
	groups []string
	// grid reports whether the switches have positions in a torus.
	grid bool
	// collapsed reports whether some boxes stand for several servers.
	collapsed bool
	// labelled reports whether lines have labels, which need room.
	labelled bool
}

// box is a switch, a server, or several servers behind the same switches.
type box struct {
	tier    int
	name    string
	note    string // second line
	title   string // the tooltip
	colour  int
	members []string // of a box of several servers, in rows of columns
	columns int
	nics    int
	at      []int // see plan.Switch

	x, y, w, h float64 // left, top, width, height
}

func (b *box) middle() float64 { return b.x + b.w/2 }

// line is a link, or the links of all servers of a box by one NIC.
type line struct {
	a, b  int      // indices of boxes; a is nearer to the servers
	nic   int      // at a server's end
	links []string // their names
	rate  string
	width float64
	// colour is the colour of the group, see box.
	colour int
	title  string
	class  string
}

// newScene decides the contents of the picture. layout decides the positions.
func newScene(p *plan.Plan, collapse bool) *scene {
	s := &scene{plan: p, collapsed: collapse && len(p.Nodes) > manyNodes}
	at := map[string]int{}
	s.addSwitches(at)
	s.addServers(at)
	s.addLines(at)
	return s
}

func (s *scene) addSwitches(at map[string]int) {
	top, tops, grouped := 0, 0, false
	for _, sw := range s.plan.Switches {
		grouped = grouped || sw.Group != ""
		switch {
		case sw.Tier > top:
			top, tops = sw.Tier, 1
		case sw.Tier == top:
			tops++
		}
	}
	spines := 0
	for _, sw := range s.plan.Switches {
		colour := neutral
		switch {
		case sw.Group != "":
			colour = s.group(sw.Group)
		case top > 0 && sw.Tier == top && tops <= palette && !grouped:
			// No box has a colour otherwise, so colours show which paths use which spine.
			colour = spines
			spines++
		}
		s.grid = s.grid || len(sw.At) > 0
		at[sw.Name] = len(s.boxes)
		s.boxes = append(s.boxes, box{
			tier: sw.Tier, name: sw.Name, note: sw.Group, colour: colour, at: sw.At,
			title: titleOf(sw.Name, fmt.Sprintf("%s, %s, %d ports, %d routes", sw.Role, kindOf(&sw),
				len(sw.Ports), sw.Routes.Len()), features(&sw), sw.Group),
		})
	}
}

// kindOf returns the switch's kind, for a soft switch with its forwarding.
func kindOf(sw *plan.Switch) string { return strings.TrimSpace(sw.Kind + " " + sw.Forwarding) }

func features(sw *plan.Switch) string {
	if sw.Soft == nil {
		return ""
	}
	return strings.Join(sw.Soft.Features(), ", ")
}

func titleOf(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "\n")
}

// group returns the colour of a group.
func (s *scene) group(name string) int {
	i := slices.Index(s.groups, name)
	if i < 0 {
		i = len(s.groups)
		s.groups = append(s.groups, name)
	}
	return i % palette
}

// addServers adds a box for each server or set of servers, ordered by the switches to which they
// are wired.
func (s *scene) addServers(at map[string]int) {
	sets := map[string][]int{}
	var keys []string
	first := map[string]int{}
	for i := range s.plan.Nodes {
		key := wiring(&s.plan.Nodes[i])
		if sets[key] == nil {
			keys = append(keys, key)
			sw, _, _ := strings.Cut(s.plan.Nodes[i].NICs[0].Peer, ":")
			first[key] = at[sw]
		}
		sets[key] = append(sets[key], i)
	}
	slices.SortStableFunc(keys, func(a, b string) int { return first[a] - first[b] })
	for _, key := range keys {
		if s.collapsed && len(sets[key]) > 1 {
			s.addServerSet(sets[key], len(sets), at)
			continue
		}
		for _, i := range sets[key] {
			n := &s.plan.Nodes[i]
			at[n.Name] = len(s.boxes)
			s.boxes = append(s.boxes, box{tier: serverTier, name: n.Name, nics: len(n.NICs), colour: neutral,
				title: titleOf(serverTitle(n)...)})
		}
	}
}

func (s *scene) addServerSet(members []int, sets int, at map[string]int) {
	b := box{tier: serverTier, nics: len(s.plan.Nodes[members[0]].NICs), colour: neutral,
		columns: columns(len(members), sets)}
	for _, i := range members {
		at[s.plan.Nodes[i].Name] = len(s.boxes)
		b.members = append(b.members, s.plan.Nodes[i].Name)
	}
	b.name = fmt.Sprintf("%d servers", len(members))
	b.note = span(b.members)
	b.title = titleOf(b.name, strings.Join(b.members, " "))
	s.boxes = append(s.boxes, b)
}

// span returns "h0-h7" if the names are consecutive, else "h0 ... h14".
func span(names []string) string {
	first, last := names[0], names[len(names)-1]
	text := strings.TrimRight(first, "0123456789")
	var from, to int
	if _, err := fmt.Sscan(first[len(text):], &from); err == nil && strings.HasPrefix(last, text) {
		if _, err := fmt.Sscan(last[len(text):], &to); err == nil && to-from == len(names)-1 {
			return first + "-" + last
		}
	}
	return first + " ... " + last
}

func serverTitle(n *plan.Node) []string {
	words := []string{n.Name}
	for _, l := range n.Loopbacks {
		words = append(words, l.Addr().String())
	}
	for _, nic := range n.NICs {
		word := nic.Name + " to " + nic.Peer
		for _, a := range nic.Addrs {
			word += ", " + a.String()
		}
		words = append(words, word)
	}
	return words
}

// wiring returns the wiring that servers of one box share: the switch of each NIC.
func wiring(n *plan.Node) string {
	var words []string
	for _, nic := range n.NICs {
		sw, _, _ := strings.Cut(nic.Peer, ":")
		words = append(words, sw)
	}
	return strings.Join(words, " ")
}

// addLines adds a line for each link. Links of one set of servers by the same NIC and at the same
// rate share a line.
func (s *scene) addLines(at map[string]int) {
	type bundle struct {
		a, b, nic int
		rate      string
	}
	known := map[bundle]int{}
	for i := range s.plan.Links {
		l := &s.plan.Links[i]
		made := line{a: at[l.A.Node], b: at[l.B.Node], links: []string{l.Name}, rate: rateOf(l),
			width: widthOf(l), class: l.Class}
		if l.Class == spec.HostLink {
			node := s.plan.Node(l.A.Node)
			made.nic = slices.IndexFunc(node.NICs, func(n plan.Interface) bool { return n.Name == l.A.Port })
		}
		made.colour = s.lineColour(&made)
		key := bundle{made.a, made.b, made.nic, made.rate}
		if first, found := known[key]; found && s.boxes[made.a].members != nil {
			s.lines[first].links = append(s.lines[first].links, l.Name)
			s.lines[first].title = fmt.Sprintf("%d links %s to %s\n%s each", len(s.lines[first].links),
				s.boxes[made.a].note, l.B.Node, made.rate)
			continue
		}
		known[key] = len(s.lines)
		made.title = titleOf(l.Name, fmt.Sprintf("%s:%s to %s:%s", l.A.Node, l.A.Port, l.B.Node, l.B.Port),
			effects(l))
		s.lines = append(s.lines, made)
	}
}

// lineColour returns the colour of the group at the line's end, the lower end first. In a torus it
// is the colour of the dimension.
func (s *scene) lineColour(l *line) int {
	a, b := &s.boxes[l.a], &s.boxes[l.b]
	if s.grid && l.class == spec.FabricLink {
		for d := range a.at {
			if a.at[d] != b.at[d] {
				return d
			}
		}
	}
	if a.colour != neutral {
		return a.colour
	}
	return b.colour
}

// rateOf returns the rate in both directions, or both rates as "1gbit/100mbit".
func rateOf(l *plan.Link) string {
	if l.AToB.Rate == l.BToA.Rate {
		return l.AToB.Rate.String()
	}
	return l.AToB.Rate.String() + "/" + l.BToA.Rate.String()
}

// effects returns the link's settings that affect packets, in the words of files.
func effects(l *plan.Link) string {
	words := []string{rateOf(l), fmt.Sprintf("mtu %d", l.MTU)}
	if l.Weight > 1 {
		words = append(words, fmt.Sprintf("weight %d", l.Weight))
	}
	for _, e := range l.AToB.Effects() {
		words = append(words, "a-to-b "+e)
	}
	for _, e := range l.BToA.Effects() {
		words = append(words, "b-to-a "+e)
	}
	return strings.Join(words, ", ")
}
