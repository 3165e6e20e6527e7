package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/containernetworking/cni/libcni"

	"railbed/fabric"
	"railbed/fabric/kernel"
	"railbed/testbed/plan"
	"railbed/testbed/spec"
	"railbed/testbed/verdict"
)

// PluginDirs are where the CNI project's plugins are installed.
var PluginDirs = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}

// StandardPlugins are those that a management network is made with.
var StandardPlugins = []string{"bridge", "host-local", "portmap", "firewall"}

// bridgeName is that of the management network's bridge, uplink its port to the host.
const bridgeName, uplink = "mgmt0", "host"

// Management is a testbed's network beside the fabric. Its bridge and all rules of
// packet filters lie in a namespace of its own, which the CNI project's plugins take for
// the host; what is on the host is one interface, whose other end is in there, and the
// listening sockets of published ports. So all of it ends with this process.
type Management struct {
	plan  *plan.Management
	ns    *kernel.Namespace
	home  *kernel.Namespace
	name  string // of the host's interface
	ports []net.Listener
	open  sync.WaitGroup
	mu    sync.Mutex
	conns map[net.Conn]bool // nil when it is closed
}

// StartManagement makes the network of a plan that has one: NICs in the namespaces of
// nodes, by their names, and an interface in the host's, which is the network's to close.
// Plugins keep what they keep in the directory.
func StartManagement(ctx context.Context, p *plan.Plan, namespaces map[string]*kernel.Namespace, host *kernel.Namespace, dir string) (m *Management, err error) {
	digest := fnv.New32a()
	digest.Write([]byte(p.Name))
	m = &Management{plan: p.Management, home: host, name: fmt.Sprintf("rb%08x", digest.Sum32()), conns: map[net.Conn]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make management network: %w", err), m.Close())
			m = nil
		}
	}()
	if m.ns, err = kernel.NewNamespace(); err != nil {
		return m, err
	}
	if err := m.linkHost(); err != nil {
		return m, err
	}
	if err := m.attach(ctx, p, namespaces, dir); err != nil {
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

// linkHost makes the host's interface, after a look at whether it hides something.
func (m *Management) linkHost() error {
	conn, err := kernel.OpenIn(m.home)
	if errors.Is(err, syscall.EPERM) {
		return &verdict.UnsupportedError{Feature: plan.CNIPlugins, Reason: err.Error(), Remedy: "bring the testbed up as root: the network ends in the host's namespace"}
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	routes, err := conn.AllRoutes()
	if err != nil {
		return err
	}
	for _, r := range routes {
		if r.Dst.Bits() > 0 && r.Dst.Overlaps(m.plan.Subnet) && r.Dst.Addr().Is4() {
			return fmt.Errorf("subnet %s: the host has a route to %s; want another one, as addressing.management4", m.plan.Subnet, r.Dst)
		}
	}
	batch := kernel.NewBatch("", nil)
	batch.AddVeth(kernel.VethEnd{Namespace: m.home, Name: m.name, MTU: 1500, MAC: kernel.MAC{2, 0x52, 0x42, 1, 0, 1}},
		kernel.VethEnd{Namespace: m.ns, Name: uplink, MTU: 1500, MAC: kernel.MAC{2, 0x52, 0x42, 1, 0, 2}}, fabric.LinkGroup)
	if err := conn.Do(batch); err != nil {
		return err
	}
	index, err := indexOf(conn, m.name)
	if err != nil {
		return err
	}
	batch = kernel.NewBatch("", nil)
	batch.AddAddress(m.name, index, netip.PrefixFrom(m.plan.Host, m.plan.Subnet.Bits()))
	batch.SetUp(m.name, index, true)
	return conn.Do(batch)
}

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

// list is the configuration of the plugins.
func (m *Management) list(testbed, dir string) (*libcni.NetworkConfigList, error) {
	type object = map[string]any
	text, err := json.Marshal(object{"cniVersion": "1.0.0", "name": testbed, "plugins": []object{
		{
			"type": "bridge", "bridge": bridgeName, "isGateway": true, "capabilities": object{"ips": true},
			"ipam": object{"type": "host-local", "dataDir": filepath.Join(dir, "host-local"), "ranges": [][]object{{{"subnet": m.plan.Subnet, "gateway": m.plan.Gateway}}}},
		},
		{"type": "portmap", "capabilities": object{"portMappings": true}},
		{"type": "firewall"},
	}})
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromBytes(text)
}

// attach has the plugins make the NICs of all nodes.
func (m *Management) attach(ctx context.Context, p *plan.Plan, namespaces map[string]*kernel.Namespace, dir string) error {
	list, err := m.list(p.Name, dir)
	if err != nil {
		return err
	}
	runtime := libcni.NewCNIConfigWithCacheDir(PluginDirs, filepath.Join(dir, "results"), nil)
	return m.ns.Do(func() error { // plugins are started in it
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		batch := kernel.NewBatch("", nil)
		batch.SetUp("lo", 1, true)
		if err := conn.Do(batch); err != nil {
			return err
		}
		joined := false
		for _, n := range p.Nodes {
			if n.Management == nil {
				continue
			}
			if _, err := runtime.AddNetworkList(ctx, list, m.runtimeOf(p.Name, &n, namespaces[n.Name])); err != nil {
				return fmt.Errorf("attach %s: %w", n.Name, err)
			}
			if !joined { // the bridge is there now
				if err := joinUplink(conn); err != nil {
					return err
				}
				joined = true
			}
		}
		return nil
	})
}

// runtimeOf is what the plugins are told of a node.
func (m *Management) runtimeOf(testbed string, n *plan.Node, ns *kernel.Namespace) *libcni.RuntimeConf {
	type mapping struct {
		HostPort      int    `json:"hostPort"`
		ContainerPort int    `json:"containerPort"`
		Protocol      string `json:"protocol"`
	}
	mappings := []mapping{}
	for _, p := range n.Management.Publish {
		mappings = append(mappings, mapping{p.HostPort, p.NodePort, p.Protocol})
	}
	return &libcni.RuntimeConf{
		ContainerID: testbed + "-" + n.Name, NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()), IfName: plan.ManagementName,
		CapabilityArgs: map[string]any{"ips": []string{n.Management.Addr.String()}, "portMappings": mappings},
	}
}

// joinUplink makes the host's link a port of the bridge.
func joinUplink(conn *kernel.Conn) error {
	bridge, err := indexOf(conn, bridgeName)
	if err != nil {
		return err
	}
	port, err := indexOf(conn, uplink)
	if err != nil {
		return err
	}
	batch := kernel.NewBatch("", nil)
	batch.SetMasterUp(uplink, port, bridge, bridgeName)
	return conn.Do(batch)
}

// publish has a port of the host's lead to the port that portmap gives a node at the
// bridge. Those of UDP are at the bridge alone.
func (m *Management) publish(p spec.Published, node string) error {
	if p.Protocol != "tcp" {
		return nil
	}
	var listener net.Listener
	err := m.home.Do(func() (err error) {
		listener, err = net.Listen("tcp", ":"+strconv.Itoa(p.HostPort))
		return err
	})
	if err != nil {
		return fmt.Errorf("publish port %d of %s: %w", p.NodePort, node, err)
	}
	m.ports = append(m.ports, listener)
	to := netip.AddrPortFrom(m.plan.Gateway, uint16(p.HostPort)).String()
	m.open.Go(func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(10 * time.Millisecond) // no descriptor is free, as a rule
				continue
			}
			m.open.Go(func() { m.relay(conn, to) })
		}
	})
	return nil
}

