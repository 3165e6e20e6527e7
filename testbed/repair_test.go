package testbed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
)

const (
	// answerPart sends back what one TCP connection brings; talkPart connects
	// its channel to it.
	answerPart = "answer"
	talkPart   = "talk"
	talkPort   = "5001"
)

func answer([]string) int {
	listener, err := net.Listen("tcp4", ":"+talkPort)
	if err != nil {
		return 1
	}
	fmt.Fprintln(os.NewFile(3, "channel"), "ready")
	conn, err := listener.Accept()
	if err != nil {
		return 1
	}
	_, _ = io.Copy(conn, conn) // until the testbed ends
	return 0
}

func talk(args []string) int {
	conn, err := net.Dial("tcp4", net.JoinHostPort(args[0], talkPort))
	if err != nil {
		return 1
	}
	channel := os.NewFile(3, "channel")
	go func() { _, _ = io.Copy(channel, conn) }()
	_, _ = io.Copy(conn, channel)
	return 0
}

// damage lists damage that ordinary tools on the host do to a running testbed of leaf-spine shape.
var damage = []struct{ node, script string }{
	{"h0", "ip route del default"},
	{"h0", "ip route flush table 1000; ip -6 route flush table 1000"},
	{"h0", "ip route add blackhole 192.0.2.0/24"},
	{"h0", "ip route replace 10.0.0.0/16 dev eth0"},
	{"h0", "ip rule flush"},
	{"h0", "ip rule add priority 9 from 192.0.2.1 lookup 77"},
	{"h0", "ip address flush dev eth0"},
	{"h0", "ip address flush dev lo"},
	{"h0", "ip address add 192.0.2.1/24 dev eth0"},
	{"h0", "ip neighbour flush dev eth0 nud permanent"},
	{"h0", "ip neighbour add 10.99.0.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent"},
	{"h0", "ip link set eth0 mtu 1300"},
	{"h0", "ip link set eth0 address 02:aa:bb:cc:dd:ee"},
	{"h0", "ip link set eth0 down"},
	{"h0", "ip link set lo down"},
	{"h0", "ip link set eth0 down; ip link set eth0 name eth9"},
	{"h0", "ip link delete eth0"},
	{"h0", "ip link set eth0 netns AWAY"}, // a process in another one
	{"h0", "tc qdisc del dev eth0 root"},
	{"h0", "tc qdisc replace dev eth0 root handle 7: pfifo"},
	{"h0", "tc qdisc add dev eth0 clsact"},
	{"h0", "tc qdisc change dev eth0 root handle 1: tbf rate 5mbit burst 9000 limit 20000"},
	{"h0", "ethtool -K eth0 gro on"},
	{"h0", "ethtool -K eth0 tx-checksum-ip-generic on"},
	{"h0", "sysctl -qw net.ipv4.ip_forward=1"},
	{"h0", "sysctl -qw net.ipv4.conf.eth0.rp_filter=1"},
	{"h0", "sysctl -qw net.ipv6.conf.all.disable_ipv6=1"},
	{"leaf1", "sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0"},
	{"leaf1", "sysctl -qw net.ipv4.fib_multipath_hash_policy=0"},
	{"leaf1", "ip link delete p2; ip link delete p3"},
	{"leaf1", "ip route flush proto static"},
	{"spine1", "ip link set p0 down"},
}

// TestRepair damages a testbed from outside, again and again, and repairs it each time, while
// processes run and others communicate.
//
// Soft switches hold the nodes' links by separate sockets for each or, if there are many, by one
// socket for all. They have no namespaces in which anything could be damaged.
func TestRepair(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Ping)
	t.Run("router", func(t *testing.T) { repairs(t, spec.Router, 2) })
	t.Run("soft", func(t *testing.T) { repairs(t, spec.Soft, 2) })
	t.Run("soft, many", func(t *testing.T) { repairs(t, spec.Soft, 5) })
}

