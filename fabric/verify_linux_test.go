package fabric

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"railbed/internal/kernel"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// Fabrics that damages are made in.
const (
	routed = "topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 2}, switch: {kind: " +
		"router}"
	bridged = "topology: single-switch, params: {hosts: 3}, switch: {kind: bridge}"
	// crowded has too many nodes for entries of each for each other.
	crowded = "topology: single-switch, params: {hosts: 17}, switch: {kind: bridge}"
)

// alteration is damage to a namespace by ordinary tools, and Verify's report of it.
type alteration struct{ fabric, node, alter, want string }

var damages = []alteration{
	{routed, "leaf1", "tc qdisc change dev p0 root handle 1: tbf rate 5640mbit burst 25000 limit 262144",
		"shape leaf1:p0: kernel has 5640mbit, want 100mbit"},
	{routed, "h0", "tc qdisc change dev eth0 root handle 1: tbf rate 100mbit burst 9000 limit 262144",
		"shape h0:eth0: kernel has burst 9KB, want "},
	{routed, "h0", "tc qdisc change dev eth0 root handle 1: tbf rate 100mbit burst 1700 limit 3000",
		"shape h0:eth0: kernel has queue 3KB, want 256KiB"},
	{routed, "h0", "tc qdisc del dev eth0 root", "shape h0:eth0: kernel has no shaper, want 100mbit"},
	{routed, "h0", "tc qdisc replace dev eth0 root handle 7: pfifo",
		"shape h0:eth0: kernel has qdisc pfifo 7:, want none"},
	{routed, "h0", "tc qdisc add dev eth0 clsact",
		"shape h0:eth0: kernel has qdisc clsact ffff:, want none"},
	{routed, "h0", "ip link set eth0 mtu 1400", "set MTU of h0:eth0: kernel has 1400, want 1500"},
	{routed, "h0", "ip link set eth0 address 02:aa:bb:cc:dd:ee",
		"set MAC of h0:eth0: kernel has 02:aa:bb:cc:dd:ee, want "},
	{routed, "h0", "ip link set eth0 gso_max_segs 60",
		"bound segmentation of h0:eth0: kernel has gso_max_segs 60, want 4"},
	{routed, "h0", "ethtool -K eth0 tx-checksum-ip-generic on",
		"turn off offloads of h0:eth0: kernel has [tx-checksum-ip-generic] on"},
	{routed, "h0", "ethtool -K eth0 gro on", "turn off offloads of h0:eth0: kernel has [rx-gro] on"},
	{routed, "h0", "ethtool -K eth0 tx-checksum-ip-generic on tx-udp-segmentation on", "tx-udp-segmentation"},
	{routed, "h0", "ip address add 192.0.2.1/24 dev eth0",
		"add address to h0:eth0: kernel has 192.0.2.1/24, want no such address"},
	{routed, "leaf1", "ip address flush dev p0 scope global", "to leaf1:p0: kernel has no such address"},
	{routed, "h0", "ip address flush dev lo scope global", "to h0:lo: kernel has no such address"},
	{routed, "h0", "ip neighbour flush dev eth0 nud permanent", "add neighbour 10.128."},
	{routed, "h0", "ip neighbour add 10.99.0.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
		"add neighbour to h0:eth0: kernel has 10.99.0.1, want no such neighbour"},
	{routed, "leaf1", "sh -c 'ip neighbour change $(ip neighbour show dev p0 | cut -d\" \" -f1 | head -1) " +
		"lladdr 02:00:00:00:00:99 dev p0 nud permanent'", "kernel has 02:00:00:00:00:99, want "},
	{routed, "h0", "ip route add 192.0.2.0/24 dev eth0",
		"add route to h0: kernel has 192.0.2.0/24 dev eth0, want no such route"},
	{routed, "h0", "ip route add blackhole 192.0.2.0/24",
		"add route to h0: kernel has 192.0.2.0/24, want no such route"},
	{routed, "h0", "sh -c 'ip route flush table 1000'", "add route 0.0.0.0/0 table 1000"},
	{routed, "h0", "sh -c 'ip -6 route flush table 1000'", "add route ::/0 table 1000"},
	{routed, "leaf1", "sh -c 'ip route replace $(ip route | grep -B1 nexthop | head -1 | cut -d\" \" -f1) " +
		"dev p0'", "add route to leaf1: kernel has "},
	{routed, "h0", "ip rule del priority 1000", "lookup 1000 to h0: kernel has no such rule"},
	{routed, "h0", "ip rule add priority 5 from 192.0.2.1 lookup 77",
		"add rule to h0: kernel has priority 5 from 192.0.2.1/32 lookup 77, want no such rule"},
	{routed, "leaf1", "sysctl -w net.ipv4.ip_forward=0", "sysctl net/ipv4/ip_forward: kernel has 0, want 1"},
	{routed, "h0", "sysctl -w net.ipv4.ip_forward=1", "sysctl net/ipv4/ip_forward: kernel has 1, want 0"},
	{routed, "h0", "sysctl -w net.ipv4.conf.eth0.rp_filter=1",
		"set ipv4 rp_filter of h0:eth0: kernel has 1, want 0"},
	{routed, "leaf1", "sysctl -w net.ipv6.conf.p0.forwarding=0",
		"set ipv6 forwarding of leaf1:p0: kernel has 0, want 1"},
	{routed, "leaf1", "sysctl -w net.ipv4.fib_multipath_hash_policy=0",
		"sysctl net/ipv4/fib_multipath_hash_policy: kernel has 0, want "},
	{routed, "h0", "sysctl -w net.ipv4.conf.all.arp_ignore=0",
		"sysctl net/ipv4/conf/all/arp_ignore: kernel has 0, want 1"},
	{routed, "spine1", "ip link set p0 down", "set spine1:p0: kernel has up false, want true"},
	{routed, "spine1", "ip link set p0 down", "set leaf1:"}, // and no carrier at the other end
	{routed, "h0", "ip link set lo down", "set h0:lo up: kernel has it down"},
	{routed, "h0", "ip link delete eth0", "make h0:eth0: kernel has no such interface"},
	{routed, "h0", "ip link set eth0 name eth9 down", "make h0:eth0: kernel has no such interface"},
	{routed, "h0", "sh -c 'ip link set eth0 down; ip link set eth0 name eth9; ip link add eth0 type bridge'",
		"make h0:eth0: kernel has an interface of kind \"bridge\" there"},
	{routed, "leaf1", "sh -c 'for i in p0 p1; do ip link set $i down; done; ip link set p0 name px; ip " +
		"link set p1 name p0; ip link set px name p1'", "its name is p1 now"},
	{routed, "h0", "sh -c 'ip link delete eth0; ip link add eth0 index 101 type bridge'",
		"make h0:eth0: kernel has a bridge whose peer has index 0, want a veth and 102"},
	{routed, "h0", "sh -c 'ip rule flush; ip -6 rule flush'",
		"add rule from 0.0.0.0/0 lookup 254 to h0: kernel has no such rule"},
	{routed, "h0", "ip rule add priority 7 from 192.0.2.0/24 blackhole",
		"kernel has priority 7 from 192.0.2.0/24 lookup "},
	{routed, "h0", "ip route del 10.128.0.0/31",
		"add route 10.128.0.0/31 src 10.128.0.1 dev eth0 to h0: kernel has no such route"},
	{routed, "h0", "ip -6 route del fd00:a2::/127",
		"add route fd00:a2::/127 dev eth0 to h0: kernel has no such route"},
	{routed, "h0", "ip route del local 10.0.0.1 table local",
		"add address 10.0.0.1/32 to h0:lo: kernel has no local route to it"},
	{routed, "h0", "ip -6 route del local fd00:a2::1 table local",
		"add address fd00:a2::1/127 to h0:eth0: kernel has no local route to it"},
	{routed, "h0", "ip route add 10.0.0.0/16 dev eth0 metric 7",
		"add route to h0: kernel has 10.0.0.0/16 dev eth0, want no such route"},
	{routed, "h0", "ip route replace blackhole 10.0.0.0/16",
		"add route to h0: kernel has 10.0.0.0/16, want 10.0.0.0/16 src "},
	{routed, "h0", "ip -6 route replace unreachable ::/0 metric 1024", "want ::/0 via "},
	{routed, "h0", "ip address flush dev lo",
		"add address 127.0.0.1/8 to h0:lo: kernel has no such address"},
	{routed, "h0", "sysctl -w net.ipv6.conf.eth0.disable_ipv6=1",
		"set ipv6 disable_ipv6 of h0:eth0: kernel has 1, want 0"},
	{routed, "h0", "sysctl -w net.ipv6.conf.all.disable_ipv6=1",
		"set ipv6 disable_ipv6 of h0:lo: kernel has 1, want 0"},
	// the kernel switches IPv6 off below 1,280
	{routed, "h0", "ip link set eth0 mtu 1000", "kernel has no such address"},
	{routed, "leaf1", "sh -c 'ip link add mine type bridge; ip link set p0 master mine'",
		"set master of leaf1:p0: kernel has index "},
	{routed, "h0", "sh -c 'tc qdisc del dev eth0 root; tc qdisc add dev eth0 root handle 1: pfifo'",
		"shape h0:eth0: kernel has no shaper, want 100mbit"},
	{routed, "h0", "tc qdisc add dev eth0 ingress",
		"shape h0:eth0: kernel has qdisc ingress ffff:, want none"},
	{routed, "h0", "tc qdisc add dev eth0 parent 1:1 handle 10: pfifo",
		"shape h0:eth0: kernel has qdisc pfifo 10:, want none"},
	{routed, "spine1", "sh -c 'for i in p0 p1; do ip link delete $i; done'",
		"make leaf1:p2: kernel has no such interface"},
	{bridged, "switch", "ip link set br0 type bridge stp_state 1",
		"make bridge switch:br0: kernel has stp 1, "},
	{bridged, "switch", "ip link set br0 type bridge mcast_snooping 1", "multicast snooping true, want "},
	{bridged, "switch", "ip link set br0 down", "set switch:br0 up: kernel has it down"},
	{bridged, "switch", "ip link set p1 nomaster", "set master of switch:p1: kernel has index 0, want 100"},
	{bridged, "switch", "sh -c 'ip link set br0 down; ip link set br0 name br7'",
		"make bridge switch:br0: kernel has none, its name is br7 now"},
	{bridged, "switch", "sh -c 'ip link delete br0; ip link add br0 type bridge'",
		"make bridge switch:br0: kernel has none"},
	{bridged, "h0", "ip address replace 10.7.0.1/24 dev eth0",
		"kernel has 10.7.0.1/24, want no such address"},
	{bridged, "h1", "ip link delete eth0", "make h1:eth0: kernel has no such interface"},
	{bridged, "switch", "ip link delete br0", "make bridge switch:br0: kernel has none"},
	{crowded, "h0", "ip neighbour replace 10.128.0.3 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
		"add neighbour 10.128.0.3 to h0:eth0: kernel has 02:00:00:00:00:99, want "},
	{crowded, "h0", "ip neighbour add 10.128.0.31 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
		"add neighbour to h0:eth0: kernel has 10.128.0.31, want no such neighbour"},
	{crowded, "h0", "ip ntable change name ndisc_cache dev eth0 app_probes 0",
		"find neighbours of h0:eth0: kernel has 0 requests and a queue of 16777216 bytes, want 1 and "},
}

