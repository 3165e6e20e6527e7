package layers

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/wire"
	"railbed/testkit/protocoltest"
)

// TestDissectorInfo shows what people see of the document's examples.
func TestDissectorInfo(t *testing.T) {
	var frames []captured
	add := func(payload []byte) {
		f := datagram(t, wire.PortRD+3, payload)
		frames = append(frames, captured{f, len(f)})
	}
	for _, name := range rdExampleNames {
		add(protocoltest.Example(t, name))
	}
	data := protocoltest.Example(t, "rd-data")
	add(data[:70])
	data[79]++
	add(data)
	data[40]++
	add(data)
	data[1] |= wire.RDEncrypted
	add(data)
	add(protocoltest.Example(t, "rd-sealed"))
	add(protocoltest.Example(t, "rd-readable"))
	add(protocoltest.Example(t, "rd-readable")[:64])
	data[0] = 0xA1
	add(data)
	add(data[:23])
	add(protocoltest.Example(t, "int-probe"))
	want := `RD|DATA psn=5 msg=3 16@12288/12304 key=0x1122334455667788+65536 imm=0xcafe0001 RTX ACKREQ
RD|SKIP psn=4294967294 count=1 msg=7 without 4000@8000/65536 DROPPABLE ACKREQ
RD|ACK psn=4294967294 came=4294967295,1,62,64 limit=1022 room=256 marked=3/267
RD|NACK psn=5 bounds msg=3 path=63489 region=70000
RD|PROBE psn=9 ACKREQ
RD|REJECT psn=0 life versions=1-1 meant=0x5eedb00c to=0x0123456789abcdef
RD|CLOSE psn=9
RD|DATA psn=5 msg=3 16@12288/12304 key=0x1122334455667788+65536 imm=0xcafe0001 RTX ACKREQ [trimmed]
RD|DATA psn=5 msg=3 16@12288/12304 key=0x1122334455667788+65536 imm=0xcafe0001 RTX ACKREQ [wrong sum]
RD|DATA psn=5 msg=16777219 16@12288/12304 key=0x1122334455667788+65536 imm=0xcafe0001 RTX ACKREQ [wrong sum] [wrong check]
RD|DATA psn=5 epoch=13124 counter=6153737366847619072 msg=3405643777 16@3695420152/123456789 key=0x0001000001000003+52845277622272 imm=0xa0a1a2a3 RTX ACKREQ [encrypted] [trimmed] [wrong check]
RD|DATA psn=5 epoch=2 counter=7 [encrypted]
RD|DATA psn=5 epoch=2 counter=8 msg=3 16@12288/12304 key=0x1122334455667788+65536 imm=0xcafe0001 RTX ACKREQ [encrypted]
RD|DATA psn=5 epoch=2 counter=8 [encrypted] [trimmed]
RD|DATA psn=5 [version 2]
RD|[no base]
INT|probe, INT hops=2`
	if got := strings.Join(dissect(t, frames, "_ws.col.Protocol", "_ws.col.Info"), "\n"); got != want {
		t.Errorf("tshark says\n%s\nwant\n%s", got, want)
	}
}

// column is a field of the dissector and what our layers say it is.
type column struct {
	field string
	of    func(*layered) []string
}

// layered is a frame as our layers read it.
type layered struct {
	captured
	udp       *golayers.UDP
	telemetry *INT
	rd        *RD
}

// cut reports whether the capture does not have all of the frame.
func (l *layered) cut() bool { return len(l.frame) < l.length }

// sent is the length of the datagram behind its telemetry as it was sent.
func (l *layered) sent() int {
	n := int(l.udp.Length) - 8
	if l.telemetry != nil {
		n -= len(l.telemetry.Contents)
	}
	return n
}

// checked is the status of the check as the dissector numbers it.
func (l *layered) checked() int {
	whole := append(append([]byte(nil), l.rd.Contents...), l.rd.Payload...)
	if !l.rd.Whole && !l.encrypted() {
		return 2
	}
	header := whole[:len(l.rd.Contents)]
	if l.encrypted() {
		header = whole[:wire.RDBaseLen]
	}
	header[22], header[23] = 0, 0
	if uint16(crc32.Checksum(header, crc32.MakeTable(crc32.Castagnoli))) == l.rd.Check {
		return 1
	}
	return 0
}

