package cni

import (
	"errors"
	"testing"

	"railbed/testkit/plantest"
)

// Which NIC an ADD gets: the next free node's, one of a group's, a named one; and of a
// container's own node before any other.
func TestReserve(t *testing.T) {
	p := plantest.Compile(t, "name: t\nfabric: {topology: rail-optimized, params: {servers: 4, rails: "+
		"2}}\nnodes: {\"h[1-3]\": {runtime: cni}}\n")
	for _, test := range []struct {
		name string
		adds []Request // CONTAINER:INTERFACE in Key, the port or group
		want []string  // NICs, or the error's reason
	}{
		{"next free node", []Request{add("a", "eth0", "", ""), add("b", "eth0", "", ""),
			add("c", "eth0", "", ""), add("d", "eth0", "", "")},
			[]string{"h1:eth0", "h2:eth0", "h3:eth0", "taken"}},
		{"the own node's next NIC", []Request{add("a", "net1", "", ""), add("b", "net1", "", ""),
			add("a", "net2", "", ""), add("a", "net3", "", ""), add("a", "net4", "", ""),
			add("a", "net5", "", "")},
			[]string{"h1:eth0", "h2:eth0", "h1:eth1", "h3:eth0", "h3:eth1", "taken"}},
		{"the NIC that is called as the interface",
			[]Request{add("a", "eth1", "", ""), add("a", "eth0", "", ""), add("b", "x", "", ""),
				add("b", "eth0", "", "")},
			[]string{"h1:eth1", "h1:eth0", "h2:eth0", "h2:eth1"}},
		{"a group", []Request{add("a", "eth0", "", "h[2-3]"), add("b", "eth0", "", "h[2-3]"),
			add("c", "eth0", "", "h[2-3]"), add("c", "eth0", "", "x*")},
			[]string{"h2:eth0", "h3:eth0", "taken", "none"}},
		{"a group of NICs", []Request{add("a", "net1", "", "*:eth1"), add("b", "net1", "", "*:eth1"),
			add("a", "net2", "", "*:eth0"), add("a", "net3", "", "*:eth7")},
			[]string{"h1:eth1", "h2:eth1", "h1:eth0", "none"}},
		{"a named port", []Request{add("a", "eth0", "h3", ""), add("b", "eth0", "h3", ""),
			add("a", "eth5", "h3:eth1", ""), add("a", "eth6", "h3:eth1", ""), add("b", "eth1", "h*", ""),
			add("b", "eth1", "h0", "")},
			[]string{"h3:eth0", "taken", "h3:eth1", "taken", "none", "none"}},
		{"a port goes before a group", []Request{{Key: Key{"a", "eth0"}, Port: "h2", Group: "h3"}},
			[]string{"h2:eth0"}},
		{"one ADD for a container and an interface",
			[]Request{add("a", "eth0", "h1", ""), add("a", "eth0", "h2", "")}, []string{"h1:eth0", "twice"}},
	} {
		table := NewTable(p)
		for i, r := range test.adds {
			got := ""
			one, err := table.Reserve(r)
			switch {
			case err == nil:
				got = one.Made.End().Node + ":" + one.Made.End().Port
				table.Join(one)
			case errors.Is(err, ErrTaken):
				got = "taken"
			case errors.Is(err, ErrNoPort):
				got = "none"
			case errors.Is(err, ErrTwice):
				got = "twice"
			}
			if got != test.want[i] {
				t.Errorf("%s: %+v gets %q (%v), want %s", test.name, r, got, err, test.want[i])
			}
		}
	}
}

func add(container, dev, port, group string) Request {
	return Request{Key: Key{container, dev}, Port: port, Group: group}
}

// A freed NIC can be reserved again, and Beside names the other NICs of that moment.
func TestBeside(t *testing.T) {
	p := plantest.Compile(t, "name: t\nfabric: {topology: rail-optimized, params: {servers: 2, rails: "+
		"2}}\nnodes: {h1: {runtime: cni}}\n")
	table := NewTable(p)
	first, err := table.Reserve(add("a", "net1", "", ""))
	if err != nil || !table.Join(first) || len(first.Made.Beside) != 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := table.Reserve(add("a", "net2", "", ""))
	if err != nil || second.Made.Beside["eth0"] != "net1" {
		t.Fatalf("%+v, %v", second, err)
	}
	if beside := table.Ports()[0].Attached.Made.Beside; len(beside) != 0 {
		// the second's NIC is not there yet
		t.Errorf("beside the first is %v", beside)
	}
	table.Join(second)
	if beside := table.Ports()[0].Attached.Made.Beside; beside["eth1"] != "net2" {
		t.Errorf("beside the first is %v", beside)
	}
	table.Free(first)
	if left := table.Left(first.Key); len(left) != 1 || left[0].Made.Beside["eth1"] != "net2" ||
		table.Has(first) {
		t.Errorf("of the first is left %+v", left)
	}
	if again, err := table.Reserve(add("a", "net1", "", "")); err != nil ||
		again.Made.End() != first.Made.End() {
		t.Errorf("%+v, %v", again, err)
	}
}
