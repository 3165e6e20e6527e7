package wire

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// What tcpdump printed of the samples, as Headers.
func TestParse(t *testing.T) {
	const v4, v6 = IsIPv4, IsIPv6
	for _, test := range []struct {
		name, frame, src, dst string
		want                  Headers // without addresses
	}{
		{"TCP, cut behind its header", sampleTCP, "172.17.81.73", "173.222.254.225",
			Headers{End: 66, L3: 14, L4: 34, Payload: 66, EtherType: 0x800,
				SrcPort: 50679, DstPort: 80, Protocol: 6, TTL: 64, TCPFlags: 0x18, Flags: v4 | DontFragment,
				Verdict: Truncated}},
		{"TCP SYN", sampleSYN, "192.168.0.1", "192.168.0.2",
			Headers{End: 66, L3: 14, L4: 34, Payload: 62, EtherType: 0x800,
				SrcPort: 12345, DstPort: 54321, Protocol: 6, TTL: 128, TCPFlags: TCPSYN, Flags: v4}},
		{"ICMP", sampleICMPv4, "72.14.222.226", "172.29.20.15",
			Headers{End: 70, L3: 14, L4: 34, Payload: 42, EtherType: 0x800,
				Protocol: 1, TTL: 252, Flags: v4}},
		{"solicitation", sampleSolicitation, "fe80::21f:caff:feb3:75c0", "2620:0:1005:0:26be:5ff:fe27:b17",
			Headers{End: 86, L3: 14, L4: 54,
				Payload: 62, EtherType: 0x86dd, Protocol: 58, TTL: 255, DSCP: 56, Flags: v6}},
		{"fragment", sampleFragment, "10.1.1.1", "129.111.30.27",
			Headers{End: 70, L3: 14, L4: 34, Payload: 42, EtherType: 0x800,
				SrcPort: 31915, DstPort: 20197, Protocol: 17, TTL: 64, Flags: v4 | Fragment | MoreFragments}},
		{"UDP", sampleUDP, "172.16.255.1", "172.29.20.15",
			Headers{End: 244, L3: 14, L4: 34, Payload: 42, EtherType: 0x800,
				SrcPort: 53, DstPort: 35181, Protocol: 17, TTL: 63, Flags: v4}},
		{"hop by hop, cut", sampleHopByHop, "::", "ff02::16",
			Headers{End: 70, L3: 14, L4: 62, Payload: 70, EtherType: 0x86dd,
				Protocol: 58, TTL: 1, Flags: v6 | HasOptions, Verdict: Truncated}},
		{"authentication", sampleEcho, "192.168.1.1", "192.168.1.2",
			Headers{End: 122, L3: 14, L4: 34, Payload: 34, EtherType: 0x800,
				Protocol: 51, TTL: 64, Flags: v4 | DontFragment}},
		{"ARP", sampleARP, "invalid IP", "invalid IP", Headers{End: 60, L3: 14, EtherType: 0x806}},
		{"PFC", samplePFC, "invalid IP", "invalid IP", Headers{End: 60, L3: 14, EtherType: 0x8808}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Parse(sample(t, test.frame))
			equal(t, "source", got.SrcAddr().String(), test.src)
			equal(t, "destination", got.DstAddr().String(), test.dst)
			got.Src, got.Dst = [16]byte{}, [16]byte{}
			equal(t, "headers", got, test.want)
		})
	}
}

// Each change breaks a captured frame in one way.
func TestParseVerdicts(t *testing.T) {
	put := func(at int, b ...byte) func([]byte) []byte {
		return func(f []byte) []byte { copy(f[at:], b); return f }
	}
	length := func(n int) func([]byte) []byte { return func(f []byte) []byte { return f[:n:n] } }
	for _, test := range []struct {
		name, frame string
		change      func([]byte) []byte
		want        Verdict
	}{
		{"nothing", sampleUDP, length(0), ShortFrame},
		{"13 bytes", sampleUDP, length(13), ShortFrame},
		{"19 bytes of IPv4", sampleUDP, length(33), ShortFrame},
		{"39 bytes of IPv6", sampleSolicitation, length(53), ShortFrame},
		{"27 bytes of ARP", sampleARP, length(41), ShortFrame},
		{"a byte of opcode", samplePFC, length(15), ShortFrame},
		{"version 5", sampleUDP, put(14, 0x55), BadVersion},
		{"IPv6 in IPv4", sampleUDP, put(14, 0x65), BadVersion},
		{"IPv4 in IPv6", sampleSolicitation, put(14, 0x45), BadVersion},
		{"header of 16 bytes", sampleUDP, put(14, 0x44), BadHeaderLength},
		{"total length under header", sampleUDP, put(16, 0, 19), BadHeaderLength},
		{"header over frame", sampleUDP, func(f []byte) []byte {
			f[14] = 0x4f
			return f[:60]
		}, BadHeaderLength},
		{"IPv4 a byte short", sampleUDP, length(243), Truncated},
		{"IPv6 a byte short", sampleSolicitation, length(85), Truncated},
		{"checksum", sampleUDP, put(24, 0), BadChecksum},
		{"TTL without checksum", sampleUDP, put(22, 64), BadChecksum},
		{"extension cut", sampleHopByHop, func(f []byte) []byte {
			f[18], f[19], f[55] = 0, 16, 1
			return f
		}, WellFormed},
		{"extension over payload", sampleHopByHop, func(f []byte) []byte {
			f[18], f[19], f[55] = 0, 16, 2
			return f
		}, BadExtension},
		{"4 bytes of ICMPv6", sampleSolicitation, put(18, 0, 4), ShortTransport},
		{"UDP length 7", sampleUDP, put(38, 0, 7), BadTransportLength},
		{"UDP length one over", sampleUDP, put(38, 0, 211), BadTransportLength},
		{"UDP length one under", sampleUDP, put(38, 0, 209), WellFormed}, // RFC 9868 puts options there
		{"UDP length of a fragment", sampleFragment, put(38, 2, 0), WellFormed},
		{"TCP header of 16 bytes", sampleSYN, put(46, 0x40), BadTransportLength},
		{"TCP header over payload", sampleSYN, put(46, 0x90), BadTransportLength},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := Parse(test.change(sample(t, test.frame)))
			if test.name == "extension cut" {
				// 16 bytes of hop-by-hop options fill the payload: no ICMPv6.
				test.want = ShortTransport
			}
			equal(t, "verdict", h.Verdict, test.want)
			equal(t, "routable", h.Verdict.Routable(), test.want == WellFormed || test.want >= BadExtension)
		})
	}
}

