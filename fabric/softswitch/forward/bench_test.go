package forward

import (
	"fmt"
	"net/netip"
	"testing"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// BenchmarkLookup looks addresses up that are drawn anew each time, in tables of
// so many prefixes of several lengths.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{16, 256, 4096} {
		for _, v4 := range []bool{true, false} {
			name := fmt.Sprintf("v4-%d", n)
			if !v4 {
				name = fmt.Sprintf("v6-%d", n)
			}
			b.Run(name, func(b *testing.B) {
				r := newRandom(1)
				prefixes := map[netip.Prefix]*entry{}
				var addrs [4096][16]byte
				for i := range n {
					a := [4]byte{10, byte(r.IntN(4)), byte(r.Uint32()), byte(r.Uint32())}
					bits := 16 + r.IntN(17)
					prefix := netip.PrefixFrom(netip.AddrFrom4(a), bits)
					if !v4 {
						wide := netip.AddrFrom4(a).As16()
						wide[0], wide[10], wide[11] = 0xfd, 0, 0
						prefix = netip.PrefixFrom(netip.AddrFrom16(wide), bits+96)
					}
					prefixes[prefix.Masked()] = &entry{}
					addrs[i%len(addrs)] = prefix.Addr().As16()
				}
				for i := n; i < len(addrs); i++ {
					addrs[i] = addrs[r.IntN(n)]
				}
				lowest := key{}
				if v4 {
					lowest = key{0, 0xffff_0000_0000}
				}
				t := newLookupTable(prefixes, lowest)
				rt := &router{v4: t, v6: t}
				missed := 0
				b.ReportAllocs()
				for i := range b.N {
					if rt.lookup(&addrs[i%len(addrs)], v4) == nil {
						missed++
					}
				}
				if missed != 0 {
					b.Fatal(missed)
				}
			})
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	p := generated(b, "leaf-spine", "leaves=16", "spines=8", "hosts-per-leaf=16")
	for _, balance := range []string{spec.Flow, spec.Flowlet, spec.Spray, spec.RoundRobin, spec.LeastQueue} {
		for family := range 2 {
			b.Run(fmt.Sprintf("%s-v%d", balance, 4+2*family), func(b *testing.B) {
				l := newLeaf(b, p, balance, make(depths, 32), nil)
				r := newRandom(2)
				h0 := &p.Nodes[0]
				l.d.src = h0.Loopbacks[family].Addr()
				var frames [256]datagram
				for i := range frames {
					frames[i] = l.flow(i)
					frames[i].dst = p.Nodes[16+r.IntN(240)].Loopbacks[family].Addr()
				}
				packets := make([]*packetState, len(frames))
				for i := range frames {
					one := frames[i].packet(l.pool)
					packets[i] = &packetState{one, append([]byte{}, one.Data[:54]...), one.Headers}
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					one := packets[i%len(packets)]
					copy(one.one.Data, one.header)
					one.one.Headers = one.parsed
					one.one.Ordinal++
					if d := l.table.Decide(clock.Time(i)*1000, one.one, l.in); d.Action != Send {
						b.Fatalf("%+v", d)
					}
				}
			})
		}
	}
}

func BenchmarkBridge(b *testing.B) {
	s := newStations(b)
	one := s.frame(planned1, planned2, 60)
	b.ReportAllocs()
	for i := range b.N {
		if d := s.table.Decide(clock.Time(i), one, 0); d.Action != Send {
			b.Fatalf("%+v", d)
		}
	}
}

// packetState is a packet and its state before it was forwarded.
type packetState struct {
	one    *packet.Packet
	header []byte
	parsed wire.Headers
}
