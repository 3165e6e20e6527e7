package layers

import (
	"bytes"
	"encoding/hex"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"railbed/internal/wire"
	"railbed/testkit/hosttest"
	"railbed/testkit/protocoltest"
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

// datagram is a frame with a UDP datagram to a port.
func datagram(t testing.TB, port golayers.UDPPort, payload []byte) []byte {
	ip := &golayers.IPv4{Version: 4, TTL: 64, Protocol: golayers.IPProtocolUDP, SrcIP: net.IP{10, 0, 0, 1},
		DstIP: net.IP{10, 0, 0, 2}}
	udp := &golayers.UDP{SrcPort: 50000, DstPort: port}
	udp.SetNetworkLayerForChecksum(ip)
	ethernet := &golayers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: golayers.EthernetTypeIPv4}
	return build(t, ethernet, ip, udp, gopacket.Payload(payload))
}

// tshark prints fields of frames as Wireshark understands them.
func tshark(t *testing.T, frames [][]byte, fields ...string) string {
	t.Helper()
	hosttest.Need(t, hosttest.Tshark)
	name := filepath.Join(t.TempDir(), "x.pcap")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w := pcapgo.NewWriter(file)
	err = w.WriteFileHeader(65535, golayers.LinkTypeEthernet)
	for _, frame := range frames {
		if err == nil {
			err = w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(frame), Length: len(frame)}, frame)
		}
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-n", "-r", name, "-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T",
		"fields", "-E", "separator=|"}
	for _, field := range fields {
		args = append(args, "-e", field)
	}
	out, err := exec.Command("tshark", args...).Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	return string(out)
}

// The frame that NXP's example for the AIOP of its DPAA2 network processors
// sends (eth_pfc_pause_pkt).
const pfcFrame = `01 80 c2 00 00 01 00 00 00 00 00 07 88 08 01 01 00 ff 08 07 06 05 04 03 02 01 00 00 00 00 00 00
	00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00`

func TestMACControl(t *testing.T) {
	frame := unhex(t, pfcFrame)
	packet := gopacket.NewPacket(frame, golayers.LayerTypeEthernet, gopacket.Default)
	got, ok := packet.Layer(LayerTypeMACControl).(*MACControl)
	if !ok || packet.ErrorLayer() != nil || len(packet.Layers()) != 2 {
		t.Fatalf("decoded %v", packet)
	}
	want := wire.PFCFields{Enable: 0xff, Quanta: [8]uint16{0x0807, 0x0605, 0x0403, 0x0201}}
	if got.Opcode != wire.OpcodePFC || got.PFC != want || len(got.Contents) != 20 || got.Payload != nil {
		t.Errorf("decoded %+v", got)
	}
	if made := build(t, packet.Layers()[0].(*golayers.Ethernet), got); !bytes.Equal(made[:34], frame[:34]) {
		t.Errorf("wrote % x", made)
	}

	pause := unhex(t, "0180c2000001 000000000007 8808 0001 1234")
	packet = gopacket.NewPacket(append(pause, make([]byte, 42)...), golayers.LayerTypeEthernet,
		gopacket.Default)
	if got, ok = packet.Layer(LayerTypeMACControl).(*MACControl); !ok || got.PauseQuanta != 0x1234 ||
		got.Opcode != wire.OpcodePause {
		t.Errorf("decoded %v", packet)
	}
	if made := build(t, packet.Layers()[0].(*golayers.Ethernet), got); !bytes.Equal(made[:18], pause) {
		t.Errorf("wrote % x", made)
	}
	gentle := append(unhex(t, "0180c2000001 000000000007 8808"),
		protocoltest.Example(t, "gentle-flow-control")...)
	packet = gopacket.NewPacket(append(gentle, make([]byte, 22)...), golayers.LayerTypeEthernet,
		gopacket.Default)
	wantGFC := wire.GFCFields{Enable: 0b11000, Share: true, Values: [8]uint16{3: 0x8000, 4: 1}}
	if got, ok = packet.Layer(LayerTypeMACControl).(*MACControl); !ok || got.Opcode != wire.OpcodeExtension ||
		got.GFC != wantGFC || len(got.Contents) != wire.GFCLen {
		t.Errorf("decoded %v", packet)
	}
	if made := build(t, packet.Layers()[0].(*golayers.Ethernet), got); !bytes.Equal(made[:len(gentle)],
		gentle) {
		t.Errorf("wrote % x", made)
	}
	other := gopacket.NewPacket(unhex(t, "0180c2000001 000000000007 8808 fffe 001122 33445566"),
		golayers.LayerTypeEthernet, gopacket.Default)
	if got, ok = other.Layer(LayerTypeMACControl).(*MACControl); !ok ||
		got.Identifier != [3]byte{0, 0x11, 0x22} || got.GFC != (wire.GFCFields{}) || len(got.Contents) != 5 {
		t.Errorf("decoded %v", other)
	}

	cut := gopacket.NewPacket(frame[:33], golayers.LayerTypeEthernet, gopacket.Default)
	if cut.ErrorLayer() == nil || !cut.Metadata().Truncated {
		t.Errorf("33 bytes are %v", cut)
	}
}

