package forward

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
)

// router forwards by IP address in the same way as this project's Linux routers: the same routes,
// and the same answers from the same addresses.
//
// It does no reassembly and no address resolution, because the plan has all neighbours. It leaves
// IP options and extension headers unchanged. It refuses packets larger than the MTU of their
// egress, whether they may be fragmented or not, as switch hardware does. The error contains the
// MTU.
type router struct {
	balance balancer
	pool    *packet.Pool
	ports   []routerPort
	groups  []*group
	v4, v6  *lookupTable
	down    []bool
	// found caches successful lookups, each in the entry for its address, because a node
	// communicates with few others at a time. Routing entries never change.
	found [rememberedLookups]struct {
		key   key
		entry *entry
	}

	answers   bucket // limits the messages that the router may send unasked
	replySeed uint64
	ipID      uint16
}

type routerPort struct {
	mac wire.MAC
	mtu int
	v6  [][16]byte // addresses for which it answers neighbour solicitations
}

// ICMP errors are rate-limited, as RFC 1812, 4.3.2.8, and RFC 4443, 2.4(f), require. The limit
// bounds the work. The kernel's routers in this project have no limit that a traceroute would
// reach, and this one is high enough for that, too.
const (
	errorsPerSecond = 100_000
	errorsAtOnce    = 10_000
)

const (
	lookupBits        = 8
	rememberedLookups = 1 << lookupBits
	// lookupSpread is 2^64 divided by the golden ratio, made odd. Consecutive addresses in a subnet
	// get distant cache entries (Knuth, TAOCP 3, 6.4).
	lookupSpread = 0x9e3779b97f4a7c15
)

func newRouter(o options, p *plan.Plan, sw *plan.Switch, pool *packet.Pool, depths Depths) (*router, error) {
	routes, err := newRoutes(sw)
	if err != nil {
		return nil, err
	}
	r := &router{
		pool: pool, groups: routes.order, down: make([]bool, len(sw.Ports)),
		v4:        newLookupTable(routes.prefixes[0], key{0, 0xffff_0000_0000}),
		v6:        newLookupTable(routes.prefixes[1], key{}),
		answers:   newBucket(errorsPerSecond, errorsAtOnce),
		replySeed: draw.Seed(p.Seed, "reply", sw.Name),
		balance: balancer{
			hashSeed: draw.Mix(uint64(sw.HashSeed)), drawSeed: draw.Seed(p.Seed, "balance", sw.Name),
			flowLabel: o.FlowLabel, flowlets: make([]flowlet, flowlets), depths: depths,
		},
	}
	if sw.Soft != nil {
		if !slices.Contains(balances, sw.Soft.LoadBalance) {
			return nil, fmt.Errorf("load-balance is %q, want one of %s", sw.Soft.LoadBalance,
				strings.Join(balances, ", "))
		}
		r.balance.kind, r.balance.gap = sw.Soft.LoadBalance, time.Duration(sw.Soft.FlowletGap)
	}
	for _, port := range sw.Ports {
		one := routerPort{mac: wire.MAC(port.MAC), mtu: port.MTU}
		for _, a := range port.Addrs {
			if a.Addr().Is6() {
				one.v6 = append(one.v6, a.Addr().As16())
			}
		}
		r.ports = append(r.ports, one)
	}
	return r, nil
}

// SetPortUp implements Table.
func (r *router) SetPortUp(port int, up bool) {
	if r.down[port] == !up {
		return
	}
	r.down[port] = !up
	for _, g := range r.groups {
		g.update(r.down)
	}
}

// Decide implements Table.
func (r *router) Decide(now clock.Time, one *packet.Packet, ingress int) Decision {
	h := &one.Headers
	if len(one.Data) < wire.EthernetLen {
		return Decision{Reason: Malformed}
	}
	station := wire.Ethernet(one.Data).Dst()
	group := station.IsMulticast()
	switch {
	case !group && station != r.ports[ingress].mac:
		return Decision{Reason: NotForUs}
	case h.Has(wire.Tagged) && (!h.PriorityTagged() || h.L3 > wire.EthernetLen+wire.TagLen):
		return Decision{Reason: Unsupported} // no VLANs; a priority tag stays on its packet
	case h.EtherType == wire.EtherTypeARP:
		return r.arp(one, ingress)
	case h.Flags&(wire.IsIPv4|wire.IsIPv6) == 0:
		if h.EtherType == wire.EtherTypeIPv4 || h.EtherType == wire.EtherTypeIPv6 {
			return Decision{Reason: Malformed}
		}
		return Decision{Reason: Unsupported}
	case !h.Verdict.Routable():
		return Decision{Reason: Malformed}
	}
	scope := scopeOf(h)
	switch {
	case scope == onLink:
		return r.onLink(one, ingress)
	case scope == nowhere:
		return Decision{Reason: Martian}
	case scope == toGroup, group:
		// There is no multicast routing. A router also forwards no packet that arrived by a
		// link-layer broadcast (RFC 1812, 5.3.4).
		return Decision{Reason: NotForUs}
	}
	return r.route(now, one, ingress)
}

