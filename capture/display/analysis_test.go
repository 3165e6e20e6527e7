package display

import (
	"slices"
	"testing"

	"railbed/capture/pcapng"
	"railbed/internal/wire"
)

// tcpFrame is a segment in a frame from 192.168.7.1 to 192.168.7.2, or back.
func tcpFrame(back bool, seq, ack uint32, flags wire.TCPFlags, payload int) []byte {
	f := wire.TCPFields{SrcPort: 7777, DstPort: 5555, Seq: seq, Ack: ack, Flags: flags, Window: 3000}
	if back {
		f.SrcPort, f.DstPort = f.DstPort, f.SrcPort
	}
	h := make(wire.TCP, wire.TCPMinLen, wire.TCPMinLen+payload)
	h.Encode(&f)
	packet := ipv4(wire.ProtocolTCP, [4]byte{192, 168, 7, 1}, h[:wire.TCPMinLen+payload])
	if back {
		packet[15], packet[19] = 2, 1
	}
	return framed(0x0800, packet)
}

// TestAnalysis: each of two taps sees a retransmission. That the second tap sees each segment again is none.
func TestAnalysis(t *testing.T) {
	const ack = wire.TCPACK
	frames := [][]byte{
		tcpFrame(false, 0, 0, wire.TCPSYN, 0), tcpFrame(true, 100, 1, wire.TCPSYN|ack, 0),
		tcpFrame(false, 1, 101, ack, 0), tcpFrame(false, 1, 101, ack, 500),
		tcpFrame(false, 501, 101, ack, 500), tcpFrame(true, 101, 501, ack, 0),
		tcpFrame(true, 101, 501, ack, 0), tcpFrame(true, 101, 501, ack, 0),
		tcpFrame(false, 501, 101, ack, 500), tcpFrame(true, 101, 1001, ack, 0),
	}
	judge := func(p *Packet, filter string) (found []int) {
		f := compiled(t, filter)
		for i, frame := range frames {
			for tap := range 2 {
				p.Set(&pcapng.Packet{Interface: tap, Time: int64(i)*50e6 + int64(tap)*1e6, Data: frame,
					Length: len(frame)}, &pcapng.Interface{LinkType: pcapng.LinkEthernet}, 2*i+tap+1, 0)
				if match, unseen := f.Judge(p); unseen != 0 {
					t.Fatalf("%s: packet %d: unseen %b", filter, p.Number, unseen)
				} else if match {
					found = append(found, p.Number)
				}
			}
		}
		return found
	}
	for filter, want := range map[string][]int{
		"tcp.analysis.retransmission":                                               {17, 18},
		"tcp.analysis.duplicate_ack":                                                {13, 14, 15, 16},
		"tcp.analysis.duplicate_ack_num == 2":                                       {15, 16},
		"tcp && !tcp.analysis.retransmission && tcp.srcport == 7777 && tcp.len > 0": {7, 8, 9, 10},
		"tcp.analysis.zero_window":                                                  nil,
	} {
		p := &Packet{}
		p.Analyse()
		if got := judge(p, filter); !slices.Equal(got, want) {
			t.Errorf("%s: packets %d, want %d", filter, got, want)
		}
	}
	p := shown(frames[8])
	if match, unseen := compiled(t, "tcp.analysis.retransmission").Judge(p); match || unseen != Unrecorded {
		t.Errorf("without the packets before: %t, unseen %b", match, unseen)
	}
	if _, err := CompileBytes("tcp.analysis.retransmission"); err == nil {
		t.Error("a filter of a switch has a field that needs the packets before")
	}
}
