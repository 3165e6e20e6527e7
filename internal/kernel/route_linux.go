package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Route is a unicast route. Several next hops are paths between which the
// kernel chooses by hash and weight.
type Route struct {
	Dst   netip.Prefix
	Table int        // 0 and 254 are the main table
	Src   netip.Addr // preferred source address, or the zero Addr
	Hops  []NextHop
	// RTOMin is TCP's minimum retransmission timeout on the route, in whole milliseconds; 0 is the
	// kernel's default of 200 ms (ip-route(8), rto_min).
	RTOMin time.Duration
	// Kernel is set by Routes for routes that the kernel itself added for an interface's address.
	// AddRoute marks a route with it as if the kernel had added it.
	Kernel bool
	// Daemon is set by Routes for routes that a routing daemon added.
	Daemon bool
	// Type is set by Routes; a route from AddRoute has unix.RTN_UNICAST.
	Type uint8
	// Metric and TOS are set by Routes: the kernel keeps separate routes for each metric and TOS.
	// AddRoute sets neither.
	Metric int
	TOS    uint8
}

// NextHop is one path of a route.
type NextHop struct {
	Via    netip.Addr // the zero Addr: the destination is on the link
	Index  int
	Dev    string // set by the caller, for the trace and errors
	Weight int    // 1 to 256; 0 is 1
}

// MainTable is the table that is used if no rule names another.
const MainTable = unix.RT_TABLE_MAIN

// LocalTable is the table in which the kernel keeps a route for each of its own addresses. It adds
// the route of an IPv6 address from a work queue, and drops packets to the address until then.
const LocalTable = unix.RT_TABLE_LOCAL

// Unicast reports whether the route leads to a destination; a blackhole does not.
func (r Route) Unicast() bool { return r.Type == unix.RTN_UNICAST }

// AddRoute adds a route, or replaces the route to the same destination.
func (b *Batch) AddRoute(r Route) {
	b.begin(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, func() string {
		return "ip -n " + b.node + " route replace " + r.String()
	})
	addr := r.Dst.Addr()
	scope := uint8(unix.RT_SCOPE_UNIVERSE)
	if addr.Is4() && len(r.Hops) == 1 && !r.Hops[0].Via.IsValid() {
		scope = unix.RT_SCOPE_LINK // with another scope the kernel would refuse it as the route to a gateway
	}
	table, protocol := r.table(), uint8(unix.RTPROT_STATIC)
	if r.Kernel {
		protocol = unix.RTPROT_KERNEL
	}
	b.u8(family(addr), uint8(r.Dst.Bits()), 0, 0, uint8(min(table, unix.RT_TABLE_COMPAT)), protocol, scope,
		unix.RTN_UNICAST)
	b.u32(0) // flags
	b.attrU32(unix.RTA_TABLE, uint32(table))
	if r.Dst.Bits() > 0 {
		b.attrAddr(unix.RTA_DST, addr)
	}
	if r.Src.IsValid() {
		b.attrAddr(unix.RTA_PREFSRC, r.Src)
	}
	if len(r.Hops) == 1 {
		b.via(r.Hops[0].Via, addr)
		b.attrU32(unix.RTA_OIF, uint32(r.Hops[0].Index))
	} else {
		paths := b.nest(unix.RTA_MULTIPATH)
		for _, hop := range r.Hops {
			b.nextHop(hop, addr)
		}
		b.unnest(paths)
	}
	if r.RTOMin > 0 {
		metrics := b.nest(unix.RTA_METRICS)
		b.attrU32(unix.RTAX_RTO_MIN, uint32(r.RTOMin.Milliseconds()))
		b.unnest(metrics)
	}
	b.end()
}

// nextHop appends a struct rtnexthop and its attributes. The kernel stores the weight minus one.
func (b *Batch) nextHop(hop NextHop, dst netip.Addr) {
	start := len(b.buf)
	b.u16(0)
	b.u8(0, uint8(max(hop.Weight, 1)-1))
	b.u32(uint32(hop.Index))
	b.via(hop.Via, dst)
	binary.NativeEndian.PutUint16(b.buf[start:], uint16(len(b.buf)-start))
}

// via appends the gateway, which may be of the other address family.
func (b *Batch) via(gateway, dst netip.Addr) {
	switch {
	case !gateway.IsValid():
	case gateway.Is4() == dst.Is4():
		b.attrAddr(unix.RTA_GATEWAY, gateway)
	default:
		start := b.nest(unix.RTA_VIA)
		b.u16(uint16(family(gateway)))
		b.buf = append(b.buf, gateway.AsSlice()...)
		b.unnest(start)
	}
}

