package perftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"railbed/internal/infiniband"
	"railbed/transports/roce"
)

// meet connects to the other end: it opens the device, and the carrier of the dialogue.
func (r *run) meet(ctx context.Context) error {
	r.talk.client = r.config.Server != ""
	switch {
	case !r.config.ExchangeCM:
		return r.meetTCP(ctx)
	case r.talk.client:
		return r.dialCM(ctx)
	}
	return r.listenCM(ctx)
}

// meetTCP connects the two ends by TCP, and opens the device.
func (r *run) meetTCP(ctx context.Context) (err error) {
	c := r.config
	port := strconv.Itoa(c.Port)
	if r.talk.client {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(c.Server, port))
		if err != nil {
			return err
		}
		r.talk.conn = conn
		return r.openDevice(conn)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", ":"+port)
	if err != nil {
		return err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	r.print.banner()
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	r.talk.conn = conn
	return r.openDevice(conn)
}

// dialCM connects to a server that listens by rdma_cm. Its address is the source address of the
// kernel's datagrams to the server.
func (r *run) dialCM(ctx context.Context) error {
	var dialer net.Dialer
	way, err := dialer.DialContext(ctx, "udp", net.JoinHostPort(r.config.Server, strconv.Itoa(r.config.Port)))
	if err != nil {
		return err
	}
	defer way.Close()
	if err := r.openDevice(way); err != nil {
		return err
	}
	to := way.RemoteAddr().(*net.UDPAddr).AddrPort()
	r.peer = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	conn, err := r.overVerbs()
	if err != nil {
		return err
	}
	_, err = conn.Dial(ctx, r.peer, nil)
	return err
}

// overVerbs makes the queue pair that carries the dialogue.
func (r *run) overVerbs() (*verbs, error) {
	conn, err := newVerbs(r.device)
	if err != nil {
		return nil, err
	}
	r.talk.conn, r.talk.binary = conn, true
	return conn, nil
}

// listenCM waits until a client connects by rdma_cm, to any address of the configured NIC or of all
// NICs, and uses that address.
func (r *run) listenCM(ctx context.Context) error {
	all, err := places(r.config.NIC)
	if err != nil {
		return err
	}
	devices, listeners := make([]*roce.Device, len(all)), make([]*roce.Listener, len(all))
	var problems []error
	defer func() {
		for _, d := range devices {
			if d != nil && d != r.device {
				d.Close()
			}
		}
	}()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	type request struct {
		at int
		*roce.Incoming
	}
	var accepting sync.WaitGroup
	came := make(chan request, len(all))
	for i, p := range all {
		if devices[i], err = roce.OpenDevice(r.deviceConfig(p.addr)); err == nil {
			listeners[i], err = devices[i].Listen(uint16(r.config.Port))
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		accepting.Go(func() {
			if one, err := listeners[i].Accept(waiting); err == nil {
				came <- request{i, one}
			}
		})
	}
	defer accepting.Wait()
	defer stop()
	if len(problems) == len(all) {
		return errors.Join(append(problems,
			fmt.Errorf("NIC %q has no address to listen at", cmp.Or(r.config.NIC, "any")))...)
	}
	r.print.banner()
	var first request
	select {
	case first = <-came:
	case <-ctx.Done():
		return ctx.Err()
	}
	r.device, r.listener, r.peer = devices[first.at], listeners[first.at], first.From
	r.name, r.pathMTU = all[first.at].name(first.From.Addr()), r.device.PathMTU()
	if mtu := routeMTU(r.device.Addr(), r.peer); mtu > 0 {
		r.pathMTU = min(r.pathMTU, infiniband.PathMTU(mtu))
	}
	conn, err := r.overVerbs()
	if err != nil {
		return err
	}
	return first.Grant(ctx, conn.QueuePair, nil)
}

// routeMTU is the MTU of the route from one address to another, or 0 if the kernel does not tell.
func routeMTU(from netip.Addr, to netip.AddrPort) int {
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
		net.UDPAddrFromAddrPort(to))
	if err != nil {
		return 0
	}
	defer conn.Close()
	return pathMTU(conn)
}

// place is an address of a NIC.
type place struct {
	nic  net.Interface
	addr netip.Addr
}

// name is the displayed name. An address of a loopback device belongs to a node rather than to one
// of its links, so the address itself is displayed.
func (p place) name(peer netip.Addr) string {
	if p.nic.Flags&net.FlagLoopback != 0 && !peer.IsLoopback() {
		return p.addr.String()
	}
	return p.nic.Name
}

// places returns the addresses of a NIC, or of all NICs.
func places(name string) (all []place, err error) {
	nics, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, nic := range nics {
		if name != "" && nic.Name != name {
			continue
		}
		addrs, err := nic.Addrs()
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", nic.Name, err)
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil &&
				!prefix.Addr().IsLinkLocalUnicast() {
				all = append(all, place{nic, prefix.Addr()})
			}
		}
	}
	return all, nil
}

// deviceConfig returns the configuration of a device at an address.
func (r *run) deviceConfig(at netip.Addr) roce.DeviceConfig {
	config := roce.DeviceConfig{Addr: at, NIC: r.config.NIC}
	if r.config.TOS > 0 {
		config.DSCP = uint8(r.config.TOS) >> 2
	}
	return config
}

// openDevice opens the configured NIC, or the NIC that a connection to the peer uses.
func (r *run) openDevice(conn net.Conn) error {
	local, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return err
	}
	remote, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return err
	}
	at, peer := local.Addr().Unmap().WithZone(""), remote.Addr().Unmap()
	all, err := places(r.config.NIC)
	if err != nil {
		return err
	}
	found := false
	for _, p := range all {
		if r.config.NIC == "" && p.addr == at || r.config.NIC != "" && p.addr.Is4() == at.Is4() {
			at, r.name, found = p.addr, p.name(peer), true
			break
		}
	}
	config := r.deviceConfig(at)
	switch {
	case r.config.NIC == "":
		config.MTU = pathMTU(conn)
	case !found:
		return fmt.Errorf("no NIC %s with an address of the peer's IP version", r.config.NIC)
	}
	if r.device, err = roce.OpenDevice(config); err != nil {
		return err
	}
	r.pathMTU = r.device.PathMTU()
	return nil
}
