package softswitch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// datagram is "rd MESSAGE POSITION", with " again" if it was sent before. It has 100 bytes of a message of
// 300.
func datagram(t *testing.T, text string, into []byte) (port uint16, length int) {
	t.Helper()
	var message, position uint32
	text, again := strings.CutSuffix(text, " again")
	if _, err := fmt.Sscanf(text, "rd %d %d", &message, &position); err != nil {
		t.Fatal(err)
	}
	base := wire.RDBase{Life: 7, PSN: 3*message + position/100, Length: 100}
	if again {
		base.Flags = wire.RDRepeat
	}
	wire.RD(into[:wire.RDDataLen]).EncodeData(base,
		&wire.RDDataFields{Message: message, Total: 300, Position: position})
	return wire.PortRD, wire.RDDataLen + 100
}

var roceOpcodes = map[string]infiniband.Opcode{
	"first": infiniband.WriteFirst, "middle": infiniband.WriteMiddle,
	"last": infiniband.WriteLast, "only": infiniband.SendOnly, "ack": infiniband.Acknowledge,
	"read": infiniband.ReadResponseFirst, "ud": infiniband.UDSendOnly}

// segment is "OPCODE PSN QPN".
func segment(t *testing.T, text string, into []byte) (port uint16, length int) {
	t.Helper()
	var opcode string
	var psn, pair uint32
	if _, err := fmt.Sscanf(text, "%s %d %d", &opcode, &psn, &pair); err != nil {
		t.Fatal(err)
	}
	payload := 32
	if opcode == "ack" {
		payload = 0
	}
	length = infiniband.Len(roceOpcodes[opcode], payload)
	infiniband.Packet(into[:length]).Encode(&infiniband.Fields{BTH: infiniband.BTHFields{
		Opcode: roceOpcodes[opcode], PKey: 0xFFFF, DestQP: infiniband.QPN(pair), PSN: infiniband.PSN(psn),
	}}, payload)
	return infiniband.Port, length
}

// TestFaultsPickMessages: a fault counts messages, and hits all packets of one but those that are sent again.
func TestFaultsPickMessages(t *testing.T) {
	const datagrams = "rd 1 0, rd 1 100, rd 2 0, rd 1 200, rd 2 100, rd 2 0 again, rd 3 0, rd 2 200"
	const segments = "first 16777214 5, ack 1 5, middle 16777215 5, only 9 6, last 0 5, only 1 5, " +
		"middle 16777215 5, last 0 5, ud 1 5, only 2 5, read 1 5"
	for _, test := range []struct {
		fault, sent string
		lost        []int
		matched     uint64
	}{
		{"drop: {nth: [2], per: message}", datagrams, []int{3, 5, 8}, 7},
		{"drop: {every: 2, per: message}", datagrams, []int{3, 5, 8}, 7},
		{"drop: {nth: [1], per: message}, match: rd.data.message == 2", datagrams, []int{3, 5, 8}, 3},
		// The message matches with its first packet, and its other packets are hit, too.
		{"drop: {nth: [1], per: message}, match: rd.data.message == 2 && rd.data.position == 0", datagrams,
			[]int{3, 5, 8}, 3},
		{"drop: {nth: [1], per: message}, match: rd.data.position == 100", datagrams, []int{2, 4}, 4},
		{"drop: {nth: [1, 3], per: message}", segments, []int{1, 3, 5, 6}, 7},
		{"drop: {nth: [2], per: message}", segments, []int{4}, 7},
		{"drop: {nth: [1], per: message}, match: infiniband.bth.psn == 2", segments, []int{10}, 1},
		{"drop: {nth: [5], per: message}", segments, []int{11}, 7},
		{"drop: {nth: [1], per: message}", "only 1 5, first 2 5, first 3 6, middle 3 5", []int{1}, 4},
		{"drop: {share: 100%, per: message}", "rd 1 0, only 1 5, ack 1 5", []int{1, 2}, 2},
	} {
		t.Run(test.fault, func(t *testing.T) {
			r := faulty(t, 0, nil, test.fault)
			at := clock.Time(0)
			for _, text := range strings.Split(test.sent, ", ") {
				at = at.Add(time.Millisecond)
				r.engine.Advance(at)
				one := r.engine.Pool().Get()
				build := segment
				if strings.HasPrefix(text, "rd ") {
					build = datagram
				}
				content := make([]byte, 500)
				port, length := build(t, text, content)
				one.Data = r.frame(one.Data, flow{from: 0, to: 1}, 42+length)
				copy(one.Data[42:], content[:length])
				udp := wire.UDP(one.Data[34:])
				udp.Encode(&wire.UDPFields{SrcPort: 4000, DstPort: port, Length: uint16(8 + length)})
				r.engine.Receive(0, one, at)
			}
			r.drain(time.Second)
			r.balance()
			var lost []int
			for id := range strings.Count(test.sent, ",") + 1 {
				if !slices.Contains(ids(r), id+1) {
					lost = append(lost, id+1)
				}
			}
			f := r.engine.Faults()[0]
			if !slices.Equal(lost, test.lost) || f.Matched != test.matched ||
				f.Hit != uint64(len(test.lost)) {
				t.Errorf("lost %v, want %v; %d matched, %d hit", lost, test.lost, f.Matched, f.Hit)
			}
		})
	}
}

// TestManyMessages: a fault keeps a bounded number of them.
func TestManyMessages(t *testing.T) {
	var m messages
	for i := range uint32(3 * maxMessages) {
		m.get(messageKey{message: i})
	}
	latest := m.get(messageKey{message: 3*maxMessages - 1})
	if len(m.seen) != maxMessages || len(m.order) != maxMessages ||
		latest != m.get(messageKey{message: 3*maxMessages - 1}) {
		t.Errorf("%d messages, %d in order", len(m.seen), len(m.order))
	}
	for i := uint32(2 * maxMessages); i < 3*maxMessages; i++ {
		if m.seen[messageKey{message: i}] == nil {
			t.Fatalf("message %d is forgotten", i)
		}
	}
}
