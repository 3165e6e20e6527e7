package layers

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/wire"
	"railbed/testkit/protocoltest"
)

// between returns a frame with a datagram between two ports.
func between(t *testing.T, from, to uint16, payload []byte) captured {
	t.Helper()
	ip := &golayers.IPv4{Version: 4, TTL: 64, Protocol: golayers.IPProtocolUDP, SrcIP: []byte{10, 0, 0, 1},
		DstIP: []byte{10, 0, 0, 2}}
	udp := &golayers.UDP{SrcPort: golayers.UDPPort(from), DstPort: golayers.UDPPort(to)}
	err := udp.SetNetworkLayerForChecksum(ip)
	b := gopacket.NewSerializeBuffer()
	if err == nil {
		err = gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			&golayers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2},
				EthernetType: golayers.EthernetTypeIPv4}, ip, udp, gopacket.Payload(payload))
	}
	if err != nil {
		t.Fatal(err)
	}
	return captured{b.Bytes(), len(b.Bytes())}
}

// TestAggregationInWireshark shows what people see of the specification's examples, and of messages that
// contradict the specification. The numbers come from the specification's text.
func TestAggregationInWireshark(t *testing.T) {
	var frames []captured
	for _, name := range []string{"update", "partial", "max"} {
		frames = append(frames, between(t, 40000, wire.PortAggregation,
			protocoltest.Example(t, "aggregation-"+name)))
	}
	for _, name := range []string{"result", "reject"} {
		frames = append(frames, between(t, wire.PortAggregation, 40000,
			protocoltest.Example(t, "aggregation-"+name)))
	}
	for _, wrong := range []func(m wire.Aggregation) wire.Aggregation{
		func(m wire.Aggregation) wire.Aggregation { m[0] = 0x21; return m },
		func(m wire.Aggregation) wire.Aggregation { m[1] = 0x00; return m },
		func(m wire.Aggregation) wire.Aggregation { m[1] = 0x09; return m },
		func(m wire.Aggregation) wire.Aggregation { m[2] = 0x12; return m },
		func(m wire.Aggregation) wire.Aggregation { m[10] = 4; return m },
		func(m wire.Aggregation) wire.Aggregation { m[31] = 0x12; return m },
		func(m wire.Aggregation) wire.Aggregation { m[31] = 0x04; return m },
		func(m wire.Aggregation) wire.Aggregation { m[3] = 1; return m },
		func(m wire.Aggregation) wire.Aggregation { return slices.Clip(m[:len(m)-1]) },
		func(m wire.Aggregation) wire.Aggregation { m[0] = 0x37; return m },
	} {
		message := wrong(protocoltest.Example(t, "aggregation-update"))
		if message.Valid() {
			t.Fatalf("% x is valid", message)
		}
		frames = append(frames, between(t, 40000, wire.PortAggregation, message))
	}
	frames = append(frames, between(t, 40000, wire.PortAggregation,
		protocoltest.Example(t, "aggregation-update")[:35]))
	const update = "UPDATE job=5 epoch=2 slot=3 round=7 worker=1/4 sum of fixed 4@1024"
	want := `AGG|` + update + `|1|-20|-19|0x0000000000000002
AGG|PARTIAL job=5 epoch=2 slot=3 round=7 worker=1/4 sum of fixed 4@1024|4|-20|-18|0x000000000000000a
AGG|UPDATE job=5 epoch=2 slot=4 round=8 worker=2/4 max of bfloat16 4@2048|1|0|0|0x0000000000000004
AGG|RESULT job=5 epoch=2 slot=3 round=7 worker=1/4 sum of fixed 4@1024|2|-20|-18|0x000000000000000f
AGG|REJECT job=5 epoch=4 slot=3 round=7 worker=1/4 epoch-old|3|0|0|0x0000000000000000
AGG|UPDATE job=5 epoch=2 slot=3 round=7 [version 2]|1|||
AGG|` + update + ` [the set is not the round's]|1|-20|-19|0x0000000000000002
AGG|` + update + ` [unknown flags]|1|-20|-19|0x0000000000000002
AGG|UPDATE job=5 epoch=2 slot=3 round=7 worker=1/4 max of fixed 4@1024 [unknown type or operation]|1|-20|-19|0x0000000000000002
AGG|UPDATE job=5 epoch=2 slot=3 round=7 worker=4/4 sum of fixed 4@1024 [worker out of range]|1|-20|-19|0x0000000000000002
AGG|` + update + ` [bitmap out of range]|1|-20|-19|0x0000000000000012
AGG|` + update + ` [bitmap does not fit the kind]|1|-20|-19|0x0000000000000004
AGG|` + update + ` [elements or code do not fit the kind]|1|-20|-19|0x0000000000000002
AGG|` + update + ` [length is not that of the elements]|1|-20|-19|0x0000000000000002
AGG|kind 7 job=5 epoch=2 slot=3 round=7 worker=1/4 sum of fixed 4@1024 [unknown kind]|7|-20|-19|0x0000000000000002
UDP|40000 → 61442 Len=35||||`
	got := strings.Join(dissect(t, frames, "_ws.col.Protocol", "_ws.col.Info", "railbed_agg.kind",
		"railbed_agg.scale", "railbed_agg.next_scale", "railbed_agg.bitmap"), "\n")
	if got != want {
		t.Errorf("tshark says\n%s\nwant\n%s", got, want)
	}
}

