package port_test

import (
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/kernel"
	"railbed/fabric/port"
	"railbed/fabric/port/porttest"
)

// benchOptions give the two ports of a benchmark what the rings of a hundred
// share: a machine that others use stalls a thread for milliseconds.
var benchOptions = port.Options{RingBytes: 4 << 20}

// contender is a switch with two ports.
type contender struct {
	name    string
	connect func(b *testing.B, mtu int) pair
}

var contenders = []contender{
	{"packet", ports(port.Packet, spinTime)},
	{"xdp", ports(port.XDP, spinTime)},
	{"tap", ports(port.Tap, spinTime)},
	{"xdp-sleeping", ports(port.XDP, 0)},
	{"bridge", bridge},
	{"ovs-netdev", openVSwitch},
}

func ports(driver port.Driver, spin time.Duration) func(*testing.B, int) pair {
	return func(b *testing.B, mtu int) pair {
		porttest.Need(b, driver)
		p := pair{
			left:  porttest.NewRig(b, driver, porttest.Settings{MTU: mtu, Number: 0}),
			right: porttest.NewRig(b, driver, porttest.Settings{MTU: mtu, Number: 1}),
		}
		p.forwarder = startForwarder(b, p.left.Port(b, benchOptions), p.right.Port(b, benchOptions), spin)
		return p
	}
}

// twoVeths are two nodes whose veths end in one namespace.
func twoVeths(b *testing.B, mtu int) (pair, *kernel.Namespace) {
	ns, err := kernel.NewNamespace()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ns.Close() })
	return pair{
		left:  porttest.NewRig(b, port.Packet, porttest.Settings{MTU: mtu, Number: 0, Switch: ns}),
		right: porttest.NewRig(b, port.Packet, porttest.Settings{MTU: mtu, Number: 1, Switch: ns}),
	}, ns
}

// bridge is a Linux bridge.
func bridge(b *testing.B, mtu int) pair {
	p, ns := twoVeths(b, mtu)
	conn, err := kernel.OpenIn(ns)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	const name, index = "br0", 50
	batch := kernel.NewBatch("switch", nil)
	batch.AddBridge(name, index, 1)
	batch.SetUp(name, index, true)
	for _, r := range []*porttest.Rig{p.left, p.right} {
		batch.SetMasterUp(r.PortName(), r.PortIndex(), index, name)
	}
	if err := conn.Do(batch); err != nil {
		b.Fatal(err)
	}
	return p
}

// openVSwitch is Open vSwitch's userspace datapath, which opens the switch's
// ends of the veths itself:
//
//	ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev
//	ovs-vsctl add-port br0 port0 -- add-port br0 port1
func openVSwitch(b *testing.B, mtu int) pair {
	for _, program := range []string{"ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl"} {
		if _, err := exec.LookPath(program); err != nil {
			b.Skipf("cannot run here: openvswitch: %v", err)
		}
	}
	p, ns := twoVeths(b, mtu)
	dir := b.TempDir()
	db := "unix:" + filepath.Join(dir, "db.sock")
	run := func(name string, args ...string) {
		command := exec.Command(name, args...)
		command.Env = append(command.Environ(), "OVS_RUNDIR="+dir)
		if output, err := command.CombinedOutput(); err != nil {
			b.Fatalf("%s %q: %v\n%s", name, args, err, output)
		}
	}
	start := func(name string, args ...string) {
		command := exec.Command(name, args...)
		command.Env = append(command.Environ(), "OVS_RUNDIR="+dir)
		if err := ns.Do(command.Start); err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		b.Cleanup(func() {
			_ = command.Process.Signal(syscall.SIGTERM)
			_ = command.Wait()
		})
	}
	run("ovsdb-tool", "create", filepath.Join(dir, "conf.db"), "/usr/share/openvswitch/vswitch.ovsschema")
	start("ovsdb-server", filepath.Join(dir, "conf.db"), "--remote=p"+db, "--unixctl="+filepath.Join(dir, "db.ctl"), "--log-file=/dev/null", "-vconsole:off")
	run("ovs-vsctl", "--db="+db, "--retry", "--no-wait", "init")
	start("ovs-vswitchd", db, "--unixctl="+filepath.Join(dir, "switch.ctl"), "--log-file=/dev/null", "-vconsole:off")
	run("ovs-vsctl", "--db="+db, "--timeout=20", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	run("ovs-vsctl", "--db="+db, "--timeout=20", "add-port", "br0", p.left.PortName(), "--", "add-port", "br0", p.right.PortName())
	time.Sleep(200 * time.Millisecond) // the first frames teach it its table
	return p
}

// pingPong reports the median round trip of a UDP datagram of 22 bytes, a frame
// of 64.
func (p pair) pingPong(b *testing.B) {
	addresses := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	conns := make([]*net.UDPConn, 2)
	for i, r := range []*porttest.Rig{p.left, p.right} {
		peer := []*porttest.Rig{p.right, p.left}[i]
		batch := kernel.NewBatch("node", nil)
		batch.AddAddress(porttest.NICName, porttest.NICIndex, netip.PrefixFrom(addresses[i], 24))
		batch.AddNeighbor(porttest.NICName, kernel.Neighbor{Index: porttest.NICIndex, Addr: addresses[1-i], MAC: peer.MAC()})
		err := r.Node.Do(func() (err error) {
			conn, err := kernel.Open()
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := conn.Do(batch); err != nil {
				return err
			}
			conns[i], err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addresses[i], 7000)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(addresses[1-i], 7000)))
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() { // the far node; blocking calls on a thread of its own, as a C program would
		defer close(done)
		runtime.LockOSThread()
		buf := make([]byte, 64)
		file, err := conns[1].File()
		if err != nil {
			return
		}
		defer file.Close()
		fd := int(file.Fd())
		for {
			n, err := unix.Read(fd, buf)
			if err == unix.EINTR || err == unix.ECONNREFUSED {
				continue
			}
			if err != nil || n == 1 {
				return
			}
			_, _ = unix.Write(fd, buf[:n])
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	file, err := conns[0].File()
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	fd := int(file.Fd())
	timeout := unix.NsecToTimeval(int64(200 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 22)
	var times []time.Duration
	lost := 0
	b.ResetTimer()
	for range b.N {
		start := time.Now()
		if _, err := unix.Write(fd, buf); err != nil {
			b.Fatal(err)
		}
		if _, err := unix.Read(fd, buf); err != nil {
			lost++
			continue
		}
		times = append(times, time.Since(start))
	}
	b.StopTimer()
	if lost > b.N/100+5 || len(times) == 0 {
		b.Fatalf("%d of %d datagrams were lost", lost, b.N)
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "median-ns")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
	for range 3 { // end the far node
		_, _ = unix.Write(fd, buf[:1])
	}
	<-done
	conns[0].Close()
	conns[1].Close()
}
