package infiniband

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// unhex reads literal bytes; white space does not count.
func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// split returns an IP packet's headers of IP and UDP, and its payload.
func split(ip []byte) (headers []byte, p Packet) {
	if ip[0]>>4 == 4 {
		return ip[:HeadersIPv4], Packet(ip[HeadersIPv4:])
	}
	return ip[:HeadersIPv6], Packet(ip[HeadersIPv6:])
}

// vector is a packet by scapy, as testdata/make-vectors.py writes it.
type vector struct {
	IP     int
	Bytes  string
	Fields struct {
		Opcode                                             Opcode
		Name, Payload                                      string
		SE, MigReq, FECN, BECN, AckReq                     int
		Pad                                                uint8
		PKey                                               uint16
		DestQP, SrcQP                                      QPN
		PSN                                                PSN
		VA, SwapAdd, Compare, Original                     uint64
		RKey, Length, QKey, Syndrome, MSN, Imm, Invalidate uint32
	}
}

// want returns the expected fields of the packet's headers.
func (v *vector) want() (f Fields) {
	g := &v.Fields
	f.BTH = BTHFields{
		Opcode:    g.Opcode,
		Solicited: g.SE == 1,
		MigReq:    g.MigReq == 1,
		Pad:       g.Pad,
		PKey:      g.PKey,
		FECN:      g.FECN == 1,
		BECN:      g.BECN == 1,
		DestQP:    g.DestQP, AckReq: g.AckReq == 1, PSN: g.PSN,
	}
	f.DETH = DETHFields{QKey: g.QKey, SrcQP: g.SrcQP}
	f.RETH = RETHFields{VA: g.VA, RKey: g.RKey, Length: g.Length}
	if g.Opcode.IsAtomic() {
		f.RETH = RETHFields{}
		f.AtomicETH = AtomicETHFields{VA: g.VA, RKey: g.RKey, SwapAdd: g.SwapAdd, Compare: g.Compare}
	}
	f.AETH = AETHFields{Syndrome: Syndrome(g.Syndrome), MSN: g.MSN}
	f.Original, f.Imm, f.Invalidate = g.Original, g.Imm, g.Invalidate
	return f
}

func vectors(t testing.TB) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

// TestVectors reads packets that scapy made, every opcode over both versions of IP
// with random fields, and writes them again: headers, padding and ICRC.
func TestVectors(t *testing.T) {
	seen := map[Opcode]int{}
	for _, v := range vectors(t) {
		headers, p := split(unhex(t, v.Bytes))
		o := v.Fields.Opcode
		seen[o]++
		if !p.Valid() || p.Opcode() != o || o.String() != v.Fields.Name {
			t.Errorf("%s: read as a %v, valid %v", v.Fields.Name, p.Opcode(), p.Valid())
			continue
		}
		payload := unhex(t, v.Fields.Payload)
		want := v.want()
		if got := p.Fields(); got != want {
			t.Errorf("IPv%d %v: read\n%+v, want\n%+v", v.IP, o, got, want)
		}
		if !bytes.Equal(p.Payload(), payload) {
			t.Errorf("IPv%d %v: payload % x, want % x", v.IP, o, p.Payload(), payload)
		}
		if !p.ICRCValid(headers) {
			t.Errorf("IPv%d %v: ICRC %08x, scapy has %08x", v.IP, o, ICRC(headers, p), p.ICRC())
		}
		want.BTH.Pad = 9 // is not looked at
		made := bytes.Repeat([]byte{0xA5}, Len(o, len(payload)))
		Packet(made).Encode(&want, len(payload))
		copy(Packet(made).Payload(), payload)
		Packet(made).Seal(headers)
		if !bytes.Equal(made, p) {
			t.Errorf("IPv%d %v: wrote\n% x, scapy\n% x", v.IP, o, made, []byte(p))
		}
	}
	for o := range 256 {
		if Opcode(o).Known() != (seen[Opcode(o)] == 2) {
			t.Errorf("%v: known %v, in %d vectors", Opcode(o), Opcode(o).Known(), seen[Opcode(o)])
		}
	}
}