// dialTime is how long a node may take to accept a connection.
const dialTime = 10 * time.Second

// relay carries bytes both ways until both have ended.
func (m *Management) relay(from net.Conn, address string) {
	defer from.Close()
	var to net.Conn
	err := m.ns.Do(func() (err error) {
		to, err = net.DialTimeout("tcp", address, dialTime)
		return err
	})
	if err != nil {
		return // nobody listens in the node
	}
	defer to.Close()
	if !m.keep(from, to) {
		return
	}
	defer m.forget(from, to)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0]) // either end may go
			_ = way[1].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

// keep notes connections for Close. It is false after it.
func (m *Management) keep(conns ...net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conns == nil {
		return false
	}
	for _, conn := range conns {
		m.conns[conn] = true
	}
	return true
}

func (m *Management) forget(conns ...net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, conn := range conns {
		delete(m.conns, conn)
	}
}

// Close ends the network, and returns when it is gone. Nodes' NICs go with the namespace
// of the bridge.
func (m *Management) Close() error {
	if m == nil {
		return nil
	}
	var errs []error
	for _, port := range m.ports {
		errs = append(errs, port.Close())
	}
	m.mu.Lock()
	for conn := range m.conns {
		errs = append(errs, conn.Close())
	}
	m.conns = nil
	m.mu.Unlock()
	m.open.Wait()
	if m.ns != nil {
		errs = append(errs, m.unlinkHost(), m.ns.Close())
	}
	return errors.Join(append(errs, m.home.Close())...)
}

// unlinkHost deletes the host's interface, by its other end: that is ours for certain.
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
