package filter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/net/bpf"

	"railbed/testkit/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// expressions are compared with tcpdump's compiler, packet by packet.
var expressions = strings.Split(strings.TrimSpace(`
tcp
udp
sctp
arp
rarp
icmp
icmp6
ip
ip6
host 10.0.0.1
src host 10.0.0.1
dst host 10.0.0.1
src 10.0.0.1
src or dst 10.0.0.1
src and dst host 10.0.0.1
dst 10.0.0.1
ip host 10.0.0.1
arp host 10.0.0.1
arp src host 10.0.0.1
arp dst 10.0.0.2
net 10.0.0.0/24
net 10.0.0.0/22
src net 10.0.0.0/24
net 10.0.0.0 mask 255.255.255.0
net 10.0.0
net 10
host 10.0
dst net 10.0.0
ip net 10.0.0.0/8
net 0.0.0.0/0
net 10.0.0.1/32
port 80
tcp port 80
udp port 53
sctp port 80
src port 80
dst port 80
src or dst port 80
src and dst port 80
tcp src port 80
tcp dst port 443
port 0x50
portrange 80-90
portrange 90-80
tcp portrange 80-90
tcp dst portrange 80-90
udp src portrange 53-81
not tcp
! tcp
not not tcp
tcp and port 80
tcp && port 80
tcp or udp
tcp || udp
not (tcp or udp)
not tcp and not udp
not tcp or udp
host 10.0.0.1 and tcp port 80
ip proto 6
ip proto \tcp
proto 6
proto \udp
ip6 proto 6
ip6 proto 58
ether proto 0x0806
ether proto \arp
ether proto \ip6
ether host 02:00:00:00:00:01
ether src 02:00:00:00:00:01
ether dst 02:00:00:00:00:02
ether src or dst 02:00:00:00:00:02
ether broadcast
broadcast
multicast
ether multicast
ip multicast
ip6 multicast
host fd00::1
ip6 host fd00::1
src host fd00::1
ip6 dst host fd00::2
net fd00::/64
ip6 net fd00::/20
ip6 src net fd00::/33
net fd00::1/128
tcp[tcpflags] & tcp-syn != 0
tcp[tcpflags] & (tcp-syn|tcp-ack) == (tcp-syn|tcp-ack)
tcp[13] = 2
(tcp[13] & 2) != 0
((tcp[13] & 2) != 0)
((tcp[13])) & 2 != 0
not tcp[13] = 2
not (tcp[13] = 2 and ip[8] < 5)
ip[8] < 5
ip[8] <= 5 or ip6[7] = 5
ip[2:2] - 20 != 0
ip[2:2] > 100
udp[8:4] = 0x01020304
udp[4:2] >= 100
icmp[icmptype] == icmp-echo
icmp6[0] = 8
arp[6:2] = 1
ether[0] & 1 = 0
ether[12:2] = 0x800
ip[(ip[0] & 0xf) << 2] = 0
tcp[(tcp[12] >> 4) << 2 : 4] = 0x01020304
tcp[(ip[0]&0xf)-5:2] > len / 2
ip[8] * 2 + 1 > 2 * (ip[9] - 3) / 2
ip[8] % 3 = 1
ip[8] ^ 3 = 1
ip[1] | ip[8] = 5
udp[1] >= udp[3]
len - 14 > ip[2:2]
less 100
greater 100
less 0x40
len > 100
len <= 60 and ip
100 < len
1 = 1
tcp port 80 or tcp port 443
tcp src port 80 or dst port 90
src host 10.0.0.1 and dst host 10.0.0.2
tcp and not port 80
src host 10.0.0.1 or src host 10.0.0.2 and tcp
tcp and (src host 10.0.0.1 or src host 10.0.0.2)
host 10.0.0.1 or 10.0.0.2
host (10.0.0.1 or 10.0.0.2)
tcp port 80 or 443
tcp port (80 or 443) and host 10.0.0.1
src port 80 or 81 or 90
net 10.0.0.0/24 and 10.0.1.0/24
ip6 and tcp
ip and not (host 10.0.0.1 and (tcp port 80 or udp port 53 or icmp))
(tcp or udp) and (net 10.0.0.0/24 or net fd00::/64) and not (port 80 or portrange 90-100)
arp or icmp or icmp6 or (udp and port 53)
tcp[0:2] = 80 and tcp[2:2] = 80
`), "\n")

