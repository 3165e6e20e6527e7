package report

import (
	"fmt"
	"slices"
	"strings"

	"railbed/internal/printable"
	"railbed/plan/topology"
)

// Bounds of Contention.
const (
	// muchDenied is the share of the time in which programs wanted a processor and had none from which a node
	// is in Contention.Nodes.
	muchDenied = 0.5
	// greed is the least factor by which the programs of Greedy wanted more processor time than the programs
	// of each other node.
	greed = 2
	// limited is the share of the waiting time from which a node's limit of CPUs is the reason for it.
	limited = 0.1
)

// Contention says which nodes' programs had no processor when they wanted one, and why. It leaves out nodes
// whose limit of CPUs held their programs back: NodeKernel.Throttled has this time.
type Contention struct {
	// Nodes are those whose programs were denied most of the time that they wanted. Least and Most bound
	// their shares, and Rest is the largest share of the other nodes.
	Nodes             []string
	Least, Most, Rest float64
	// All is set if all nodes with programs are in Nodes.
	All bool
	// Greedy is the node whose programs wanted at least twice as much processor time as the programs of each
	// other node: Wanted seconds, and at most Next of another node. It is "" without such a node.
	Greedy       string
	Wanted, Next float64
	// Own is the share of the host's processor time that the testbed's programs had, or -1 if it is not
	// known. Others is the share of other programs, if they took processors that the run needed, or 0.
	Own, Others float64
}

// Contention returns which nodes lacked processors, or nil if none did.
func (r *Report) Contention() *Contention {
	if r.Fidelity == nil {
		return nil
	}
	c := &Contention{Own: -1, All: true}
	ran := 0.0
	for _, n := range r.Fidelity.Nodes {
		ran += n.Ran
		if n.Throttled > n.Waited*limited { // several threads wait for one time of the limit
			continue
		}
		waited := n.Waited - n.Throttled
		wanted := n.Ran + waited
		switch {
		case wanted > c.Wanted:
			c.Greedy, c.Wanted, c.Next = n.Node, wanted, c.Wanted
		case wanted > c.Next:
			c.Next = wanted
		}
		denied := 0.0
		if wanted > 0 {
			denied = waited / wanted
		}
		if denied <= muchDenied {
			c.All, c.Rest = c.All && wanted == 0, max(c.Rest, denied)
			continue
		}
		if c.Nodes = append(c.Nodes, n.Node); len(c.Nodes) == 1 {
			c.Least = denied
		}
		c.Least, c.Most = min(c.Least, denied), max(c.Most, denied)
	}
	if len(c.Nodes) == 0 {
		return nil
	}
	if c.Next == 0 || c.Wanted < greed*c.Next {
		c.Greedy = ""
	}
	slices.SortFunc(c.Nodes, topology.CompareNames)
	end := 0.0
	for _, s := range r.Steps {
		end = max(end, s.End)
	}
	if end *= float64(max(r.Dilation, 1)); end > 0 && r.Host.CPUs > 0 {
		c.Own = ran / (end * float64(r.Host.CPUs))
		if t := r.Fidelity.Timing; t != nil {
			c.Own += t.Ran / float64(r.Host.CPUs)
		}
	}
	if n := r.Host.CPUs; n > 0 && r.Fidelity.OthersCompete(n) {
		c.Others = OthersUse(r.Fidelity.Others, n) / float64(n)
	}
	return c
}

// Of says why a node's programs had no processor, or returns "" if that is no particular of the node.
func (c *Contention) Of(node string) string {
	switch {
	case c == nil:
		return ""
	case c.Greedy != "":
		return fmt.Sprintf("programs of %s wanted %.3g s of processor time, and those of no other node more "+
			"than %.3g s", printable.Line(c.Greedy), c.Wanted, c.Next)
	case !c.All && slices.Contains(c.Nodes, node):
		return fmt.Sprintf("its programs had no processor for %s of the time that they wanted one, and "+
			"those of other nodes for at most %.0f%%", c.share(), c.Rest*100)
	}
	return ""
}

// share formats the shares of the nodes.
func (c *Contention) share() string {
	least, most := fmt.Sprintf("%.0f%%", c.Least*100), fmt.Sprintf("%.0f%%", c.Most*100)
	if least == most {
		return most
	}
	return least + " to " + most
}

// String says which nodes lacked processors, and why.
func (c *Contention) String() string {
	nodes := strings.Join(c.Nodes[:min(len(c.Nodes), 6)], ", ")
	if more := len(c.Nodes) - 6; more > 0 {
		nodes += fmt.Sprintf(" and %d more", more)
	}
	text := fmt.Sprintf("programs of %s had no processor for %s of the time that they wanted one",
		printable.Line(nodes), c.share())
	switch {
	case c.Greedy != "":
		text += "; " + c.Of(c.Greedy)
	case !c.All:
		text += fmt.Sprintf("; those of other nodes had none for at most %.0f%%", c.Rest*100)
	}
	if c.Own >= 0 && c.Others > 0 {
		text += fmt.Sprintf("; the testbed's programs had %.0f%% of the processors' time, and other "+
			"programs on this machine %.0f%%", c.Own*100, c.Others*100)
	}
	return text
}
