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

// pool is where addresses of one purpose come from. Both families share one
// numbering: offset n is the n-th address of the IPv4 prefix and of the IPv6
// prefix, so a plan can be read by one number.
type pool struct {
	name   string // of the purpose, as in the file without its family digit
	v4, v6 netip.Prefix
	next   uint64
}

// alloc takes an aligned block of at least count offsets, as a power of two.
func (p *pool) alloc(count int) block {
	size := uint64(1) << bits.Len64(uint64(max(count, 1)-1))
	start := (p.next + size - 1) &^ (size - 1)
	p.next = start + size
	return block{start, size}
}

// block is an aligned power of two of offsets in a pool.
type block struct {
	start, size uint64
}

func (b block) hostBits() int { return bits.Len64(b.size) - 1 }

// addr4 and addr6 are the addresses of an offset.
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

// addrs are an offset's addresses, IPv4 first, each with the prefix of a subnet
// of 2^hostBits addresses.
func (p *pool) addrs(offset uint64, hostBits int) []netip.Prefix {
	return []netip.Prefix{p.prefix(0, offset, hostBits), p.prefix(1, offset, hostBits)}
}

// prefix is one of addrs: family 0 is IPv4, 1 is IPv6.
func (p *pool) prefix(family int, offset uint64, hostBits int) netip.Prefix {
	if family == 0 {
		return netip.PrefixFrom(p.addr4(offset), 32-hostBits)
	}
	return netip.PrefixFrom(p.addr6(offset), 128-hostBits)
}

// room is how many offsets a prefix has, at most 2^63.
func room(prefix netip.Prefix) uint64 {
	return uint64(1) << min(63, prefix.Addr().BitLen()-prefix.Bits())
}

// pools reads the address pools, whose form package spec has checked.
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

// checkRoom refuses a pool that was too small for what was taken from it.
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

// sortedSet is the distinct values in ascending order.
func sortedSet(values []int) []int {
	set := slices.Clone(values)
	slices.Sort(set)
	return slices.Compact(set)
}

// keyOf makes a list of numbers usable as a key of a map.
func keyOf(values []int) string {
	return string(appendKey(make([]byte, 0, 2*len(values)), values))
}

func appendKey(key []byte, values []int) []byte {
	for _, v := range values {
		key = binary.AppendUvarint(key, uint64(v))
	}
	return key
}
