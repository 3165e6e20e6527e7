package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"

	softports "railbed/fabric/port"
	"railbed/internal/kernel"
	"railbed/plan"
)

// mirrorNICs gives nodes the interfaces that show what their programs send and receive past the kernel.
func (f *Fabric) mirrorNICs(ctx context.Context, p *plan.Plan, nodes []*kernel.Namespace) error {
	var mirrored []*plan.Node
	var spaces []*kernel.Namespace
	for i := range p.Nodes {
		if p.Nodes[i].Mirror {
			mirrored, spaces = append(mirrored, &p.Nodes[i]), append(spaces, nodes[i])
		}
	}
	return kernel.Each(ctx, spaces, 1, func(i int) error {
		if err := f.mirrorNode(mirrored[i]); err != nil {
			return fmt.Errorf("mirror the NICs of %s: %w", mirrored[i].Name, err)
		}
		return nil
	})
}

// mirrorNode makes the interfaces of one node, in whose namespace the thread is.
func (f *Fabric) mirrorNode(node *plan.Node) error {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	for i := range node.NICs {
		if err = errors.Join(err, f.mirrorNIC(conn, node, i)); err != nil {
			return err
		}
	}
	return nil
}

// compareMirrors checks that the mirrors of a node's NICs are there and up.
func (f *Fabric) compareMirrors(h *host, got reading, d *differences) {
	if h.mirrors == nil || f.soft == nil {
		return
	}
	for i := range h.mirrors.NICs {
		name := plan.MirrorName(i)
		at := slices.IndexFunc(got.links, func(l kernel.Link) bool { return l.Name == name })
		if at < 0 {
			again := fix{passPort, func(m *repairer) error { return f.mirrorNIC(m.conn, h.mirrors, i) }}
			d.add(h.at(name), []fix{again}, "make %s: kernel has none", h.at(name))
		} else if !got.links[at].Up {
			up := request(passPort, func(b *kernel.Batch) { b.SetUp(name, got.links[at].Index, true) })
			d.add(h.at(name), []fix{up}, "set %s up: kernel has it down", h.at(name))
		}
	}
}

func (f *Fabric) mirrorNIC(conn *kernel.Conn, node *plan.Node, number int) error {
	nic, name := &node.NICs[number], plan.MirrorName(number)
	handle, err := softports.Open(softports.Tap, name, softports.Options{MTU: nic.MTU, RingBytes: 1})
	if err != nil {
		return err
	}
	defer handle.Close()
	// The kernel neither sends by the interface nor takes the frames there for its own: their
	// destination is another interface's address.
	quiet := kernel.Sysctl{Path: "net/ipv6/conf/" + name + "/disable_ipv6", Value: "1", Optional: true}
	if err := kernel.SetSysctls([]kernel.Sysctl{quiet}); err != nil {
		return err
	}
	if f.options.Trace != nil {
		f.options.Trace(fmt.Sprintf("ip -n %s tuntap add %s mode tap", node.Name, name))
		f.options.Trace(fmt.Sprintf("ip -n %s link set %s mtu %d", node.Name, name, nic.MTU))
		f.options.Trace(quiet.Line(node.Name))
	}
	batch := kernel.NewBatch(node.Name, f.options.Trace)
	batch.SetUp(name, handle.Description.Index, true)
	if err := conn.Do(batch); err != nil {
		return err
	}
	return f.soft.process.Mirror(plan.End{Node: node.Name, Port: nic.Name}, handle.Files[0])
}