func texts[T any](format string, values ...T) []string {
	var out []string
	for _, v := range values {
		out = append(out, fmt.Sprintf(format, v))
	}
	return out
}

func flag(set bool) []string {
	if set {
		return []string{"1"}
	}
	return []string{"0"}
}

// rdColumn is a field of every datagram that has a base.
func rdColumn(field, format string, of func(*RD) any) column {
	return column{"rd." + field, func(l *layered) []string {
		if l.rd == nil {
			return nil
		}
		return texts(format, of(l.rd))
	}}
}

// typeColumn is a field of one type.
func typeColumn(kind wire.RDType, field, format string, of func(*RD) any) column {
	return column{"rd." + field, func(l *layered) []string {
		if l.rd == nil || !l.rd.Whole && !l.rd.Readable || l.rd.Type != kind {
			return nil
		}
		return texts(format, of(l.rd))
	}}
}

// hopColumn is a field of the hops that know it.
func hopColumn(field string, bit uint16, of func(*wire.INTHop) any) column {
	return column{"railbed_int.hop." + field, func(l *layered) []string {
		if l.telemetry == nil {
			return nil
		}
		var out []string
		for i := range l.telemetry.Hops {
			if l.telemetry.Hops[i].Known&bit != 0 {
				out = append(out, fmt.Sprint(of(&l.telemetry.Hops[i])))
			}
		}
		return out
	}}
}

func intColumn(field, format string, of func(*INT) any) column {
	return column{"railbed_int." + field, func(l *layered) []string {
		if l.telemetry == nil {
			return nil
		}
		return texts(format, of(l.telemetry))
	}}
}

// echoes is a field of each echo of an acknowledgement.
func echoes(of func(wire.RDEcho) any) func(*layered) []string {
	return func(l *layered) []string {
		if l.rd == nil {
			return nil
		}
		var out []string
		for _, e := range l.rd.Echoes {
			out = append(out, fmt.Sprint(of(e)))
		}
		return out
	}
}

// number returns a bool as 0 or 1.
func number(set bool) any {
	if set {
		return 1
	}
	return 0
}

func rdFlag(mask uint8) func(*RD) any {
	return func(r *RD) any { return number(r.Flags&mask != 0) }
}

// bytesColumn is the bytes of the payload from one place to another, where there
// are some.
func bytesColumn(field string, of func(l *layered) (from, to int)) column {
	return column{field, func(l *layered) []string {
		if l.rd == nil {
			return nil
		}
		if from, to := of(l); from < to {
			return []string{hex.EncodeToString(l.rd.Payload[from:to])}
		}
		return nil
	}}
}

// known reports whether the datagram is of our version and a type that there is.
func (l *layered) known() bool {
	return l.rd != nil && l.rd.Version == wire.RDVersion && wire.RDHeaderLen(l.rd.Type) > 0
}

// encrypted reports whether nothing but the base can be read.
func (l *layered) encrypted() bool { return l.known() && l.rd.Flags&wire.RDEncrypted != 0 }

// sealedTrimmed reports whether a switch cut an encrypted datagram, whatever was captured.
func (l *layered) sealedTrimmed() bool {
	return l.rd.Type == wire.RDData && l.sent() < 92+int(l.rd.Length)
}

// sealedParts are the bytes behind the security header that are not encrypted, and
// those of the tag, if that is there.
func (l *layered) sealedParts() (readable, tag int) {
	if !l.rd.Sealed {
		return 0, 0
	}
	if body := len(l.rd.Payload); !l.cut() && !l.sealedTrimmed() && body >= 16 {
		tag = 16
	}
	return min(4*int(l.rd.Security.Readable), len(l.rd.Payload)-tag), tag
}

// sealedColumn is a field of security headers.
func sealedColumn(field string, of func(*wire.RDSecurity) any) column {
	return column{"rd.security." + field, func(l *layered) []string {
		if l.rd == nil || !l.rd.Sealed {
			return nil
		}
		return texts("%d", of(&l.rd.Security))
	}}
}

