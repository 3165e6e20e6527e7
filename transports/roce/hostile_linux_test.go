package roce

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"railbed/internal/infiniband"
	"railbed/testkit/hosttest"
	"railbed/transports"
	"railbed/transports/roce/cm"
	"railbed/transports/roce/dcqcn"
)

// villain sends what it likes, with the right ICRC, from an address that is its own or
// not. It is the host of a communication manager.
type villain struct {
	*socket
	t       testing.TB
	manager *cm.Manager
	granted cm.Conn
	ended   error
}

func newVillain(t testing.TB, at string) *villain {
	t.Helper()
	addr := netip.MustParseAddr(at)
	d, err := openSocket(&DeviceConfig{Addr: addr, DSCP: defaultDSCP}, 1024)
	if err != nil {
		t.Fatal(err)
	}
	d.out.whole = true // with headers of its own
	v := &villain{socket: d, t: t}
	t.Cleanup(func() { d.close() })
	if v.manager, err = cm.New(
		cm.Config{Addr: addr, Shared: true, First: 0x7000000, Timeout: 5 * time.Second}, v); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *villain) Requested(cm.Conn, netip.AddrPort, uint16, cm.Offer) {}
func (v *villain) Connected(c cm.Conn, _ cm.Offer)                     { v.granted = c }
func (v *villain) Ended(_ cm.Conn, why error)                          { v.ended = why }

// say sends a packet to an endpoint.
func (v *villain) say(to *driver, f infiniband.Fields, payload []byte) {
	v.t.Helper()
	if f.BTH.PKey == 0 {
		f.BTH.PKey = infiniband.PKey
	}
	o := f.BTH.Opcode
	p := v.room()[:infiniband.Len(o, len(payload))]
	p.Encode(&f, len(payload))
	copy(p.Payload(), payload)
	v.add(to.socket.addr, 0xC000, len(p))
	v.flush()
}

func (v *villain) flush() {
	for v.out.count > 0 {
		if err := v.send(); err != nil {
			v.t.Fatal(err)
		}
	}
}

// message sends a management datagram.
func (v *villain) message(to *driver, m infiniband.MAD) {
	v.t.Helper()
	v.say(to, infiniband.Fields{
		BTH:  infiniband.BTHFields{Opcode: infiniband.UDSendOnly, DestQP: infiniband.GSI},
		DETH: infiniband.DETHFields{QKey: infiniband.GSIQKey, SrcQP: infiniband.GSI},
	}, m)
}

// processed waits until endpoints have processed all packets sent to them. It sends a packet with a
// wrong ICRC after them, which the endpoints count.
func (v *villain) processed(all ...*driver) {
	v.t.Helper()
	for _, e := range all {
		before := e.count().BadICRC
		p := v.room()[:infiniband.CNPLen]
		p.EncodeCNP(infiniband.GSI)
		v.add(e.socket.addr, 0xC000, len(p))
		v.out.buffers[(v.out.count-1)*v.out.size+v.headersLen()+len(p)-1] ^= 1
		v.flush()
		hosttest.Until(v.t, "a packet with a wrong ICRC", func() bool { return e.count().BadICRC > before })
	}
}

// manage lets the manager speak with endpoints until something is so.
func (v *villain) manage(what string, so func() bool) {
	v.t.Helper()
	hosttest.Until(v.t, what, func() bool {
		list, err := v.receive()
		if err != nil {
			v.t.Fatal(err)
		}
		for _, a := range list {
			if a.packet.BTH().DestQP() == infiniband.GSI && len(a.packet.Payload()) == infiniband.MADLen {
				v.manager.Receive(0, a.from, infiniband.MAD(a.packet.Payload()))
			}
		}
		v.speak()
		return so()
	})
}

