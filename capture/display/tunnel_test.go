package display

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"golang.org/x/sync/errgroup"

	"railbed/capture/layers"
	"railbed/capture/pcapng"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
)

// insides are the IP packets in tunnels: a datagram from port 7777 to port 5555.
func insides() (four, six []byte) {
	datagram := []byte{0x1E, 0x61, 0x15, 0xB3, 0, 14, 0, 0, 'i', 'n', 's', 'i', 'd', 'e'}
	return ipv4(wire.ProtocolUDP, [4]byte{192, 168, 7, 1}, datagram), ipv6(wire.ProtocolUDP, 7, datagram)
}

func ipv4(number byte, src [4]byte, payload []byte) []byte {
	b := append([]byte{0x45, 0, 0, 0, 0, 1, 0, 0, 9, number, 0, 0}, src[:]...)
	b = append(append(b, src[0], src[1], src[2], src[3]+1), payload...)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return b
}

func ipv6(number byte, net byte, payload []byte) []byte {
	b := []byte{0x60, 0, 0, 0, 0, byte(len(payload)), number, 8}
	for host := range byte(2) {
		b = append(b, 0xFD, net, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host+1)
	}
	return append(b, payload...)
}

func framed(kind uint16, payload ...[]byte) []byte {
	b := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, byte(kind >> 8), byte(kind)}
	return append(b, slices.Concat(payload...)...)
}

func outerUDP(port uint16, payload ...[]byte) []byte {
	all := slices.Concat(payload...)
	b := []byte{0xC0, 0, byte(port >> 8), byte(port), 0, byte(8 + len(all)), 0, 0}
	return framed(0x0800, ipv4(wire.ProtocolUDP, [4]byte{10, 0, 0, 1}, append(b, all...)))
}

func outerIP(number byte, payload ...[]byte) []byte {
	return framed(0x0800, ipv4(number, [4]byte{10, 0, 0, 1}, slices.Concat(payload...)))
}

func lengthFramed(payload ...[]byte) []byte {
	all := slices.Concat(payload...)
	return framed(uint16(len(all)), all)
}

type tunnel struct {
	name  string
	frame []byte
}