// corpus is frames of every kind that the expressions tell apart.
func corpus(t testing.TB) [][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	port := func() uint16 { return []uint16{80, 81, 90, 91, 443, 53, 1000}[r.IntN(7)] }
	mac := func() net.HardwareAddr {
		hardware, err := net.ParseMAC(pick(
			[]string{"02:00:00:00:00:01", "02:00:00:00:00:02", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01"}))
		if err != nil {
			t.Fatal(err)
		}
		return hardware
	}
	ip4 := func() net.IP {
		return net.ParseIP(pick([]string{"10.0.0.1", "10.0.0.2", "10.0.1.1", "192.168.0.1", "255.255.255.255",
			"224.0.0.1"})).To4()
	}
	ip6 := func() net.IP {
		return net.ParseIP(pick([]string{"fd00::1", "fd00::2", "fd00:0:0:1::1", "ff02::1"}))
	}
	var frames [][]byte
	for range 4000 {
		ethernet := &layers.Ethernet{SrcMAC: mac(), DstMAC: mac()}
		stack := []gopacket.SerializableLayer{ethernet}
		payload := make([]byte, r.IntN(120))
		for i := range payload {
			payload[i] = byte(r.IntN(4))
		}
		if len(payload) > 4 && r.IntN(2) == 0 {
			copy(payload, []byte{1, 2, 3, 4})
		}
		proto := []layers.IPProtocol{6, 6, 17, 17, 1, 132}[r.IntN(6)]
		switch family := r.IntN(10); {
		case family == 0:
			ethernet.EthernetType = []layers.EthernetType{layers.EthernetTypeARP, 0x8035}[r.IntN(2)]
			stack = append(stack, &layers.ARP{AddrType: 1, Protocol: 0x800, HwAddressSize: 6,
				ProtAddressSize: 4, Operation: uint16(1 + r.IntN(2)),
				SourceHwAddress: mac(), DstHwAddress: mac(), SourceProtAddress: ip4(), DstProtAddress: ip4()})
			proto = 0
		case family < 6:
			ethernet.EthernetType = layers.EthernetTypeIPv4
			ip := &layers.IPv4{Version: 4, TTL: uint8(r.IntN(10)), TOS: uint8(r.IntN(4)), Protocol: proto,
				SrcIP: ip4(), DstIP: ip4()}
			if r.IntN(10) == 0 {
				ip.FragOffset = 100
			}
			if r.IntN(6) == 0 {
				ip.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1},
					{OptionType: 0}}
			}
			stack = append(stack, ip)
		default:
			ethernet.EthernetType = layers.EthernetTypeIPv6
			if proto == 1 {
				proto = 58
			}
			ip := &layers.IPv6{Version: 6, HopLimit: uint8(5 + r.IntN(2)), NextHeader: proto, SrcIP: ip6(),
				DstIP: ip6()}
			if stack = append(stack, ip); r.IntN(6) == 0 { // a fragment header
				ip.NextHeader = 44
				stack = append(stack, gopacket.Payload([]byte{byte(proto), 0, 0, 0, 0, 0, 0, 1}))
			}
		}
		switch proto {
		case 6:
			stack = append(stack, &layers.TCP{SrcPort: layers.TCPPort(port()),
				DstPort: layers.TCPPort(port()), SYN: r.IntN(3) == 0, ACK: r.IntN(2) == 0})
		case 17:
			stack = append(stack, &layers.UDP{SrcPort: layers.UDPPort(port()),
				DstPort: layers.UDPPort(port())})
		case 132:
			stack = append(stack, gopacket.Payload([]byte{0, byte(port()), 0, byte(port()), 0, 0, 0, 0}))
		case 1, 58:
			stack = append(stack, gopacket.Payload([]byte{byte(8 * r.IntN(2)), 0, 0, 0}))
		}
		buffer := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true},
			append(stack, gopacket.Payload(payload))...); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, buffer.Bytes())
	}
	return append(frames, []byte{}, make([]byte, 13), make([]byte, 14))
}

// tcpdump compiles with libpcap.
func tcpdump(expression string) ([]bpf.Instruction, error) {
	out, err := exec.Command("tcpdump", "-n", "-y", "EN10MB", "-s", "1000", "-ddd", "--",
		expression).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s", out)
	}
	var raw []bpf.RawInstruction
	for line := range strings.Lines(string(out)) {
		var numbers []uint64
		for _, field := range strings.Fields(line) {
			n, err := strconv.ParseUint(field, 10, 32)
			if err != nil {
				return nil, err
			}
			numbers = append(numbers, n)
		}
		if len(numbers) == 4 {
			raw = append(raw, bpf.RawInstruction{Op: uint16(numbers[0]), Jt: uint8(numbers[1]),
				Jf: uint8(numbers[2]), K: uint32(numbers[3])})
		}
	}
	instructions, complete := bpf.Disassemble(raw)
	if !complete {
		return nil, errors.New("unknown instruction")
	}
	return instructions, nil
}

