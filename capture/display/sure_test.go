package display

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"railbed/capture/pcapng"
	"railbed/internal/wire"
)

// TestSureOfCutPackets cuts packets off at every byte. Where Judge is sure, the filter says of the cut packet
// what it says of the whole one. Where the packet is whole, Judge is sure.
func TestSureOfCutPackets(t *testing.T) {
	filters := append([]string{"rd.psn > 1", "rd.data.message == 7 || rd.type == 3",
		"rd && !rd.data.total == 5",
		"railbed_int.hop_words > 0 || rd.flags.repeat == 1", "rd.ack.received == 4",
		"infiniband.reth.dmalen > 0", "infiniband.aeth.msn in {1..5}", "vlan.etype == 2048", "ip", "frame",
		"eth.type == 0x0800", "!(tcp.flags.reset == 1)", "tcp.len > 0", "ip.src == ip.dst", "ip[-1:] == 00",
		"frame[100:2] == 00:00", `!(frame contains "hello")`, "eth[12:2] == 08:00", "railbed_int",
		"ip.hdr_len == 20", "icmp.type == 3 && udp.srcport > 5", "railbed_agg.round == 7",
		"railbed_agg.bitmap == 4 && railbed_agg.kind == 1"}, slices.Concat(writtenFilters, tunnelFilters)...)
	var compiled []*Filter
	for _, text := range filters {
		f, err := Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		compiled = append(compiled, f)
	}
	var all [][]byte
	all = append(append(all, frames(t)...), reliable(false), reliable(true), acknowledgement(), update())
	for _, c := range slices.Concat(readTunnels(), leaves()) {
		all = append(all, c.frame)
	}
	for _, name := range []string{"atomic", "write-ipv6", "read"} {
		all = append(all, packetsOf(t, "../verify/rocechecks/testdata/rxe/"+name+".pcap")...)
	}
	ethernet := pcapng.Interface{LinkType: pcapng.LinkEthernet, Name: "h0:eth0"}
	var whole, cut Packet
	sure, unsure := 0, 0
	for i, frame := range all {
		whole.Set(&pcapng.Packet{Data: frame, Length: len(frame)}, &ethernet, i+1, 0)
		for _, f := range compiled {
			want, unseen := f.Judge(&whole)
			if unseen&^Fragmented != 0 {
				t.Errorf("packet %d: not sure of %s in the whole packet", i, f)
			}
			for n := range frame {
				cut.Set(&pcapng.Packet{Data: frame[:n:n], Length: len(frame)}, &ethernet, i+1, 0)
				got, unseen := f.Judge(&cut)
				known := unseen == 0
				if known && got != want {
					t.Fatalf("packet %d cut off at byte %d of %d: %s is surely %t, want %t", i, n, len(frame),
						f, got, want)
				}
				if known {
					sure++
				} else {
					unsure++
				}
			}
		}
	}
	if sure < unsure/10 || unsure < sure/10 {
		t.Errorf("sure %d times and unsure %d times", sure, unsure)
	}
}

// overUDP makes a frame of a datagram to the port of reliable datagrams.
func overUDP(payload []byte) []byte {
	frame := make([]byte, 14+20+8, 14+20+8+len(payload))
	copy(frame, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45})
	binary.BigEndian.PutUint16(frame[16:], uint16(28+len(payload)))
	copy(frame[22:], []byte{64, wire.ProtocolUDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	binary.BigEndian.PutUint16(frame[34:], 40000)
	binary.BigEndian.PutUint16(frame[36:], wire.PortRD)
	binary.BigEndian.PutUint16(frame[38:], uint16(8+len(payload)))
	return append(frame, payload...)
}

// reliable makes a frame of data of rd, with a block of telemetry before it or without.
func reliable(telemetry bool) []byte {
	d := make(wire.RD, wire.RDDataLen+100)
	d.EncodeData(wire.RDBase{PSN: 9, Life: 3, Length: 100}, &wire.RDDataFields{Message: 7, Total: 100})
	if !telemetry {
		return overUDP(d)
	}
	fields := wire.INTFields{Hops: 1, NextPort: wire.PortRD}
	block := make([]byte, wire.INTBlockLen(&fields))
	wire.INT(block).Encode(&fields)
	return overUDP(append(block, d...))
}

func acknowledgement() []byte {
	d := make(wire.RD, wire.RDAckBytes(1, 0))
	d.EncodeAck(wire.RDBase{PSN: 9, Life: 3}, &wire.RDAckFields{Received: 4}, []uint64{5}, nil)
	return overUDP(d)
}

// update makes a frame of a worker's contribution to a sum of a switch.
func update() []byte {
	a := make(wire.Aggregation, wire.AggregationLen+64)
	a.Encode(&wire.AggregationFields{Kind: wire.AggregationUpdate, Job: 1, Round: 7, Bitmap: 4,
		Type: wire.AggregationInt32, Elements: 16})
	frame := overUDP(a)
	binary.BigEndian.PutUint16(frame[36:], wire.PortAggregation)
	return frame
}

// packetsOf returns some packets of a capture.
func packetsOf(t *testing.T, name string) (all [][]byte) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in, err := pcapng.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for len(all) < 12 {
		p, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Data) == p.Length {
			all = append(all, append([]byte(nil), p.Data...))
		}
	}
	return all
}
