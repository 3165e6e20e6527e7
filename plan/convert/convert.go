// Package convert turns other tools' files into testbeds and testbeds into
// theirs: containerlab's topologies both ways, and Compose files one way.
//
// It reads text and writes text, and looks at nothing on the host. What one
// side has and the other has not is left out and told, each with its place.
package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"railbed/plan/spec"
)

// Labels by which an exported topology keeps what containerlab has no word for,
// so that importing it gives the testbed again. Their values are settings in the
// words of testbed files.
const (
	labelTestbed = "railbed.testbed"
	labelNode    = "railbed.node"
	labelSwitch  = "railbed.switch"
	labelLink    = "railbed.link"
)

// ownCommands begins the command that an exported node sets up its addresses
// with, which are the plan's and are not imported.
const ownCommands = ": addresses of railbed;"

// ownSysctls are what exported containers have as Railbed's nodes do. They are not
// imported either.
var ownSysctls = map[string]string{
	"net.ipv4.conf.all.rp_filter": "0", "net.ipv4.conf.default.rp_filter": "0",
	"net.ipv6.conf.all.disable_ipv6": "0",
}

// defaultMTU is that of containerlab's links.
const defaultMTU = 9500

// notes is what a conversion leaves out or changes.
type notes struct {
	file string
	all  spec.Problems
}

func (n *notes) add(at place, want, what string, args ...any) {
	n.all = append(n.all, spec.Problem{File: n.file, Line: at.line, Column: at.column,
		What: fmt.Sprintf(what, args...), Want: want})
}

// sorted is the notes by their place, each once.
func (n *notes) sorted() spec.Problems {
	problems, _ := n.all.Err().(spec.Problems)
	return problems
}

// place is where something stands in a file; zero for what has none.
type place struct{ line, column int }

func placeOf(n *yaml.Node) place { return place{n.Line, n.Column} }

// names gives everything a name that testbed files allow, each its own.
type names struct {
	taken map[string]bool
	given map[string]string
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

const maxName = 24

// reservedNames mean something else in testbed files.
var reservedNames = []string{"all", "default", "fabric", "host", "localhost", "nics", "switches"}

// plainName is the text with what a name cannot have replaced, without a
// letter in front perhaps.
func plainName(text string) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(text), "-"), "-")
	return strings.Trim(name[:min(len(name), maxName)], "-")
}

// give finds a name for what the other file calls text.
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
