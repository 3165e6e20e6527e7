package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Difference is how a plan differs from another one.
type Difference struct {
	// Links are the links of which nothing but a direction's settings differs.
	// These can be changed while the links carry traffic.
	Links []string
	// Rest is everything else, in lines for people.
	Rest []string
}

// Live reports whether one plan can become the other one while it runs.
func (d Difference) Live() bool { return len(d.Rest) == 0 }

// Compare tells how want differs from have.
func Compare(have, want *Plan) Difference {
	var d Difference
	for _, part := range []struct {
		name       string
		have, want any
	}{{"name", have.Name, want.Name}, {"seed", have.Seed, want.Seed}, {"dilation", have.Dilation, want.Dilation}} {
		if part.have != part.want {
			d.Rest = append(d.Rest, fmt.Sprintf("%s %v, want %v", part.name, part.have, part.want))
		}
	}
	d.Rest = append(d.Rest, compareElements("node", have.Nodes, want.Nodes, func(n Node) string { return n.Name })...)
	d.Rest = append(d.Rest, compareElements("switch", have.Switches, want.Switches, func(s Switch) string { return s.Name })...)
	fixed := func(links []Link) []Link {
		links = slices.Clone(links)
		for i := range links {
			links[i].AToB, links[i].BToA = Direction{}, Direction{}
		}
		return links
	}
	d.Rest = append(d.Rest, compareElements("link", fixed(have.Links), fixed(want.Links), func(l Link) string { return l.Name })...)
	if len(d.Rest) == 0 { // what follows from the others
		for name, pair := range map[string][2]any{"ranks": {have.Ranks, want.Ranks}, "hosts": {have.Hosts, want.Hosts}} {
			if !sameJSON(pair[0], pair[1]) {
				d.Rest = append(d.Rest, name+" differ")
			}
		}
		slices.Sort(d.Rest)
	}
	for _, l := range want.Links {
		if running := have.Link(l.Name); running != nil && !(running.AToB.Equal(l.AToB) && running.BToA.Equal(l.BToA)) {
			d.Links = append(d.Links, l.Name)
		}
	}
	return d
}

// compareElements compares elements by name. Those that differ in the same way
// share a line.
func compareElements[E any](kind string, have, want []E, name func(E) string) []string {
	index := map[string]E{}
	for _, e := range have {
		index[name(e)] = e
	}
	var lines []string
	names := map[string][]string{} // by line
	tell := func(name, change string) {
		if names[change] == nil {
			lines = append(lines, change)
		}
		names[change] = append(names[change], name)
	}
	for _, e := range want {
		running, exists := index[name(e)]
		delete(index, name(e))
		switch change := changes(running, e); {
		case !exists:
			tell(name(e), "added")
		case change != "":
			tell(name(e), change)
		}
	}
	for _, e := range have {
		if _, left := index[name(e)]; left {
			tell(name(e), "removed")
		}
	}
	if len(lines) == 0 && !sameJSON(have, want) {
		return []string{kind + " order differs"}
	}
	for i, change := range lines {
		lines[i] = kind + " " + few(names[change]) + ": " + change
	}
	return lines
}

// changes names the fields in which two elements differ, and the values of
// those that are short.
func changes(have, want any) string {
	const short = 24 // bytes of JSON
	before, after := fields(have), fields(want)
	all := maps.Clone(before)
	maps.Copy(all, after)
	var changed []string
	for _, field := range slices.Sorted(maps.Keys(all)) {
		was, now := before[field], after[field]
		switch {
		case bytes.Equal(was, now):
		case len(was) > short || len(now) > short:
			changed = append(changed, field)
		default:
			changed = append(changed, fmt.Sprintf("%s %s, want %s", field, value(was), value(now)))
		}
	}
	return strings.Join(changed, "; ")
}

func value(text json.RawMessage) string {
	if len(text) == 0 {
		return "none"
	}
	return strings.Trim(string(text), `"`)
}

// few are the first of many names.
func few(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func fields(v any) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(encode(v), &fields); err != nil {
		panic("compare plans: " + err.Error())
	}
	return fields
}

func sameJSON(a, b any) bool { return bytes.Equal(encode(a), encode(b)) }

// encode cannot fail, as Hash cannot.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("compare plans: " + err.Error())
	}
	return text
}

// Changes tells how a direction differs from what is wanted, as "rate 1gbit,
// want 100mbit"; it is empty when they are the same.
func (d Direction) Changes(want Direction) string { return changes(d, want) }

// Direction is what the link does with what its end A sends, or its end B.
func (l *Link) Direction(atA bool) Direction {
	if atA {
		return l.AToB
	}
	return l.BToA
}
