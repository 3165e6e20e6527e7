package topology

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Wiring is an explicit fabric.
type Wiring struct {
	Hosts    []string
	Switches []string
	// Connect lists links as "a:eth0 -- b:p1" or "a -- b". Ports without a name get the lowest free
	// number in the order of the list.
	Connect []string
}

// WiringError is an error in one entry of a Wiring.
type WiringError struct {
	// List is "hosts", "switches" or "connect".
	List  string
	Index int
	// What describes the error, and Want the correct form.
	What, Want string
	// Unknown is the undeclared name in Connect, if that is the error.
	Unknown string
}

// Error implements error.
func (e *WiringError) Error() string { return e.What + "; " + e.Want }

// maxInterfaceName is IFNAMSIZ-1 of Linux.
const maxInterfaceName = 15

var (
	// Names end up in hosts files, which ignore case, and in link names, in which "--" separates
	// two names.
	nodeName      = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,22}[a-z0-9])?$`)
	interfaceName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`)
	// reservedNodes have another meaning in files (keys and taps) or in the hosts file.
	reservedNodes = []string{"all", "default", "fabric", "host", "localhost", "nics", "switches"}
	// reservedInterfaces exist in every network namespace, are directories of
	// /proc/sys/net/ipv4/conf, or are the bridge device of a bridge.
	reservedInterfaces = []string{"all", "br0", "default", "lo"}
)

// end is one end of a parsed entry of Connect.
type end struct {
	node, port string
	isHost     bool
}

type explicit struct {
	wiring Wiring
	graph  *Graph
	errs   []error
	isHost map[string]bool // has every declared name
	index  map[string]int  // in graph.Hosts or graph.Switches
	used   map[End]int     // entry of Connect that uses the port
	next   map[string]int
}

// Explicit builds the graph of a wiring. NICs of a host are ordered by name, with numbers ordered
// by value. Its error joins one *WiringError for every wrong entry.
func Explicit(w Wiring) (*Graph, error) {
	x := &explicit{wiring: w, graph: &Graph{}, isHost: map[string]bool{}, index: map[string]int{},
		used: map[End]int{}, next: map[string]int{}}
	if !x.tooMany() {
		x.declare()
		x.connect()
	}
	if len(x.errs) > 0 {
		return nil, errors.Join(x.errs...)
	}
	x.setTiers()
	return x.graph, nil
}

func (x *explicit) fail(list string, i int, what, want string) {
	x.errs = append(x.errs, &WiringError{List: list, Index: i, What: what, Want: want})
}

// declare adds the hosts and switches, each under a unique name.
func (x *explicit) declare() {
	add := func(list string, i int, name string, host bool) bool {
		switch {
		case !nodeName.MatchString(name) || strings.Contains(name, "--"):
			x.fail(list, i, fmt.Sprintf("name %q cannot be a host name", name),
				`want at most 24 characters of a-z, 0-9 and single "-", the first a letter and the last `+
					`not "-"`)
			return false
		case slices.Contains(reservedNodes, name):
			x.fail(list, i, fmt.Sprintf("name %q is reserved", name),
				"want another name than "+strings.Join(reservedNodes, ", "))
			return false
		}
		if before, taken := x.isHost[name]; taken {
			kind := map[bool]string{true: "node", false: "switch"}
			what := fmt.Sprintf("duplicate %s %q", kind[host], name)
			if before != host {
				what = fmt.Sprintf("%s %q has the name of a %s", kind[host], name, kind[before])
			}
			x.fail(list, i, what, "want every name once")
			return false
		}
		x.isHost[name] = host
		return true
	}
	for i, name := range x.wiring.Hosts {
		if add("hosts", i, name, true) {
			x.index[name] = len(x.graph.Hosts)
			x.graph.Hosts = append(x.graph.Hosts, Host{Name: name})
		}
	}
	for i, name := range x.wiring.Switches {
		if add("switches", i, name, false) {
			x.index[name] = len(x.graph.Switches)
			x.graph.Switches = append(x.graph.Switches, Switch{Name: name, Role: roleSwitch})
		}
	}
}

// tooMany reports a wiring that exceeds the limits of every graph.
func (x *explicit) tooMany() bool {
	w := x.wiring
	for _, list := range []struct {
		name        string
		have, limit int
	}{{"hosts", len(w.Hosts), maxHosts}, {"switches", len(w.Switches), maxSwitches},
		{"connect", len(w.Connect), maxLinks}} {
		if list.have > list.limit {
			x.fail(list.name, list.limit, fmt.Sprintf("%s has %d entries", list.name, list.have),
				fmt.Sprintf("want at most %d", list.limit))
		}
	}
	return len(x.errs) > 0
}