// Published packets with their ICRC, from the tests of scapy's contrib/roce.py
// (test/contrib/roce.uts): a CNP that was captured of a ConnectX-4 Lx, and a UC
// packet of 18 bytes.
const (
	capturedCNP = `45c2 003c 718c 4000 4011 9161 0a00 1101 0a00 1201 0000 12b7 0028 0000 8100 ffff 4000 0118
		0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 82fd 002a`
	capturedUC = `4501 0040 0478 4000 4011 b4d5 c0a8 0007 c0a8 0007 c000 12b7 002c aca2 2460 ffff 0000 00d3 00cf 1710
		4630 818b e289 35d9 0e9a 9550 5401 be88 5e50 0000 78f3 53f3`
)

func TestPublishedPackets(t *testing.T) {
	headers, p := split(unhex(t, capturedCNP))
	made := make(Packet, CNPLen)
	made.EncodeCNP(0x118)
	made.Seal(headers)
	if !bytes.Equal(made, p) || !p.Valid() || len(p.Payload()) != 0 || p.Opcode().Request() ||
		p.Opcode().Response() {
		t.Errorf("a CNP is\n% x, ConnectX-4 sends\n% x", []byte(made), []byte(p))
	}
	headers, p = split(unhex(t, capturedUC))
	if !p.Valid() || !p.ICRCValid(headers) || p.Opcode() != SendOnly+Opcode(UC) || len(p.Payload()) != 18 ||
		!p.BTH().Fields().MigReq {
		t.Errorf("the UC packet is %+v with ICRC %08x, want f353f378", p.Fields(), ICRC(headers, p))
	}
}

// The ICRC covers the fields that no device changes on the path: every bit of a packet is either
// covered or in one of the fields that Annex A17.3.3 names.
func TestICRCCoversWhatRoutersLeave(t *testing.T) {
	for _, v := range vectors(t)[:2] {
		ip := unhex(t, v.Bytes)
		headers, p := split(ip)
		transport := len(headers)
		// UDP checksum, FECN and BECN
		changes := map[int]byte{transport - 2: 0xFF, transport - 1: 0xFF, transport + 4: 0xFF}
		if v.IP == 4 {
			changes[1], changes[8], changes[10], changes[11] = 0xFF, 0xFF, 0xFF, 0xFF // TOS, TTL, checksum
		} else {
			// class, label, hops
			changes[0], changes[1], changes[2], changes[3], changes[7] = 0x0F, 0xFF, 0xFF, 0xFF, 0xFF
		}
		for at := range len(ip) - ICRCLen {
			for bit := byte(1); bit != 0; bit <<= 1 {
				ip[at] ^= bit
				if valid := p.ICRCValid(headers); valid != (changes[at]&bit != 0) {
					t.Errorf("IPv%d: with bit %#02x of byte %d changed the ICRC is valid %v", v.IP, bit, at,
						valid)
				}
				ip[at] ^= bit
			}
		}
	}
}

