package plan

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"railbed/testbed/spec"
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
	return []netip.Prefix{
		netip.PrefixFrom(p.addr4(offset), 32-hostBits),
		netip.PrefixFrom(p.addr6(offset), 128-hostBits),
	}
}

// room is how many offsets a prefix has, at most 2^63.
func room(prefix netip.Prefix) uint64 {
	return uint64(1) << min(63, prefix.Addr().BitLen()-prefix.Bits())
}

// pools reads the address pools and refuses those that cannot be used.
func (c *compiler) pools() (loopbacks, links *pool) {
	a := c.t.Addressing
	parsed := make([]netip.Prefix, 4)
	names := []string{"loopbacks4", "links4", "loopbacks6", "links6"}
	for i, text := range []string{
		cmp.Or(a.Loopbacks4, spec.DefaultLoopbacks4), cmp.Or(a.Links4, spec.DefaultLinks4),
		cmp.Or(a.Loopbacks6, spec.DefaultLoopbacks6), cmp.Or(a.Links6, spec.DefaultLinks6),
	} {
		parsed[i] = c.prefix("addressing."+names[i], text, i < 2)
	}
	for i := range 2 {
		first, second := parsed[2*i], parsed[2*i+1]
		if first.IsValid() && second.IsValid() && first.Overlaps(second) {
			at := names[2*i+1]
			if !c.t.Source.Has("addressing." + at) {
				at = names[2*i]
			}
			c.wrong("addressing."+at, "want pools without a common address", "%s %s and %s %s overlap", names[2*i], first, names[2*i+1], second)
		}
	}
	return &pool{name: "loopbacks", v4: parsed[0], v6: parsed[2]}, &pool{name: "links", v4: parsed[1], v6: parsed[3]}
}

// unusable are ranges whose addresses cannot be given to an interface.
var unusable = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("::ffff:0:0/96"),
	netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

func (c *compiler) prefix(path, text string, four bool) netip.Prefix {
	example := "fd00:a1::/64"
	if four {
		example = "10.0.0.0/16"
	}
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil || prefix.Addr().Is4() != four:
		c.wrong(path, fmt.Sprintf("want a prefix such as %s", example), "%q is not an IPv%s prefix", text, map[bool]string{true: "4", false: "6"}[four])
		return netip.Prefix{}
	case prefix != prefix.Masked():
		c.wrong(path, fmt.Sprintf("want %s", prefix.Masked()), "%s has address bits beyond its length", prefix)
		return netip.Prefix{}
	}
	for _, bad := range unusable {
		if bad.Overlaps(prefix) {
			c.wrong(path, fmt.Sprintf("want a private prefix such as %s", example), "%s lies in %s, whose addresses no interface may have", prefix, bad)
			return netip.Prefix{}
		}
	}
	return prefix
}

// checkRoom refuses a pool that was too small for what was taken from it.
func (c *compiler) checkRoom(p *pool) {
	need := bits.Len64(max(p.next, 1) - 1)
	for i, prefix := range []netip.Prefix{p.v4, p.v6} {
		if !prefix.IsValid() || room(prefix) >= p.next {
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
	key := make([]byte, 0, 2*len(values))
	for _, v := range values {
		key = binary.AppendUvarint(key, uint64(v))
	}
	return string(key)
}
