package layers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// roceVectors are IP packets that scapy made; see internal/infiniband/testdata.
func roceVectors(t testing.TB) (packets [][]byte) {
	t.Helper()
	text, err := os.ReadFile("../../internal/infiniband/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []struct{ Bytes string } }
	if err := json.Unmarshal(text, &file); err != nil || len(file.Vectors) < 70 {
		t.Fatalf("%d vectors, %v", len(file.Vectors), err)
	}
	for _, v := range file.Vectors {
		packets = append(packets, unhex(t, v.Bytes))
	}
	return packets
}

// headersOf is how much of an IP packet is in front of its RoCE packet.
func headersOf(ip []byte) int {
	if ip[0]>>4 == 4 {
		return infiniband.HeadersIPv4
	}
	return infiniband.HeadersIPv6
}

// ipLayer decodes an IP packet.
func ipLayer(ip []byte) gopacket.LayerType {
	if ip[0]>>4 == 4 {
		return golayers.LayerTypeIPv4
	}
	return golayers.LayerTypeIPv6
}

// TestRoCE reads scapy's packets, finds their ICRC right, and writes them again.
func TestRoCE(t *testing.T) {
	for _, ip := range roceVectors(t) {
		packet := gopacket.NewPacket(ip, ipLayer(ip), gopacket.Default)
		got, ok := packet.Layer(LayerTypeRoCE).(*RoCE)
		if !ok || packet.Metadata().Truncated || !got.Valid || got.State != ICRCRight {
			t.Errorf("decoded %v", packet)
			continue
		}
		whole := ip[headersOf(ip):]
		if want := infiniband.Packet(whole).Fields(); got.Fields != want ||
			len(got.Contents) != want.BTH.Opcode.HeaderLen() {
			t.Errorf("%v: decoded %+v, want %+v", want.BTH.Opcode, got.Fields, want)
		}
		if made := build(t, got, gopacket.Payload(got.Payload)); !bytes.Equal(made, whole) {
			t.Errorf("%v: wrote % x, want % x", got.BTH.Opcode, made, whole)
		}
		// One bit of the packet, behind what routers change, is one bit too many.
		ip = bytes.Clone(ip)
		ip[len(ip)-5] ^= 0x10
		packet = gopacket.NewPacket(ip, ipLayer(ip), gopacket.Default)
		if got, ok = packet.Layer(LayerTypeRoCE).(*RoCE); !ok || got.State != ICRCWrong {
			t.Errorf("with a bit changed: %v", packet)
		}
	}
}

// What is not whole or not valid is read as far as it goes.
func TestRoCEParts(t *testing.T) {
	write := roceFrame(t, 4, &infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.WriteOnly,
		DestQP: 17, PSN: 5}, RETH: infiniband.RETHFields{Length: 8}}, make([]byte, 8))
	const at = 14 + infiniband.HeadersIPv4
	with := func(offset int, value byte) []byte {
		b := bytes.Clone(write)
		b[at+offset] = value
		return b
	}
	for _, test := range []struct {
		why                      string
		frame                    []byte
		valid, truncated, failed bool
		state                    ICRCState
	}{
		{"whole", write, true, false, false, ICRCRight},
		{"cut in its payload, at a multiple of four", slices.Clip(write[:len(write)-8]), false, true, false,
			ICRCUnknown},
		{"cut in its RETH", write[:at+20], false, true, false, ICRCUnknown},
		{"cut in its BTH", write[:at+11], false, true, true, ICRCUnknown},
		{"of another version", with(1, 1), false, false, false, ICRCUnknown},
		{"of an unknown opcode", with(0, 0x7F), false, false, false, ICRCUnknown},
		{"with another PSN", with(11, 6), true, false, false, ICRCWrong},
		{"with FECN", with(4, 0x80), true, false, false, ICRCRight},
	} {
		packet := gopacket.NewPacket(test.frame, golayers.LayerTypeEthernet, gopacket.Default)
		got, ok := packet.Layer(LayerTypeRoCE).(*RoCE)
		if ok == test.failed || packet.Metadata().Truncated != test.truncated {
			t.Errorf("%s: decoded %v", test.why, packet)
		}
		if ok && (got.Valid != test.valid || got.State != test.state || got.BTH.DestQP != 17) {
			t.Errorf("%s: decoded %+v", test.why, got)
		}
	}
	alone := gopacket.NewPacket(write[at:], LayerTypeRoCE, gopacket.Default)
	if got, ok := alone.Layer(LayerTypeRoCE).(*RoCE); !ok || !got.Valid || got.State != ICRCUnknown {
		t.Errorf("without headers: %v", alone)
	}
	b := gopacket.NewSerializeBuffer()
	for why, layer := range map[string]*RoCE{
		"another version": {Version: 1},
		"no opcode":       {Fields: infiniband.Fields{BTH: infiniband.BTHFields{Opcode: 0xFF}}},
		"a payload behind it": {Fields: infiniband.Fields{
			BTH: infiniband.BTHFields{Opcode: infiniband.Acknowledge}}},
	} {
		if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{}, layer,
			gopacket.Payload("four")); err == nil {
			t.Errorf("%s: wrote % x", why, b.Bytes())
		}
	}
	for why, layer := range map[string]*MAD{
		"another message": {MADFields: infiniband.MADFields{Attribute: infiniband.AttributeREQ},
			REP: &infiniband.REPFields{}},
		"no message": {},
	} {
		if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{}, layer); err == nil {
			t.Errorf("%s: wrote % x", why, b.Bytes())
		}
	}
}