func (r Route) table() int {
	if r.Table == 0 {
		return unix.RT_TABLE_MAIN
	}
	return r.Table
}

// String returns the route in the syntax of ip(8).
func (r Route) String() string {
	var text strings.Builder
	text.WriteString(r.Dst.String())
	if r.table() != unix.RT_TABLE_MAIN {
		text.WriteString(" table " + strconv.Itoa(r.Table))
	}
	if r.Src.IsValid() {
		text.WriteString(" src " + r.Src.String())
	}
	for _, hop := range r.Hops {
		if len(r.Hops) > 1 {
			text.WriteString(" nexthop")
		}
		if hop.Via.IsValid() {
			text.WriteString(" via " + hop.Via.String())
		}
		text.WriteString(" dev " + hop.Dev)
		if hop.Weight > 1 {
			text.WriteString(" weight " + strconv.Itoa(hop.Weight))
		}
	}
	if r.RTOMin > 0 {
		text.WriteString(" rto_min " + strconv.FormatInt(r.RTOMin.Milliseconds(), 10) + "ms")
	}
	return text.String()
}

// Routes lists the routes of every table except the local one, which the kernel maintains.
func (c *Conn) Routes() ([]Route, error) {
	routes, err := c.AllRoutes()
	return slices.DeleteFunc(routes, func(r Route) bool { return r.Table == LocalTable }), err
}

