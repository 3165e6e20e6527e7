package cni

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"railbed/plan"
	"railbed/plan/spec"
)

// ports are the host's ports that lead to a management network, with their connections.
type ports struct {
	listeners []io.Closer
	open      sync.WaitGroup
	most      int                      // connections, or peers, of one port at once
	dials     map[string]chan struct{} // by node, one token for each dial in progress
	mu        sync.Mutex
	conns     map[io.Closer]bool // nil when they are closed
	closed    chan struct{}
}

const (
	// connsMost bounds the connections, or peers, of one port at once, even with more descriptors.
	connsMost = 1024
	// descriptorsPerConn is the number of descriptors of a connection: two sockets, and a pipe each
	// way, by which Go lets the kernel move bytes (splice(2)).
	descriptorsPerConn = 6
	// dialsMost bounds the dials to nodes in progress, in equal shares for each node: a node may
	// leave all dials unanswered. Each dial occupies a thread, of which a program has 10,000.
	dialsMost = 256
)

// PortDescriptors returns the number of a process's descriptors that the published ports of a plan
// may take. The rest is for the control socket and the other parts of the testbed.
func PortDescriptors(p *plan.Plan, limit uint64) uint64 {
	if ports, _ := published(p); ports == 0 {
		return 0
	}
	return limit / 4
}

// published counts a plan's published ports, and the nodes with published ports.
func published(p *plan.Plan) (ports, nodes int) {
	for _, n := range p.Nodes {
		if n.Management != nil && len(n.Management.Publish) > 0 {
			ports, nodes = ports+len(n.Management.Publish), nodes+1
		}
	}
	return ports, nodes
}

// divide divides descriptors among the ports, and dials among the nodes.
func (p *ports) divide(whole *plan.Plan) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read limit of descriptors: %w", err)
	}
	p.conns, p.dials, p.closed = map[io.Closer]bool{}, map[string]chan struct{}{}, make(chan struct{})
	count, nodes := published(whole)
	if count == 0 {
		return nil
	}
	share := PortDescriptors(whole, limit.Cur) / uint64(count*descriptorsPerConn)
	p.most = int(max(1, min(connsMost, share)))
	for _, n := range whole.Nodes {
		p.dials[n.Name] = make(chan struct{}, max(1, dialsMost/nodes))
	}
	return nil
}

// publish forwards a port of the host, on all of its addresses, to the port that portmap assigns to
// a node at the bridge. portmap's own rules are in the bridge's namespace.
func (m *Management) publish(p spec.Published, node string) error {
	to := netip.AddrPortFrom(m.plan.Gateway, uint16(p.HostPort)).String()
	err := m.home.Do(func() error {
		if p.Protocol == "udp" {
			socket, err := listenUDP(p.HostPort)
			if err == nil {
				m.ports.listeners = append(m.ports.listeners, socket)
				m.ports.open.Go(func() { m.relayDatagrams(socket, to) })
			}
			return err
		}
		listener, err := net.Listen("tcp", ":"+strconv.Itoa(p.HostPort))
		if err == nil {
			m.ports.listeners = append(m.ports.listeners, listener)
			m.ports.open.Go(func() { m.accept(listener, node, to) })
		}
		return err
	})
	if err != nil {
		return refusedPort(m.plan, p, node, err.Error())
	}
	return nil
}

// refusedPort returns the error for a host port that cannot be had.
func refusedPort(m *plan.Management, p spec.Published, node, reason string) error {
	return refused(m.Where[p.String()], "publish "+p.String()+" for "+node, reason,
		"publish another port, or end the program that has this port")
}

// accept accepts connections while there is room for them. Further connections wait in the kernel
// and cost this process nothing.
func (m *Management) accept(listener net.Listener, node, to string) {
	room := make(chan struct{}, m.ports.most)
	for {
		select {
		case room <- struct{}{}:
		case <-m.ports.closed:
			return
		}
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-room
			time.Sleep(10 * time.Millisecond) // as a rule the host has no free descriptor
			continue
		}
		m.ports.open.Go(func() {
			m.relay(conn, m.ports.dials[node], to)
			<-room
		})
	}
}

// dialTime is how long a node may take to accept a connection.
const dialTime = 10 * time.Second

// dial opens a connection in the bridge's namespace.
func (m *Management) dial(network, address string) (conn net.Conn, err error) {
	err = m.ns.Do(func() (err error) {
		conn, err = net.DialTimeout(network, address, dialTime)
		return err
	})
	return conn, err
}

// relay carries bytes both ways until both directions have ended.
func (m *Management) relay(from net.Conn, dials chan struct{}, address string) {
	defer from.Close()
	if !m.ports.keep(from) {
		return
	}
	defer m.ports.forget(from)
	select {
	case dials <- struct{}{}:
	case <-m.ports.closed:
		return
	}
	to, err := m.dial("tcp", address)
	<-dials
	if err != nil {
		return // no program listens in the node
	}
	defer to.Close()
	if !m.ports.keep(to) {
		return
	}
	defer m.ports.forget(to)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0]) // either end may close
			_ = way[1].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

const (
	// quietTime is how long a silent peer of a UDP port is kept, as long as portmap's conntrack
	// keeps a peer that was answered (nf_conntrack_udp_timeout_stream).
	quietTime = 120 * time.Second
	// datagramMost is the largest datagram of UDP.
	datagramMost = 64 << 10
)

