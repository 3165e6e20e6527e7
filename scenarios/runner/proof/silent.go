package proof

import (
	"fmt"
	"slices"
	"strings"

	"railbed/capture/verify/conditions"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
)

// silent warns of settings of switches that have no effect, because another setting acts first or no
// packet meets them. A value of the file is reported once, with the first switch that it concerns.
func (l *prover) silent() {
	said := map[string]bool{}
	used, known := l.dscpsSent()
	marked := map[int]bool{} // DSCPs of data: CNPs and acknowledgements are not ECN-capable
	for _, c := range l.Carriers() {
		marked[dscpsOf(c)[0]] = true
	}
	for _, step := range l.File.Steps {
		if step.Traffic != nil {
			marked[step.Traffic.DSCP] = true
		}
	}
	for i := range l.Plan.Switches {
		sw := &l.Plan.Switches[i]
		if sw.Soft == nil {
			continue
		}
		m := noEffect{prover: l, sw: sw, said: said}
		for dscp := range marked {
			m.marked[sw.Soft.Priorities[dscp]] = known
		}
		m.pausesBeforeMarks()
		m.shortQueues()
		m.emptyPriorities()
		if known {
			m.unusedPriorities(used)
			m.unusedFeatures()
		}
	}
}

// noEffect finds the settings of one switch that have no effect.
type noEffect struct {
	*prover
	sw   *plan.Switch
	said map[string]bool
	// marked are the priorities of the data that steps send, or none if other data is possible.
	marked [spec.Priorities]bool
}

// note warns at the value of block.key that decides for the switch, or else at the block.
func (m *noEffect) note(block, key string, has func(spec.Switch) bool, want, what string, args ...any) {
	path := plan.SwitchSetting(m.File, m.sw.Name, block, key, has)
	if !m.said[path] {
		m.said[path] = true
		m.Hardly(path, want, what, args...)
	}
}

// lossless is the length at which a port of a switch holds its sender back, by PFC or GFC, and the
// length up to which it accepts packets.
type lossless struct {
	by      string // "pfc" or "gfc"
	at, all units.Bytes
}

// holdsBack returns the lengths of a port for a priority, or false if it is not lossless.
func (m *noEffect) holdsBack(port *plan.Interface, priority int) (lossless, bool) {
	soft := m.sw.Soft
	switch {
	case soft.PFC != nil && slices.Contains(soft.PFC.Priorities, priority):
		return lossless{"pfc", port.PFC.XOff, port.PFC.XOff + port.PFC.Headroom}, true
	case soft.GFC != nil && slices.Contains(soft.GFC.Priorities, priority):
		return lossless{"gfc", port.GFC.B1, port.GFC.Limit}, true
	}
	return lossless{}, false
}

// out returns the settings of the direction in which a port sends.
func (m *noEffect) out(port *plan.Interface) plan.Direction {
	link := m.Plan.Link(port.Link)
	switch {
	case link == nil:
		return plan.Direction{}
	case link.A == (plan.End{Node: m.sw.Name, Port: port.Name}):
		return link.AToB
	}
	return link.BToA
}

// firstMark returns the shortest length of a queue of the switch at which ECN begins to mark, and
// whether ECN marks packets of a priority that steps may use.
func (m *noEffect) firstMark(priority int) (first units.Bytes, marks bool) {
	e, unused := m.sw.Soft.ECN, !m.marked[priority] && slices.Contains(m.marked[:], true)
	if e == nil || unused || !slices.Contains(e.Priorities, priority) || len(m.sw.Ports) == 0 {
		return 0, false
	}
	for i := range m.sw.Ports {
		if length, _ := e.Lengths(m.out(&m.sw.Ports[i]).Rate); i == 0 || length < first {
			first = length
		}
	}
	return first, true
}

