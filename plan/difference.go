package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Difference describes how a plan differs from another plan.
type Difference struct {
	// Links are the links that differ only in settings of a direction. These settings can be
	// changed while the links carry traffic.
	Links []string
	// Rest holds all other differences, as lines for people.
	Rest []string
}

// Live reports whether one plan can be changed into the other during a run.
func (d Difference) Live() bool { return len(d.Rest) == 0 }

// Compare describes how want differs from have in the words of files: elements that were added or
// removed, and settings. Addresses, routes, ports and other values that the compiler derives
// are described only if no other difference explains them.
func Compare(have, want *Plan) Difference {
	d := Difference{Rest: differences(have, want, wanted)}
	for _, l := range want.Links {
		if running := have.Link(l.Name); running != nil &&
			!(running.AToB.Equal(l.AToB) && running.BToA.Equal(l.BToA)) {
			d.Links = append(d.Links, l.Name)
		}
	}
	return d
}

// Changes lists how the plan of a later run differs from the plan of an earlier run. It has the words of
// files and the settings of links, as "switch leaf1: buffer 48KB, now 512KB". Plans without changes are
// equal.
func Changes(before, now *Plan) []string {
	const later = ", now "
	changes := differences(before, now, later)
	links := linesOf{kind: "link"}
	for i := range now.Links {
		l := &now.Links[i]
		was := before.Link(l.Name)
		if was == nil {
			continue
		}
		aToB := changesOf(given(was.AToB, was.MTU), given(l.AToB, l.MTU), later)
		bToA := changesOf(given(was.BToA, was.MTU), given(l.BToA, l.MTU), later)
		switch {
		case aToB == bToA:
			links.add(l.Name, aToB)
		default:
			links.add(l.Name+" a-to-b", aToB)
			links.add(l.Name+" b-to-a", bToA)
		}
	}
	return append(changes, links.lines()...)
}

// given returns the settings of a direction of a link with the given MTU, without a ReorderBy that follows
// from others.
func given(d Direction, mtu int) map[string]string {
	if d.ReorderBy == d.DefaultReorderBy(mtu) {
		d.ReorderBy = 0
	}
	return settingsOf(d)
}

// wanted stands between the value of a running testbed and the value of a file.
const wanted = ", want "

// differences lists all differences but those in the settings of links' directions. between stands between
// two values.
func differences(have, want *Plan, between string) (lines []string) {
	for _, part := range []struct {
		name       string
		have, want any
	}{
		{"name", have.Name, want.Name}, {"seed", have.Seed, want.Seed},
		{"dilation", have.Dilation, want.Dilation},
		{"memory of the fabric", have.PacketMemory, want.PacketMemory},
	} {
		if part.have != part.want {
			lines = append(lines, fmt.Sprint(part.name, " ", part.have, between, part.want))
		}
	}
	haveRanks, wantRanks := ranksByNode(have), ranksByNode(want)
	lines = append(lines, compareElements("node", nodeSettings(have, haveRanks),
		nodeSettings(want, wantRanks), between)...)
	lines = append(lines, compareElements("switch", switchSettings(have), switchSettings(want), between)...)
	lines = append(lines, compareElements("link", linkSettings(have), linkSettings(want), between)...)
	if len(lines) == 0 {
		lines = compareElements("link", linkEnds(have), linkEnds(want), between)
	}
	if len(lines) == 0 {
		lines = compareDerived(have, want)
	}
	return lines
}

// element is a node, switch or link with its settings, by their names in files.
type element struct {
	name     string
	settings map[string]string
}

func ranksByNode(p *Plan) map[string]int {
	ranks := map[string]int{}
	for _, r := range p.Ranks {
		ranks[r.Node]++
	}
	return ranks
}

func nodeSettings(p *Plan, ranks map[string]int) (all []element) {
	for _, n := range p.Nodes {
		settings := settingsOf(map[string]any{
			"runtime": n.Runtime, "rdma": n.RDMA, "modules": n.Modules, "cpu": n.CPU, "slowed": n.Slowed,
			"squeezed":  n.Squeezed,
			"memory":    n.Memory,
			"nic-queue": n.NICQueue, "nic-path": n.NICPath(),
			"nic-mirror": n.Mirror,
			"sysctls":    n.Sysctls, "env": n.Env, "container": n.Container,
			"management": n.Management,
			"nics":       len(n.NICs), "ranks": ranks[n.Name],
		})
		all = append(all, element{n.Name, settings})
	}
	return all
}