// Wireshark shows what our switch sends: each priority with a time of its own,
// one priority alone, and the end of a pause.
func TestTsharkShowsPFC(t *testing.T) {
	src := wire.MAC{2, 0, 0, 0, 0, 1}
	var frames [][]byte
	for _, fields := range []wire.PFCFields{
		{Enable: 0b10010110, Quanta: [8]uint16{100, 101, 102, 103, 104, 105, 106, 107}},
		{Enable: 1 << 3, Quanta: [8]uint16{3: wire.MaxQuanta}},
		{Enable: 1 << 3},
	} {
		frame := make([]byte, wire.EthernetMinLen)
		wire.EncodePFCFrame(frame, src, &fields)
		frames = append(frames, frame)
	}
	fields := []string{"eth.dst", "eth.src", "macc.opcode", "macc.cbfc.enbv", "_ws.expert"}
	for _, c := range "01234567" {
		fields = append(fields, "macc.cbfc.enbv.c"+string(c), "macc.cbfc.pause_time.c"+string(c))
	}
	want := `01:80:c2:00:00:01|02:00:00:00:00:01|0x0101|0x0096||0|0|1|101|1|102|0|0|1|104|0|0|0|0|1|107
01:80:c2:00:00:01|02:00:00:00:00:01|0x0101|0x0008||0|0|0|0|0|0|1|65535|0|0|0|0|0|0|0|0
01:80:c2:00:00:01|02:00:00:00:00:01|0x0101|0x0008||0|0|0|0|0|0|1|0|0|0|0|0|0|0|0|0
`
	if got := tshark(t, frames, fields...); got != want {
		t.Errorf("tshark says\n%swant\n%s", got, want)
	}
}