// columns are all fields that the dissector has, and what it finds.
var columns = []column{
	rdColumn("version", "%d", func(r *RD) any { return r.Version }),
	rdColumn("type", "%d", func(r *RD) any { return r.Type }),
	rdColumn("flags", "0x%02x", func(r *RD) any { return r.Flags }),
	rdColumn("flags.encrypted", "%d", rdFlag(wire.RDEncrypted)),
	rdColumn("flags.repeat", "%d", rdFlag(wire.RDRepeat)),
	rdColumn("flags.imm", "%d", rdFlag(wire.RDImm)),
	rdColumn("flags.droppable", "%d", rdFlag(wire.RDDroppable)),
	rdColumn("flags.ack_request", "%d", rdFlag(wire.RDAckRequest)),
	rdColumn("source", "%d", func(r *RD) any { return r.Source }),
	rdColumn("destination", "%d", func(r *RD) any { return r.Destination }),
	rdColumn("tag", "0x%08x", func(r *RD) any { return r.Tag }),
	rdColumn("life", "0x%016x", func(r *RD) any { return r.Life }),
	rdColumn("psn", "%d", func(r *RD) any { return r.PSN }),
	rdColumn("length", "%d", func(r *RD) any { return r.Length }),
	rdColumn("check", "0x%04x", func(r *RD) any { return r.Check }),
	{"rd.check.status", func(l *layered) []string {
		if l.rd == nil {
			return nil
		}
		return texts("%d", l.checked())
	}},
	{"rd.valid", func(l *layered) []string {
		if l.rd == nil || l.cut() && l.known() && l.checked() == 2 {
			return nil
		}
		return flag(l.rd.Valid)
	}},
	typeColumn(wire.RDData, "data.key", "0x%016x", func(r *RD) any { return r.Data.Key }),
	typeColumn(wire.RDData, "data.offset", "%d", func(r *RD) any { return r.Data.Offset }),
	typeColumn(wire.RDData, "data.message", "%d", func(r *RD) any { return r.Data.Message }),
	typeColumn(wire.RDData, "data.total", "%d", func(r *RD) any { return r.Data.Total }),
	typeColumn(wire.RDData, "data.position", "%d", func(r *RD) any { return r.Data.Position }),
	typeColumn(wire.RDData, "data.imm", "0x%08x", func(r *RD) any { return r.Data.Imm }),
	typeColumn(wire.RDData, "data.timestamp", "%d", func(r *RD) any { return r.Data.Timestamp }),
	typeColumn(wire.RDData, "data.sum", "0x%08x", func(r *RD) any { return r.Data.Sum }),
	typeColumn(wire.RDData, "data.sum.status", "%d", func(r *RD) any {
		switch {
		case r.Trimmed, r.Readable:
			return 2
		case wire.RDSum(r.Payload[:r.Length]) == r.Data.Sum:
			return 1
		}
		return 0
	}),
	bytesColumn("rd.data.payload", func(l *layered) (int, int) {
		if !l.rd.Whole || l.rd.Type != wire.RDData {
			return 0, 0
		}
		return 0, min(int(l.rd.Length), len(l.rd.Payload))
	}),
	bytesColumn("rd.encrypted", func(l *layered) (int, int) {
		if !l.encrypted() {
			return 0, 0
		}
		readable, tag := l.sealedParts()
		return readable, len(l.rd.Payload) - tag
	}),
	bytesColumn("rd.readable", func(l *layered) (int, int) {
		readable, _ := l.sealedParts()
		return 0, readable
	}),
	bytesColumn("rd.security.tag", func(l *layered) (int, int) {
		_, tag := l.sealedParts()
		return len(l.rd.Payload) - tag, len(l.rd.Payload)
	}),
	sealedColumn("readable", func(s *wire.RDSecurity) any { return s.Readable }),
	sealedColumn("heard", func(s *wire.RDSecurity) any { return s.Heard }),
	sealedColumn("epoch", func(s *wire.RDSecurity) any { return s.Epoch }),
	sealedColumn("counter", func(s *wire.RDSecurity) any { return s.Counter }),
	bytesColumn("rd.excess", func(l *layered) (int, int) {
		switch {
		case l.rd.Whole && l.rd.Type == wire.RDData:
			return int(l.rd.Length), len(l.rd.Payload)
		case l.rd.Whole, !l.known():
			return 0, len(l.rd.Payload)
		}
		return 0, 0
	}),
	typeColumn(wire.RDSkip, "skip.count", "%d", func(r *RD) any { return r.Skip.Count }),
	typeColumn(wire.RDSkip, "skip.message", "%d", func(r *RD) any { return r.Skip.Message }),
	typeColumn(wire.RDSkip, "skip.total", "%d", func(r *RD) any { return r.Skip.Total }),
	typeColumn(wire.RDSkip, "skip.imm", "0x%08x", func(r *RD) any { return r.Skip.Imm }),
	typeColumn(wire.RDSkip, "skip.timestamp", "%d", func(r *RD) any { return r.Skip.Timestamp }),
	typeColumn(wire.RDSkip, "skip.bytes", "%d", func(r *RD) any { return r.Skip.Bytes }),
	typeColumn(wire.RDSkip, "skip.position", "%d", func(r *RD) any { return r.Skip.Position }),
	typeColumn(wire.RDAck, "ack.limit", "%d", func(r *RD) any { return r.Ack.Limit }),
	typeColumn(wire.RDAck, "ack.timestamp", "%d", func(r *RD) any { return r.Ack.Timestamp }),
	typeColumn(wire.RDAck, "ack.delay", "%d", func(r *RD) any { return r.Ack.Delay }),
	typeColumn(wire.RDAck, "ack.duplicates", "%d", func(r *RD) any { return r.Ack.Duplicates }),
	typeColumn(wire.RDAck, "ack.received", "%d", func(r *RD) any { return r.Ack.Received }),
	typeColumn(wire.RDAck, "ack.words", "%d", func(r *RD) any { return r.Ack.Words }),
	typeColumn(wire.RDAck, "ack.echoes", "%d", func(r *RD) any { return r.Ack.Echoes }),
	typeColumn(wire.RDAck, "ack.room", "%d", func(r *RD) any { return r.Ack.Room }),
	{"rd.ack.bitmap", func(l *layered) []string {
		if l.rd == nil {
			return nil
		}
		return texts("0x%016x", l.rd.Bitmap...)
	}},
	{"rd.ack.psn", func(l *layered) []string {
		if l.rd == nil {
			return nil
		}
		return texts("%d", l.rd.Came()...)
	}},
	{"rd.ack.echo.path", echoes(func(e wire.RDEcho) any { return e.Path })},
	{"rd.ack.echo.packets", echoes(func(e wire.RDEcho) any { return e.Packets })},
	{"rd.ack.echo.marked", echoes(func(e wire.RDEcho) any { return e.Marked })},
	typeColumn(wire.RDNack, "nack.reason", "%d", func(r *RD) any { return r.Nack.Reason }),
	typeColumn(wire.RDNack, "nack.path", "%d", func(r *RD) any { return r.Nack.Path }),
	typeColumn(wire.RDNack, "nack.message", "%d", func(r *RD) any { return r.Nack.Message }),
	typeColumn(wire.RDNack, "nack.detail", "%d", func(r *RD) any { return r.Nack.Detail }),
	typeColumn(wire.RDProbe, "probe.timestamp", "%d", func(r *RD) any { return r.ProbeTimestamp }),
	typeColumn(wire.RDReject, "reject.reason", "%d", func(r *RD) any { return r.Reject.Reason }),
	typeColumn(wire.RDReject, "reject.least", "%d", func(r *RD) any { return r.Reject.Least }),
	typeColumn(wire.RDReject, "reject.most", "%d", func(r *RD) any { return r.Reject.Most }),
	typeColumn(wire.RDReject, "reject.meant", "0x%08x", func(r *RD) any { return r.Reject.Meant }),
	typeColumn(wire.RDReject, "reject.to", "0x%016x", func(r *RD) any { return r.Reject.To }),
	// Findings: there or not.
	finding("rd.trimmed", func(l *layered) bool {
		if l.rd != nil && l.rd.Sealed {
			return l.sealedTrimmed()
		}
		return l.rd != nil && l.rd.Whole && l.rd.Trimmed && l.sent() < wire.RDDataLen+int(l.rd.Length)
	}),
	finding("rd.check.bad", func(l *layered) bool { return l.rd != nil && l.checked() == 0 }),
	finding("rd.data.sum.bad", func(l *layered) bool {
		return l.rd != nil && l.rd.Whole && l.rd.Type == wire.RDData && !l.rd.Trimmed &&
			wire.RDSum(l.rd.Payload[:l.rd.Length]) != l.rd.Data.Sum
	}),
	finding("rd.version.unknown", func(l *layered) bool {
		return l.rd != nil && l.rd.Version != wire.RDVersion
	}),
	finding("rd.type.unknown", func(l *layered) bool {
		return l.rd != nil && l.rd.Version == wire.RDVersion && !l.known()
	}),
	finding("rd.header.short", func(l *layered) bool {
		return l.known() && !l.encrypted() && !l.rd.Whole && !l.cut()
	}),
	finding("rd.length.bad", func(l *layered) bool {
		if l.rd == nil || !l.rd.Whole {
			return false
		}
		if l.rd.Type == wire.RDData {
			return len(l.rd.Payload) > int(l.rd.Length)
		}
		return len(l.rd.Payload) > 0 || l.rd.Length > 0
	}),
	finding("rd.repeated", func(l *layered) bool {
		return l.rd != nil && (l.rd.Whole || l.rd.Readable) && l.rd.Type == wire.RDData &&
			l.rd.Flags&wire.RDRepeat != 0
	}),
	finding("rd.nack", func(l *layered) bool {
		return l.rd != nil && (l.rd.Whole || l.rd.Readable) && l.rd.Type == wire.RDNack
	}),
	finding("rd.reject", func(l *layered) bool {
		return l.rd != nil && (l.rd.Whole || l.rd.Readable) && l.rd.Type == wire.RDReject
	}),
	finding("rd.base.missing", func(l *layered) bool {
		return l.rd == nil && (l.telemetry != nil || l.udp.Payload[0] >= 0x80)
	}),
	finding("rd.destination.port", func(l *layered) bool {
		return l.rd != nil && wire.PortRD+int(l.rd.Destination) != int(l.udp.DstPort)
	}),
	finding("railbed_int.invalid", func(l *layered) bool {
		return l.telemetry == nil && l.udp.Payload[0] < 0x80
	}),
	intColumn("length", "%d", func(i *INT) any { return len(i.Contents)/4 - 1 }),
	intColumn("hop_words", "%d", func(i *INT) any { return wire.INT(i.Contents).HopLen() / 4 }),
	intColumn("next_port", "%d", func(i *INT) any { return uint16(i.NextPort) }),
	intColumn("discard", "%d", func(i *INT) any { return number(i.Discard) }),
	intColumn("exceeded", "%d", func(i *INT) any { return number(i.HopsExceeded) }),
	intColumn("mtu_exceeded", "%d", func(i *INT) any { return number(i.MTUExceeded) }),
	intColumn("remaining", "%d", func(i *INT) any { return i.Remaining }),
	intColumn("instructions", "0x%04x", func(i *INT) any { return i.Instructions }),
	intColumn("domain", "0x%04x", func(i *INT) any { return i.Domain }),
	intColumn("hops", "%d", func(i *INT) any { return len(i.Hops) }),
	hopColumn("switch", wire.INTNodeID, func(h *wire.INTHop) any { return h.Node }),
	hopColumn("ingress", wire.INTInterfaces, func(h *wire.INTHop) any { return h.Ingress }),
	hopColumn("egress", wire.INTInterfaces, func(h *wire.INTHop) any { return h.Egress }),
	hopColumn("latency", wire.INTHopLatency, func(h *wire.INTHop) any { return h.Latency }),
	hopColumn("queue", wire.INTQueue, func(h *wire.INTHop) any { return h.Queue }),
	hopColumn("queue_bytes", wire.INTQueue, func(h *wire.INTHop) any { return h.QueueBytes }),
	hopColumn("arrival", wire.INTIngressTime, func(h *wire.INTHop) any { return h.IngressTime }),
	hopColumn("departure", wire.INTEgressTime, func(h *wire.INTHop) any { return h.EgressTime }),
	hopColumn("ingress2", wire.INTInterfaces2, func(h *wire.INTHop) any { return h.Ingress2 }),
	hopColumn("egress2", wire.INTInterfaces2, func(h *wire.INTHop) any { return h.Egress2 }),
	hopColumn("utilisation", wire.INTUtilisation, func(h *wire.INTHop) any { return h.Utilisation }),
	hopColumn("buffer", wire.INTBuffer, func(h *wire.INTHop) any { return h.Buffer }),
	hopColumn("buffer_bytes", wire.INTBuffer, func(h *wire.INTHop) any { return h.BufferBytes }),
}