func switchSettings(p *Plan) (all []element) {
	for _, s := range p.Switches {
		settings := settingsOf(map[string]any{"kind": s.Kind, "forwarding": s.Forwarding})
		if soft := s.Soft; soft != nil {
			maps.Copy(settings, settingsOf(map[string]any{
				"load-balance": soft.LoadBalance, "flowlet-gap": soft.FlowletGap, "buffer": soft.Buffer,
				"alpha": soft.Alpha,
				"scheduler": map[string]any{"strict": soft.Scheduler.Strict,
					"weights": soft.Scheduler.Weights},
				"priorities": soft.Priorities, "ecn": soft.ECN, "trim": soft.Trim, "pfc": soft.PFC,
				"gfc": soft.GFC, "int": soft.INT,
				"aggregation": soft.Aggregation.settings(),
			}))
			if soft.PFC != nil && len(s.Ports) > 0 { // every port has the values that the file gives
				for setting, value := range s.Ports[0].PFC.given() {
					settings["pfc."+setting] = value.String()
				}
			}
			if soft.GFC != nil && len(s.Ports) > 0 {
				for setting, value := range s.Ports[0].GFC.settings() {
					settings["gfc."+setting] = value
				}
			}
		}
		all = append(all, element{s.Name, settings})
	}
	return all
}

func linkSettings(p *Plan) (all []element) {
	for _, l := range p.Links {
		all = append(all, element{l.Name,
			settingsOf(map[string]any{"mtu": l.MTU, "weight": max(l.Weight, 1)})})
	}
	return all
}

// linkEnds returns the ends of all links. Compare uses it only if no element was added or removed,
// because generators number ports by them.
func linkEnds(p *Plan) (all []element) {
	for _, l := range p.Links {
		all = append(all, element{l.Name,
			map[string]string{"ends": l.A.Node + ":" + l.A.Port + " -- " + l.B.Node + ":" + l.B.Port}})
	}
	return all
}

// withoutHeadroom returns the switches without the buffer that they reserve for PFC and GFC because
// of their links. During a run it follows the links.
func withoutHeadroom(switches []Switch) []Switch {
	switches = slices.Clone(switches)
	for i := range switches {
		sw := &switches[i]
		if sw.Soft == nil || sw.Soft.PFC == nil && sw.Soft.GFC == nil {
			continue
		}
		soft := *sw.Soft
		soft.Reserved, soft.Shared = 0, 0
		sw.Soft, sw.Ports = &soft, slices.Clone(sw.Ports)
		for p := range sw.Ports {
			port := &sw.Ports[p]
			if port.PFC != nil {
				given := *port.PFC
				given.Marks = 0          // what the buffer allows beside the headroom
				given = Hop{}.PFC(given) // the same for every link
				port.PFC = &given
			}
			if port.GFC != nil {
				given := port.GFC.given()
				port.GFC = &given
			}
		}
	}
	return switches
}

// compareDerived describes differences in addresses, routes, ports and other derived values of
// plans whose settings are all the same.
func compareDerived(have, want *Plan) (lines []string) {
	tell := func(kind string, names []string) {
		if len(names) > 0 {
			lines = append(lines, fmt.Sprintf("%s %s: other addresses, routes or ports, because the "+
				"file's order or addressing differs", kind, few(names)))
		}
	}
	var nodes, switches []string
	for i := range want.Nodes {
		if name := want.Nodes[i].Name; !sameJSON(have.Node(name), want.Nodes[i]) {
			nodes = append(nodes, name)
		}
	}
	for _, sw := range withoutHeadroom(want.Switches) {
		if was := have.Switch(sw.Name); was == nil || !sameJSON(withoutHeadroom([]Switch{*was})[0], sw) {
			switches = append(switches, sw.Name)
		}
	}
	tell("node", nodes)
	tell("switch", switches)
	for _, order := range []struct {
		kind       string
		have, want any
	}{
		{"nodes", names(have.Nodes, Node.named), names(want.Nodes, Node.named)},
		{"switches", names(have.Switches, Switch.named), names(want.Switches, Switch.named)},
		{"links", names(have.Links, Link.named), names(want.Links, Link.named)},
		{"ranks", have.Ranks, want.Ranks},
	} {
		if len(lines) == 0 && !sameJSON(order.have, order.want) {
			lines = append(lines, order.kind+": in another order")
		}
	}
	return lines
}

func (n Node) named() string   { return n.Name }
func (s Switch) named() string { return s.Name }
func (l Link) named() string   { return l.Name }

func names[E any](all []E, name func(E) string) (found []string) {
	for _, e := range all {
		found = append(found, name(e))
	}
	return found
}