func TestINT(t *testing.T) {
	payload := protocoltest.Example(t, "int-probe")
	packet := gopacket.NewPacket(datagram(t, wire.PortINT, payload), golayers.LayerTypeEthernet,
		gopacket.Default)
	got, ok := packet.Layer(LayerTypeINT).(*INT)
	if !ok || packet.ErrorLayer() != nil {
		t.Fatalf("decoded %v", packet)
	}
	want := &INT{
		BaseLayer:    golayers.BaseLayer{Contents: payload[:88], Payload: payload[88:]},
		NextPort:     wire.PortINT,
		Discard:      true,
		Instructions: wire.INTStandard,
		Remaining:    1,
		Domain:       wire.INTDomain,
		Hops: []wire.INTHop{
			{Known: wire.INTStandard, Node: 1, Ingress: 3, Egress: 17, Queue: 3, EgressTime: 2_000_000,
				Utilisation: 250_000},
			{Known: wire.INTStandard, Node: 9, Ingress: 1, Egress: 2, Queue: 3, QueueBytes: 40320,
				EgressTime: 2_031_480, Utilisation: 990_000},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decoded\n%+v, want\n%+v", got, want)
	}
	probe := wire.INTProbe(packet.ApplicationLayer().Payload())
	if !probe.Valid() || probe.Seq() != 7 || probe.Sent() != 1_990_000 {
		t.Errorf("probe % x", []byte(probe))
	}
	if made := build(t, got, gopacket.Payload(payload[88:])); !bytes.Equal(made, payload) {
		t.Errorf("wrote % x", made)
	}
	cut := gopacket.NewPacket(payload[:87], LayerTypeINT, gopacket.Default)
	if cut.ErrorLayer() == nil || !cut.Metadata().Truncated {
		t.Errorf("87 bytes are %v", cut)
	}
}

// The example "INT-MD in-between UDP header and UDP payload" of the INT Dataplane Specification
// v2.1, with numbers for its words. DNS follows, as the port in the shim header says.
func TestINTOfTheSpecification(t *testing.T) {
	block := unhex(t, `1407 0035 2000 0206 9000 0000 0000 0000 0000 0002 0300 1000 0000 0001 0100 0020`)
	// The header of a query and no question.
	packet := gopacket.NewPacket(datagram(t, wire.PortINT,
		append(block, unhex(t, "5241 0100 0000 0000 0000 0000")...)), golayers.LayerTypeEthernet,
		gopacket.Default)
	got, ok := packet.Layer(LayerTypeINT).(*INT)
	if !ok || len(got.Hops) != 2 || got.Hops[0].Node != 1 || got.Hops[1].QueueBytes != 4096 ||
		got.Remaining != 6 {
		t.Fatalf("decoded %v", packet)
	}
	if dns, ok := packet.Layer(golayers.LayerTypeDNS).(*golayers.DNS); !ok || dns.ID != 0x5241 {
		t.Errorf("decoded %v", packet)
	}
	b := gopacket.NewSerializeBuffer()
	if err := got.SerializeTo(b, gopacket.SerializeOptions{}); err == nil ||
		!strings.Contains(err.Error(), "domain 0x0000") {
		t.Errorf("wrote a block of another domain: %v", err)
	}
}

func TestAggregation(t *testing.T) {
	payload := protocoltest.Example(t, "aggregation-result")
	packet := gopacket.NewPacket(datagram(t, wire.PortAggregation, payload), golayers.LayerTypeEthernet,
		gopacket.Default)
	got, ok := packet.Layer(LayerTypeAggregation).(*Aggregation)
	if !ok || packet.ErrorLayer() != nil || packet.Metadata().Truncated {
		t.Fatalf("decoded %v", packet)
	}
	want := wire.AggregationFields{
		Kind:      wire.AggregationResult,
		Flags:     wire.AggregationSet | wire.AggregationSaturated,
		Type:      wire.AggregationFixed,
		Job:       5,
		Epoch:     2,
		Slot:      3,
		Worker:    1,
		FanIn:     4,
		Key:       0xc0ffee42,
		Round:     7,
		Offset:    1024,
		Bitmap:    0b1111,
		Elements:  4,
		Scale:     -20,
		NextScale: -18,
	}
	if got.AggregationFields != want || !bytes.Equal(got.Payload, payload[36:]) {
		t.Errorf("decoded %+v", got)
	}
	if made := build(t, got, gopacket.Payload(got.Payload)); !bytes.Equal(made, payload) {
		t.Errorf("wrote % x", made)
	}
	b := gopacket.NewSerializeBuffer()
	if err := got.SerializeTo(b, gopacket.SerializeOptions{}); err == nil {
		t.Error("wrote a result without elements")
	}
	// A capture keeps the header and two elements.
	cut := gopacket.NewPacket(payload[:44], LayerTypeAggregation, gopacket.Default)
	if got, ok = cut.Layer(LayerTypeAggregation).(*Aggregation); !ok || !cut.Metadata().Truncated ||
		len(got.Payload) != 8 {
		t.Errorf("44 bytes are %v", cut)
	}
	for _, bad := range [][]byte{payload[:35], append(bytes.Clone(payload), 0, 0, 0, 0),
		append([]byte{0x12}, payload[1:]...)} {
		if p := gopacket.NewPacket(bad, LayerTypeAggregation, gopacket.Default); p.ErrorLayer() == nil {
			t.Errorf("% x is %v", bad, p)
		}
	}
}

// Wireshark finds the checksums right after everything that a switch changes,
// and wrong when the switch does not update them.
func TestTsharkChecksumsOfARewrittenPacket(t *testing.T) {
	frame := datagram(t, wire.PortINT, protocoltest.Example(t, "int-probe"))
	frames := [][]byte{bytes.Clone(frame)}
	h := wire.Parse(frame)
	block, ok := wire.FindINT(frame, &h)
	if !ok {
		t.Fatalf("no block in %+v", h)
	}
	ip := wire.IPv4(frame[h.L3:])
	ip.DecrementTTL()
	ip.RewriteECN(wire.CE)
	delta, _ := block.Push(&wire.INTHop{Known: wire.INTStandard, Node: 4, Ingress: 5, Egress: 6,
		EgressTime: 2_062_960})
	frames = append(frames, bytes.Clone(frame))
	wire.UDP(frame[h.L4:]).AdjustChecksum(delta)
	ip.RewriteDSCP(46)
	frames = append(frames, bytes.Clone(frame))
	want := `64|0|0|1|1
63|0|3|1|0
63|46|3|1|1
`
	if got := tshark(t, frames, "ip.ttl", "ip.dsfield.dscp", "ip.dsfield.ecn", "ip.checksum.status",
		"udp.checksum.status"); got != want {
		t.Errorf("tshark says\n%swant\n%s", got, want)
	}
}

// FuzzLayers gives any bytes to each layer, and writes again what was read.
func FuzzLayers(f *testing.F) {
	f.Add(unhex(f, pfcFrame)[14:])
	for _, name := range []string{"int-probe", "aggregation-update", "aggregation-partial",
		"aggregation-result", "aggregation-reject", "aggregation-max"} {
		f.Add(protocoltest.Example(f, name))
	}
	for _, name := range rdExampleNames {
		f.Add(protocoltest.Example(f, name))
	}
	for _, ip := range roceVectors(f) {
		f.Add(ip[headersOf(ip):])
	}
	for _, sample := range madSamples() {
		f.Add(build(f, &sample.mad))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range []gopacket.LayerType{LayerTypeMACControl, LayerTypeINT, LayerTypeAggregation,
			LayerTypeRD, LayerTypeRoCE, LayerTypeMAD} {
			layer, ok := gopacket.NewPacket(data, kind,
				gopacket.DecodeOptions{NoCopy: true}).Layer(kind).(gopacket.SerializableLayer)
			if !ok {
				continue
			}
			b := gopacket.NewSerializeBuffer()
			if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{}, layer); err != nil {
				continue
			}
			if again := gopacket.NewPacket(b.Bytes(), kind,
				gopacket.DecodeOptions{}); again.Layer(kind) == nil {
				t.Fatalf("%v wrote % x, which it does not read", kind, b.Bytes())
			}
		}
	})
}