// listenUDP opens a UDP port in the calling thread's namespace. The socket reports the local
// address of each datagram: answers are sent from that address.
func listenUDP(port int) (*net.UDPConn, error) {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	if err != nil {
		return nil, err
	}
	raw, err := socket.SyscallConn()
	if err == nil {
		optionErr := raw.Control(func(fd uintptr) {
			if err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1); err != nil {
				// a host without IPv6
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
			}
		})
		err = errors.Join(err, optionErr)
	}
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return socket, nil
}

// relayDatagrams carries datagrams both ways until the socket is closed. Each peer has a connection
// of its own to the node.
func (m *Management) relayDatagrams(socket *net.UDPConn, to string) {
	type key struct {
		peer  netip.AddrPort
		local string
	}
	var mu sync.Mutex // guards peers
	type known struct {
		conn  net.Conn
		heard time.Time
	}
	peers := map[key]*known{}
	data, about := make([]byte, datagramMost), make([]byte, 128)
	for {
		n, aboutLen, _, peer, err := socket.ReadMsgUDPAddrPort(data, about)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error to an earlier answer
		}
		back := sourceOf(about[:aboutLen])
		k := key{peer, string(back)}
		mu.Lock()
		p := peers[k]
		mu.Unlock()
		if p == nil {
			conn, err := m.dial("udp", to)
			if err != nil || !m.ports.keep(conn) {
				continue
			}
			p = &known{conn: conn}
			mu.Lock()
			if len(peers) >= m.ports.most { // replace the peer that was silent for longest
				quietest := slices.MinFunc(slices.Collect(maps.Keys(peers)), func(a, b key) int {
					return peers[a].heard.Compare(peers[b].heard)
				})
				peers[quietest].conn.Close()
				delete(peers, quietest)
			}
			peers[k] = p
			mu.Unlock()
			m.ports.open.Go(func() {
				answer(socket, conn, peer, back)
				mu.Lock()
				if peers[k] == p {
					delete(peers, k)
				}
				mu.Unlock()
				m.ports.forget(conn)
				conn.Close()
			})
		}
		mu.Lock()
		p.heard = time.Now()
		mu.Unlock()
		_ = p.conn.SetReadDeadline(time.Now().Add(quietTime))
		_, _ = p.conn.Write(data[:n]) // a datagram may be lost
	}
}

// answer sends the node's datagrams to a peer. It ends when no datagram was carried for quietTime,
// or when no program has the port in the node.
func answer(socket *net.UDPConn, conn net.Conn, peer netip.AddrPort, back []byte) {
	data := make([]byte, datagramMost)
	for {
		n, err := conn.Read(data)
		if err != nil {
			return
		}
		_ = conn.SetReadDeadline(time.Now().Add(quietTime))
		_, _, _ = socket.WriteMsgUDPAddrPort(data[:n], back, peer)
	}
}

// sourceOf converts a received control message to one for the answer. It sets the source address to
// the address at which the datagram arrived, but not the interface, which the routes decide.
func sourceOf(about []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(about)
	if err != nil {
		return nil
	}
	for _, message := range messages {
		level, kind := message.Header.Level, message.Header.Type
		switch {
		case level == unix.IPPROTO_IPV6 && kind == unix.IPV6_PKTINFO &&
			len(message.Data) >= unix.SizeofInet6Pktinfo:
			info := &unix.Inet6Pktinfo{Addr: [16]byte(message.Data)}
			if address := netip.AddrFrom16(info.Addr); address.IsLinkLocalUnicast() {
				return nil // that needs its interface
			}
			return unix.PktInfo6(info)
		case level == unix.IPPROTO_IP && kind == unix.IP_PKTINFO &&
			len(message.Data) >= unix.SizeofInet4Pktinfo:
			return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(message.Data[4:])})
		}
	}
	return nil
}

// keep registers connections for close. After close it closes them instead and returns false.
func (p *ports) keep(conns ...io.Closer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		for _, conn := range conns {
			conn.Close()
		}
		return false
	}
	for _, conn := range conns {
		p.conns[conn] = true
	}
	return true
}

func (p *ports) forget(conns ...io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.conns, conn)
	}
}

// close closes the ports and all their connections.
func (p *ports) close() error {
	var errs []error
	for _, listener := range p.listeners {
		errs = append(errs, listener.Close())
	}
	p.mu.Lock()
	for conn := range p.conns {
		if err := conn.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if p.conns != nil {
		p.conns = nil
		close(p.closed)
	}
	p.mu.Unlock()
	p.open.Wait()
	return errors.Join(errs...)
}

// taken returns an error if another program has a port in the calling thread's namespace.
func taken(p spec.Published) error {
	var socket io.Closer
	var err error
	if p.Protocol == "udp" {
		socket, err = net.ListenUDP("udp", &net.UDPAddr{Port: p.HostPort})
	} else {
		socket, err = net.Listen("tcp", ":"+strconv.Itoa(p.HostPort))
	}
	var refused *os.SyscallError
	switch {
	case err == nil:
		return socket.Close()
	case errors.Is(err, syscall.EADDRINUSE):
		return syscall.EADDRINUSE
	case errors.As(err, &refused):
		return refused
	}
	return err
}