// speak sends what the manager has to say.
func (v *villain) speak() {
	v.t.Helper()
	var message [infiniband.MADLen]byte
	for {
		to, ok := v.manager.Next(&message)
		if !ok {
			return
		}
		v.add(to, 0xC000, datagramOf(v.room(), 0, &message))
		v.flush()
	}
}

// offer returns the offer that one endpoint would send another to connect.
func (v *villain) offer(from, to *Endpoint) cm.Offer {
	private := binary.BigEndian.AppendUint64(nil, from.self.life)
	return cm.Offer{QPN: 9, MTU: 3, Private: binary.BigEndian.AppendUint64(private, to.self.life)}
}

const hostileLine = 1_000_000_000

// attacked is two endpoints at addresses of their own, and memory that one writes at the other.
// Only the middle of that memory is a region.
type attacked struct {
	t      testing.TB
	a, b   *Endpoint
	to     transports.Peer
	memory []byte
	region transports.Region
	writes byte
}

func newAttacked(t testing.TB, timeout time.Duration) *attacked {
	t.Helper()
	w := &attacked{t: t, memory: make([]byte, 300)}
	open := func(at string) *Endpoint {
		e, err := Open(Config{Addr: netip.MustParseAddr(at), MTU: 1500,
			Congestion: &dcqcn.Params{Line: hostileLine}, Timeout: timeout, PeerTimeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	w.a, w.b = open("127.0.0.1"), open("127.0.0.2")
	var err error
	if w.to, err = w.a.AddPeer(w.b.Address()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.b.AddPeer(w.a.Address()); err != nil {
		t.Fatal(err)
	}
	if w.region, err = w.b.Register(w.memory[100:200], transports.RemoteWrite); err != nil {
		t.Fatal(err)
	}
	w.works()
	return w
}

// works is that a message goes and arrives, as one packet, and that nothing else did.
func (w *attacked) works() {
	w.t.Helper()
	w.writes++
	data := bytes.Repeat([]byte{w.writes}, 100)
	if _, err := w.a.Post(w.t.Context(),
		[]transports.Request{{Op: transports.OpWrite, Peer: w.to, Local: data,
			Remote: w.region.Remote()}}); err != nil {
		w.t.Fatal(err)
	}
	var done [2]transports.Completion
	if err := w.a.Wait(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if n := w.a.Poll(done[:]); n != 1 || done[0].Err != nil {
		w.t.Fatalf("completions %+v", done[:n])
	}
	if n := w.b.Poll(done[:]); n != 0 {
		w.t.Errorf("told %+v", done[:n])
	}
	w.untouched()
}

// untouched is that memory holds what works wrote.
func (w *attacked) untouched() {
	w.t.Helper()
	want := make([]byte, 300)
	copy(want[100:], bytes.Repeat([]byte{w.writes}, 100))
	if !bytes.Equal(w.memory, want) {
		w.t.Errorf("memory is %x", w.memory)
	}
}

// linkOf is the only link of an endpoint.
func (w *attacked) linkOf(e *Endpoint) link {
	w.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.links) != 1 {
		w.t.Fatalf("%d links", len(e.links))
	}
	for _, l := range e.links {
		return *l
	}
	panic("none")
}

// everything sends packets of every operation with PSNs, to the queue pairs of both
// ends, with the right key of the region and around it.
func (v *villain) everything(w *attacked, requests, answers []infiniband.PSN) {
	at, there := w.linkOf(w.a), w.linkOf(w.b)
	rkey, base := binary.BigEndian.Uint32(w.region.Remote()),
		uint64(binary.BigEndian.Uint32(w.region.Remote()[4:]))<<baseShift
	for o := range infiniband.Opcode(0x20) {
		if !o.Known() {
			continue
		}
		to, number, psns := &w.b.driver, there.number, requests
		if o.Response() {
			to, number, psns = &w.a.driver, at.number, answers
		}
		for _, psn := range psns {
			var payload []byte
			if o.HasPayload() {
				payload = bytes.Repeat([]byte{0xEE}, 100)
			}
			for _, syndrome := range []infiniband.Syndrome{infiniband.AckUnlimited, infiniband.NakSequence,
				infiniband.NakAccess, infiniband.RNRNak | 31, 0x7F} {
				v.say(to, infiniband.Fields{
					BTH:       infiniband.BTHFields{Opcode: o, DestQP: number, PSN: psn, AckReq: true},
					RETH:      infiniband.RETHFields{VA: base, RKey: rkey, Length: 100},
					AtomicETH: infiniband.AtomicETHFields{VA: base, RKey: rkey, SwapAdd: 1},
					AETH:      infiniband.AETHFields{Syndrome: syndrome, MSN: 1},
				}, payload)
				if !o.Has(infiniband.HasAETH) {
					break
				}
			}
		}
	}
}

// TestStranger: an attacker knows every number of a connection, but has an address other than the
// peer's. No packet of it changes a byte, a completion, a rate, or a queue pair's state.
func TestStranger(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	w := newAttacked(t, 0)
	v := newVillain(t, "127.0.0.3")
	at, there := w.linkOf(w.a), w.linkOf(w.b)
	before := [2]Counters{w.a.Counters(), w.b.Counters()}
	v.everything(w, []infiniband.PSN{there.psn, there.psn.Add(1), there.psn.Add(2)},
		[]infiniband.PSN{there.psn, there.psn.Add(1)})
	for range 100 {
		v.say(&w.a.driver, infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.CNP, BECN: true,
			DestQP: at.number}}, nil)
	}
	for _, names := range []infiniband.Comm{{Local: uint32(at.conn), Remote: uint32(there.conn)},
		{Local: uint32(there.conn), Remote: uint32(at.conn)}} {
		for attribute := infiniband.AttributeMRA; attribute <= infiniband.AttributeDREP; attribute++ {
			for to, qpn := range map[*Endpoint]infiniband.QPN{w.a: at.number, w.b: there.number} {
				m := make(infiniband.MAD, infiniband.MADLen)
				m.EncodeCM(attribute, uint64(at.conn)<<32|uint64(at.conn))
				if infiniband.RTU(m.CM()).Encode(
					&infiniband.RTUFields{Comm: names}); attribute == infiniband.AttributeDREQ {
					infiniband.DREQ(m.CM()).Encode(&infiniband.DREQFields{Comm: names, QPN: qpn})
				}
				v.message(&to.driver, m)
			}
		}
	}
	v.processed(&w.a.driver, &w.b.driver)
	for i, e := range []*Endpoint{w.a, w.b} {
		c := e.Counters()
		if c.BadICRC = before[i].BadICRC; c != before[i] {
			t.Errorf("endpoint %d counted %+v, and before %+v", i, c, before[i])
		}
	}
	w.untouched()
	w.works()
}

// TestInSomebodysName: a stranger requests a connection in the name of a peer, whose life it may
// know because it is another rank. It gets none, before or after the peer was added: otherwise the
// end of its connection would end the peer.
func TestInSomebodysName(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	w := newAttacked(t, 0)
	late, err := Open(Config{Addr: netip.MustParseAddr("127.0.0.4"), MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	for _, e := range []*Endpoint{w.b, late} {
		v := newVillain(t, "127.0.0.3")
		if _, err := v.manager.Connect(0, netip.AddrPortFrom(e.config.Addr, e.self.port), 1,
			v.offer(w.a, e)); err != nil {
			t.Fatal(err)
		}
		if e == late {
			v.manage("request", func() bool { e.mu.Lock(); defer e.mu.Unlock(); return len(e.early) > 0 })
			if _, err := e.AddPeer(w.a.Address()); err != nil {
				t.Fatal(err)
			}
		}
		v.manage("answer", func() bool { return v.granted != 0 || v.ended != nil })
		if !errors.Is(v.ended, cm.ErrRejected) {
			t.Errorf("asked in the peer's name: granted %v, %v", v.granted != 0, v.ended)
		}
		v.processed(&e.driver)
	}
	w.works()
}

// TestForgedSource: packets forge the peer's address, for the right queue pairs but with guessed
// PSNs. They change no memory and end nothing. Neither do packets with right PSNs of another
// partition.
func TestForgedSource(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	w := newAttacked(t, 0)
	there := w.linkOf(w.b)
	v := newVillain(t, "127.0.0.3")
	wrong := []infiniband.PSN{there.psn.Add(100), there.psn.Add(1 << 20), there.psn.Add(1 << 22),
		there.psn.Add(-1), there.psn.Add(-100), there.psn.Add(-1 << 22)}
	for from, to := range map[*Endpoint]*Endpoint{w.a: w.b, w.b: w.a} {
		v.addr = from.config.Addr
		v.everything(w, wrong, wrong)
		v.say(&to.driver, infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.WriteOnly,
			DestQP: there.number, PSN: there.psn.Add(1), PKey: 0xFFFE},
			RETH: infiniband.RETHFields{
				VA:   uint64(binary.BigEndian.Uint32(w.region.Remote()[4:])) << baseShift,
				RKey: binary.BigEndian.Uint32(w.region.Remote()), Length: 4}},
			[]byte{1, 2, 3, 4})
	}
	v.processed(&w.a.driver, &w.b.driver)
	w.untouched()
	for range 3 {
		w.works()
	}
}

// TestNeverReady: who asks for a connection, and never says nor shows that it is
// ready, loses that connection and no other.
func TestNeverReady(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	w := newAttacked(t, 10*time.Millisecond)
	v := newVillain(t, "127.0.0.1") // as a life of the peer's that had no answer in time
	if _, err := v.manager.Connect(0, netip.AddrPortFrom(w.b.config.Addr, w.b.self.port), 1,
		v.offer(w.a, w.b)); err != nil {
		t.Fatal(err)
	}
	v.speak()
	links := func(n int) func() bool {
		return func() bool { w.b.mu.Lock(); defer w.b.mu.Unlock(); return len(w.b.links) == n }
	}
	hosttest.Until(t, "second connection", links(2))
	hosttest.Until(t, "end of it", links(1))
	w.works()
}

// TestRequestFlood: requests for connections that are not accepted take no more memory than the
// backlog, for any number and duration.
func TestRequestFlood(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	d, err := OpenDevice(DeviceConfig{Addr: netip.MustParseAddr("127.0.0.1"), MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	l, err := d.Listen(7174)
	if err != nil {
		t.Fatal(err)
	}
	v := newVillain(t, "127.0.0.3")
	m := make(infiniband.MAD, infiniband.MADLen)
	for comm := range uint32(3 * backlog) {
		m.EncodeCM(infiniband.AttributeREQ, uint64(comm))
		f := infiniband.REQFields{LocalComm: comm, Service: infiniband.TCPService | 7174, MTU: 3}
		infiniband.IPService(f.Private[:]).Encode(&infiniband.IPServiceFields{Version: 4})
		infiniband.REQ(m.CM()).Encode(&f)
		v.message(&d.driver, m)
		if comm%32 == 31 {
			v.processed(&d.driver) // before its socket is full
		}
	}
	d.mu.Lock()
	if len(d.asking) > backlog || l.waiting != backlog {
		t.Errorf("%d requests are kept, and %d wait", len(d.asking), l.waiting)
	}
	d.mu.Unlock()
	hosttest.Until(t, "room", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.asking) == 0 && d.manager.Idle()
	})
	if i, err := l.Accept(t.Context()); err != nil || i.From.Addr() != v.addr {
		t.Errorf("accepted %+v, %v", i, err)
	}
	v.message(&d.driver, m)
	v.processed(&d.driver)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.asking) != 1 {
		t.Errorf("%d requests are kept, want the one for which there is room", len(d.asking))
	}
}
