package cni

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"railbed/fabric"
	"railbed/testbed/plan"
	"railbed/testbed/spec"
)

// Table is who is attached to which node. It is safe for concurrent use.
type Table struct {
	mu    sync.Mutex
	plan  *plan.Plan
	taken map[string]*Attached // by node; in the plan's order they are given out
	// left are the latest that were freed without a DEL: their containers may still have
	// what a plugin made there before it was killed.
	left []*Attached
}

// mostLeft bounds left.
const mostLeft = 256

// NewTable is an empty table of a plan's nodes.
func NewTable(p *plan.Plan) *Table { return &Table{plan: p, taken: map[string]*Attached{}} }

// Reserve takes a free node. It is given back by Free.
func (t *Table) Reserve(r Request) (*Attached, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for node, have := range t.taken {
		if have.Key == r.Key {
			return nil, fmt.Errorf("attach %s of container %s: %w, to %s; DEL it first", r.Interface, r.Container, ErrTwice, node)
		}
	}
	ports := t.portsLocked()
	at, err := free(ports, r, t.plan.Name)
	if err != nil {
		return nil, err
	}
	n := t.plan.Node(ports[at].Node)
	one := &Attached{Request: r, Since: time.Now(), Made: fabric.NewAttachment(t.plan, n, r.DefaultRoute)}
	t.taken[n.Name] = one
	return one, nil
}

// free is the first port that a request may have.
func free(ports []Port, r Request, testbed string) (int, error) {
	matching := 0
	for i, p := range ports {
		if r.Port != "" && p.Node != r.Port || r.Port == "" && r.Group != "" && !spec.Match(r.Group, p.Node) {
			continue
		}
		matching++
		if p.Attached == nil {
			return i, nil
		}
	}
	asked := cmp.Or(r.Port, r.Group, "any")
	switch {
	case matching == 0 && len(ports) == 0:
		return 0, fmt.Errorf("attach container to %s: %w in testbed %s; want nodes with runtime: cni in its file", asked, ErrNoPort, testbed)
	case matching == 0:
		return 0, fmt.Errorf("attach container to %s: %w in testbed %s; want one of %s .. %s, or a pattern of names", asked, ErrNoPort, testbed, ports[0].Node, ports[len(ports)-1].Node)
	}
	return 0, fmt.Errorf("attach container to %s: %w in testbed %s: all %d are taken", asked, ErrTaken, testbed, matching)
}

// Join notes that the port is there. It is false when somebody freed the node.
func (t *Table) Join(one *Attached) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	one.Joined = t.taken[one.Made.Node.Name] == one
	return one.Joined
}

// Has reports whether the node is still taken by that.
func (t *Table) Has(one *Attached) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken[one.Made.Node.Name] == one
}

// Free gives back what Reserve took.
func (t *Table) Free(one *Attached) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[one.Made.Node.Name] == one {
		delete(t.taken, one.Made.Node.Name)
		t.left = append(t.left, one)
		t.left = t.left[max(0, len(t.left)-mostLeft):]
	}
}

// Left are those of a container's interface that were freed, the latest last; they are
// forgotten.
func (t *Table) Left(k Key) (left []*Attached) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = slices.DeleteFunc(t.left, func(one *Attached) bool {
		if one.Key == k {
			left = append(left, one)
		}
		return one.Key == k
	})
	return left
}

// Find are the attachments that match, in the plan's order.
func (t *Table) Find(match func(*Attached) bool) (found []*Attached) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.plan.CNINodes() {
		if one := t.taken[n.Name]; one != nil && match(one) {
			found = append(found, one)
		}
	}
	return found
}

// Invalid are a network's attachments that are to go.
func (t *Table) Invalid(c Collect) []*Attached {
	return t.Find(func(one *Attached) bool {
		return one.Joined && one.Network == c.Network && !slices.Contains(c.Valid, one.Key)
	})
}

// Ports are all nodes, in the plan's order.
func (t *Table) Ports() []Port {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.portsLocked()
}

// Shown are Ports for people, who have the plan for what is made.
func (t *Table) Shown() []Port {
	ports := t.Ports()
	for _, p := range ports {
		if p.Attached != nil {
			p.Attached.Made = nil
		}
	}
	return ports
}

func (t *Table) portsLocked() []Port {
	ports := []Port{}
	for _, n := range t.plan.CNINodes() {
		p := Port{Node: n.Name, Addresses: []string{}}
		if one := t.taken[n.Name]; one != nil {
			now := *one
			p.Attached = &now
		}
		for _, prefix := range slices.Concat(n.Loopbacks, n.NICs[0].Addrs) {
			p.Addresses = append(p.Addresses, prefix.String())
		}
		ports = append(ports, p)
	}
	return ports
}
