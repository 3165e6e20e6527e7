package wire

import (
	"encoding/hex"
	"strings"
	"testing"
)

// Captured frames that others published. Those of gopacket are in
// github.com/google/gopacket v1.1.19, folder layers, under the name given.
const (
	// testSimpleTCPPacket, decode_test.go: its headers only, 66 of 434 bytes.
	sampleTCP = `00 00 0c 9f f0 20 bc 30 5b e8 d3 49 08 00 45 00 01 a4 39 df 40 00 40 06 55 5a ac 11 51 49 ad de
		fe e1 c5 f7 00 50 c5 7e 0e 48 49 07 42 32 80 18 00 73 9a 8f 00 00 01 01 08 0a 03 77 37 9c 42 77 5e 3a`

	// testPacketTCPOptionDecode, tcp_test.go: "IP 192.168.0.1.12345 >
	// 192.168.0.2.54321: Flags [S], seq 3735928559:3735928563, win 0, options
	// [mss 8192,eol], length 4".
	sampleSYN = `0000 0000 0001 0000 0000 0001 0800 4500 0034 0000 0000 8006 b970 c0a8 0001 c0a8
		0002 3039 d431 dead beef 0000 0000 7002 0000 829c 0000 0204 2000 0000 0000 5465 7374`

	// testICMP, decode_test.go: "IP 72.14.222.226 > 172.29.20.15: ICMP host
	// 10.66.73.201 unreachable - admin prohibited filter, length 36".
	sampleICMPv4 = `24be 0527 0b17 001f cab3 75c0 0800 4500 0038 0000 0000 fc01 d7a7 480e dee2 ac1d
		140f 030d 946e 0000 0000 4520 004d 0000 4000 3e11 2849 ac1d 140f 0a42 49c9 8ecc 62e1 0039 769d`

	// testICMP6, decode_test.go: "IP6 fe80::21f:caff:feb3:75c0 >
	// 2620:0:1005:0:26be:5ff:fe27:b17: ICMP6, neighbor solicitation, who has
	// 2620:0:1005:0:26be:5ff:fe27:b17, length 32".
	sampleSolicitation = `24be 0527 0b17 001f cab3 75c0 86dd 6e00 0000 0020 3aff fe80 0000 0000 0000 021f
		caff feb3 75c0 2620 0000 1005 0000 26be 05ff fe27 0b17 8700 1eba 0000 0000 2620
		0000 1005 0000 26be 05ff fe27 0b17 0101 001f cab3 75c0`

	// testPacketICMPv6, icmp6_test.go: "IP6 2620:0:1005:0:26be:5ff:fe27:b17 >
	// fe80::21f:caff:feb3:7640: ICMP6, neighbor advertisement, tgt is
	// 2620:0:1005:0:26be:5ff:fe27:b17, length 24".
	sampleAdvertisement = `001f cab3 7640 24be 0527 0b17 86dd 6000 0000 0018 3aff 2620 0000 1005 0000 26be
		05ff fe27 0b17 fe80 0000 0000 0000 021f caff feb3 7640 8800 1ed6 4000 0000 2620
		0000 1005 0000 26be 05ff fe27 0b17`

	// testPacketIPv4Fragmented, decode_test.go: "IP 10.1.1.1.31915 >
	// 129.111.30.27.20197: UDP, length 28", a first fragment.
	sampleFragment = `0000 39cf d9cd 0040 33d9 7cfd 0800 4500 0038 00f2 2000 4011 af37 0a01 0101 816f
		1e1b 7cab 4ee5 0024 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000`

	// testUDPPacketDNS, udp_test.go: an answer about xkcd.com.
	sampleUDP = `24be05270b17001fcab375c0080045 00
		00e668cf00003f11a6f9ac10ff01ac1d 140f0035896d00d2754ab8d881800001 00070000000004786b636403636f6d00
		000f0001c00c000f0001000002580018 001404414c5432054153504d58016c06 474f4f474c45c011c00c000f00010000
		02580016001e064153504d58320a474f 4f474c454d41494cc011c00c000f0001 00000258000b001e064153504d5833c0
		53c00c000f000100000258000b001e06 4153504d5834c053c00c000f00010000 0258000b001e064153504d5835c053c0
		0c000f0001000002580004000ac02dc0 0c000f0001000002580009001404414c 5431c02d`

	// icmp6HopByHopData, icmp6hopbyhop_test.go, of which the first 8 bytes of
	// the ICMPv6 message: a multicast listener report behind a hop-by-hop
	// header with router alert.
	sampleHopByHop = `33 33 00 00 00 16 1e c3 e3 b7 c4 d5 86 dd 60 00 00 00 00 88 00 01
		00000000000000000000000000000000 ff020000000000000000000000000016
		3a 00 05 02 00 00 01 00 8f 00 9e ed 00 00 00 06`

	// testPacketIPSecAHTransport, ipsec_test.go: "IP 192.168.1.1 > 192.168.1.2:
	// AH(spi=0x00000101,seq=0x1): ICMP echo request, id 1560, seq 1, length 64".
	sampleEcho = `7ec0 ffc6 48f1 1a0e 3c4e 3b3a 0800 4500 006c 650a 4000 4033 5201 c0a8 0101 c0a8
		0102 0104 0000 0000 0101 0000 0001 2533 01b1 a20b b6f1 bdbf 9d9e 0800 fbe5 0618
		0001 c6e1 a354 0000 0000 c8f7 0400 0000 0000 1011 1213 1415 1617 1819 1a1b 1c1d
		1e1f 2021 2223 2425 2627 2829 2a2b 2c2d 2e2f 3031 3233 3435 3637`

	// The first frame of arp-storm.pcap, Wireshark's SampleCaptures: "Who has
	// 24.166.173.159? Tell 24.166.172.1", with the padding of its link as zeros.
	sampleARP = `ffff ffff ffff 0007 0daf f454 0806 0001 0800 0604 0001 0007 0daf f454 18a6 ac01
		0000 0000 0000 18a6 ad9f 0000 0000 0000 0000 0000 0000 0000 0000 0000`

	// The frame that NXP's example for the AIOP of its DPAA2 network processors
	// sends (eth_pfc_pause_pkt): all 8 classes, four of them with a time.
	samplePFC = `01 80 c2 00 00 01 00 00 00 00 00 07 88 08 01 01 00 ff 08 07 06 05 04 03 02 01 00 00 00 00 00 00
		00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00`
)

// sample is a captured frame as bytes.
func sample(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// samples are all of them, for fuzzing.
var samples = []string{
	sampleTCP, sampleSYN, sampleICMPv4, sampleSolicitation, sampleAdvertisement, sampleFragment, sampleUDP,
	sampleHopByHop, sampleEcho,
	sampleARP, samplePFC,
}

// equal compares values that a test names.
func equal[T comparable](t *testing.T, name string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", name, got, want)
	}
}

// cut checks that Valid refuses every shorter piece and takes the whole.
func cut[H ~[]byte](t *testing.T, whole H, length int, valid func(H) bool) {
	t.Helper()
	for n := range length {
		if valid(whole[:n:n]) {
			t.Errorf("%d bytes are valid, want at least %d", n, length)
		}
	}
	if !valid(whole[:length:length]) {
		t.Errorf("%d bytes are not valid", length)
	}
}
