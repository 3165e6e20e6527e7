package roce

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
	"railbed/internal/kernel"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/vmtest"
	"railbed/transports/roce/cm"
	"railbed/transports/roce/queuepair"
)

// pings is how many, of so many bytes: more than three packets.
const (
	pings     = 5
	pingBytes = 3500
)

// TestRping runs rping's client against the unmodified program (rdma-core, librdmacm,
// examples/rping.c) on the kernel's rdma_rxe. rdma_cm connects, SENDs say where memory is, the
// kernel READs it here and WRITEs it back, and rdma_cm disconnects. Each side has checked the ICRC
// of all packets received.
func TestRping(t *testing.T) {
	hosttest.Need(t, hosttest.Rping)
	if !vmtest.InGuest(t, vmtest.Options{Modules: []string{"veth", "rdma_rxe", "crc32_generic", "ib_uverbs",
		"rdma_ucm"}}) {
		return
	}
	ns, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	here, there := netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("10.9.0.1")
	sh(t, fmt.Sprintf(`set -e
		ip link set lo up
		ip link add v0 type veth peer name v1 netns /proc/self/fd/0
		ip addr add %v/24 dev v0
		ip link set v0 up
		rdma link add rxe0 type rxe netdev v0`, there), ns)
	if err := ns.Do(func() error {
		sh(t, fmt.Sprintf("ip addr add %v/24 dev v1 && ip link set v1 up", here), nil)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	server := exec.Command("rping", "-s", "-v", "-V", "-a", there.String(), "-S", fmt.Sprint(pingBytes), "-C",
		fmt.Sprint(pings))
	var output bytes.Buffer
	server.Stdout, server.Stderr = &output, &output
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	p := newPinger(t, ns, here)
	hosttest.Eventually(t, "a connection, once rping listens", func() error {
		if p.connect(netip.AddrPortFrom(there, 7174)) != nil {
			return fmt.Errorf("%w\n%s", p.ended, output.String())
		}
		return nil
	})
	for i := range pings {
		p.ping(i)
	}
	p.manager.Disconnect(p.clock.Now(), p.conn, p.offer.QPN)
	p.until("the answer to a DREQ", func() bool { return p.manager.Idle() })
	if err := server.Wait(); err != nil {
		t.Errorf("rping: %v", err)
	}
	if n := strings.Count(output.String(), "server ping data: rdma-ping-"); n != pings {
		t.Errorf("rping printed %d pings, want %d:\n%s", n, pings, output.String())
	}
	if c := p.qp.Counters(); p.socket.badICRC.Load() != 0 || c.Naks+c.Resent+c.Timeouts != 0 {
		t.Errorf("%d packets with a wrong ICRC, %+v", p.socket.badICRC.Load(), c)
	}
	// Of the kernel's counters all that are errors are 0. Its retries are not among them:
	// its timer does not wait for a host that is busy.
	for _, name := range []string{"duplicate_request", "out_of_seq_request", "rcvd_rnr_err", "rcvd_seq_err",
		"ack_deffered", "retry_exceeded_err"} {
		text, err := os.ReadFile("/sys/class/infiniband/rxe0/ports/1/hw_counters/" + name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) ||
			err == nil && strings.TrimSpace(string(text)) != "0" {
			t.Errorf("rxe's %s is %s (%v)", name, bytes.TrimSpace(text), err)
		}
	}
}

func sh(t testing.TB, script string, ns *kernel.Namespace) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	if ns != nil {
		file, err := ns.Dup()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		cmd.Stdin = file
	}
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

// pinger drives one queue pair by hand.
type pinger struct {
	testing.TB
	socket  *socket
	clock   *clock.Clock
	manager *cm.Manager
	qp      *queuepair.QP
	psn     infiniband.PSN
	conn    cm.Conn
	offer   *cm.Offer
	ended   error
	regions map[uint32]*queuepair.Region
	done    []queuepair.Completion
	gsi     infiniband.PSN
	peer    netip.Addr
}

func newPinger(t testing.TB, ns *kernel.Namespace, addr netip.Addr) *pinger {
	p := &pinger{TB: t, clock: clock.New(1), psn: 0xFFFFFE, regions: map[uint32]*queuepair.Region{}}
	if err := ns.Do(func() (err error) {
		p.socket, err = openSocket(&DeviceConfig{Addr: addr, DSCP: defaultDSCP}, 1024)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.socket.close() })
	var err error
	if p.manager, err = cm.New(cm.Config{Addr: addr}, p); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pinger) Requested(cm.Conn, netip.AddrPort, uint16, cm.Offer) {}
func (p *pinger) Connected(_ cm.Conn, offer cm.Offer)                 { p.offer = &offer }
func (p *pinger) Ended(_ cm.Conn, why error)                          { p.ended = why }
func (p *pinger) Region(rkey uint32) *queuepair.Region                { return p.regions[rkey] }
func (p *pinger) Complete(c queuepair.Completion)                     { p.done = append(p.done, c) }

// connect asks for a connection and makes the queue pair.
func (p *pinger) connect(to netip.AddrPort) (err error) {
	p.peer, p.ended = to.Addr(), nil
	p.conn, err = p.manager.Connect(p.clock.Now(), to, 4000, cm.Offer{
		QPN:        p.socket.number(1),
		PSN:        p.psn,
		Resources:  1,
		Depth:      1,
		Retries:    7,
		RNRRetries: 7,
		AckTimeout: 14,
		MTU:        infiniband.MTUCode(1024),
	})
	if err != nil {
		p.Fatal(err)
	}
	p.until("an answer to a REQ", func() bool { return p.offer != nil || p.ended != nil })
	if p.ended != nil {
		return p.ended
	}
	p.qp, err = queuepair.New(queuepair.Config{
		Number:     p.socket.number(1),
		Remote:     p.offer.QPN,
		MTU:        1024,
		SendPSN:    p.offer.PSN,
		ReceivePSN: p.psn,
		Rights:     queuepair.RemoteRead | queuepair.RemoteWrite,
	}, p)
	if err != nil {
		p.Fatal(err)
	}
	return nil
}

// ping is one round of rping's client.
func (p *pinger) ping(number int) {
	text := []byte(fmt.Sprintf("rdma-ping-%d: ", number))
	for c := byte('A'); len(text) < pingBytes-1; c++ {
		text = append(text, 'A'+(c-'A')%58)
	}
	text = append(text, 0)
	sink := make([]byte, pingBytes)
	p.regions[11] = &queuepair.Region{Base: 0x7000_0000_0123, Memory: text, Rights: queuepair.RemoteRead}
	p.regions[12] = &queuepair.Region{Base: 0x7100_0000_0456, Memory: sink, Rights: queuepair.RemoteWrite}
	for _, rkey := range []uint32{11, 12} {
		if err := p.qp.PostReceive(1, [][]byte{make([]byte, 16)}); err != nil {
			p.Fatal(err)
		}
		info := binary.BigEndian.AppendUint64(nil, p.regions[rkey].Base)
		info = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(info, rkey), pingBytes)
		before := len(p.done)
		if err := p.qp.Post(queuepair.Request{Op: queuepair.Send, Local: [][]byte{info}}); err != nil {
			p.Fatal(err)
		}
		// Its own completion, and the server's word.
		p.until(fmt.Sprintf("the answer to ping %d", number), func() bool { return len(p.done) == before+2 })
		for _, c := range p.done[before:] {
			if c.Err != nil || c.Op == queuepair.Receive && c.Bytes != 16 {
				p.Fatalf("%+v", c)
			}
		}
	}
	if !bytes.Equal(sink, text) {
		p.Fatalf("ping %d came back as %.40q", number, sink)
	}
}

// until drives socket, manager and queue pair.
func (p *pinger) until(what string, done func() bool) {
	p.Helper()
	var message [infiniband.MADLen]byte
	for deadline := time.Now().Add(hosttest.Bound); !done(); {
		if time.Now().After(deadline) {
			p.Fatalf("waited in vain for %s", what)
		}
		list, err := p.socket.receive()
		if err != nil {
			p.Fatal(err)
		}
		now := p.clock.Now()
		for _, a := range list {
			switch to := a.packet.BTH().DestQP(); {
			case to == infiniband.GSI:
				p.manager.Receive(now, a.from, infiniband.MAD(a.packet.Payload()))
			case p.qp != nil:
				p.qp.Receive(now, a.packet, a.marked)
			}
		}
		p.manager.Expire(now)
		for {
			to, ok := p.manager.Next(&message)
			if !ok {
				break
			}
			p.gsi = p.gsi.Add(1)
			p.socket.add(to, sourcePort(infiniband.GSI), datagramOf(p.socket.room(), p.gsi, &message))
		}
		if p.qp != nil {
			p.qp.Expire(now)
			for room := p.socket.room(); room != nil; room = p.socket.room() {
				n := p.qp.Next(now, room)
				if n == 0 {
					break
				}
				p.socket.add(p.peer, sourcePort(p.socket.number(1)), n)
			}
		}
		if err := p.socket.send(); err != nil {
			p.Fatal(err)
		}
		if len(list) == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
}