func repairs(t *testing.T, kind string, hosts int) {
	name := fmt.Sprintf("go-repair-%s-%d", kind, hosts)
	tb := upPlan(t, fmt.Sprintf("name: %s\nfabric: {topology: leaf-spine, params: {leaves: 2, spines: 2, "+
		"hosts-per-leaf: %d}, switch: {kind: %s}, links: {default: {rate: 100mbit}}}\n", name, hosts, kind))
	ctx := t.Context()
	last := fmt.Sprintf("h%d", 2*hosts-1)
	goesOn := startTalk(t, tb, fmt.Sprintf("h%d", 2*hosts-2), last) // both on leaf2
	sleeper := tb.Node("h0").Command(ctx, "sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	away := exec.Command("unshare", "--net", "sleep", "1000")
	if err := away.Start(); err != nil {
		t.Fatal(err)
	}
	defer away.Wait()
	defer away.Process.Kill()
	made := 0
	for _, d := range damage {
		if kind == spec.Soft && !strings.HasPrefix(d.node, "h") {
			continue
		}
		made++
		when := fmt.Sprintf("after %q in %s", d.script, d.node)
		script := strings.ReplaceAll(d.script, "AWAY", fmt.Sprint(away.Process.Pid))
		if output, err := exec.Command("ip", "netns", "exec", name+"-"+d.node, "sh", "-c",
			script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", when, err, output)
		}
		if tb.Verify(ctx) == nil {
			t.Fatalf("%s nothing differs", when)
		}
		done, err := tb.Converge(ctx, tb.Plan(), testbed.Options{})
		if err != nil || len(done.Repaired) == 0 || len(done.Changed) != 0 {
			t.Fatalf("%s: done %+v, error %v", when, done, err)
		}
		if err := tb.Verify(ctx); err != nil {
			t.Fatalf("%s and a repair: %v", when, err)
		}
		for _, family := range []string{"-4", "-6"} {
			if output, err := tb.Node("h0").Command(ctx, "ping", family, "-c1", "-W2",
				last).CombinedOutput(); err != nil {
				t.Fatalf("%s and a repair: %v\n%s", when, err, output)
			}
		}
		goesOn(when)
	}
	toldRepairs(t, tb, made)
	state, err := tb.Inspect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(state.Nodes, func(n supervisor.NodeState) bool {
		return n.Name == "h0"
	}); state.Nodes[i].Processes == 0 {
		t.Error("the process in h0 has ended")
	}
}

// startTalk opens a TCP connection between two nodes and returns a function that
// fails the test unless that connection still carries something both ways.
func startTalk(t *testing.T, tb *testbed.Testbed, from, to string) (goesOn func(when string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	listener := tb.Node(to).Part(ctx, answerPart)
	ready := listener.Channel()
	if err := listener.Start(); err != nil {
		t.Fatal(err)
	}
	if line := make([]byte, len("ready\n")); !readAll(ready, line) {
		t.Fatal("nobody listens")
	}
	dialler := tb.Node(from).Part(ctx, talkPart, tb.Plan().Node(to).Loopbacks[0].Addr().String())
	channel := dialler.Channel()
	if err := dialler.Start(); err != nil {
		t.Fatal(err)
	}
	return func(when string) {
		t.Helper()
		answered := make(chan bool, 1)
		go func() {
			_, err := io.WriteString(channel, when)
			got := make([]byte, len(when))
			answered <- err == nil && readAll(channel, got) && string(got) == when
		}()
		select {
		case same := <-answered:
			if !same {
				t.Fatalf("%s, the connection between %s and %s is gone", when, from, to)
			}
		case <-time.After(hosttest.Bound):
			cancel() // ends the goroutine, too
			<-answered
			t.Fatalf("%s, the connection between %s and %s is silent", when, from, to)
		}
	}
}

func readAll(r io.Reader, into []byte) bool {
	_, err := io.ReadFull(r, into)
	return err == nil
}

// toldRepairs looks for an event for each repair.
func toldRepairs(t *testing.T, tb *testbed.Testbed, made int) {
	t.Helper()
	told := 0
	if err := tb.Events(t.Context(), false, func(e supervisor.Event) error {
		if e.Kind == "testbed.repair" && e.Subject != "" && e.Detail != "" {
			told++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if told < made {
		t.Errorf("%d events of repairs, after damage of %d kinds", told, made)
	}
}

// TestRepairPutsNothingElseThere holds that a repair needs no name on the host
// and makes none.
func TestRepairPutsNothingElseThere(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed)
	const name = "go-repair-2"
	tb := up(t, name)
	names := func() []string {
		found, err := filepath.Glob("/run/netns/" + name + "-*")
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	before := names()
	for _, path := range before {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	done, err := tb.Converge(t.Context(), tb.Plan(), testbed.Options{})
	if err != nil || len(done.Repaired) != len(before) || len(before) != 3 || !slices.Equal(names(), before) {
		t.Errorf("names %v, then %v; done %+v, error %v", before, names(), done, err)
	}
}

// TestRefusedSysctls: a value that the kernel refuses is reported with its position, and as
// unsupported by the host.
func TestRefusedSysctls(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	for setting, want := range map[string]string{
		"net.ipv4.nonsense: 1": "net/ipv4/nonsense to 1: no such file",
		"net.ipv4.tcp_ecn: 99": "net/ipv4/tcp_ecn to 99: invalid argument",
	} {
		file, err := spec.Decode("f.yaml",
			[]byte("name: go-refused\nfabric: {topology: single-switch, params: {hosts: 2}}\nnodes: {h1: "+
				"{sysctls: {"+setting+"}}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Compile(file)
		if err != nil {
			t.Fatal(err)
		}
		tb, err := testbed.Up(t.Context(), p, testbed.Options{File: "f.yaml"})
		if !errors.Is(err, verdict.ErrUnsupported) || !strings.HasPrefix(err.Error(), "f.yaml:3:") ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: testbed %v, error %v; want %q", setting, tb, err, want)
		}
	}
}
