package softswitch

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/testkit/plantest"
)

// arrival is a frame that a node got.
type arrival struct {
	nic    int
	at     clock.Time
	length int
	id     uint16 // of the IPv4 header
	ttl    uint8
	ecn    wire.ECN
	dscp   uint8
	proto  uint8
	tci    uint16 // of the tag
}

// rig is an engine in virtual time, with nodes that send UDP.
type rig struct {
	t      testing.TB
	plan   *plan.Plan
	engine *Engine
	got    []arrival
	silent bool // count only
	count  uint64
	serial uint16
}

func newRig(t testing.TB, text string, observers ...Observer) *rig {
	t.Helper()
	r := &rig{t: t, plan: plantest.Compile(t, text)}
	o := Options{Deliver: r.deliver}
	for _, one := range observers {
		o.Observer = one
	}
	var err error
	if r.engine, err = New(r.plan, o); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) deliver(nic int, one *packet.Packet) {
	r.count++
	if !r.silent {
		h := &one.Headers
		a := arrival{nic: nic, at: one.Due, length: len(one.Data), ttl: h.TTL, ecn: h.ECN, dscp: h.DSCP,
			proto: h.Protocol, tci: h.TCI}
		if h.Has(wire.IsIPv4) {
			a.id = wire.IPv4(one.Data[h.L3:]).ID()
		}
		r.got = append(r.got, a)
	}
	r.engine.Pool().Put(one)
}

// flow is a datagram's content besides its length.
type flow struct {
	from, to int // nodes; each has one NIC
	port     uint16
	dscp     uint8
	ecn      wire.ECN
	ttl      uint8 // default 64
}

// frame writes a datagram of a frame length into a packet.
func (r *rig) frame(into []byte, f flow, length int) []byte {
	src, dst := &r.plan.Nodes[f.from], &r.plan.Nodes[f.to]
	data := into[:length]
	clear(data)
	nic := src.NICs[0]
	mac := nic.Neighbors[0].MAC
	to := address(dst)
	for _, n := range nic.Neighbors {
		if n.Addr == to { // a shared subnet
			mac = n.MAC
		}
	}
	wire.Ethernet(data).Encode(
		&wire.EthernetFields{Dst: wire.MAC(mac), Src: wire.MAC(nic.MAC), EtherType: wire.EtherTypeIPv4})
	if f.ttl == 0 {
		f.ttl = 64
	}
	r.serial++
	ip := wire.IPv4(data[wire.EthernetLen:])
	ip.Encode(&wire.IPv4Fields{
		TotalLength: uint16(length - wire.EthernetLen),
		ID:          r.serial,
		TTL:         f.ttl,
		Protocol:    wire.ProtocolUDP,
		DSCP:        f.dscp,
		ECN:         f.ecn,
		Src:         address(src).As4(), Dst: to.As4(),
	})
	udp := wire.UDP(data[wire.EthernetLen+wire.IPv4MinLen:])
	udp.Encode(&wire.UDPFields{SrcPort: 4000 + f.port, DstPort: 5000,
		Length: uint16(length - wire.EthernetLen - wire.IPv4MinLen)})
	return data
}

// send hands the engine a datagram that leaves a node at a time.
func (r *rig) send(at clock.Time, f flow, length int) {
	one := r.engine.Pool().Get()
	if one == nil {
		r.t.Fatal("no packet memory")
	}
	one.Data = r.frame(one.Data, f, length)
	r.engine.Receive(f.from, one, at)
}

// drain runs until nothing happens any more, at most for a time.
func (r *rig) drain(most time.Duration) clock.Time {
	end := r.engine.Now().Add(most)
	for {
		next := r.engine.Advance(r.engine.Now())
		if next == clock.Never || next > end {
			return r.engine.Now()
		}
		r.engine.Advance(next)
	}
}

// balance checks that no packet came from or went to nowhere.
func (r *rig) balance() {
	r.t.Helper()
	totals, held := r.engine.Totals(), uint64(r.engine.Held())
	if in, out := totals.Received+totals.Made,
		totals.Delivered+totals.Consumed+totals.Dropped+held; in != out {
		r.t.Fatalf("%d packets came into being and %d are accounted for: %+v, %d held", in, out, totals, held)
	}
	if used := uint64(r.engine.Pool().Used()); used != held {
		r.t.Fatalf("%d packets are in use, and %d in queues and on links", used, held)
	}
}

// dropped is how many packets were dropped for a reason, anywhere.
func (r *rig) dropped(why Reason) uint64 {
	of := r.drops()[why.String()]
	return of.Total()
}

// drops returns the drops of all ports.
func (r *rig) drops() ByReason {
	all := ByReason{}
	for _, p := range r.engine.Ports() {
		for why, counts := range p.Drops {
			sum := all[why]
			for q, n := range counts {
				sum[q] += n
			}
			all[why] = sum
		}
	}
	return all
}

func single(hosts int, settings string) string {
	return fmt.Sprintf(`
name: t
fabric:
  topology: single-switch
  params: {hosts: %d}
%s`, hosts, settings)
}

// address is a node's IPv4 address: its loopback, or in a shared subnet its
// NIC's.
func address(n *plan.Node) netip.Addr {
	if len(n.Loopbacks) > 0 {
		return n.Loopbacks[0].Addr()
	}
	return n.NICs[0].Addrs[0].Addr()
}
