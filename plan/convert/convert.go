// Package convert converts between testbeds and the files of other tools: containerlab's topologies
// in both directions, and Compose files in one direction.
//
// The package reads and writes text and does not look at the host. It leaves out what the other
// format cannot express, and reports each omission with its position.
package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"railbed/plan/spec"
)

// Labels in which an exported topology keeps settings that containerlab does not have. With them
// importing the topology returns the same testbed. Their values are settings as written in testbed
// files.
const (
	labelTestbed = "railbed.testbed"
	labelNode    = "railbed.node"
	labelSwitch  = "railbed.switch"
	labelLink    = "railbed.link"
)

// ownCommands begins the command by which an exported node sets up its addresses. The addresses
// come from the plan and are not imported.
const ownCommands = ": addresses of railbed;"

// ownSysctls are the sysctls that exported containers need to behave as Railbed's nodes do. They
// are not imported either.
var ownSysctls = map[string]string{
	"net.ipv4.conf.all.rp_filter": "0", "net.ipv4.conf.default.rp_filter": "0",
	"net.ipv6.conf.all.disable_ipv6": "0",
}

// defaultMTU is the default MTU of containerlab's links.
const defaultMTU = 9500

// notes collects what a conversion leaves out or changes.
type notes struct {
	file    string
	all     spec.Problems
	classes map[class]*cases
}

func (n *notes) add(at place, want, what string, args ...any) {
	n.all = append(n.all, spec.Problem{File: n.file, Line: at.line, Column: at.column,
		What: fmt.Sprintf(what, args...), Want: want})
}

// sorted returns the notes by their position, without repetitions.
func (n *notes) sorted() spec.Problems {
	all := slices.Clone(n.all)
	for _, c := range n.classes {
		all = append(all, c.problem())
	}
	problems, _ := all.Err().(spec.Problems)
	return problems
}

// place is a position in a file. It is zero for values without a position.
type place struct{ line, column int }

func placeOf(n *yaml.Node) place { return place{n.Line, n.Column} }

// names assigns names that testbed files allow, each of them once.
type names struct {
	taken map[string]bool
	given map[string]string
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

const maxName = 24

// reservedNames have another meaning in testbed files.
var reservedNames = []string{"all", "default", "fabric", "host", "localhost", "nics", "switches"}

// plainName replaces the characters that a name cannot have. The result may begin with a character
// that is not a letter.
func plainName(text string) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(text), "-"), "-")
	return strings.Trim(name[:min(len(name), maxName)], "-")
}

// give assigns a name to a text of the other file.
func (n *names) give(text string) string {
	name := plainName(text)
	if name == "" || name[0] < 'a' || slices.Contains(reservedNames, name) {
		name = plainName("n-" + name)
	}
	for i, base := 2, name; n.taken[name]; i++ {
		suffix := fmt.Sprintf("-%d", i)
		name = strings.TrimRight(base[:min(len(base), maxName-len(suffix))], "-") + suffix
	}
	n.taken[name], n.given[text] = true, name
	return name
}