// aggregationColumns are the fields and findings of the dissector, and their values in package wire. Those
// from "flags" on exist only in messages of the version that package wire reads.
var aggregationColumns = []struct {
	field string
	of    func(a wire.Aggregation) any
}{
	{"version", func(a wire.Aggregation) any { return a.Version() }},
	{"kind", func(a wire.Aggregation) any { return uint8(a.Kind()) }},
	{"code", func(a wire.Aggregation) any { return uint8(a.Code()) }},
	{"job", func(a wire.Aggregation) any { return a.Job() }},
	{"epoch", func(a wire.Aggregation) any { return a.Epoch() }},
	{"slot", func(a wire.Aggregation) any { return a.Slot() }},
	{"worker", func(a wire.Aggregation) any { return a.Worker() }},
	{"key", func(a wire.Aggregation) any { return fmt.Sprintf("0x%08x", a.Key()) }},
	{"round", func(a wire.Aggregation) any { return a.Round() }},
	{"flags", func(a wire.Aggregation) any { return fmt.Sprintf("0x%02x", a.Flags()) }},
	{"flags.saturated", func(a wire.Aggregation) any { return a.Flags() >> 2 & 1 }},
	{"flags.repeat", func(a wire.Aggregation) any { return a.Flags() >> 1 & 1 }},
	{"flags.set", func(a wire.Aggregation) any { return a.Set() }},
	{"op", func(a wire.Aggregation) any { return uint8(a.Op()) }},
	{"type", func(a wire.Aggregation) any { return uint8(a.Type()) }},
	{"fan_in", func(a wire.Aggregation) any { return a.FanIn() }},
	{"offset", func(a wire.Aggregation) any { return a.Offset() }},
	{"bitmap", func(a wire.Aggregation) any { return fmt.Sprintf("0x%016x", a.Bitmap()) }},
	{"elements", func(a wire.Aggregation) any { return a.Elements() }},
	{"scale", func(a wire.Aggregation) any { return a.Scale() }},
	{"next_scale", func(a wire.Aggregation) any { return a.NextScale() }},
	{"data", func(a wire.Aggregation) any { return hex.EncodeToString(a.Data()) }},
	{"invalid", func(a wire.Aggregation) any { return found(!a.Valid()) }},
	{"saturated", func(a wire.Aggregation) any { return found(a.Flags()>>2&1 == 1) }},
	{"repeated", func(a wire.Aggregation) any { return found(a.Flags()>>1&1 == 1) }},
	{"rejected", func(a wire.Aggregation) any { return found(a.Kind() == wire.AggregationReject) }},
	{"version.unknown", func(a wire.Aggregation) any {
		return found(a.Version() != wire.AggregationVersion)
	}},
}

func found(there bool) string {
	if there {
		return "1"
	}
	return ""
}