func finding(field string, there func(*layered) bool) column {
	return column{field, func(l *layered) []string {
		if there(l) {
			return []string{"1"}
		}
		return nil
	}}
}

// TestDissectorAgreesWithTheLayers compares Wireshark with Railbed's dissector and gopacket with
// Railbed's layers, which share no code. Both must decode the same from every field of packets of
// all types, whole, trimmed, damaged and cut off.
func TestDissectorAgreesWithTheLayers(t *testing.T) {
	const seed, frames = 20261122, 4000
	draw := rand.New(rand.NewPCG(seed, 1))
	var all []captured
	var names []string
	for range frames {
		all = append(all, drawFrame(t, draw))
	}
	for _, c := range columns {
		names = append(names, c.field)
	}
	values := make(map[string]int)
	for i, line := range dissect(t, all, names...) {
		packet := gopacket.NewPacket(all[i].frame, golayers.LayerTypeEthernet, gopacket.Default)
		l := layered{captured: all[i]}
		l.udp, _ = packet.Layer(golayers.LayerTypeUDP).(*golayers.UDP)
		l.telemetry, _ = packet.Layer(LayerTypeINT).(*INT)
		l.rd, _ = packet.Layer(LayerTypeRD).(*RD)
		got := strings.Split(strings.NewReplacer("True", "1", "False", "0").Replace(line), "|")
		for n, c := range columns {
			want := strings.Join(c.of(&l), ",")
			if want != "" {
				values[c.field]++
			}
			if got[n] != want {
				t.Errorf("frame %d of seed %d: %s is %q, our layers say %q; % x", i, seed, c.field, got[n],
					want, all[i].frame)
			}
		}
		if t.Failed() && i > 0 && i%50 == 0 {
			t.FailNow()
		}
	}
	for _, c := range columns {
		if values[c.field] < 10 {
			t.Errorf("%s has a value in %d frames only", c.field, values[c.field])
		}
	}
}

