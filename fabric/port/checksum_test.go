package port

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"railbed/internal/wire"
)

// offloaded builds a packet with gopacket, with its checksum right and as a
// sender with checksum offload leaves it.
func offloaded(t testing.TB, six, tcp, tag bool, payload []byte) (right, partial []byte) {
	t.Helper()
	ethernet := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
	protocol := layers.IPProtocolUDP
	if tcp {
		protocol = layers.IPProtocolTCP
	}
	v4 := &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: net.IP{192, 0, 2, 1},
		DstIP: net.IP{192, 0, 2, 2}}
	v6 := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: net.ParseIP("fd00::1"),
		DstIP: net.ParseIP("fd00::2")}
	var network gopacket.SerializableLayer = v4
	var forChecksum gopacket.NetworkLayer = v4
	if six {
		network, forChecksum, ethernet.EthernetType = v6, v6, layers.EthernetTypeIPv6
	}
	stack := []gopacket.SerializableLayer{ethernet}
	if tag {
		stack = append(stack, &layers.Dot1Q{VLANIdentifier: 5, Type: ethernet.EthernetType})
		ethernet.EthernetType = layers.EthernetTypeDot1Q
	}
	udp, segment := &layers.UDP{SrcPort: 7, DstPort: 8}, &layers.TCP{SrcPort: 7, DstPort: 8, Window: 99}
	var transport gopacket.SerializableLayer = udp
	header, at, number := 8, checksumUDP, wire.ProtocolUDP
	if tcp {
		transport, header, at, number = segment, 20, checksumTCP, wire.ProtocolTCP
	}
	if err := udp.SetNetworkLayerForChecksum(forChecksum); err != nil {
		t.Fatal(err)
	}
	if err := segment.SetNetworkLayerForChecksum(forChecksum); err != nil {
		t.Fatal(err)
	}
	buffer := gopacket.NewSerializeBuffer()
	stack = append(stack, network, transport, gopacket.Payload(payload))
	if err := gopacket.SerializeLayers(buffer,
		gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		t.Fatal(err)
	}
	right = buffer.Bytes()
	partial = bytes.Clone(right)
	start, width := HeaderLen+20, 8 // of the transport header; of both addresses
	if six {
		start, width = HeaderLen+40, 32
	}
	if tag {
		start += TagLen
	}
	addresses := partial[start-width : start]
	sum := uint32(number + header + len(payload))
	for i := 0; i < len(addresses); i += 2 {
		sum += uint32(addresses[i])<<8 + uint32(addresses[i+1])
	}
	for sum>>16 != 0 {
		sum = sum&0xFFFF + sum>>16
	}
	binary.BigEndian.PutUint16(partial[start+at:], uint16(sum))
	return right, partial
}

func TestCompleteChecksum(t *testing.T) {
	for shape := range 8 {
		for length := range 70 {
			right, partial := offloaded(t, shape&1 != 0, shape&2 != 0, shape&4 != 0,
				bytes.Repeat([]byte{byte(length), 0xA5}, length)[:length])
			if bytes.Equal(right, partial) {
				t.Fatal("the packets are equal: the test shows nothing")
			}
			if !completeChecksum(partial) || !bytes.Equal(partial, right) {
				t.Fatalf("shape %03b, %d bytes:\n% x, want\n% x", shape, length, partial, right)
			}
			// What is complete is not a partial one any more, and stays.
			if completeChecksum(right) || !bytes.Equal(partial, right) {
				t.Fatalf("shape %03b, %d bytes: a complete packet was completed again", shape, length)
			}
		}
	}
}

// A sum of 0 is sent as 0xFFFF with UDP (RFC 768). The payload makes up for all
// other words.
func TestCompleteChecksumOfZero(t *testing.T) {
	right, _ := offloaded(t, false, false, false, []byte{0, 0})
	makeUp := binary.BigEndian.Uint16(right[HeaderLen+20+checksumUDP:])
	payload := binary.BigEndian.AppendUint16(nil, makeUp)
	_, partial := offloaded(t, false, false, false, payload)
	if !completeChecksum(partial) {
		t.Fatal("was not completed")
	}
	if got := binary.BigEndian.Uint16(partial[HeaderLen+20+checksumUDP:]); got != 0xFFFF {
		t.Errorf("checksum %#x, want 0xffff", got)
	}
}

func FuzzCompleteChecksum(f *testing.F) {
	for shape := range 8 {
		_, partial := offloaded(f, shape&1 != 0, shape&2 != 0, shape&4 != 0, []byte("payload"))
		f.Add(partial)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < HeaderLen {
			return
		}
		was := bytes.Clone(frame)
		if !completeChecksum(frame) {
			if !bytes.Equal(was, frame) {
				t.Error("refused and changed")
			}
			return
		}
		changed := 0
		for i := range frame {
			if frame[i] != was[i] {
				changed++
			}
		}
		if changed > 2 {
			t.Errorf("%d bytes changed", changed)
		}
	})
}