// connect adds the links. It parses all entries first, so that a link without a port name never
// gets a port that the file names.
func (x *explicit) connect() {
	parsed := make([][2]end, len(x.wiring.Connect))
	for i, text := range x.wiring.Connect {
		pair, ok := x.parse(i, text)
		if !ok {
			continue
		}
		parsed[i] = pair
		for _, e := range pair {
			x.claim(i, e)
		}
	}
	if len(x.errs) > 0 {
		return
	}
	for i := range parsed {
		a, b := x.place(parsed[i][0]), x.place(parsed[i][1])
		if parsed[i][1].isHost {
			a, b = b, a
		}
		x.graph.Links = append(x.graph.Links, Link{A: a, B: b})
	}
	for i := range x.graph.Hosts {
		slices.SortFunc(x.graph.Hosts[i].Ports, CompareNames)
	}
}

func (x *explicit) parse(i int, text string) (pair [2]end, ok bool) {
	left, right, found := strings.Cut(text, "--")
	if !found || strings.Contains(right, "--") {
		x.fail("connect", i, fmt.Sprintf("link %q does not name two ends", text),
			`want "a -- b" or "a:eth0 -- b:p1"`)
		return pair, false
	}
	ok = true
	for side, part := range []string{left, right} {
		name, port, hasPort := strings.Cut(strings.TrimSpace(part), ":")
		host, known := x.isHost[name]
		if !known {
			x.errs = append(x.errs, &WiringError{List: "connect", Index: i, Unknown: name,
				What: fmt.Sprintf("link %q: there is no node or switch %q", text, name),
				Want: "want a name from hosts or switches"})
			ok = false
			continue
		}
		if want := wrongInterface(port); hasPort && want != "" {
			x.fail("connect", i, fmt.Sprintf("link %q: %q cannot be an interface name", text, port), want)
			ok = false
		}
		pair[side] = end{name, port, host}
	}
	if !ok {
		return pair, false
	}
	if pair[0].isHost && pair[1].isHost {
		x.fail("connect", i, fmt.Sprintf("link %q joins two nodes", text),
			"want a switch at one end: put one between them")
		return pair, false
	}
	if pair[0].node == pair[1].node {
		x.fail("connect", i, fmt.Sprintf("link %q joins %s to itself", text, pair[0].node),
			"want two different ends")
		return pair, false
	}
	return pair, true
}

func wrongInterface(name string) string {
	switch {
	case len(name) > maxInterfaceName:
		return fmt.Sprintf("it has %d characters, want at most %d", len(name), maxInterfaceName)
	case !interfaceName.MatchString(name):
		return "want letters and digits, and . _ - after the first character"
	case slices.Contains(reservedInterfaces, name):
		return "want another name than " + strings.Join(reservedInterfaces, ", ")
	}
	return ""
}

// claim records the use of a named port and reports a second use.
func (x *explicit) claim(i int, e end) {
	if e.port == "" {
		return
	}
	key := End{e.node, e.port}
	if first, taken := x.used[key]; taken {
		x.fail("connect", i, fmt.Sprintf("port %s:%s is already used by %q", e.node, e.port,
			x.wiring.Connect[first]), "want one link for each port")
		return
	}
	x.used[key] = i
}

// place assigns a port to an end.
func (x *explicit) place(e end) End {
	prefix := "p"
	if e.isHost {
		prefix = "eth"
	}
	for e.port == "" {
		key := End{e.node, fmt.Sprintf("%s%d", prefix, x.next[e.node])}
		x.next[e.node]++
		if _, taken := x.used[key]; !taken {
			e.port = key.Port
		}
	}
	if e.isHost {
		host := &x.graph.Hosts[x.index[e.node]]
		host.Ports = append(host.Ports, e.port)
	} else {
		sw := &x.graph.Switches[x.index[e.node]]
		sw.Ports = append(sw.Ports, e.port)
	}
	return End{e.node, e.port}
}

// setTiers sets the tier of each switch to the number of links to the nearest switch that has a
// host. Switches without a path to a host stay in tier 0.
func (x *explicit) setTiers() {
	neighbours := make([][]int, len(x.graph.Switches))
	tier := make([]int, len(x.graph.Switches))
	var queue []int
	for i := range tier {
		tier[i] = -1
	}
	for _, l := range x.graph.Links {
		b := x.index[l.B.Node]
		if !x.isHost[l.A.Node] {
			a := x.index[l.A.Node]
			neighbours[a], neighbours[b] = append(neighbours[a], b), append(neighbours[b], a)
		} else if tier[b] < 0 {
			tier[b] = 0
			queue = append(queue, b)
		}
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, next := range neighbours[at] {
			if tier[next] < 0 {
				tier[next] = tier[at] + 1
				queue = append(queue, next)
			}
		}
	}
	for i := range tier {
		x.graph.Switches[i].Tier = max(tier[i], 0)
	}
}

// CompareNames orders names by their text and, if that is equal, by the number at their end: eth2
// before eth10.
func CompareNames(a, b string) int {
	textA, numberA := cutNumber(a)
	textB, numberB := cutNumber(b)
	if c := strings.Compare(textA, textB); c != 0 {
		return c
	}
	if numberA != numberB {
		return numberA - numberB
	}
	return strings.Compare(a, b)
}

func cutNumber(name string) (string, int) {
	text := strings.TrimRight(name, "0123456789")
	number, _ := strconv.Atoi(name[len(text):])
	return text, number
}
