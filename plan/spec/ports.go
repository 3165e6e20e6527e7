package spec

import "strings"

// PortWords are the selectors of ports that are no names.
var PortWords = []string{"all", "nics", "switches"}

// PortForm lists the selectors of ports in errors.
const PortForm = `"all", "nics", "switches", node:port, a node or a switch`

// Port is a port of a testbed, for selectors.
type Port struct {
	Node, Name string
	NIC        bool // The node is no switch.
}

// String returns "node:port".
func (p Port) String() string { return p.Node + ":" + p.Name }

// Selected reports whether a selector selects the port. A selector is one of PortWords, the name of a node or
// a switch for all its ports, node:port, or a glob of these names.
func (p Port) Selected(selector string) bool {
	switch {
	case selector == "all":
		return true
	case selector == "nics":
		return p.NIC
	case selector == "switches":
		return !p.NIC
	case strings.Contains(selector, ":"):
		return Match(selector, p.String())
	}
	return Match(selector, p.Node)
}

// SplitPort splits "node:port" in two. Other text has neither.
func SplitPort(name string) (node, port string) {
	at := strings.LastIndexByte(name, ':')
	if at < 0 {
		return "", ""
	}
	return name[:at], name[at+1:]
}

// ports checks a selector of ports, if there is one.
func (c *checker) ports(path, selector string) {
	if selector == "" {
		return
	}
	node, port, hasPort := strings.Cut(selector, ":")
	c.pattern(c.Report, path, node, "tap", nodeName, PortForm)
	if hasPort {
		c.pattern(c.Report, path, port, "port", portName, portNameForm)
	}
}