// readTunnels carry one of the insides in forms that the package reads.
func readTunnels() []tunnel {
	four, six := insides()
	frame4, frame6 := framed(0x0800, four), framed(0x86DD, six)
	frame4[5], frame6[5] = 9, 9
	vxlan, geneve := []byte{8, 0, 0, 0, 0, 0, 7, 0}, []byte{1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 0, 0}
	mpls := []byte{0, 1, 0x01, 64}
	return []tunnel{
		{"vxlan", outerUDP(4789, vxlan, frame4)}, {"vxlan, ipv6", outerUDP(4789, vxlan, frame6)},
		{"vxlan in ipv6", framed(0x86DD, ipv6(17, 1, slices.Concat([]byte{0xC0, 0, 0x12, 0xB5, 0,
			byte(16 + len(frame4)), 0, 0}, vxlan, frame4)))},
		{"vxlan with a tag", outerUDP(4789, vxlan, framed(0x8100, []byte{0, 7, 8, 0}, four))},
		{"geneve", outerUDP(6081, geneve, frame4)},
		{"geneve of ip", outerUDP(6081, []byte{0, 0, 8, 0, 0, 0, 7, 0}, four)},
		{"gre", outerIP(47, []byte{0, 0, 8, 0}, four)},
		{"gre, ipv6", outerIP(47, []byte{0, 0, 0x86, 0xDD}, six)},
		{"gre with a key and numbers", outerIP(47, []byte{0xB0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1},
			four)},
		{"gre of ethernet", outerIP(47, []byte{0x20, 0, 0x65, 0x58, 0, 0, 7, 1}, frame4)},
		{"gre of mpls", outerIP(47, []byte{0, 0, 0x88, 0x47}, mpls, four)},
		{"gre in ipv6", framed(0x86DD, ipv6(47, 1, slices.Concat([]byte{0, 0, 8, 0}, four)))},
		{"4in4", outerIP(4, four)}, {"6in4", outerIP(41, six)},
		{"4in6", framed(0x86DD, ipv6(4, 1, four))}, {"6in6", framed(0x86DD, ipv6(41, 1, six))},
		{"mpls", framed(0x8847, mpls, four)}, {"mpls, ipv6", framed(0x8847, mpls, six)},
		{"mpls, three labels", framed(0x8847, []byte{0, 1, 0x10, 64, 0, 1, 0x20, 64}, mpls, four)},
		{"mpls to groups", framed(0x8848, mpls, four)},
		{"mpls in a tag", framed(0x8100, []byte{0, 7, 0x88, 0x47}, mpls, four)},
		{"pppoe", framed(0x8864, []byte{0x11, 0, 0, 7, 0, byte(2 + len(four)), 0, 0x21}, four)},
		{"pppoe, ipv6", framed(0x8864, []byte{0x11, 0, 0, 7, 0, byte(2 + len(six)), 0, 0x57}, six)},
		{"snap", lengthFramed([]byte{0xAA, 0xAA, 3, 0, 0, 0, 8, 0}, four)},
		{"snap, ipv6", lengthFramed([]byte{0xAA, 0xAA, 3, 0, 0, 0, 0x86, 0xDD}, six)},
		{"ah", outerIP(51, []byte{17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
			four[20:])},
		{"gre in 4in4", outerIP(4, ipv4(47, [4]byte{10, 9, 0, 1}, slices.Concat([]byte{0, 0, 8, 0}, four)))},
		{"vxlan in vxlan", outerUDP(4789, vxlan, outerUDP(4789, vxlan, frame4))},
		{"icmp of 4in4", outerIP(1, []byte{3, 1, 0, 0, 0, 0, 0, 0}, ipv4(4, [4]byte{10, 9, 0, 1}, four))},
	}
}

// unreadTunnels carry one of the insides, or may do so, in forms that the package does not read.
func unreadTunnels() []tunnel {
	four, _ := insides()
	frame4 := framed(0x0800, four)
	return []tunnel{
		{"Ethernet type 0x88b5", framed(0x88B5, four)}, {"Ethernet type 0x88e7", framed(0x88E7, frame4)},
		{"Ethernet type 0x894f", framed(0x894F, frame4)}, {"Ethernet type 0x22f3", framed(0x22F3, frame4)},
		{"Ethernet type 0x8915", framed(0x8915, four)},
		{"MACsec", framed(0x88E5, four)}, {"ESP", outerIP(50, four)}, {"WireGuard", outerUDP(51820, four)},
		{"ESP in UDP", outerUDP(4500, four)}, {"UDP port 2152", outerUDP(2152, four)},
		{"UDP port 1701", outerUDP(1701, four)}, {"UDP port 4790", outerUDP(4790, frame4)},
		{"UDP port 8472", outerUDP(8472, frame4)},
		{"IP protocol 97", outerIP(97, []byte{0x30, 0}, frame4)}, {"IP protocol 115", outerIP(115, frame4)},
		{"GRE with routing or of another version", outerIP(47, []byte{0x40, 0, 8, 0}, four)},
		{"GRE protocol 0x88be", outerIP(47, []byte{0x10, 0, 0x88, 0xBE, 0, 0, 0, 1}, frame4)},
		{"MPLS without IP", framed(0x8847, []byte{0, 1, 0x01, 64, 0, 0, 0, 0}, frame4)},
		{"PPP protocol 0x00fd", framed(0x8864, []byte{0x11, 0, 0, 7, 0, 4, 0, 0xFD, 1, 2})},
		{"SNAP of organization 0x0080c2", lengthFramed([]byte{0xAA, 0xAA, 3, 0, 0x80, 0xC2, 0, 7}, frame4)},
		{"LLC with the service access point 0x06", lengthFramed([]byte{6, 6, 3}, four)},
		{"PIM", outerIP(103, []byte{0x21, 0, 0, 0, 0, 0, 0, 0}, four)},
		{"more than 16 headers of Ethernet and IP in each other", deep(four)},
	}
}

// deep nests an IP packet in others.
func deep(packet []byte) []byte {
	for range 20 {
		packet = ipv4(4, [4]byte{10, 0, 0, 1}, packet)
	}
	return framed(0x0800, packet)
}

// leaves carry no packets.
func leaves() []tunnel {
	return []tunnel{
		{"lldp", framed(0x88CC, make([]byte, 46))}, {"slow", framed(0x8809, make([]byte, 46))},
		{"ptp", framed(0x88F7, make([]byte, 46))},
		{"spanning tree", lengthFramed([]byte{0x42, 0x42, 3, 0, 0})},
		{"cdp", lengthFramed([]byte{0xAA, 0xAA, 3, 0, 0, 0x0C, 0x20, 0})},
		{"lcp", framed(0x8864, []byte{0x11, 0, 0, 7, 0, 6, 0xC0, 0x21, 1, 1, 0, 4})},
		{"ospf", outerIP(89, make([]byte, 24))}, {"igmp", outerIP(2, make([]byte, 8))},
		{"sctp", outerIP(132, make([]byte, 12))}, {"dns", outerUDP(53, make([]byte, 12))},
		{"pim", outerIP(103, []byte{0x20, 0, 0, 0})},
	}
}

// TestTunnels looks for a packet in tunnels. It is found, or may have been there.
func TestTunnels(t *testing.T) {
	inside := compiled(t, "udp.dstport == 5555")
	absent := compiled(t, "tcp.dstport == 5555")
	for _, c := range readTunnels() {
		p := shown(c.frame)
		if match, unseen := inside.Judge(p); !match || unseen != 0 {
			t.Errorf("%s: found %t, unseen %b", c.name, match, unseen)
		}
		if match, unseen := absent.Judge(p); match || unseen != 0 {
			t.Errorf("%s: found a segment %t, unseen %b", c.name, match, unseen)
		}
	}
	for _, c := range unreadTunnels() {
		p := shown(c.frame)
		if match, unseen := inside.Judge(p); match || unseen&(Encapsulated|Encrypted) == 0 ||
			p.Carrier() != c.name {
			t.Errorf("%s: found %t, unseen %b, carrier %q", c.name, match, unseen, p.Carrier())
		}
	}
	for _, c := range leaves() {
		if match, unseen := inside.Judge(shown(c.frame)); match || unseen != 0 {
			t.Errorf("%s: found %t, unseen %b", c.name, match, unseen)
		}
	}
}

func compiled(t *testing.T, text string) *Filter {
	t.Helper()
	f, err := Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func shown(frame []byte) *Packet {
	p := &Packet{}
	p.Set(&pcapng.Packet{Data: frame, Length: len(frame)},
		&pcapng.Interface{LinkType: pcapng.LinkEthernet}, 1, 0)
	return p
}

// tunnelFilters read the insides, the outsides, or both.
var tunnelFilters = []string{"udp.dstport == 5555", "ip.src == 192.168.7.1", "ipv6.src == fd07::1",
	"ip.ttl == 9",
	"ip.src != 192.168.7.1", "eth.dst[5:1] == 09", "eth.addr == 02:00:00:00:00:09", "vlan.id == 7",
	"udp.port == 7777 && ip.addr == 10.0.0.1", "!(udp.srcport == 7777)", "ip.proto == 4",
	`udp contains "inside"`,
	"eth.type == 0x0800", "ipv6.hlim == 8 && udp", "ip.proto === 17", "ip && ipv6", "udp.length == 14"}

// TestTunnelsAsWireshark compares the packets that filters and tshark select.
func TestTunnelsAsWireshark(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	folder := t.TempDir()
	dissector, name := filepath.Join(folder, "railbed.lua"), filepath.Join(folder, "tunnels.pcap")
	if err := os.WriteFile(dissector, layers.Dissector, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w := pcapgo.NewWriterNanos(file)
	if err := w.WriteFileHeader(1000, golayers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range slices.Concat(readTunnels(), leaves()) {
		names = append(names, c.name)
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1_800_000_000, 0),
			Length: len(c.frame), CaptureLength: len(c.frame)}, c.frame); err != nil {
			t.Fatal(err)
		}
	}
	want := make([][]int, len(tunnelFilters))
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	for i, filter := range tunnelFilters {
		group.Go(func() (err error) {
			want[i], err = tshark(name, dissector, filter)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, filter := range tunnelFilters {
		var differ []string
		got := matches(t, name, filter)
		for n, of := range names {
			if slices.Contains(got, n+1) != slices.Contains(want[i], n+1) {
				differ = append(differ, of)
			}
		}
		if len(differ) > 0 {
			t.Errorf("%s: other than tshark, which selects %d: %s", filter, len(want[i]),
				strings.Join(differ, "; "))
		}
	}
}