// route forwards a packet, or answers it.
func (r *router) route(now clock.Time, one *packet.Packet, ingress int) Decision {
	h := &one.Headers
	e := r.lookup(&h.Dst, h.Has(wire.IsIPv4)).usable()
	switch {
	case e == nil:
		return r.fail(now, one, noRoute, 0)
	case e.kind == local:
		return r.deliver(now, one, ingress)
	case e.kind == connected:
		return r.fail(now, one, noNeighbor, 0)
	case h.TTL <= 1:
		return r.fail(now, one, ttlExceeded, 0)
	}
	to := r.balance.choose(now, e.group, one)
	port := &r.ports[to.port]
	if int(h.End)-int(h.L3) > port.mtu {
		return r.fail(now, one, tooBig, port.mtu)
	}
	r.address(one, to)
	if h.Has(wire.IsIPv4) {
		wire.IPv4(one.Data[h.L3:]).DecrementTTL()
	} else {
		wire.IPv6(one.Data[h.L3:]).DecrementHopLimit()
	}
	h.TTL--
	dropPadding(one)
	return Decision{Action: Send, Port: to.port}
}

// address sets the Ethernet addresses of a packet that leaves for a next hop.
func (r *router) address(one *packet.Packet, to *hop) {
	frame := wire.Ethernet(one.Data)
	frame.SetDst(to.mac)
	frame.SetSrc(r.ports[to.port].mac)
}

// dropPadding removes the frame's bytes after the IP packet and beyond the length of the shortest
// frame. Padding belongs to the link on which a frame arrived, and could make the frame too long
// for the next link.
func dropPadding(one *packet.Packet) {
	if length := max(int(one.Headers.End), wire.EthernetMinLen); length < len(one.Data) {
		one.Length = max(length, one.Length-len(one.Data)+length)
		one.Data = one.Data[:length]
	}
}

// lookup returns the entry of an address, or nil.
func (r *router) lookup(a *[16]byte, v4 bool) *entry {
	k := keyOf(a)
	known := &r.found[(k.low*lookupSpread)>>(64-lookupBits)]
	if known.entry != nil && known.key == k {
		return known.entry
	}
	var e *entry
	if v4 {
		e = r.v4.find4(k.low)
	} else {
		e = r.v6.find(k)
	}
	known.key, known.entry = k, e
	return e
}

// scope is how far a packet may be forwarded according to its addresses.
type scope uint8

const (
	anywhere scope = iota
	onLink         // not beyond its link
	toGroup        // beyond the link, to many receivers
	nowhere        // an address that is never valid on a link
)

// scopeOf checks both addresses: RFC 1812, 5.3.7, and RFC 4291, 2.5 to 2.7.
func scopeOf(h *wire.Headers) scope {
	if h.Has(wire.IsIPv4) {
		return scopeOf4([4]byte(h.Src[12:]), [4]byte(h.Dst[12:]))
	}
	src, dst := keyOf(&h.Src), keyOf(&h.Dst)
	switch {
	case src.high>>56 == 0xff, src == key{0, 1}, dst.high == 0 && dst.low <= 1:
		return nowhere // from a group, from or to loopback, to the unspecified address
	case dst.high>>56 == 0xff:
		if dst.high>>48&0xf <= 2 { // interface-local or link-local scope
			return onLink
		}
		return toGroup
	case src == key{}:
		return nowhere // from the unspecified address
	case src.high>>54 == 0xfe80>>6, dst.high>>54 == 0xfe80>>6:
		return onLink
	}
	return anywhere
}

func scopeOf4(src, dst [4]byte) scope {
	switch {
	case src[0] == 127, src[0] >= 224, dst[0] == 127, dst[0] == 0:
		return nowhere
	case dst == [4]byte{255, 255, 255, 255}, dst[0] == 224 && dst[1] == 0 && dst[2] == 0:
		return onLink
	case src[0] == 0:
		return nowhere
	case dst[0] >= 224 && dst[0] < 240:
		return toGroup
	}
	return anywhere
}