// pausesBeforeMarks warns of lossless priorities on which flow control holds a sender back before ECN
// marks its packets. Without marks DCQCN does not slow the sender.
func (m *noEffect) pausesBeforeMarks() {
	for priority := range spec.Priorities {
		first, marks := m.firstMark(priority)
		if !marks {
			continue
		}
		var worst lossless // the port that accepts most
		var all units.Bytes
		for i := range m.sw.Ports {
			held, is := m.holdsBack(&m.sw.Ports[i], priority)
			if !is {
				break
			}
			all += held.all
			if held.at > worst.at || worst.by == "" {
				worst = held
			}
		}
		if worst.by == "" || worst.at > first {
			continue
		}
		what := fmt.Sprintf("queues that packets of one port fill are never marked: %s of %s holds the "+
			"sender back at %s, and ecn marks from %s on", worst.by, m.sw.Name, worst.at, first)
		if all-worst.all <= first {
			what = fmt.Sprintf("ecn of %s marks nothing at priority %d: %s holds every sender back at "+
				"%s, and ecn marks from %s on", m.sw.Name, priority, worst.by, worst.at, first)
		}
		key, has := m.holdKey(worst.by)
		m.note(worst.by, key, has, fmt.Sprintf("want %s above %s, in a buffer with room for it, or ecn "+
			"that marks below %s", key, first, worst.at), "%s", what)
		return
	}
}

// holdKey returns the key that decides the length at which flow control holds senders back.
func (m *noEffect) holdKey(by string) (key string, has func(spec.Switch) bool) {
	b1 := func(s spec.Switch) bool { return s.GFC != nil && s.GFC.B1 != nil }
	bm := func(s spec.Switch) bool { return s.GFC != nil && s.GFC.BM != nil }
	switch {
	case by == "pfc":
		return "xoff", func(s spec.Switch) bool { return s.PFC != nil && s.PFC.XOff != nil }
	case m.gives(bm) && !m.gives(b1):
		return "bm", bm
	}
	return "b1", b1
}

// gives reports whether the file gives a setting for the switch.
func (m *noEffect) gives(has func(spec.Switch) bool) bool {
	return has(m.File.Fabric.SwitchSettings(m.sw.Name))
}

// shortQueues warns of ECN that begins at lengths that no queue of a lossy priority reaches.
func (m *noEffect) shortQueues() {
	soft := m.sw.Soft
	for priority := range spec.Priorities {
		first, marks := m.firstMark(priority)
		if _, is := m.holdsBack(&m.sw.Ports[0], priority); !marks || is {
			continue
		}
		// A queue that grows alone may hold alpha times the bytes that are then free.
		longest := units.Bytes(float64(soft.Shared) * soft.Alpha.Float() / (1 + soft.Alpha.Float()))
		limit := units.Bytes(0)
		for i := range m.sw.Ports {
			limit = max(limit, m.out(&m.sw.Ports[i]).Queue)
		}
		longest = min(longest, limit)
		if longest > first {
			continue
		}
		m.note("ecn", "kmin", func(s spec.Switch) bool { return s.ECN != nil && s.ECN.KMin != 0 },
			fmt.Sprintf("want ecn that marks below %s, a larger buffer, or a larger queue of the links",
				longest),
			"ecn of %s marks nothing at priority %d: it marks from %s on, and a queue holds at most %s",
			m.sw.Name, priority, first, longest)
		return
	}
}

// block is a block of settings with priorities, and what it does to their packets.
type block struct {
	name, does string
	priorities []int
	has        func(spec.Switch) bool // whether an entry gives the priorities
}

func (m *noEffect) blocks() (all []block) {
	soft := m.sw.Soft
	if e := soft.ECN; e != nil {
		all = append(all, block{"ecn", "marks", e.Priorities, func(s spec.Switch) bool {
			return s.ECN != nil && len(s.ECN.Priorities) > 0
		}})
	}
	if p := soft.PFC; p != nil {
		all = append(all, block{"pfc", "pauses", p.Priorities, func(s spec.Switch) bool {
			return s.PFC != nil && len(s.PFC.Priorities) > 0
		}})
	}
	if g := soft.GFC; g != nil {
		all = append(all, block{"gfc", "slows", g.Priorities, func(s spec.Switch) bool {
			return s.GFC != nil && len(s.GFC.Priorities) > 0
		}})
	}
	if t := soft.Trim; t != nil {
		all = append(all, block{"trim", "trims", t.Priorities, func(s spec.Switch) bool {
			return s.Trim != nil && len(s.Trim.Priorities) > 0
		}})
	}
	return all
}