// AllRoutes lists the routes of every table.
func (c *Conn) AllRoutes() ([]Route, error) {
	var routes []Route
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		request := NewBatch("", nil)
		request.begin(unix.RTM_GETROUTE, unix.NLM_F_DUMP, nil)
		request.u8(family, 0, 0, 0, 0, 0, 0, 0)
		request.u32(0)
		request.end()
		before := len(routes)
		err := c.dump("routes", request, func() {
			routes = routes[:before]
		}, func(_ uint16, body []byte) error {
			route, err := parseRoute(body)
			routes = append(routes, route)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return routes, nil
}

// parseRTOMin reads the least retransmission timeout from a route's metrics.
func parseRTOMin(metrics []byte) (least time.Duration, err error) {
	err = eachAttr(metrics, func(kind uint16, value []byte) {
		if kind == unix.RTAX_RTO_MIN {
			least = time.Duration(u32(value)) * time.Millisecond
		}
	})
	return least, err
}

func parseRoute(body []byte) (Route, error) {
	if len(body) < unix.SizeofRtMsg {
		return Route{}, fmt.Errorf("route message of %d bytes, want at least %d", len(body), unix.SizeofRtMsg)
	}
	dst := netip.IPv4Unspecified()
	if body[0] == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	route := Route{Table: int(body[4]), Kernel: body[5] == unix.RTPROT_KERNEL || body[5] == unix.RTPROT_RA,
		Daemon: body[5] == unix.RTPROT_BGP || body[5] == unix.RTPROT_ZEBRA, Type: body[7], TOS: body[3]}
	single := NextHop{Weight: 1}
	var hops error
	err := eachAttr(body[unix.SizeofRtMsg:], func(kind uint16, value []byte) {
		switch kind {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(value)
		case unix.RTA_TABLE:
			route.Table = int(u32(value))
		case unix.RTA_PRIORITY:
			route.Metric = int(u32(value))
		case unix.RTA_PREFSRC:
			route.Src, _ = netip.AddrFromSlice(value)
		case unix.RTA_METRICS:
			route.RTOMin, hops = parseRTOMin(value)
		case unix.RTA_OIF:
			single.Index = int(u32(value))
		case unix.RTA_GATEWAY, unix.RTA_VIA:
			single.Via = gateway(kind, value)
		case unix.RTA_MULTIPATH:
			route.Hops, hops = parseNextHops(value)
		}
	})
	route.Dst = netip.PrefixFrom(dst, int(body[1]))
	if route.Hops == nil && single.Index != 0 {
		route.Hops = []NextHop{single}
	}
	if err == nil {
		err = hops
	}
	return route, err
}

func gateway(kind uint16, value []byte) netip.Addr {
	if kind == unix.RTA_VIA {
		value = value[min(2, len(value)):]
	}
	addr, _ := netip.AddrFromSlice(value)
	return addr
}

func parseNextHops(data []byte) ([]NextHop, error) {
	hops := []NextHop{}
	for len(data) >= unix.SizeofRtNexthop {
		length := int(binary.NativeEndian.Uint16(data))
		if length < unix.SizeofRtNexthop || length > len(data) {
			return hops, fmt.Errorf("next hop of length %d in %d bytes", length, len(data))
		}
		hop := NextHop{Index: int(binary.NativeEndian.Uint32(data[4:])), Weight: int(data[3]) + 1}
		err := eachAttr(data[unix.SizeofRtNexthop:length], func(kind uint16, value []byte) {
			if kind == unix.RTA_GATEWAY || kind == unix.RTA_VIA {
				hop.Via = gateway(kind, value)
			}
		})
		if err != nil {
			return hops, err
		}
		hops = append(hops, hop)
		data = data[min((length+3)&^3, len(data)):]
	}
	return hops, nil
}

// Rule is a policy routing rule: it selects the routing table for packets from a source.
type Rule struct {
	Priority int
	From     netip.Prefix
	Table    int
}

// sizeofFibRule is the size of struct fib_rule_hdr.
const sizeofFibRule = 12

// AddRule adds a rule.
func (b *Batch) AddRule(r Rule) {
	b.rule(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add", r)
}

// DeleteRule deletes a rule.
func (b *Batch) DeleteRule(r Rule) { b.rule(unix.RTM_DELRULE, 0, "delete", r) }

func (b *Batch) rule(kind, flags uint16, verb string, r Rule) {
	b.begin(kind, flags, func() string {
		return fmt.Sprintf("ip %s -n %s rule %s priority %d from %s lookup %d", r.version(), b.node, verb,
			r.Priority, r.From, r.Table)
	})
	b.u8(family(r.From.Addr()), 0, uint8(r.From.Bits()), 0, uint8(min(r.Table, unix.RT_TABLE_COMPAT)), 0, 0,
		unix.FR_ACT_TO_TBL)
	b.u32(0) // flags
	b.attrU32(unix.FRA_PRIORITY, uint32(r.Priority))
	b.attrU32(unix.FRA_TABLE, uint32(r.Table))
	if r.From.Bits() > 0 {
		b.attrAddr(unix.FRA_SRC, r.From.Addr())
	}
	b.end()
}

func (r Rule) version() string {
	if r.From.Addr().Is6() {
		return "-6"
	}
	return "-4"
}

// Rules lists the rules that select a table by source, without DefaultRules.
func (c *Conn) Rules() ([]Rule, error) {
	rules, err := c.AllRules()
	defaults := DefaultRules()
	return slices.DeleteFunc(rules, func(r Rule) bool { return slices.Contains(defaults, r) }), err
}

// AllRules lists the rules that select a table by source.
func (c *Conn) AllRules() ([]Rule, error) {
	var rules []Rule
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		request := NewBatch("", nil)
		request.begin(unix.RTM_GETRULE, unix.NLM_F_DUMP, nil)
		request.u8(family, 0, 0, 0, 0, 0, 0, 0)
		request.u32(0)
		request.end()
		before := len(rules)
		err := c.dump("rules", request, func() { rules = rules[:before] }, func(_ uint16, body []byte) error {
			rule, err := parseRule(body)
			rules = append(rules, rule)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return rules, nil
}

// Priorities of a new namespace's rules.
const (
	priorityLocal   = 0
	priorityMain    = 32766
	priorityDefault = 32767
)

// DefaultRules returns the rules of a new namespace. Without them only the other rules select
// tables.
func DefaultRules() []Rule {
	v4, v6 := netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	return []Rule{
		{Priority: priorityLocal, From: v4, Table: unix.RT_TABLE_LOCAL},
		{Priority: priorityMain, From: v4, Table: unix.RT_TABLE_MAIN},
		{Priority: priorityDefault, From: v4, Table: unix.RT_TABLE_DEFAULT},
		{Priority: priorityLocal, From: v6, Table: unix.RT_TABLE_LOCAL},
		{Priority: priorityMain, From: v6, Table: unix.RT_TABLE_MAIN},
	}
}

func parseRule(body []byte) (Rule, error) {
	if len(body) < sizeofFibRule {
		return Rule{}, fmt.Errorf("rule message of %d bytes, want at least %d", len(body), sizeofFibRule)
	}
	from := netip.IPv4Unspecified()
	if body[0] == unix.AF_INET6 {
		from = netip.IPv6Unspecified()
	}
	rule := Rule{Table: int(body[4])}
	err := eachAttr(body[sizeofFibRule:], func(kind uint16, value []byte) {
		switch kind {
		case unix.FRA_PRIORITY:
			rule.Priority = int(u32(value))
		case unix.FRA_TABLE:
			rule.Table = int(u32(value))
		case unix.FRA_SRC:
			from, _ = netip.AddrFromSlice(value)
		}
	})
	rule.From = netip.PrefixFrom(from, int(body[2]))
	return rule, err
}