func machine(t *testing.T, instructions []bpf.Instruction) *bpf.VM {
	t.Helper()
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

func TestAgainstTcpdump(t *testing.T) {
	hosttest.Need(t, hosttest.Tcpdump)
	frames := corpus(t)
	for _, expression := range expressions {
		want, err := tcpdump(expression)
		if err != nil {
			t.Errorf("tcpdump refuses %q: %v", expression, err)
			continue
		}
		got, err := compile(expression, 1000)
		if err != nil {
			t.Error(err)
			continue
		}
		theirs, ours := machine(t, want), machine(t, got)
		some := false
		for i, frame := range frames {
			a, _ := theirs.Run(frame)
			b, _ := ours.Run(frame)
			if a != b {
				t.Errorf("%q: frame %d % x: tcpdump says %d, we say %d", expression, i, frame, a, b)
				break
			}
			some = some || a > 0
		}
		if !some {
			t.Errorf("%q matches no frame, which proves little", expression)
		}
	}
}

func TestRefused(t *testing.T) {
	for expression, column := range map[string]int{
		"tpc":                      1,
		"tcp and":                  8,
		"(tcp":                     5,
		"tcp)":                     4,
		"port http":                6,
		"port 65536":               6,
		"host example.com":         6,
		"10.0.0.1":                 1,
		"host 10.0.0.256":          6,
		"net 10.0.0.1/24":          14,
		"net fd00::1/64":           13,
		"host fd00::/64":           13,
		"net 10.0.0.0/33":          14,
		"tcp host 10.0.0.1":        10,
		"icmp port 80":             11,
		"vlan 5":                   1,
		"ether proto 0x100":        13,
		"ip proto 300":             10,
		"ip broadcast":             13,
		"ip6 protochain 6":         5,
		"tcp[13":                   7,
		"tcp[13:3] = 1":            8,
		"tcp[13]":                  8,
		"len / 0 = 1":              9,
		"len << 32 = 1":            11,
		"foo[1] = 1":               1,
		"tcp # port":               5,
		"port 99999999999":         6,
		"ether host 10.0.0.1":      12,
		"tcp proto 5":              12,
		"and tcp":                  1,
		strings.Repeat("(", 10000): 201,
		"ip host fd00::1":          9,
	} {
		_, err := Compile(expression, 100)
		var wrong *Error
		if !errors.As(err, &wrong) {
			t.Errorf("%q was compiled, or: %v", expression, err)
			continue
		}
		if wrong.Column != column || !strings.Contains(err.Error(), "supported are") {
			t.Errorf("%q: column %d, want %d: %v", expression, wrong.Column, column, err)
		}
	}
}

func TestEmptyTakesAll(t *testing.T) {
	instructions, err := compile("", 77)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := machine(t, instructions).Run(make([]byte, 100)); got != 77 {
		t.Errorf("got %d", got)
	}
}

// TestLongJumps needs jumps over more than 255 instructions in both branches.
func TestLongJumps(t *testing.T) {
	hosttest.Need(t, hosttest.Tcpdump)
	var parts []string
	for i := range 60 {
		parts = append(parts, fmt.Sprintf("(src host 10.0.%d.1 and not dst port %d)", i, i))
	}
	expression := strings.Join(parts, " or ")
	want, err := tcpdump(expression)
	if err != nil {
		t.Fatal(err)
	}
	got, err := compile(expression, 1000)
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours := machine(t, want), machine(t, got)
	for _, frame := range corpus(t) {
		a, _ := theirs.Run(frame)
		if b, _ := ours.Run(frame); a != b {
			t.Fatalf("frame % x: tcpdump says %d, we say %d", frame, a, b)
		}
	}
	if _, err := Compile(strings.Join(append(parts, parts...),
		" or ")+" or "+strings.Join(append(parts, parts...), " or "), 1); err == nil {
		t.Error("a program of more instructions than the kernel takes was compiled")
	}
}

func TestDirection(t *testing.T) {
	// tcpdump compiles these only for a device; the kernel's ancillary load is
	// offset 4 from SKF_AD_OFF (linux/filter.h).
	program, err := Compile("outbound", 9)
	if err != nil {
		t.Fatal(err)
	}
	if program[0].Op != 0x28 && program[0].Op != 0x20 && program[0].Op != 0x30 ||
		program[0].K != 0xfffff004 || program[1].K != 4 {
		t.Errorf("program %+v", program)
	}
}

func FuzzCompile(f *testing.F) {
	for _, expression := range expressions {
		f.Add(expression)
	}
	frame := make([]byte, 100)
	f.Fuzz(func(t *testing.T, expression string) {
		instructions, err := compile(expression, 100)
		if err != nil {
			return
		}
		if _, err := bpf.Assemble(instructions); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(expression, "bound") { // the machine knows no packet type
			machine(t, instructions).Run(frame)
		}
	})
}