// emptyPriorities warns of priorities that the file gives, and that no DSCP has.
func (m *noEffect) emptyPriorities() {
	for _, b := range m.blocks() {
		if !m.gives(b.has) {
			continue
		}
		for _, q := range b.priorities {
			if !slices.Contains(m.sw.Soft.Priorities[:], uint8(q)) {
				m.note(b.name, "priorities", b.has, "want a DSCP for it in priorities:, or remove it",
					"no DSCP of %s has priority %d, so %s %s only frames with a priority tag", m.sw.Name,
					q, b.name, b.does)
			}
		}
	}
}

// unusedPriorities warns of blocks whose priorities no step uses.
func (m *noEffect) unusedPriorities(sent map[int]string) {
	var dscps []string
	for _, dscp := range sortedKeys(sent) {
		dscps = append(dscps, fmt.Sprintf("DSCP %d of %s has priority %d", dscp, sent[dscp],
			m.sw.Soft.Priorities[dscp]))
	}
	for _, b := range m.blocks() {
		if b.name == "ecn" && slices.ContainsFunc(m.Over("roce"), conditions.Carried.ReactsToMarks) {
			continue // congestion reports it
		}
		if !slices.ContainsFunc(sortedKeys(sent), func(dscp int) bool {
			return slices.Contains(b.priorities, int(m.sw.Soft.Priorities[dscp]))
		}) {
			m.note(b.name, "priorities", b.has, "want a priority of the packets that steps send: "+
				strings.Join(dscps, ", "), "%s of %s %s nothing: no step sends packets of priority %s",
				b.name, m.sw.Name, b.does, strings.Join(strings.Fields(strings.Trim(fmt.Sprint(b.priorities),
					"[]")), ", "))
		}
	}
}

// unusedFeatures warns of telemetry and aggregation that no step uses.
func (m *noEffect) unusedFeatures() {
	steps := m.File.Steps
	if m.sw.Soft.INT && len(m.Over("rd")) == 0 &&
		!slices.ContainsFunc(steps, func(s spec.Step) bool { return s.Probe != nil }) {
		m.note("int", "", func(spec.Switch) bool { return false }, "want transport: rd or a step of "+
			"probes, or remove it", "int of %s writes nothing: no step sends packets with room for "+
			"telemetry", m.sw.Name)
	}
	if m.sw.Soft.Aggregation != nil && !slices.ContainsFunc(steps, func(s spec.Step) bool {
		return s.Workload != nil && s.Workload.Algorithm == schedule.InNetwork
	}) {
		m.note("aggregation", "", func(spec.Switch) bool { return false },
			"want a workload with algorithm: "+schedule.InNetwork+", or remove it",
			"aggregation of %s adds up nothing: no step uses it", m.sw.Name)
	}
}

// dscpsSent returns the DSCPs of the packets that steps send, with the name of a step. known is
// false if programs can send others, or no step sends.
func (l *prover) dscpsSent() (sent map[int]string, known bool) {
	sent = map[int]string{}
	add := func(name string, dscps ...int) {
		for _, dscp := range dscps {
			if _, is := sent[dscp]; !is {
				sent[dscp] = name
			}
		}
	}
	for _, c := range l.Carriers() {
		add(c.Name, dscpsOf(c)...)
	}
	for _, step := range l.File.Steps {
		if t := step.Traits(); t.DSCP != nil {
			add(t.Name, *t.DSCP)
		}
	}
	return sent, !l.Programs && len(sent) > 0
}

// dscpsOf returns the DSCPs of the packets of a step: of its data, and of its packets without data.
func dscpsOf(c conditions.Carried) []int {
	own := map[string]int{"rd": spec.DSCPRd, "roce": dscpRoCE}[c.Transport]
	if c.DSCP != 0 {
		own = c.DSCP
	}
	switch c.Transport {
	case "rd":
		return []int{own, spec.DSCPRdControl}
	case "roce":
		return []int{own, dscpCNP}
	}
	return []int{own}
}

func sortedKeys(of map[int]string) (keys []int) {
	for key := range of {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
