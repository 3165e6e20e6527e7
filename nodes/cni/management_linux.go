package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"

	"railbed/fabric"
	"railbed/internal/kernel"
	"railbed/internal/verdict"
	"railbed/plan"
)

// PluginDirs are the directories in which the CNI project's plugins are installed.
var PluginDirs = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}

// StandardPlugins are the plugins that make a management network.
var StandardPlugins = []string{"bridge", "host-local", "portmap", "firewall"}

// bridgeName is the name of the management network's bridge, uplink of its port to the host.
const bridgeName, uplink = "mgmt0", "host"

// Management is a testbed's network outside the fabric. Its bridge and all packet filter rules are
// in a namespace of its own, which the CNI project's plugins take for the host. The host itself has
// only one interface, a veth whose other end is in that namespace, and the listening sockets of
// published ports. So everything ends with this process.
type Management struct {
	whole *plan.Plan
	plan  *plan.Management
	dir   string
	ns    *kernel.Namespace
	home  *kernel.Namespace
	name  string // of the host's interface
	ports ports
	// masquerade is set for networks with access to an internet.
	masquerade *kernel.Masquerade
}

// StartManagement makes the network of a plan that has one: NICs in the nodes' namespaces, which
// are given by node name, and an interface in the host's. It takes over host, which Close closes.
// Plugins keep their files in dir.
func StartManagement(ctx context.Context, p *plan.Plan, namespaces map[string]*kernel.Namespace,
	host *kernel.Namespace, dir string) (m *Management, err error) {
	digest := fnv.New32a()
	digest.Write([]byte(p.Name))
	m = &Management{
		whole: p, plan: p.Management, dir: dir, home: host, name: fmt.Sprintf("rb%08x", digest.Sum32()),
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make management network: %w", err), m.Close())
			m = nil
		}
	}()
	if err := m.ports.divide(p); err != nil {
		return m, err
	}
	if m.ns, err = kernel.NewNamespace(); err != nil {
		return m, err
	}
	if err := m.linkHost(); err != nil {
		return m, err
	}
	if err := m.attach(ctx, namespaces); err != nil {
		return m, err
	}
	if err := m.openInternet(); err != nil {
		return m, err
	}
	for _, n := range p.Nodes {
		if n.Management == nil {
			continue
		}
		for _, published := range n.Management.Publish {
			if err := m.publish(published, n.Name); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

// linkHost makes the host's interface, and checks that it hides no route.
func (m *Management) linkHost() error {
	conn, err := kernel.OpenIn(m.home)
	if errors.Is(err, syscall.EPERM) {
		return &verdict.UnsupportedError{Feature: plan.CNIPlugins, Reason: err.Error(),
			Remedy: "bring the testbed up as root: the network has an interface in the host's namespace"}
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	batch := kernel.NewBatch("", nil)
	batch.AddVeth(kernel.VethEnd{Namespace: m.home, Name: m.name, MTU: 1500,
		MAC: kernel.MAC{2, 0x52, 0x42, 1, 0, 1}},
		kernel.VethEnd{Namespace: m.ns, Name: uplink, MTU: 1500, MAC: kernel.MAC{2, 0x52, 0x42, 1, 0, 2}},
		fabric.LinkGroup)
	if err := conn.Do(batch); err != nil {
		return err
	}
	index, err := indexOf(conn, m.name)
	if err != nil {
		return err
	}
	// The host forwards nothing from this interface, even if it forwards for others. By IPv6 the
	// network reaches only this host: see joinUplink6.
	if err := m.setForwarding("0"); err != nil {
		return err
	}
	if err := m.home.Do(func() error { return kernel.SetSysctls(quiet6(m.name)) }); err != nil {
		return err
	}
	batch = kernel.NewBatch("", nil)
	batch.AddAddress(m.name, index, netip.PrefixFrom(m.plan.Host, m.plan.Subnet.Bits()))
	batch.SetUp(m.name, index, true)
	batch.AddAddress(m.name, index, netip.PrefixFrom(m.plan.Host6, 128))
	batch.AddRoute(kernel.Route{Dst: netip.PrefixFrom(m.plan.Gateway6, 128),
		Hops: []kernel.NextHop{{Index: index, Dev: m.name}}})
	batch.AddRoute(kernel.Route{Dst: m.plan.Subnet6, Src: m.plan.Host6,
		Hops: []kernel.NextHop{{Via: m.plan.Gateway6, Index: index, Dev: m.name}}})
	if err := conn.Do(batch); err != nil {
		return err
	}
	return freeSubnet(conn, m.whole, index)
}

// setForwarding sets whether the host forwards packets from nodes.
func (m *Management) setForwarding(value string) error {
	return m.home.Do(func() error {
		return kernel.SetSysctls(
			[]kernel.Sysctl{{Path: "net/ipv4/conf/" + m.name + "/forwarding", Value: value}})
	})
}

// quiet6 returns settings of an interface whose only IPv6 addresses are the plan's.
func quiet6(dev string) []kernel.Sysctl {
	var settings []kernel.Sysctl
	for name, value := range map[string]string{"disable_ipv6": "0", "accept_dad": "0", "accept_ra": "0"} {
		settings = append(settings, kernel.Sysctl{Path: "net/ipv6/conf/" + dev + "/" + name, Value: value})
	}
	return settings
}

// openInternet makes the host forward packets that the plugins have masqueraded with the bridge's
// address. So the nodes with internet reach the networks that the host reaches.
func (m *Management) openInternet() error {
	if _, wanted := m.plan.Where["internet"]; !wanted {
		return nil
	}
	return m.home.Do(func() (err error) {
		if err := forwards(m.plan); err != nil {
			return err
		}
		if m.masquerade, err = kernel.NewMasquerade("railbed-"+m.whole.Name, m.name,
			m.plan.Gateway); err != nil {
			return refused(m.plan.Where["internet"], "internet", err.Error(),
				"use Linux 5.12 or later with nf_tables and masquerading")
		}
		return m.setForwarding("1")
	})
}

// Closed returns the chains of the host's packet filter that may block nodes from an internet.
// Rules in them may still accept packets.
func (m *Management) Closed() (chains []string) {
	if m == nil || m.masquerade == nil {
		return nil
	}
	_ = m.home.Do(func() (err error) { // it is only advice
		chains, err = kernel.DroppingForward()
		return err
	})
	return chains
}

// Interface returns the name of the host's interface.
func (m *Management) Interface() string { return m.name }

func indexOf(conn *kernel.Conn, name string) (int, error) {
	links, err := conn.Links(false)
	if err != nil {
		return 0, err
	}
	at := slices.IndexFunc(links, func(l kernel.Link) bool { return l.Name == name })
	if at < 0 {
		return 0, fmt.Errorf("find %s: kernel has no such interface", name)
	}
	return links[at].Index, nil
}

// list returns the configuration of the plugins for a node.
func (m *Management) list(n *plan.Node) (*libcni.NetworkConfigList, error) {
	type object = map[string]any
	routes := []object{}
	if n.Management.Internet {
		routes = append(routes, object{"dst": "0.0.0.0/0"})
	}
	text, err := json.Marshal(object{"cniVersion": "1.0.0", "name": m.whole.Name, "plugins": []object{
		{
			"type": "bridge", "bridge": bridgeName, "isGateway": true, "ipMasq": n.Management.Internet,
			"capabilities": object{"ips": true, "mac": true},
			"ipam": object{
				"type": "host-local", "dataDir": filepath.Join(m.dir, "host-local"), "routes": routes,
				"ranges": [][]object{
					{{"subnet": m.plan.Subnet, "gateway": m.plan.Gateway}},
					{{"subnet": m.plan.Subnet6, "gateway": m.plan.Gateway6}},
				},
			},
		},
		{"type": "portmap", "capabilities": object{"portMappings": true}},
		{"type": "firewall"},
	}})
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromBytes(text)
}

// attach lets the plugins make the NICs of all nodes.
func (m *Management) attach(ctx context.Context, namespaces map[string]*kernel.Namespace) error {
	return m.ns.Do(func() error { // plugins are started in it
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		// Do not redirect nodes to the host past the bridge, which masquerades.
		settings := []kernel.Sysctl{{Path: "net/ipv4/conf/all/send_redirects", Value: "0"},
			{Path: "net/ipv4/conf/default/send_redirects", Value: "0"}}
		for _, dev := range []string{"all", "default", uplink} {
			settings = append(settings, quiet6(dev)...)
		}
		err = kernel.SetSysctls(settings)
		if err != nil {
			return err
		}
		batch := kernel.NewBatch("", nil)
		batch.SetUp("lo", 1, true)
		if err := conn.Do(batch); err != nil {
			return err
		}
		joined := false
		for _, n := range m.whole.Nodes {
			if n.Management == nil {
				continue
			}
			if err := m.add(ctx, &n, namespaces[n.Name]); err != nil {
				return err
			}
			if !joined { // the bridge exists now
				if err := errors.Join(m.joinUplink(conn), m.joinUplink6(conn)); err != nil {
					return err
				}
				joined = true
			}
		}
		return nil
	})
}

// add lets the plugins make a node's NIC. It must be called in the bridge's namespace.
func (m *Management) add(ctx context.Context, n *plan.Node, ns *kernel.Namespace) error {
	list, err := m.list(n)
	if err != nil {
		return err
	}
	if _, err := m.plugins().AddNetworkList(ctx, list, m.runtimeOf(n, ns)); err != nil {
		return fmt.Errorf("attach %s: %w", n.Name, err)
	}
	if n.Management.Guest == nil {
		return nil
	}
	// Only the guest has the address. Frames are forwarded to it from here (nodes/vm).
	conn, err := kernel.OpenIn(ns)
	if err != nil {
		return err
	}
	defer conn.Close()
	index, err := indexOf(conn, plan.ManagementName)
	if err != nil {
		return err
	}
	batch := kernel.NewBatch(n.Name, nil)
	batch.DeleteAddress(plan.ManagementName, index, n.Management.Addr)
	if err := conn.Do(batch); err != nil {
		return err
	}
	return ns.Do(func() error {
		return kernel.SetSysctls(
			[]kernel.Sysctl{{Path: "net/ipv6/conf/" + plan.ManagementName + "/disable_ipv6", Value: "1"}})
	})
}

func (m *Management) plugins() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(PluginDirs, filepath.Join(m.dir, "results"), nil)
}

// Attach makes a node's NIC again, after the node got a new namespace. It does nothing for a node
// without a NIC.
func (m *Management) Attach(ctx context.Context, node string, ns *kernel.Namespace) error {
	if m == nil || m.whole.Node(node).Management == nil {
		return nil
	}
	n := m.whole.Node(node)
	return m.ns.Do(func() error {
		list, err := m.list(n)
		if err != nil {
			return err
		}
		// The plugins keep the node's address and ports until this call.
		if err := m.plugins().DelNetworkList(ctx, list, m.runtimeOf(n, ns)); err != nil {
			return fmt.Errorf("detach %s: %w", node, err)
		}
		return m.add(ctx, n, ns)
	})
}

// runtimeOf returns the runtime configuration of the plugins for a node.
func (m *Management) runtimeOf(n *plan.Node, ns *kernel.Namespace) *libcni.RuntimeConf {
	type mapping struct {
		HostPort      int    `json:"hostPort"`
		ContainerPort int    `json:"containerPort"`
		Protocol      string `json:"protocol"`
	}
	mappings := []mapping{}
	for _, p := range n.Management.Publish {
		mappings = append(mappings, mapping{p.HostPort, p.NodePort, p.Protocol})
	}
	capabilities := map[string]any{"ips": []string{n.Management.Addr.String(), n.Management.Addr6.String()},
		"portMappings": mappings}
	if n.Management.Guest != nil {
		capabilities["mac"] = n.Management.Guest.MAC.String()
	}
	return &libcni.RuntimeConf{
		ContainerID:    m.whole.Name + "-" + n.Name,
		NetNS:          fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()),
		IfName:         plan.ManagementName,
		CapabilityArgs: capabilities,
	}
}

// joinUplink connects the bridge to the host, through which everything else is reached. The host's
// link is no port of the bridge: packets from nodes to the host are routed here. So packets that
// forge the bridge's address, which the host lets out, are dropped as martians.
func (m *Management) joinUplink(conn *kernel.Conn) error {
	port, err := indexOf(conn, uplink)
	if err != nil {
		return err
	}
	batch := kernel.NewBatch("", nil)
	batch.SetUp(uplink, port, true)
	batch.AddAddress(uplink, port, netip.PrefixFrom(m.plan.Gateway, m.plan.Gateway.BitLen()))
	batch.AddRoute(kernel.Route{Dst: netip.PrefixFrom(m.plan.Host, m.plan.Host.BitLen()), Src: m.plan.Gateway,
		Hops: []kernel.NextHop{{Index: port, Dev: uplink}}})
	batch.AddRoute(kernel.Route{
		Dst:  netip.PrefixFrom(netip.IPv4Unspecified(), 0),
		Hops: []kernel.NextHop{{Via: m.plan.Host, Index: port, Dev: uplink}},
	})
	if err := conn.Do(batch); err != nil {
		return err
	}
	// Nodes and the host see each other as neighbours.
	var settings []kernel.Sysctl
	for _, dev := range []string{bridgeName, uplink} {
		settings = append(settings, kernel.Sysctl{Path: "net/ipv4/conf/" + dev + "/proxy_arp", Value: "1"},
			kernel.Sysctl{Path: "net/ipv4/neigh/" + dev + "/proxy_delay", Value: "0"})
	}
	return kernel.SetSysctls(settings)
}

// joinUplink6 is joinUplink for IPv6. The only route leads to the host's one address, and only
// packets from that address or from a node are accepted. The host may forward for others, and no
// setting of a single interface prevents that.
func (m *Management) joinUplink6(conn *kernel.Conn) error {
	port, err := indexOf(conn, uplink)
	if err != nil {
		return err
	}
	bridge, err := indexOf(conn, bridgeName)
	if err != nil {
		return err
	}
	host := netip.PrefixFrom(m.plan.Host6, 128)
	batch := kernel.NewBatch("", nil)
	batch.AddAddress(uplink, port, netip.PrefixFrom(m.plan.Gateway6, 128))
	batch.AddRoute(kernel.Route{Dst: host, Hops: []kernel.NextHop{{Index: port, Dev: uplink}}})
	batch.AddProxy(bridgeName, bridge, m.plan.Host6)
	const table, priority = unix.RT_TABLE_MAIN, 100
	batch.AddRule(kernel.Rule{Priority: priority, From: host, Table: table})
	batch.AddRule(kernel.Rule{Priority: priority + 1, From: m.plan.Subnet6, Table: table})
	// the rule for all sources
	batch.DeleteRule(kernel.Rule{Priority: 32766, From: netip.PrefixFrom(netip.IPv6Unspecified(), 0),
		Table: table})
	if err := conn.Do(batch); err != nil {
		return err
	}
	return kernel.SetSysctls([]kernel.Sysctl{
		{Path: "net/ipv6/conf/all/forwarding", Value: "1"},
		{Path: "net/ipv6/conf/" + bridgeName + "/proxy_ndp", Value: "1"},
		{Path: "net/ipv6/neigh/" + bridgeName + "/proxy_delay", Value: "0"},
	})
}

// Close ends the network, and returns when it is gone. Nodes' NICs end with the bridge's namespace.
func (m *Management) Close() error {
	if m == nil {
		return nil
	}
	errs := []error{m.ports.close()}
	if m.masquerade != nil {
		errs = append(errs, m.masquerade.Close())
	}
	if m.ns != nil {
		errs = append(errs, m.unlinkHost(), m.ns.Close())
	}
	return errors.Join(append(errs, m.home.Close())...)
}

// unlinkHost deletes the host's interface by its other end, which certainly belongs to this
// network.
func (m *Management) unlinkHost() error {
	return m.ns.Do(func() error {
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		index, err := indexOf(conn, uplink)
		if err != nil {
			return nil // it was not made
		}
		batch := kernel.NewBatch("", nil)
		batch.DeleteLink(uplink, index)
		return kernel.IgnoreMissing(conn.Do(batch))
	})
}