// drawAggregation draws a message. Some have a bit changed or lack a byte, and most of these are invalid.
func drawAggregation(draw *rand.Rand) wire.Aggregation {
	f := wire.AggregationFields{Kind: wire.AggregationKind(1 + draw.IntN(4)),
		Type:  wire.AggregationType(1 + draw.IntN(5)),
		Flags: uint8(draw.IntN(8)), Job: uint16(draw.Uint32()), Epoch: uint16(draw.Uint32()),
		Slot: uint16(draw.Uint32()), FanIn: uint8(1 + draw.IntN(wire.AggregationMaxFanIn)),
		Key:    draw.Uint32(),
		Offset: draw.Uint32(), Elements: uint16(1 + draw.IntN(20)), Scale: int8(draw.Uint32()),
		NextScale: int8(draw.Uint32())}
	f.Round = draw.Uint32()&^1 | uint32(f.Flags&1)
	f.Worker = uint8(draw.IntN(int(f.FanIn)))
	if f.Type != wire.AggregationFixed {
		f.Op = wire.AggregationOp(draw.IntN(3))
	}
	all := ^uint64(0) >> (64 - f.FanIn)
	f.Bitmap = draw.Uint64() & all
	switch f.Kind {
	case wire.AggregationUpdate:
		f.Bitmap = 1 << f.Worker
	case wire.AggregationPartial:
		f.Bitmap = f.Bitmap>>f.Worker<<f.Worker | 1<<f.Worker
	case wire.AggregationResult:
		f.Bitmap |= 1 << f.Worker
	case wire.AggregationReject:
		f.Elements, f.Code = 0, wire.AggregationCode(1+draw.IntN(wire.AggregationCodes-1))
	}
	m := make(wire.Aggregation, wire.AggregationMessageLen(f.Type, int(f.Elements)))
	m.Encode(&f)
	for i := range m.Data() {
		m.Data()[i] = uint8(draw.Uint32())
	}
	switch draw.IntN(4) {
	case 0:
		m[draw.IntN(wire.AggregationLen)] ^= 1 << draw.IntN(8)
	case 1:
		if len(m) > wire.AggregationLen {
			m = slices.Clip(m[:len(m)-1])
		}
	}
	return m
}

// TestAggregationAgreesWithTheLayers compares Wireshark with the dissector, and package wire, which share
// no code, over messages of all kinds, whole and damaged. Every field of the dissector is compared.
func TestAggregationAgreesWithTheLayers(t *testing.T) {
	const seed = 20261125
	draw := rand.New(rand.NewPCG(seed, 1))
	var frames []captured
	var messages []wire.Aggregation
	var names []string
	for range 1500 {
		m := drawAggregation(draw)
		messages = append(messages, m)
		frames = append(frames, between(t, 40000, wire.PortAggregation, m))
	}
	compared, values := map[string]bool{}, map[string]map[string]bool{}
	for _, c := range aggregationColumns {
		names = append(names, "railbed_agg."+c.field)
		compared[c.field], values[c.field] = true, map[string]bool{}
	}
	form := regexp.MustCompile(`"railbed_agg\.([a-z_.]+)"`)
	for _, field := range form.FindAllStringSubmatch(string(aggregationLua), -1) {
		if !compared[field[1]] {
			t.Errorf("%s is not compared", field[1])
		}
	}
	for i, line := range dissect(t, frames, names...) {
		got := strings.Split(strings.NewReplacer("True", "1", "False", "0").Replace(line), "|")
		for n, c := range aggregationColumns {
			want := fmt.Sprint(c.of(messages[i]))
			foreign := messages[i].Version() != wire.AggregationVersion
			if foreign && n > 8 && c.field != "version.unknown" {
				want = ""
			}
			if values[c.field][want] = true; got[n] != want {
				t.Errorf("message %d of seed %d: %s is %q, package wire says %q; % x", i, seed, c.field,
					got[n], want, []byte(messages[i]))
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	for field, seen := range values {
		if len(seen) < 2 {
			t.Errorf("%s has one value in all messages", field)
		}
	}
}

// TestGFCInWireshark shows the specification's example, a frame of stages, and frames of MAC control that
// stay what Wireshark makes of them.
func TestGFCInWireshark(t *testing.T) {
	example := protocoltest.Example(t, "gentle-flow-control")
	stages := append([]byte(nil), example...)
	stages[5], stages[7] = 0, 0x81
	stages[9], stages[23] = 2, 3
	foreign := append([]byte(nil), example...)
	foreign[2] = 2
	var frames []captured
	for _, control := range [][]byte{example, stages, foreign, {1, 1, 0, 8, 0, 0, 0, 0, 0, 0, 255, 255}} {
		f := append([]byte{1, 0x80, 0xC2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 0x08}, control...)
		f = append(f, make([]byte, 60-len(f))...)
		frames = append(frames, captured{f, len(f)})
	}
	got := dissect(t, frames, "_ws.col.Protocol", "macc.opcode", "_ws.col.Info", "railbed_gfc.kind",
		"railbed_gfc.priority", "railbed_gfc.value")
	for i, want := range []string{"GFC|0xfffe|GFC 3=50 % 4=0.001526 %|1|3,4|32768,1",
		"GFC|0xfffe|GFC 0=25 % 7=12.5 %|0|0,7|2,3", "MAC CTRL|0xfffe|", "MAC CTRL|0x0101|"} {
		foreign := strings.HasSuffix(want, "|")
		if !strings.HasPrefix(got[i], want) || foreign != strings.HasSuffix(got[i], "|||") {
			t.Errorf("frame %d: tshark says %s, want %s", i, got[i], want)
		}
	}
}
