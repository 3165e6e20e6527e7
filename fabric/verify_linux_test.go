package fabric

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"railbed/testbed/hosttest"
)

func TestVerifySeesEveryAlteration(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	const routed = "topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 1}"
	const bridged = "topology: single-switch, params: {hosts: 3}, switch: {kind: bridge}"
	for _, c := range []struct{ fabric, node, alter, want string }{
		{routed, "leaf1", "tc qdisc change dev p0 root handle 1: tbf rate 5640mbit burst 25000 limit 262144", "shape leaf1:p0: kernel has 5640mbit, want 100mbit"},
		{routed, "h0", "tc qdisc change dev eth0 root handle 1: tbf rate 100mbit burst 9000 limit 262144", "shape h0:eth0: kernel has burst 9KB, want "},
		{routed, "h0", "tc qdisc change dev eth0 root handle 1: tbf rate 100mbit burst 1700 limit 3000", "shape h0:eth0: kernel has queue 3KB, want 256KiB"},
		{routed, "h0", "tc qdisc del dev eth0 root", "shape h0:eth0: kernel has no shaper, want 100mbit"},
		{routed, "h0", "tc qdisc replace dev eth0 root handle 7: pfifo", "shape h0:eth0: kernel has a pfifo 7: that nobody asked for"},
		{routed, "h0", "tc qdisc add dev eth0 clsact", "shape h0:eth0: kernel has a clsact ffff: that nobody asked for"},
		{routed, "h0", "ip link set eth0 mtu 1400", "set MTU of h0:eth0: kernel has 1400, want 1500"},
		{routed, "h0", "ip link set eth0 address 02:aa:bb:cc:dd:ee", "set MAC of h0:eth0: kernel has 02:aa:bb:cc:dd:ee, want "},
		{routed, "h0", "ip link set eth0 gso_max_segs 60", "bound segmentation of h0:eth0: kernel has gso_max_segs 60, want 4"},
		{routed, "h0", "ethtool -K eth0 tx-checksum-ip-generic on", "turn off offloads of h0:eth0: kernel has [tx-checksum-ip-generic] on"},
		{routed, "h0", "ethtool -K eth0 gro on", "turn off offloads of h0:eth0: kernel has [rx-gro] on"},
		{routed, "h0", "ethtool -K eth0 tx-checksum-ip-generic on tx-udp-segmentation on", "tx-udp-segmentation"},
		{routed, "h0", "ip address add 192.0.2.1/24 dev eth0", "add address to h0:eth0: kernel has 192.0.2.1/24, which nobody asked for"},
		{routed, "leaf1", "ip address flush dev p0 scope global", "to leaf1:p0: kernel has it not"},
		{routed, "h0", "ip address flush dev lo scope global", "to h0:lo: kernel has it not"},
		{routed, "h0", "ip neighbour flush dev eth0 nud permanent", "add neighbour 10.128."},
		{routed, "h0", "ip neighbour add 10.99.0.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent", "add neighbour to h0:eth0: kernel has 10.99.0.1, which nobody asked for"},
		{routed, "leaf1", "sh -c 'ip neighbour change $(ip neighbour show dev p0 | cut -d\" \" -f1 | head -1) lladdr 02:00:00:00:00:99 dev p0 nud permanent'", "kernel has 02:00:00:00:00:99, want "},
		{routed, "h0", "ip route add 192.0.2.0/24 dev eth0", "add route to h0: kernel has 192.0.2.0/24 dev eth0, which nobody asked for"},
		{routed, "h0", "ip route add blackhole 192.0.2.0/24", "add route to h0: kernel has 192.0.2.0/24, which nobody asked for"},
		{routed, "h0", "sh -c 'ip route flush table 1000'", "add route 0.0.0.0/0 table 1000"},
		{routed, "h0", "sh -c 'ip -6 route flush table 1000'", "add route ::/0 table 1000"},
		{routed, "leaf1", "sh -c 'ip route replace $(ip route | grep -B1 nexthop | head -1 | cut -d\" \" -f1) dev p0'", "add route to leaf1: kernel has "},
		{routed, "h0", "ip rule del priority 1000", "lookup 1000 to h0: kernel has it not"},
		{routed, "h0", "ip rule add priority 5 from 192.0.2.1 lookup 77", "add rule to h0: kernel has priority 5 from 192.0.2.1/32 lookup 77, which nobody asked for"},
		{routed, "leaf1", "sysctl -w net.ipv4.ip_forward=0", "sysctl net/ipv4/ip_forward: kernel has 0, want 1"},
		{routed, "h0", "sysctl -w net.ipv4.ip_forward=1", "sysctl net/ipv4/ip_forward: kernel has 1, want 0"},
		{routed, "h0", "sysctl -w net.ipv4.conf.eth0.rp_filter=1", "set ipv4 rp_filter of h0:eth0: kernel has 1, want 0"},
		{routed, "leaf1", "sysctl -w net.ipv6.conf.p0.forwarding=0", "set ipv6 forwarding of leaf1:p0: kernel has 0, want 1"},
		{routed, "leaf1", "sysctl -w net.ipv4.fib_multipath_hash_policy=0", "sysctl net/ipv4/fib_multipath_hash_policy: kernel has 0, want "},
		{routed, "h0", "sysctl -w net.ipv4.conf.all.arp_ignore=0", "sysctl net/ipv4/conf/all/arp_ignore: kernel has 0, want 1"},
		{routed, "spine1", "ip link set p0 down", "set spine1:p0: kernel has up false, want true"},
		{routed, "spine1", "ip link set p0 down", "set leaf1:"}, // and no carrier at the other end
		{routed, "h0", "ip link set lo down", "set h0:lo up: kernel has it down"},
		{routed, "h0", "ip link delete eth0", "make h0:eth0: kernel has no such interface"},
		{routed, "h0", "ip link set eth0 name eth9 down", "make h0:eth0: kernel has no such interface"},
		{bridged, "switch", "ip link set br0 type bridge stp_state 1", "make bridge switch:br0: kernel has stp 1, "},
		{bridged, "switch", "ip link set br0 type bridge mcast_snooping 1", "multicast snooping true, want "},
		{bridged, "switch", "ip link set br0 down", "set switch:br0 up: kernel has it down"},
		{bridged, "switch", "ip link set p1 nomaster", "set master of switch:p1: kernel has index 0, want 100"},
		{bridged, "switch", "ip link delete br0", "make bridge switch:br0: kernel has none"},
	} {
		p := compile(t, "name: t\nfabric: {"+c.fabric+", links: {default: {rate: 100mbit}}}\n")
		f, ns := build(t, p)
		node := c.node
		if node == "switch" {
			node = p.Switches[0].Name
		}
		target := ns[node]
		want := strings.ReplaceAll(c.want, "switch:", node+":")
		if err := f.Verify(context.Background()); err != nil {
			t.Fatalf("before %s: %v", c.alter, err)
		}
		command := strings.Fields(c.alter)
		if program, argument, script := strings.Cut(c.alter, " -c '"); script {
			command = []string{program, "-c", strings.TrimSuffix(argument, "'")}
		}
		if _, err := exec.LookPath(command[0]); err != nil {
			t.Logf("not tried: %s: %v", c.alter, err)
			continue
		}
		if out, err := in(t, target, command...); err != nil {
			t.Fatalf("%s: %v\n%s", c.alter, err, out)
		}
		if err := f.Verify(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("after %s in %s: got %v, want %s", c.alter, c.node, err, want)
		}
		if err := f.Close(); err != nil {
			t.Errorf("after %s in %s: close: %v", c.alter, c.node, err)
		}
	}
}
