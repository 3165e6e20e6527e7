package evidence

import (
	"net/netip"
	"slices"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/capture/pcapng"
)

// Pair is a sending and a receiving node.
type Pair struct{ From, To string }

func (p Pair) String() string { return p.From + " > " + p.To }

// Send is a flow of datagrams that a step of the run sent from one node to another. A check that judges each
// flow or each pair of nodes judges it even if the capture has no packet of it.
type Send struct {
	Step string // such as "traffic x"
	Pair
	FlowAddr
	Size int // of a frame, in bytes
	TOS  uint8
	// Begun and Ended bound the time of the step, in nanoseconds since 1970. Zero means unknown.
	Begun, Ended int64
}

// Sends returns the flows of the steps that were active in the selected times. A step of unknown time counts.
func (t *Times) Sends(all []Send) []Send {
	if t == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(s Send) bool {
		return s.Begun != 0 && s.Ended != 0 && t.Part(s.Begun, s.Ended) <= 0
	})
}

// Departure returns the pair of nodes between which a packet travels, if the packet leaves its source for
// another node of the plan. Packets to groups, to switches and to unknown addresses are for no node, and nor
// are packets that expire on the way.
func (c *Capture) Departure(p *Packet, owners map[netip.Addr]Owner) (of Pair, leaves bool) {
	if p.Flow == nil || !p.Tap.NIC || p.Group || p.Direction == In {
		return of, false
	}
	// An emulated NIC records a dropped packet after it has left the node. A NIC of the kernel has only the
	// record of the drop.
	if p.Drop != "" && c.Numbered() {
		return of, false
	}
	of = Pair{owners[p.Flow.Src.Addr()].Node, owners[p.Flow.Dst.Addr()].Node}
	return of, of.From == p.Tap.Node && of.To != "" && of.To != of.From && !c.Expires(p, of)
}

// OnTheWay reports whether a packet that left at a time may arrive after the end of the capture.
func (c *Capture) OnTheWay(left int64) bool { return c.End-left < c.Linger() }

// NodePairs returns the pairs of nodes between which the workload sends payload. Ranks for which switches
// aggregate send to no node.
func (w Workload) NodePairs() (pairs []Pair) {
	add := func(from, to int) {
		pair := Pair{w.Ranks[from].Node, w.Ranks[to].Node}
		if pair.From != pair.To && !slices.Contains(pairs, pair) {
			pairs = append(pairs, pair)
		}
	}
	for i := range w.Ranks {
		rank := &w.Ranks[i]
		switch {
		case rank.Transport == TransportInSwitch || rank.Expected == 0:
		case len(rank.ExpectedTo) == len(w.Ranks):
			for to, bytes := range rank.ExpectedTo {
				if bytes > 0 {
					add(i, to)
				}
			}
		case w.Pattern == Pairs:
			for _, pair := range w.Pairs {
				if pair[0] == i {
					add(i, pair[1])
				}
			}
		case w.Pattern == AllToAll:
			for to := range w.Ranks {
				add(i, to)
			}
		}
	}
	return pairs
}

// Receivers returns the recorded NICs at which packets to an address are to arrive.
func (c *Capture) Receivers(of Owner) (taps []*Tap) {
	for _, tap := range c.Taps {
		if tap.NIC && tap.Node == of.Node && of.Node != "" && (of.NIC == "" || of.NIC == tap.Port) {
			taps = append(taps, tap)
		}
	}
	return taps
}

// Frame returns a frame of the flow without payload, as it arrives at a tap.
func (s *Send) Frame(at *Tap) *pcapng.Packet {
	ip := &golayers.IPv4{Version: 4, TTL: 64, TOS: s.TOS, Protocol: golayers.IPProtocolUDP,
		SrcIP: s.Src.Addr().AsSlice(), DstIP: s.Dst.Addr().AsSlice()}
	udp := &golayers.UDP{SrcPort: golayers.UDPPort(s.Src.Port()), DstPort: golayers.UDPPort(s.Dst.Port())}
	buffer := gopacket.NewSerializeBuffer()
	const headers = 14 + 20 + 8
	payload := make(gopacket.Payload, max(0, s.Size-headers))
	_ = udp.SetNetworkLayerForChecksum(ip)
	err := gopacket.SerializeLayers(buffer,
		gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&golayers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: at.mac[:],
			EthernetType: golayers.EthernetTypeIPv4},
		ip, udp, payload)
	if err != nil {
		return nil
	}
	return &pcapng.Packet{Interface: at.Index, Data: buffer.Bytes(), Length: len(buffer.Bytes()),
		Has: pcapng.HasFlags, Flags: pcapng.Inbound}
}
