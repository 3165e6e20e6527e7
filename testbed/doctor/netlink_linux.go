package doctor

import (
	"fmt"
	"net"
	"net/netip"

	"railbed/internal/kernel"
)

// linkCount makes the names of the links of a child unique.
var linkCount int

func newLinkName() string {
	linkCount++
	return fmt.Sprintf("probe%d", linkCount)
}

// addVeth adds a pair of links to the process's network namespace.
func addVeth() (*net.Interface, error) {
	ns, err := kernel.CurrentNamespace()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	end := func(last byte) kernel.VethEnd {
		name := newLinkName()
		return kernel.VethEnd{Namespace: ns, Name: name, MAC: kernel.MAC{2, 0, 0, 0, byte(linkCount), last},
			MTU: 1500}
	}
	a := end(1)
	if err := kernel.Try(func(b *kernel.Batch) { b.AddVeth(a, end(2), 0) }); err != nil {
		return nil, fmt.Errorf("add veth: %w", err)
	}
	return net.InterfaceByName(a.Name)
}

func tryBridge() error {
	name := newLinkName()
	return kernel.Try(func(b *kernel.Batch) { b.AddBridge(name, 0, 0) })
}

// quiet returns a trial without details.
func quiet(try func() error) func() (string, error) {
	return func() (string, error) { return "", try() }
}

// tryClsact adds the discipline that holds programs to a new veth.
func tryClsact() error {
	link, err := addVeth()
	if err != nil {
		return err
	}
	return kernel.Try(func(b *kernel.Batch) { b.AddClsact(link.Name, link.Index) })
}

// tryRule adds policy rules for an address of each family.
func tryRule() error {
	return kernel.Try(func(b *kernel.Batch) {
		for _, source := range []string{"192.0.2.1/32", "2001:db8::1/128"} {
			b.AddRule(kernel.Rule{Priority: 1000, From: netip.MustParsePrefix(source), Table: 100})
		}
	})
}

// setUp brings a link up.
func setUp(name string) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	return kernel.Try(func(b *kernel.Batch) { b.SetUp(name, link.Index, true) })
}
