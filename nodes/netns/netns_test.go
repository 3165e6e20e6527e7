package netns_test

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"railbed/fabric/kernel"
	"railbed/nodes"
	"railbed/nodes/netns"
	"railbed/nodes/nodestest"
	"railbed/testbed/hosttest"
	"railbed/testbed/plan"
	"railbed/testbed/reexec"
)

func TestMain(m *testing.M) {
	reexec.Run(reexec.Parts{netns.Part: netns.Main})
	if err := reexec.CloseInherited(3); err != nil {
		panic(err)
	}
	os.Exit(hosttest.Main(m))
}

func TestConformance(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	made := 0
	nodestest.Run(t, func(t *testing.T, name string) nodes.Node {
		namespace, err := kernel.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { namespace.Close() })
		made++
		node, err := netns.Runtime{}.Create(t.Context(), nodes.Config{
			Testbed: "test", Namespace: namespace,
			Node:  plan.Node{Name: name, MachineID: fmt.Sprintf("%032x", made)},
			Hosts: []plan.HostEntry{{Addr: netip.MustParseAddr("10.0.0.1"), Name: "a"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return node
	})
}