// Every field and finding of the dissector of datagrams and telemetry is compared above, except the
// fields of a telemetry probe.
func TestDissectorFieldsAreCompared(t *testing.T) {
	compared := map[string]bool{"railbed_int.probe.sequence": true, "railbed_int.probe.sent": true}
	for _, c := range columns {
		compared[c.field] = true
	}
	all := regexp.MustCompile(`(?:ProtoField\.\w+|ProtoExpert\.new)\("([^"]+)",|finding\("([^"]+)",`).FindAllStringSubmatch(string(datagramsLua), -1)
	if len(all) < len(columns) {
		t.Fatalf("the dissector has %d fields, want the %d that are compared", len(all), len(columns))
	}
	for _, field := range all {
		name := field[1]
		if name == "" {
			name = "rd." + field[2]
		}
		if !compared[name] {
			t.Errorf("%s is not compared", name)
		}
	}
	f := datagram(t, wire.PortINT, protocoltest.Example(t, "int-probe"))
	got := dissect(t, []captured{{f, len(f)}}, "railbed_int.probe.sequence", "railbed_int.probe.sent",
		"railbed_int.hop.queue_bytes")
	if want := "7|1990000|0,40320"; got[0] != want {
		t.Errorf("tshark says %s, want %s", got[0], want)
	}
}
