package plan

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"railbed/plan/spec"
)

// pool is a pool of addresses for one purpose. Both families share one numbering: offset n is the
// n-th address of the IPv4 prefix and of the IPv6 prefix. A reader of a plan can thus identify an
// address by one number.
type pool struct {
	name   string // the purpose, as in the file without the digit of the family
	v4, v6 netip.Prefix
	next   uint64
}

// alloc takes an aligned block of at least count offsets. Its size is a power of two.
func (p *pool) alloc(count int) block {
	size := uint64(1) << bits.Len64(uint64(max(count, 1)-1))
	start := (p.next + size - 1) &^ (size - 1)
	p.next = start + size
	return block{start, size}
}

// block is an aligned block of offsets in a pool. Its size is a power of two.
type block struct {
	start, size uint64
}

func (b block) hostBits() int { return bits.Len64(b.size) - 1 }

// addr4 and addr6 return the addresses of an offset.
func (p *pool) addr4(offset uint64) netip.Addr {
	raw := p.v4.Addr().As4()
	binary.BigEndian.PutUint32(raw[:], binary.BigEndian.Uint32(raw[:])+uint32(offset))
	return netip.AddrFrom4(raw)
}

func (p *pool) addr6(offset uint64) netip.Addr {
	raw := p.v6.Addr().As16()
	low := binary.BigEndian.Uint64(raw[8:])
	binary.BigEndian.PutUint64(raw[8:], low+offset)
	return netip.AddrFrom16(raw)
}

// addrs returns an offset's addresses, IPv4 first, each with the prefix length of a subnet of
// 2^hostBits addresses.
func (p *pool) addrs(offset uint64, hostBits int) []netip.Prefix {
	return []netip.Prefix{p.prefix(0, offset, hostBits), p.prefix(1, offset, hostBits)}
}

// prefix returns one of addrs: family 0 is IPv4, 1 is IPv6.
func (p *pool) prefix(family int, offset uint64, hostBits int) netip.Prefix {
	if family == 0 {
		return netip.PrefixFrom(p.addr4(offset), 32-hostBits)
	}
	return netip.PrefixFrom(p.addr6(offset), 128-hostBits)
}

// room returns the number of offsets of a prefix, at most 2^63.
func room(prefix netip.Prefix) uint64 {
	return uint64(1) << min(63, prefix.Addr().BitLen()-prefix.Bits())
}

// pools parses the address pools. Package spec has checked their form.
func (c *compiler) pools() (loopbacks, links *pool) {
	a := c.t.Addressing
	prefix := func(text, fallback string) netip.Prefix {
		return netip.MustParsePrefix(cmp.Or(text, fallback))
	}
	return &pool{name: "loopbacks", v4: prefix(a.Loopbacks4, spec.DefaultLoopbacks4),
			v6: prefix(a.Loopbacks6, spec.DefaultLoopbacks6)},
		&pool{name: "links", v4: prefix(a.Links4, spec.DefaultLinks4),
			v6: prefix(a.Links6, spec.DefaultLinks6)}
}

// checkRoom reports a pool that is too small for the blocks that were taken from it.
func (c *compiler) checkRoom(p *pool) {
	need := bits.Len64(max(p.next, 1) - 1)
	for i, prefix := range []netip.Prefix{p.v4, p.v6} {
		if room(prefix) >= p.next {
			continue
		}
		path := fmt.Sprintf("addressing.%s%d", p.name, []int{4, 6}[i])
		c.wrong(path, fmt.Sprintf("want a prefix of /%d or shorter", prefix.Addr().BitLen()-need),
			"%s has %d addresses, and %d nodes and %d switches need %d, counted in aligned blocks",
			prefix, room(prefix), len(c.plan.Nodes), len(c.plan.Switches), p.next)
	}
}

// sortedSet returns the distinct values in ascending order.
func sortedSet(values []int) []int {
	set := slices.Clone(values)
	slices.Sort(set)
	return slices.Compact(set)
}

// keyOf turns a list of numbers into a key for a map.
func keyOf(values []int) string {
	return string(appendKey(make([]byte, 0, 2*len(values)), values))
}

func appendKey(key []byte, values []int) []byte {
	for _, v := range values {
		key = binary.AppendUvarint(key, uint64(v))
	}
	return key
}
