package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"railbed/plan"
	"railbed/plan/spec"
)

func TestFRRImages(t *testing.T) {
	for image, want := range map[string]bool{
		"frrouting/frr": true, "frrouting/frr:v8.4.1": true, "quay.io/frrouting/frr:10.2.1": true,
		"docker.io/frrouting/frr-debian:latest": true, "frr": true, "localhost:5000/frr:mine": true,
		"frrouting/frr@sha256:0123": true, "": false, "example/frrouting": false, "frr/tools:1": false,
		"tynany/frr_exporter:1": false, "frr-tools": false,
	} {
		d := definition{kind: text{value: kindLinux}, image: text{value: image}}
		if got := isFRR(d); got != want {
			t.Errorf("%q: %v", image, got)
		}
		d.labels = []setting{{key: labelNode}}
		if isFRR(d) {
			t.Errorf("%q of an exported node runs FRRouting", image)
		}
	}
}

func TestEffects(t *testing.T) {
	for command, want := range map[string]struct {
		effect
		nic, prefix string
	}{
		"ip addr add 10.0.0.1/24 dev eth1":                {setsAddress, "eth1", "10.0.0.1/24"},
		"ip  address  add 10.0.0.1/24 brd + dev eth1":     {setsAddress, "eth1", "10.0.0.1/24"},
		"ip -6 a a fd00::1/64 dev eth1 nodad":             {setsAddress, "eth1", "fd00::1/64"},
		"ip a add 10.0.0.1 dev lo":                        {setsAddress, "lo", "10.0.0.1/32"},
		"ifconfig eth1 10.0.0.1 netmask 255.255.255.0 up": {setsAddress, "eth1", "10.0.0.1/24"},
		"ifconfig eth1 10.0.0.1/20":                       {setsAddress, "eth1", "10.0.0.1/20"},
		"ip addr add 10.0.0.300/24 dev eth1":              {effect: other},
		"ip addr del 10.0.0.1/24 dev eth1":                {effect: other},
		"ip addr show dev eth1":                           {effect: other},
		"ip route add 10.0.0.0/8 via 10.1.1.1 dev eth1":   {effect: setsRoute},
		"ip -6 route replace default via fd00::1":         {effect: setsRoute},
		"ip r a default via 10.1.1.1":                     {effect: setsRoute},
		"route add default gw 10.1.1.1":                   {effect: setsRoute},
		"ip route show":                                   {effect: other},
		"ip link set dev eth1 up":                         {effect: setsUp},
		"ip link set eth1 mtu 1400":                       {effect: other},
		"ifconfig eth1 up":                                {effect: setsUp},
		"ping 10.0.0.1":                                   {effect: other},
	} {
		got, nic, prefix := effectOf(command)
		if got != want.effect || nic != want.nic || want.prefix != "" && prefix.String() != want.prefix {
			t.Errorf("%q: %d %q %s, want %+v", command, got, nic, prefix, want)
		}
	}
	for line, want := range map[string][]string{
		`sh -c "a b; c && d"`: {"a b", "c", "d"}, `bash -lc 'a'`: {"a"}, `echo a; b`: {"echo a; b"},
	} {
		i := &importer{notes: &notes{}}
		if got := parts(i.words(text{value: line})); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// TestRoles imports small labs with nodes of FRRouting.
func TestRoles(t *testing.T) {
	const speaks = "router bgp 65001\n neighbor eth1 interface remote-as external\n"
	for name, c := range map[string]struct {
		nodes, links, conf, want, told string
	}{
		"one link": {"a: {kind: linux}, f: {kind: linux, image: frr, binds: [conf:/etc/frr/frr.conf]}",
			"{endpoints: [a:eth1, f:eth2]}", speaks, "routing: {daemon: frr}",
			"a node of FRRouting becomes a router"},
		"no protocol": {"a: {kind: linux}, f: {kind: linux, image: frr, binds: [conf:/etc/frr/frr.conf]}",
			"{endpoints: [a:eth1, f:eth2]}", "ip route 10.0.0.0/8 10.1.1.1\n", "switch: {kind: soft}",
			"a node of FRRouting without a routing protocol becomes a switch that routes (f)"},
		"no file": {"a: {kind: linux}, f: {kind: linux, image: frr}", "{endpoints: [a:eth1, f:eth2]}", "",
			"switch: {kind: soft}", "a node of FRRouting has no configuration that can be read (f)"},
		"daemon off": {"a: {kind: linux}, f: {kind: frr, startup-config: conf, extras: {frr: {daemons: " +
			"[ospfd]}}}", "{endpoints: [a:eth1, f:eth2]}", speaks, "switch: {kind: soft}",
			"a protocol is configured, and its daemon is off (f: bgp)"},
		"another kind": {"a: {kind: linux}, f: {kind: frr, startup-config: conf}, s: {kind: nokia_srlinux}",
			"{endpoints: [a:eth1, s:e1-1]}, {endpoints: [f:eth1, s:e1-2]}", speaks, "routing: {daemon: frr}",
			"a node of another kind runs FRRouting, too (s)"},
		"routers alone": {"e: {kind: linux, image: frr, binds: [conf:/etc/frr/frr.conf]}, f: {kind: frr}",
			"{endpoints: [e:eth1, f:eth1]}", speaks, "switches:\n    e: {}\n    f: {}\n",
			"the lab has no end hosts, and neither has the testbed; add hosts:"},
		"routers in a row": {"a: {kind: linux, image: frr}, b: {kind: linux, image: frr}, c: {kind: " +
			"linux, image: frr}",
			"{endpoints: [a:eth1, b:eth1]}, {endpoints: [b:eth2, c:eth1]}", "",
			"connect: ['a:eth1 -- b:eth1', 'b:eth2 -- c:eth1']", "3 nodes of FRRouting have no " +
				"configuration"},
		"vendors alone": {"a: {kind: nokia_srlinux}, b: {kind: ceos}", "{endpoints: [a:e1-1, b:eth1]}", "",
			"switches:\n    a: {}\n    b: {}\n", "node a of kind nokia_srlinux becomes a switch that routes"},
		"freeRouter": {"a: {kind: linux}, r: {kind: rare}", "{endpoints: [a:eth1, r:eth1]}", "",
			"switches:\n    r: {}\n", "node r of kind rare becomes a switch that routes"},
		"a sysctl of the node": {"a: {kind: linux}, r: {kind: linux, sysctls: {net.ipv4.ip_forward: " +
			"1}}, b: {kind: linux}",
			"{endpoints: [a:eth1, r:eth1]}, {endpoints: [r:eth2, b:eth1]}", "", "switches:\n    r: {}\n",
			"node r has sysctl net.ipv4.ip_forward, and becomes a switch that routes"},
		"a sysctl of a host": {"a: {kind: linux}, r: {kind: linux, sysctls: {net.ipv4.ip_forward: 1}}",
			"{endpoints: [a:eth1, r:eth1]}", "", "r: {sysctls: {net.ipv4.ip_forward: '1'}}",
			"switch wire1 is added"},
		"an image": {"a: {kind: linux}, r: {kind: linux, image: 'pierky/bird:2.15'}, b: {kind: linux}",
			"{endpoints: [a:eth1, r:eth1]}, {endpoints: [r:eth2, b:eth1]}", "", "switches:\n    r: {}\n",
			"node r has image pierky/bird:2.15, and becomes a switch that routes"},
		"sysctls against the plan": {"a: {kind: linux, sysctls: {net.ipv6.conf.all.disable_ipv6: 1, " +
			"net.ipv4.conf.eth0.rp_filter: 1, net.ipv4.conf.eth1.rp_filter: 1}}, b: {kind: linux}",
			"{endpoints: [a:eth1, b:eth1]}", "", "a: {sysctls: {net.ipv4.conf.eth1.rp_filter: '1'}}",
			"sysctl net.ipv4.conf.eth0.rp_filter is left out: the node has no interface eth0"},
		"an mtu of each link": {"a: {kind: linux}, s: {kind: ceos}, t: {kind: ceos}, b: {kind: linux}",
			"{endpoints: [a:eth1, s:eth1], mtu: 1500}, {endpoints: [s:eth2, t:eth2]}, {endpoints: " +
				"[b:eth1, t:eth1], mtu: 1400}",
			"", "default: {mtu: 1400}\n    a--s: {mtu: 1500}\n    s--t: {mtu: 9500}\n", ""},
		"an mtu that is too small": {"a: {kind: linux}, s: {kind: ceos}, t: {kind: ceos}, b: {kind: linux}",
			"{endpoints: [a:eth1, s:eth1], mtu: 1500}, {endpoints: [s:eth2, t:eth2], mtu: 1400}, " +
				"{endpoints: [b:eth1, t:eth1]}",
			"", "links:\n    default: {mtu: 1400}\n", "the mtu of link a--s is 1400"},
		"commands of a switch": {"a: {kind: linux}, s: {kind: ceos, exec: [Cli -c conf]}",
			"{endpoints: [a:eth1, s:eth1]}", "",
			"", "left out: exec \"Cli -c conf\" of switch s"},
		"a variable": {"a: {kind: linux, image: 'x:${TAG}', env: {A: '${B}', C: d}, exec: ['echo ${E}', " +
			"'true']}, b: {kind: linux}",
			"{endpoints: [a:eth1, b:eth1]}, {endpoints: ['a:${PORT}', b:eth2]}", "", "a: {env: {C: d}}",
			"left out: image, because variable TAG has no default; want ${TAG:=VALUE}, or its value"},
		"timers": {"a: {kind: linux}, f: {kind: frr, startup-config: conf}", "{endpoints: [a:eth1, f:eth2]}",
			speaks + "timers bgp 60 180\nbfd\n profile x\n  transmit-interval 20\n",
			"routing: {daemon: frr, keepalive: 1m0s, hold: 3m0s}", "a BFD interval is left out (20)"},
	} {
		lab := fmt.Appendf(nil, "topology: {nodes: {%s}, links: [%s]}", c.nodes, c.links)
		made, left, err := FromContainerlab("lab", lab, Options{Name: "mine",
			ReadFile: func(path string) ([]byte, error) {
				if path != "conf" || c.conf == "" {
					return nil, errors.New("no such file")
				}
				return []byte(c.conf), nil
			}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, err := spec.Marshal(made)
		if err != nil || !strings.Contains(string(text), c.want) || made.Name != "mine" {
			t.Errorf("%s: %v, no %q in\n%s", name, err, c.want, text)
		}
		if !strings.Contains(left.Error(), c.told) {
			t.Errorf("%s: no %q in\n%v", name, c.told, left)
		}
	}
}

// TestExportOfAnFRRImage: a node that has FRRouting's image is a node again after an export.
func TestExportOfAnFRRImage(t *testing.T) {
	const file = "name: t\nfabric: {topology: single-switch, params: {hosts: 2}}\n" +
		"nodes: {h0: {runtime: docker, image: frrouting/frr}}\n" +
		"steps:\n- exec: {nodes: [h0], command: [ip, addr, add, 10.9.0.1/24, dev, eth0]}\n"
	made, err := spec.Decode("t.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(made)
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := ToContainerlab(made, p, DefaultImage)
	if err != nil {
		t.Fatal(err)
	}
	again, left, err := FromContainerlab("t.clab.yml", text, Options{})
	if err != nil || len(left) > 0 {
		t.Fatal(err, left)
	}
	n := again.NodeFor("h0")
	if n.Image != "frrouting/frr" || n.Runtime != spec.Docker || len(again.Steps) != 1 {
		t.Errorf("after export and import: %+v, %+v", n, again.Steps)
	}
}