// roceFrame is a frame over a version of IP, as rdma_rxe sends it: without a
// checksum of UDP. The payload may be a layer.
func roceFrame(t testing.TB, version int, f *infiniband.Fields, payload []byte) []byte {
	t.Helper()
	ethernet := &golayers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: golayers.EthernetTypeIPv4}
	var ip gopacket.SerializableLayer = &golayers.IPv4{
		Version:  4,
		TTL:      64,
		Id:       0x1234,
		Flags:    golayers.IPv4DontFragment,
		Protocol: golayers.IPProtocolUDP,
		SrcIP:    net.IP{10, 0, 0, 1},
		DstIP:    net.IP{10, 0, 0, 2},
	}
	if version == 6 {
		ethernet.EthernetType = golayers.EthernetTypeIPv6
		ip = &golayers.IPv6{Version: 6, HopLimit: 64, NextHeader: golayers.IPProtocolUDP,
			SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2")}
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, ethernet, ip,
		&golayers.UDP{SrcPort: 0xC001, DstPort: infiniband.Port},
		&RoCE{Fields: *f}, gopacket.Payload(payload))
	if err != nil {
		t.Fatal(err)
	}
	frame := b.Bytes()
	at := 14 + headersOf(frame[14:])
	if version == 4 {
		wire.IPv4(frame[14:]).FillChecksum()
	}
	infiniband.Packet(frame[at:]).Seal(frame[14:at])
	return frame
}

// Wireshark reads every field of our packets as it was written, and finds none
// malformed. It shows the ICRC and does not verify it, and knows no CNP.
func TestTsharkReadsRoCE(t *testing.T) {
	names := strings.Fields(
		`ip.version infiniband.bth.opcode infiniband.bth.se infiniband.bth.m infiniband.bth.padcnt infiniband.bth.tver infiniband.bth.p_key
		infiniband.bth.destqp infiniband.bth.a infiniband.bth.psn infiniband.reth.va infiniband.reth.r_key infiniband.reth.dmalen
		infiniband.atomiceth.swapdt infiniband.atomiceth.cmpdt
		infiniband.aeth.syndrome infiniband.aeth.msn infiniband.atomicacketh.origremdt infiniband.immdt infiniband.ieth
		infiniband.deth.q_key infiniband.deth.srcqp infiniband.invariant.crc _ws.malformed`)
	var frames [][]byte
	var want []string
	for _, ip := range roceVectors(t) {
		p := infiniband.Packet(ip[headersOf(ip):])
		f := p.Fields()
		if f.BTH.Opcode == infiniband.CNP {
			continue
		}
		// Wireshark guesses at a payload by its first bytes, which have to be there, and by
		// the queue pair.
		f.BTH.DestQP |= 2
		payload := bytes.Repeat([]byte{0xA5}, 64+len(p.Payload()))
		if !f.BTH.Opcode.HasPayload() {
			payload = nil
		}
		frame := roceFrame(t, int(ip[0]>>4), &f, payload)
		frames = append(frames, frame)
		want = append(want, tsharkLine(frame, &f))
	}
	got := strings.Split(strings.TrimSuffix(tshark(t, frames, names...), "\n"), "\n")
	if len(got) != len(want) {
		t.Fatalf("tshark printed %d lines for %d frames", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("tshark says\n%s, want\n%s of % x", got[i], want[i], frames[i])
		}
	}
}

// tsharkLine returns tshark's output for a frame with these fields.
func tsharkLine(frame []byte, f *infiniband.Fields) string {
	o := f.BTH.Opcode
	bit := func(set bool) int {
		if set {
			return 1
		}
		return 0
	}
	when := func(header infiniband.Header, format string, values ...any) string {
		if o.Has(header) {
			return fmt.Sprintf(format, values...)
		}
		return strings.Repeat("|", len(values)-1)
	}
	// Wireshark calls the address and the key of both headers by the names of RETH's.
	memory := "||"
	switch {
	case o.Has(infiniband.HasRETH):
		memory = fmt.Sprintf("0x%016x|0x%08x|%d", f.RETH.VA, f.RETH.RKey, f.RETH.Length)
	case o.Has(infiniband.HasAtomicETH):
		memory = fmt.Sprintf("0x%016x|0x%08x|", f.AtomicETH.VA, f.AtomicETH.RKey)
	}
	return strings.Join([]string{
		fmt.Sprintf("%d|%d|%d|%d|%d|0|%d|0x%06x|%d|%d", frame[14]>>4, o, bit(f.BTH.Solicited),
			bit(f.BTH.MigReq), f.BTH.Pad, f.BTH.PKey, f.BTH.DestQP, bit(f.BTH.AckReq), f.BTH.PSN),
		memory,
		when(infiniband.HasAtomicETH, "%d|%d", f.AtomicETH.SwapAdd, f.AtomicETH.Compare),
		when(infiniband.HasAETH, "%d|%d", f.AETH.Syndrome, f.AETH.MSN),
		when(infiniband.HasAtomicAckETH, "%d", f.Original),
		when(infiniband.HasImmDt, "%08[1]x,%08[1]x", f.Imm),
		when(infiniband.HasIETH, "%08[1]x,%08[1]x", f.Invalidate),
		when(infiniband.HasDETH, "0x%016x|0x%08x", f.DETH.QKey, f.DETH.SrcQP),
		fmt.Sprintf("%#08x", uint32(frame[len(frame)-4])<<24|uint32(frame[len(frame)-3])<<16|uint32(
			frame[len(frame)-2])<<8|uint32(frame[len(frame)-1])),
		"",
	}, "|")
}
