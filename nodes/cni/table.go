package cni

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"railbed/fabric"
	"railbed/plan"
	"railbed/plan/spec"
)

// Table records which container is attached to which node. It is safe for concurrent use.
type Table struct {
	mu    sync.Mutex
	plan  *plan.Plan
	taken map[plan.End]*Attached // by NIC; NICs are assigned in the plan's order
	// left are the latest attachments that were freed without a DEL. Their containers may still
	// have parts that a plugin made before it was killed.
	left []*Attached
}

// mostLeft bounds left.
const mostLeft = 256

// NewTable makes an empty table of a plan's nodes.
func NewTable(p *plan.Plan) *Table { return &Table{plan: p, taken: map[plan.End]*Attached{}} }

// Reserve reserves a free NIC. Free returns it.
func (t *Table) Reserve(r Request) (*Attached, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for end, have := range t.taken {
		if have.Key == r.Key {
			return nil, fmt.Errorf("attach %s of container %s: %w, to %s; DEL it first", r.Interface,
				r.Container, ErrTwice, t.nameOf(end))
		}
	}
	ports := t.portsLocked()
	at, err := free(ports, r, t.plan.Name)
	if err != nil {
		return nil, err
	}
	n := t.plan.Node(ports[at].Node)
	nic := slices.IndexFunc(n.NICs, func(i plan.Interface) bool { return i.Name == ports[at].NIC })
	one := &Attached{Request: r, Since: time.Now(),
		Made: fabric.NewAttachment(t.plan, n, nic, r.DefaultRoute)}
	one.Made.Beside = t.besideLocked(one)
	t.taken[one.Made.End()] = one
	return one, nil
}

// nameOf is the displayed name of a NIC: the node's name if it has just one.
func (t *Table) nameOf(end plan.End) string {
	if n := t.plan.Node(end.Node); n != nil && len(n.NICs) > 1 {
		return end.Node + ":" + end.Port
	}
	return end.Node
}

// besideLocked returns the node's other NICs that the container has.
func (t *Table) besideLocked(one *Attached) map[string]string {
	beside := map[string]string{}
	for end, other := range t.taken {
		if end.Node == one.Made.Node.Name && other != one && other.Joined &&
			other.Container == one.Container {
			beside[end.Port] = other.Interface
		}
	}
	return beside
}

// nowLocked returns a copy with the present other NICs.
func (t *Table) nowLocked(one *Attached) *Attached {
	now, made := *one, *one.Made
	made.Beside, now.Made = t.besideLocked(one), &made
	return &now
}

// matches reports whether a request matches a port, taken or not.
func (r *Request) matches(p Port) bool {
	nodes, nics, _ := strings.Cut(cmp.Or(r.Port, r.Group, "*"), ":")
	if r.Port != "" {
		return p.Node == nodes && (nics == "" || p.NIC == nics)
	}
	return spec.Match(nodes, p.Node) && (nics == "" || spec.Match(nics, p.NIC))
}

// free returns the port for a request. All ports of a node go to one container, and nodes that the
// container has already come first.
func free(ports []Port, r Request, testbed string) (int, error) {
	owners := map[string]string{} // of nodes
	for _, p := range ports {
		if p.Attached != nil {
			owners[p.Node] = p.Attached.Container
		}
	}
	better := func(a, b Port) bool {
		if a.Node != b.Node {
			return owners[a.Node] != "" && owners[b.Node] == ""
		}
		return a.NIC == r.Interface && b.NIC != r.Interface
	}
	matching, best := 0, -1
	for i, p := range ports {
		if !r.matches(p) {
			continue
		}
		matching++
		if owner := owners[p.Node]; p.Attached != nil || owner != "" && owner != r.Container {
			continue
		}
		if best < 0 || better(p, ports[best]) {
			best = i
		}
	}
	asked := cmp.Or(r.Port, r.Group, "any")
	switch {
	case best >= 0:
		return best, nil
	case matching == 0 && len(ports) == 0:
		return 0, fmt.Errorf("attach container to %s: %w in testbed %s; want nodes with runtime: cni in "+
			"its file", asked, ErrNoPort, testbed)
	case matching == 0:
		return 0, fmt.Errorf("attach container to %s: %w in testbed %s; want one of %s .. %s, one of their "+
			"NICs (NODE:NIC), or a pattern of such names", asked, ErrNoPort, testbed, ports[0].Node,
			ports[len(ports)-1].Node)
	}
	return 0, fmt.Errorf("attach container to %s: %w in testbed %s: all %d are taken", asked, ErrTaken,
		testbed, matching)
}

// Join records that the port exists. It returns false if the node was freed meanwhile.
func (t *Table) Join(one *Attached) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	one.Joined = t.taken[one.Made.End()] == one
	return one.Joined
}

// Has reports whether the attachment still has its NIC.
func (t *Table) Has(one *Attached) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken[one.Made.End()] == one
}

// Free returns a NIC that Reserve reserved.
func (t *Table) Free(one *Attached) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[one.Made.End()] == one {
		delete(t.taken, one.Made.End())
		t.left = append(t.left, one)
		t.left = t.left[max(0, len(t.left)-mostLeft):]
	}
}

// Left removes and returns the freed attachments of a container's interface, the latest last.
func (t *Table) Left(k Key) (left []*Attached) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = slices.DeleteFunc(t.left, func(one *Attached) bool {
		if one.Key == k {
			left = append(left, t.nowLocked(one))
		}
		return one.Key == k
	})
	return left
}

// Find returns the attachments that match, in the plan's order.
func (t *Table) Find(match func(*Attached) bool) (found []*Attached) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.eachLocked(func(n *plan.Node, nic *plan.Interface, one *Attached) {
		if one != nil && match(one) {
			found = append(found, one)
		}
	})
	return found
}

// eachLocked calls do with each NIC, in the plan's order, and its attachment or nil.
func (t *Table) eachLocked(do func(n *plan.Node, nic *plan.Interface, one *Attached)) {
	for _, n := range t.plan.CNINodes() {
		for i := range n.NICs {
			do(n, &n.NICs[i], t.taken[plan.End{Node: n.Name, Port: n.NICs[i].Name}])
		}
	}
}

// Invalid returns a network's attachments that Collect frees.
func (t *Table) Invalid(c Collect) []*Attached {
	return t.Find(func(one *Attached) bool {
		return one.Joined && one.Network == c.Network && !slices.Contains(c.Valid, one.Key)
	})
}

// Ports returns all NICs, in the plan's order.
func (t *Table) Ports() []Port {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.portsLocked()
}

// Shown returns Ports for display, without Made, whose content the plan shows.
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
	t.eachLocked(func(n *plan.Node, nic *plan.Interface, one *Attached) {
		p := Port{Node: n.Name, NIC: nic.Name, Addresses: []string{}}
		if one != nil {
			p.Attached = t.nowLocked(one)
		}
		for _, prefix := range slices.Concat(n.Loopbacks, nic.Addrs) {
			p.Addresses = append(p.Addresses, prefix.String())
		}
		ports = append(ports, p)
	})
	return ports
}
