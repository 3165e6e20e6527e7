package porttest

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"railbed/fabric/port"
	"railbed/internal/kernel"
)

// TwoVeths returns two nodes whose veths end in one namespace.
func TwoVeths(t testing.TB, mtu int) (Pair, *kernel.Namespace) {
	t.Helper()
	ns, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return Pair{
		Left:  NewRig(t, port.Packet, Settings{MTU: mtu, Number: 0, Switch: ns}),
		Right: NewRig(t, port.Packet, Settings{MTU: mtu, Number: 1, Switch: ns}),
	}, ns
}

// Bridge returns two nodes on a Linux bridge.
func Bridge(t testing.TB, mtu int) Pair {
	t.Helper()
	p, ns := TwoVeths(t, mtu)
	conn, err := kernel.OpenIn(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const name, index = "br0", 50
	batch := kernel.NewBatch("switch", nil)
	batch.AddBridge(name, index, 1)
	batch.SetUp(name, index, true)
	for _, r := range []*Rig{p.Left, p.Right} {
		batch.SetMasterUp(r.PortName(), r.PortIndex(), index, name)
	}
	if err := conn.Do(batch); err != nil {
		t.Fatal(err)
	}
	return p
}

// OpenVSwitch returns two nodes on Open vSwitch's userspace datapath, which opens the switch's ends
// of the veths itself:
//
//	ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev
//	ovs-vsctl add-port br0 port0 -- add-port br0 port1
//
// It skips the test if its programs are missing.
func OpenVSwitch(t testing.TB, mtu int) Pair {
	t.Helper()
	for _, program := range []string{"ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("cannot run here: openvswitch: %v", err)
		}
	}
	p, ns := TwoVeths(t, mtu)
	dir := t.TempDir()
	db := "unix:" + filepath.Join(dir, "db.sock")
	run := func(name string, args ...string) {
		command := exec.Command(name, args...)
		command.Env = append(command.Environ(), "OVS_RUNDIR="+dir)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, output)
		}
	}
	start := func(name string, args ...string) int {
		command := exec.Command(name, args...)
		command.Env = append(command.Environ(), "OVS_RUNDIR="+dir)
		if err := ns.Do(command.Start); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Cleanup(func() {
			_ = command.Process.Signal(syscall.SIGTERM)
			_ = command.Wait()
		})
		return command.Process.Pid
	}
	run("ovsdb-tool", "create", filepath.Join(dir, "conf.db"), "/usr/share/openvswitch/vswitch.ovsschema")
	start("ovsdb-server", filepath.Join(dir, "conf.db"), "--remote=p"+db,
		"--unixctl="+filepath.Join(dir, "db.ctl"), "--log-file=/dev/null", "-vconsole:off")
	run("ovs-vsctl", "--db="+db, "--retry", "--no-wait", "init")
	process := start("ovs-vswitchd", db, "--unixctl="+filepath.Join(dir, "switch.ctl"),
		"--log-file=/dev/null", "-vconsole:off")
	run("ovs-vsctl", "--db="+db, "--timeout=20", "add-br", "br0", "--", "set", "bridge", "br0",
		"datapath_type=netdev")
	run("ovs-vsctl", "--db="+db, "--timeout=20", "add-port", "br0", p.Left.PortName(), "--", "add-port",
		"br0", p.Right.PortName())
	time.Sleep(200 * time.Millisecond) // the first frames fill its table
	p.Process, p.CPU = process, func() time.Duration { return ProcessTime(process) }
	return p
}