func TestParseTags(t *testing.T) {
	plain := sample(t, sampleUDP)
	tagged := func(tags string) []byte {
		return append(append(bytes.Clone(plain[:12]), sample(t, tags)...), plain[12:]...)
	}
	want := Parse(plain)
	for _, test := range []struct {
		tags    string
		tci     uint16
		shift   uint16
		verdict Verdict
	}{
		{"8100 a020", 0xa020, 4, WellFormed},
		{"88a8 6001 8100 a020", 0x6001, 8, WellFormed},
	} {
		h := Parse(tagged(test.tags))
		equal(t, "TCI", h.TCI, test.tci)
		equal(t, "L3", h.L3, want.L3+test.shift)
		equal(t, "payload", h.Payload, want.Payload+test.shift)
		equal(t, "end", h.End, want.End+uint32(test.shift))
		equal(t, "type", h.EtherType, EtherTypeIPv4)
		equal(t, "flags", h.Flags, want.Flags|Tagged)
		equal(t, "port", h.DstPort, want.DstPort)
		equal(t, "verdict", h.Verdict, test.verdict)
	}
	// A third tag is not passed; the frame is not IP for us.
	h := Parse(tagged("8100 0001 8100 0002 8100 0003"))
	equal(t, "type", h.EtherType, EtherTypeVLAN)
	equal(t, "L4", h.L4, 0)
	h = Parse(tagged("8100 0001")[:17])
	equal(t, "cut tag", h.Verdict, ShortFrame)
}

func TestParseLaterFragments(t *testing.T) {
	f := sample(t, sampleFragment)
	binary.BigEndian.PutUint16(f[20:], 0x00b9)
	IPv4(f[14:]).FillChecksum()
	h := Parse(f)
	equal(t, "flags", h.Flags, IsIPv4|Fragment|LaterFragment)
	equal(t, "port", h.SrcPort, 0)
	equal(t, "payload", h.Payload, h.L4)
	equal(t, "verdict", h.Verdict, WellFormed)

	// The hop-by-hop header becomes a fragment header: offset 1416, more.
	f = sample(t, sampleHopByHop)
	f[19], f[20] = 16, ProtocolFragment
	copy(f[54:], sample(t, "1100 0589 0000 0007"))
	h = Parse(f)
	equal(t, "flags", h.Flags, IsIPv6|HasOptions|Fragment|LaterFragment|MoreFragments)
	equal(t, "protocol", h.Protocol, ProtocolUDP)
	equal(t, "L4", h.L4, 62)
	equal(t, "verdict", h.Verdict, WellFormed)
}

func TestParseOptions(t *testing.T) {
	f := sample(t, sampleUDP)
	f = append(append(bytes.Clone(f[:34]), 1, 1, 1, 0), f[34:]...) // three no-operations and the end
	f[14] = 0x46
	IPv4(f[14:]).SetTotalLength(234)
	h := Parse(f)
	equal(t, "checksum", h.Verdict, BadChecksum)
	IPv4(f[14:]).FillChecksum()
	h = Parse(f)
	equal(t, "verdict", h.Verdict, WellFormed)
	equal(t, "flags", h.Flags, IsIPv4|HasOptions)
	equal(t, "L4", h.L4, 38)
	equal(t, "port", h.SrcPort, 53)
}

func TestParseAllocates(t *testing.T) {
	frame := sample(t, sampleUDP)
	if n := testing.AllocsPerRun(100, func() {
		h := Parse(frame)
		if !h.SrcAddr().IsValid() || !h.DstAddr().Is4() {
			t.Error("addresses")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestVerdictNames(t *testing.T) {
	seen := map[string]bool{}
	for v := range Verdicts {
		name := Verdict(v).String()
		if name == "" || name == "unknown" || seen[name] {
			t.Errorf("verdict %d is named %q", v, name)
		}
		seen[name] = true
	}
	equal(t, "beyond", Verdict(Verdicts).String(), "unknown")
}

func BenchmarkParse(b *testing.B) {
	for _, test := range []struct{ name, frame string }{
		{"UDP", sampleUDP}, {"TCP", sampleSYN}, {"ICMPv6", sampleSolicitation}, {"extension", sampleHopByHop},
		{"ARP", sampleARP},
	} {
		b.Run(test.name, func(b *testing.B) {
			frame := sample(b, test.frame)
			b.ReportAllocs()
			ports := 0
			for b.Loop() {
				h := Parse(frame)
				ports += int(h.DstPort)
			}
			if ports < 0 {
				b.Error(ports)
			}
		})
	}
}