// Nothing of the way of a packet allocates.
func TestAllocations(t *testing.T) {
	headers, p := split(unhex(t, vectors(t)[1].Bytes))
	f := p.Fields()
	n := len(p.Payload())
	valid := true
	if allocations := testing.AllocsPerRun(100, func() {
		p.Encode(&f, n)
		p.Seal(headers)
		valid = valid && p.Valid() && p.ICRCValid(headers) && p.Fields() == f
	}); allocations != 0 || !valid {
		t.Errorf("%v allocations, valid %v", allocations, valid)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		p, other PSN
		from     int
	}{{5, 3, 2}, {3, 5, -2}, {0, MaxPSN, 1}, {MaxPSN, 0, -1}, {0x7FFFFF, 0, 0x7FFFFF},
		{0x800000, 0, -0x800000}, {2, 0xFFFFF0, 18}} {
		if got := c.p.From(c.other); got != c.from || c.other.Add(c.from) != c.p {
			t.Errorf("%#x is %d from %#x, want %d", c.p, got, c.other, c.from)
		}
	}
	for code, want := range map[uint8]int{0: 0, 1: 256, 3: 1024, 5: 4096, 6: 0, 255: 0} {
		if MTU(code) != want || want != 0 && MTUCode(want) != code || MTUCode(want+1) != 0 {
			t.Errorf("MTU %d is %d bytes, want %d", code, MTU(code), want)
		}
	}
	// The last link MTU that is too small for a path MTU, and the first that is not, by
	// rdma_rxe's eth_mtu_int_to_enum.
	for link, want := range map[int]int{0: 0, LeastLinkMTU - 1: 0, 336: 256, 591: 256, 592: 512, 1103: 512,
		1104: 1024, 1500: 1024, 2128: 2048, 4175: 2048, 4176: 4096, 9000: 4096} {
		if got := PathMTU(link); got != want {
			t.Errorf("path MTU of a link of %d is %d, want %d", link, got, want)
		}
	}
	// IBTA, table 45, at both ends and where its steps change.
	for code, want := range map[uint8]float64{0: 655.36, 1: 0.01, 4: 0.04, 5: 0.06, 14: 1.28, 25: 61.44,
		31: 491.52} {
		if got := RNRTimer(code); got != time.Duration(want*1e6+0.5) {
			t.Errorf("RNR timer %d is %v, want %v ms", code, got, want)
		}
	}
	// perftest's default timeout is 14, which is 67 ms.
	if AckTimeout(14).Round(time.Millisecond) != 67*time.Millisecond || AckTimeout(0) != 0 {
		t.Errorf("timeouts %v and %v", AckTimeout(14), AckTimeout(0))
	}
	for syndrome, want := range map[Syndrome]string{0x1F: "ACK", 0x60: "NAK sequence error",
		0x62: "NAK remote access error", 0x2E: "RNR NAK 1.28ms", 0x7F: "syndrome 0x7f",
		0x40: "syndrome 0x40"} {
		if syndrome.Reserved() != strings.HasPrefix(want, "syndrome") || !(syndrome | 0x80).Reserved() {
			t.Errorf("%#02x is reserved %v", uint8(syndrome), syndrome.Reserved())
		}
		if syndrome.String() != want {
			t.Errorf("%#02x is %q, want %q", uint8(syndrome), syndrome, want)
		}
	}
}

// Valid distinguishes packets from other bytes.
func TestValid(t *testing.T) {
	made := func(o Opcode, payload int) Packet {
		p := make(Packet, Len(o, payload))
		p.Encode(&Fields{BTH: BTHFields{Opcode: o}}, payload)
		return p
	}
	with := func(p Packet, at int, value byte) Packet { p[at] = value; return p }
	for why, c := range map[string]struct {
		p     Packet
		valid bool
	}{
		"a payload":                       {made(WriteOnly, 5), true},
		"none, where there may be one":    {made(SendOnly, 0), true},
		"only padding":                    {with(made(SendOnly, 0), 1, 0x10), false},
		"nothing":                         {nil, false},
		"no ICRC":                         {made(SendOnly, 0)[:BTHLen], false},
		"not a multiple of four":          {made(SendOnly, 8)[:BTHLen+ICRCLen+3], false},
		"half a RETH":                     {made(WriteOnly, 0)[:BTHLen+ICRCLen+8], false},
		"another version":                 {with(made(SendOnly, 0), 1, 1), false},
		"an opcode of reliable datagrams": {with(made(SendOnly, 0), 0, 0x44), false},
		"a payload where there is none":   {with(made(SendOnly, 20), 0, byte(Acknowledge)), false},
		"padding where there is none":     {with(made(Acknowledge, 0), 1, 0x10), false},
	} {
		if c.p.Valid() != c.valid {
			t.Errorf("%s: valid %v", why, !c.valid)
		}
	}
}