// linesOf collects changes of elements of a kind. Elements that differ in the same way share a line.
type linesOf struct {
	kind    string
	changes []string
	names   map[string][]string // by change
}

// add adds a change of an element, "" for none.
func (l *linesOf) add(name, change string) {
	if change == "" {
		return
	}
	if l.names == nil {
		l.names = map[string][]string{}
	}
	if l.names[change] == nil {
		l.changes = append(l.changes, change)
	}
	l.names[change] = append(l.names[change], name)
}

func (l *linesOf) lines() (lines []string) {
	for _, change := range l.changes {
		lines = append(lines, l.kind+" "+few(l.names[change])+": "+change)
	}
	return lines
}

// compareElements compares elements by name.
func compareElements(kind string, have, want []element, between string) []string {
	index := map[string]element{}
	for _, e := range have {
		index[e.name] = e
	}
	all := linesOf{kind: kind}
	for _, e := range want {
		running, exists := index[e.name]
		delete(index, e.name)
		if !exists {
			all.add(e.name, "added")
			continue
		}
		all.add(e.name, changesOf(running.settings, e.settings, between))
	}
	for _, e := range have {
		if _, left := index[e.name]; left {
			all.add(e.name, "removed")
		}
	}
	return all.lines()
}

// settingsOf flattens settings, as in "ecn.kmin" to "40KB". It leaves out zero values.
func settingsOf(v any) map[string]string {
	var tree any
	if err := json.Unmarshal(encode(v), &tree); err != nil {
		panic("compare plans: " + err.Error())
	}
	flat := map[string]string{}
	flatten(flat, "", tree)
	return flat
}

func flatten(into map[string]string, path string, v any) {
	switch v := v.(type) {
	case nil:
	case map[string]any:
		for key, inner := range v {
			flatten(into, strings.TrimPrefix(path+"."+strings.ReplaceAll(key, "_", "-"), "."), inner)
		}
	case string:
		if v != "" {
			into[path] = v
		}
	case []any:
		var words []string
		for _, one := range v {
			words = append(words, fmt.Sprint(one))
		}
		into[path] = strings.Join(words, ",")
	default:
		if text := string(encode(v)); text != "0" && text != "false" {
			into[path] = text
		}
	}
}

// SettingChange is a setting that has changed. An empty value means that it is not set.
type SettingChange struct {
	Setting string `json:"setting"`
	Was     string `json:"was"`
	Now     string `json:"now"`
}

// DirectionChanges returns the settings in which a later state of a direction differs, in the words of files.
// It leaves out a reorder-by that follows from other settings. mtu is the MTU of the link.
func DirectionChanges(was, now Direction, mtu int) []SettingChange {
	return changedSettings(given(was, mtu), given(now, mtu))
}

func changedSettings(have, want map[string]string) (changed []SettingChange) {
	all := map[string]string{}
	maps.Copy(all, have)
	maps.Copy(all, want)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if have[name] != want[name] {
			changed = append(changed, SettingChange{name, have[name], want[name]})
		}
	}
	return changed
}

// changesOf names the settings in which two elements differ, with the values of those that are
// short. It shows no values of environment variables, because they may be secret.
func changesOf(have, want map[string]string, between string) string {
	const short = 60 // characters
	var changed []string
	for _, c := range changedSettings(have, want) {
		if len(c.Was) > short || len(c.Now) > short || strings.HasPrefix(c.Setting, "env.") {
			changed = append(changed, c.Setting+" differs")
		} else {
			changed = append(changed, c.Setting+" "+cmp.Or(c.Was, "none")+between+cmp.Or(c.Now, "none"))
		}
	}
	return strings.Join(changed, "; ")
}

// few returns the first of many names.
func few(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func sameJSON(a, b any) bool { return bytes.Equal(encode(a), encode(b)) }

// encode cannot fail, for the reason that Hash gives.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("compare plans: " + err.Error())
	}
	return text
}

// WantedOf describes how a direction differs from the wanted one, as "rate 1gbit, want 100mbit". It returns
// "" if they are the same.
func WantedOf(d, want Direction) string {
	return changesOf(settingsOf(d), settingsOf(want), wanted)
}

// SettingsOf lists all settings of a direction, as "delay 3us, queue 100KB, rate 500mbit".
func SettingsOf(d Direction) string {
	settings := settingsOf(d)
	words := make([]string, 0, len(settings))
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		words = append(words, name+" "+settings[name])
	}
	return strings.Join(words, ", ")
}

// Direction returns the direction of the link in which end A sends, or in which end B sends.
func (l *Link) Direction(atA bool) Direction {
	if atA {
		return l.AToB
	}
	return l.BToA
}