// command is the alteration's, as an argument vector.
func (a alteration) command() []string {
	if program, script, is := strings.Cut(a.alter, " -c '"); is {
		return []string{program, "-c", strings.TrimSuffix(script, "'")}
	}
	return strings.Fields(a.alter)
}

// made makes an alteration, and returns the text that Verify should report. Missing programs are
// logged.
func (a alteration) made(t *testing.T, p *plan.Plan, ns map[string]*kernel.Namespace) (want string,
	made bool) {
	t.Helper()
	node := a.node
	if node == "switch" {
		node = p.Switches[0].Name
	}
	command := a.command()
	if _, err := exec.LookPath(command[0]); err != nil {
		t.Logf("not tried: %s: %v", a.alter, err)
		return "", false
	}
	if out, err := in(t, ns[node], command...); err != nil {
		t.Fatalf("%s: %v\n%s", a.alter, err, out)
	}
	return strings.ReplaceAll(a.want, "switch:", node+":"), true
}

func TestVerifySeesEveryAlteration(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.IP, hosttest.Ethtool)
	for _, c := range damages {
		p := plantest.Compile(t, "name: t\nfabric: {"+c.fabric+", links: {default: {rate: 100mbit}}}\n")
		f, ns := build(t, p)
		if err := f.Verify(context.Background()); err != nil {
			t.Fatalf("before %s: %v", c.alter, err)
		}
		want, made := c.made(t, p, ns)
		if !made {
			continue
		}
		if err := f.Verify(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("after %s in %s: got %v, want %s", c.alter, c.node, err, want)
		}
		if err := f.Close(); err != nil {
			t.Errorf("after %s in %s: close: %v", c.alter, c.node, err)
		}
	}
}
