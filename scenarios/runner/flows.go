package runner

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"railbed/fabric/softswitch/forward"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/workloads/worker"
)

// Flow is a stream of packets from a node to another.
type Flow struct {
	// Name is the flow for people: "h0->h3", or "h0:eth1->h3:eth1" if the flow is bound to NICs of nodes with
	// several. The name of the step is before it, if the flow is a step's.
	Name string
	// Node is the sender.
	Node string
	forward.Flow
}

// ErrFlows is the error of words that name no flows.
var ErrFlows = errors.New("flows")

// AllFlows is the word for a flow from each node to each other node.
const AllFlows = "all"

// flowing is a step without ranks whose flows are known before the run.
type flowing interface {
	flows(p *plan.Plan) ([]Flow, error)
}

// transports are the words for the flows over a transport.
var transports = []string{worker.TCP, worker.RD, worker.RoCE, worker.QUIC}

// FlowWords returns the words that Flows takes for a file, except pairs.
func FlowWords(o Options) []string {
	p := &preparation{findings: &findings{o: &o}}
	return flowWords(p.steps())
}

func flowWords(steps []step) []string {
	words := []string{AllFlows}
	for _, s := range steps {
		switch s.(type) {
		case ranked:
			if slices.Contains(transports, s.frame().Transport) {
				words = append(words, s.frame().Transport, s.frame().Name)
			}
		case flowing:
			words = append(words, s.frame().Name)
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// arrow separates the sender of a flow from its receiver.
const arrow = "->"

// Flows returns the flows that words name:
//
//   - all: a flow from each node to each other node.
//   - SRC->DST: names or globs of nodes, or of their NICs as "h0:eth1". A flow from a NIC is bound to it.
//   - the name of a step: what its ranks or nodes send to each other.
//   - a transport: what the ranks of all steps over this transport send to each other.
//
// Acknowledgements and answers are flows of their own, which only all and SRC->DST name. An error wraps
// ErrFlows or is a problem of the file.
func Flows(o Options, words []string) ([]Flow, error) {
	p := &preparation{findings: &findings{o: &o}}
	steps := p.steps()
	if err := p.err(); err != nil {
		return nil, err
	}
	var all []Flow
	for _, word := range words {
		flows, err := flowsOf(&o, steps, word)
		if err != nil {
			return nil, fmt.Errorf("%w %q: %w", ErrFlows, word, err)
		}
		all = append(all, flows...)
	}
	return distinct(all), nil
}

func flowsOf(o *Options, steps []step, word string) (flows []Flow, err error) {
	var named, over []step
	for _, s := range steps {
		if s.frame().Name == word {
			named = append(named, s)
		}
		if _, is := s.(ranked); is && s.frame().Transport == word {
			over = append(over, s)
		}
	}
	switch from, to, pair := strings.Cut(word, arrow); {
	case len(named) > 0:
	case word == AllFlows:
		return between(o.Plan, "*", "*")
	case pair:
		return between(o.Plan, from, to)
	case slices.Contains(transports, word) && len(over) == 0:
		return nil, fmt.Errorf("no step of the file uses this transport")
	case len(over) > 0:
		named = over
	default:
		return nil, fmt.Errorf("want 'SRC%sDST' in quotation marks, a transport, a step or %s: %s", arrow,
			AllFlows, strings.Join(flowWords(steps), ", "))
	}
	for _, s := range named {
		found, err := flowsOfStep(o, s)
		if err != nil {
			return nil, err
		}
		flows = append(flows, found...)
	}
	return flows, nil
}

// between returns a flow from each node or NIC that matches a pattern to each that matches another.
func between(p *plan.Plan, from, to string) (flows []Flow, err error) {
	senders, receivers := ends(p, from), ends(p, to)
	for pattern, found := range map[string][]end{from: senders, to: receivers} {
		if len(found) == 0 {
			if len(p.Nodes) == 0 {
				return nil, fmt.Errorf("no node or NIC is named %q: the fabric has no hosts", pattern)
			}
			return nil, fmt.Errorf("no node or NIC is named %q, want a name such as %s or %s:%s", pattern,
				p.Nodes[0].Name, p.Nodes[0].Name, p.Nodes[0].NICs[0].Name)
		}
	}
	for _, sender := range senders {
		for _, receiver := range receivers {
			if sender.node == receiver.node {
				continue
			}
			f := Flow{Name: sender.name + arrow + receiver.name, Node: sender.node,
				Flow: forward.Flow{Dst: receiver.addr}}
			if sender.nic {
				f.Src = sender.addr
			}
			flows = append(flows, f)
		}
	}
	if len(flows) == 0 {
		return nil, errors.New("the sender is the receiver")
	}
	return flows, nil
}

// end is a sender or receiver: a node with the address of its name, or one of its NICs.
type end struct {
	name, node string
	nic        bool
	addr       netip.Addr
}

// ends returns the nodes, or NICs of nodes, that match a pattern.
func ends(p *plan.Plan, pattern string) (found []end) {
	node, nic, ofNIC := strings.Cut(pattern, ":")
	for _, n := range matching(p, []string{node}) {
		if !ofNIC {
			if addr, err := address4(n); err == nil {
				found = append(found, end{n.Name, n.Name, false, addr})
			}
			continue
		}
		for _, i := range n.NICs {
			if spec.Match(nic, i.Name) && len(i.Addrs) > 0 {
				found = append(found, end{n.Name + ":" + i.Name, n.Name, true, i.Addrs[0].Addr()})
			}
		}
	}
	return found
}

// flowsOfStep returns what the ranks or nodes of a step send to each other.
func flowsOfStep(o *Options, s step) (flows []Flow, err error) {
	name := s.frame().Name
	switch s := s.(type) {
	case flowing:
		return s.flows(o.Plan)
	case ranked:
		job, err := s.job(&session{file: o.File, plan: o.Plan})
		if err != nil {
			return nil, err
		}
		connections, err := job.Connections()
		for _, c := range connections {
			if c.From.Node != c.To.Node {
				pair := rankName(o.Plan, &c.From) + arrow + rankName(o.Plan, &c.To)
				flows = append(flows, Flow{name + " " + pair, c.From.Node,
					forward.Flow{Src: c.Src.Addr(), Dst: c.Dst.Addr(), Protocol: c.Protocol,
						SrcPort: c.Src.Port(), DstPort: c.Dst.Port()}})
			}
		}
		if err == nil && len(flows) == 0 {
			err = errors.New("its ranks send nothing to another node")
		}
		return flows, err
	}
	return nil, fmt.Errorf("a step %s: does not tell its flows before the run, want SRC%sDST", s.frame().key,
		arrow)
}

// rankName returns the node of a rank, with the NIC if the node has several.
func rankName(p *plan.Plan, r *plan.Rank) string {
	if n := p.Node(r.Node); n != nil && len(n.NICs) > 1 {
		return r.Node + ":" + r.NIC
	}
	return r.Node
}

// flows returns the flows of the datagrams. The ports of fragments are not known to switches.
func (t *trafficStep) flows(p *plan.Plan) (flows []Flow, err error) {
	if t.spec.Pause != nil {
		return nil, errors.New("pause frames do not cross a switch, want SRC" + arrow + "DST")
	}
	from, targets := t.between(p)
	for i, node := range from {
		src, err := address4(node)
		if err != nil {
			return nil, err
		}
		for n := range t.spec.Flows * len(targets[i]) {
			to := targets[i][n%len(targets[i])]
			dst, err := address4(to)
			if err != nil {
				return nil, err
			}
			f := forward.Flow{Src: src, Dst: dst}
			if int(t.spec.Size) <= wire.EthernetLen+node.NICs[0].MTU {
				f.Protocol, f.SrcPort, f.DstPort = wire.ProtocolUDP, t.firstPort()+uint16(n), t.port()
			}
			flows = append(flows, Flow{t.Name + " " + node.Name + arrow + to.Name, node.Name, f})
		}
	}
	if len(flows) == 0 {
		return nil, errors.New("no node sends to another")
	}
	return flows, nil
}

// distinct drops flows that are there twice, and adds the ports to names that several flows have.
func distinct(flows []Flow) (all []Flow) {
	known, named := map[Flow]bool{}, map[string]int{}
	for _, f := range flows {
		if !known[f] {
			known[f] = true
			named[f.Name]++
			all = append(all, f)
		}
	}
	for i := range all {
		if f := &all[i]; named[f.Name] > 1 {
			f.Name += fmt.Sprintf(" port %d to %d", f.SrcPort, f.DstPort)
		}
	}
	return all
}
