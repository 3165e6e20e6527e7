// Package verifytest makes captures for tests of checks. A Scene holds the packets of a run at each
// tap. A test changes them, as a broken fabric would, and passes the capture to the checks.
package verifytest

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/capture/pcapng"
	"railbed/capture/verify/evidence"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
	"railbed/transports/rd/privacy"
)

// Run writes the capture and judges it.
func (s *Scene) Run(checks ...evidence.Check) ([]evidence.Result, evidence.Summary) {
	s.T.Helper()
	results, summary, err := evidence.Run(s.T.Context(), bytes.NewReader(s.Write()), s.Options(), checks...)
	if err != nil {
		s.T.Fatal(err)
	}
	return results, summary
}

// IsData reports whether a packet is a segment with payload.
func IsData(k Sighting) bool { return k.Length > Segment }

// SrcOf returns the source address of a packet.
func SrcOf(k Sighting) netip.Addr { return netip.AddrFrom4([4]byte(k.Frame[26:30])) }

// PortOf returns the client's port of an IPv4 segment.
func PortOf(k Sighting) int {
	return max(int(k.Frame[34])<<8|int(k.Frame[35]), int(k.Frame[36])<<8|int(k.Frame[37]))
}

// ClusterFile is a testbed of two leaves and two spines with two hosts on each leaf. It has every
// kind of path, and a choice of uplinks.
const ClusterFile = `
name: cluster
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}
  links:
    default: {rate: 1gbit, mtu: 1500}
`

// Sighting is a packet at a tap, before it is written.
type Sighting struct {
	Tap     string
	Out     bool
	Time    int64
	ID      uint64
	Frame   []byte
	Length  int
	Comment string
	Queue   int  // the queue's priority plus 1; 0 if it is not recorded
	Foreign bool // the packet is for another address
	Record  bool // it does not pass the tap: a fault changes it there
}

// Scene is a capture that a test can change before it is written.
type Scene struct {
	T         testing.TB
	Plan      *plan.Plan
	Workload  evidence.Workload
	Sightings []Sighting
	Now       int64
	Step      int64
	IDs       uint64
	// Uplink chooses among equal-cost paths by the flow's number.
	Uplink func(flow, paths int) int
	// Drops are the counts of the taps; Write leaves these packets out.
	Drops       map[string]uint64
	Queues      map[string]uint64        // packets that the kernel's queues dropped, by port
	Lost        map[string]uint64        // outside of queues
	Harm        map[string]evidence.Harm // what faults did at ports of kernel switches
	Hits        bool                     // the capture has the packets that they hit
	Interrupted func(link string) bool
	Sends       []evidence.Send // what steps sent
	Limited     map[string]uint64
	Untapped    map[string]bool
	NoCounts    bool
	Snap        int  // bytes kept of a packet; 0 is 200
	Foreign     bool // packets have no ids and no directions, and another writer's name
	Unsorted    bool // packets are not sorted by time
	application string
	Small       bool            // few packets
	Sealing     *Sealing        // encrypts reliable datagrams
	Keys        *privacy.KeyLog // decrypts them
}

// Properties of a Scene's packets: when the first one leaves, the connections of each rank, the payload
// of a segment in bytes, and the port of each rank.
const (
	Start       = int64(1_700_000_000_000_000_000)
	Connections = 16 // of each rank to the next rank
	Segment     = 1000
	size        = 480_000
	Service     = 7000
)

// NewScene returns a scene of two leaves and two spines, without packets.
func NewScene(t testing.TB) *Scene {
	return &Scene{
		T: t, Plan: plantest.Compile(t, ClusterFile), Now: Start, Step: 20_000,
		Uplink:      func(flow, paths int) int { return flow % paths },
		Drops:       map[string]uint64{},
		Queues:      map[string]uint64{},
		Limited:     map[string]uint64{},
		Untapped:    map[string]bool{},
		application: "railbed",
	}
}

// Ring adds the packets of a ring all-reduce. Every rank sends 2(n-1)/n of the size to the next
// rank over several connections, and gets acknowledgements without payload back.
func (s *Scene) Ring(family int) {
	ranks := s.Plan.Ranks
	address := func(r plan.Rank) netip.Addr {
		if family == 6 {
			return r.Addr6
		}
		return r.Addr4
	}
	for i, r := range ranks {
		s.Workload.Ranks = append(s.Workload.Ranks, evidence.Rank{
			Rank:     i,
			Node:     r.Node,
			NIC:      r.NIC,
			Addr:     address(r),
			Port:     Service,
			Expected: RingAllReduceBytes(len(ranks), size, 1),
		})
	}
	s.Workload.Name = "ar"
	share := int(RingAllReduceBytes(len(ranks), size, 1)) / Connections
	if s.Small {
		share = 4 * Segment
		for i := range s.Workload.Ranks {
			s.Workload.Ranks[i].Expected = units.Bytes(share * Connections)
		}
	}
	for sent := -1; sent*Segment < share; sent++ {
		for c := range Connections {
			for i := range ranks {
				from, to := s.Workload.Ranks[i], s.Workload.Ranks[(i+1)%len(ranks)]
				data := TCP{Src: netip.AddrPortFrom(from.Addr, uint16(20000+c)),
					Dst: netip.AddrPortFrom(to.Addr, Service), Flow: i*Connections + c}
				switch {
				case sent < 0:
					data.SYN, data.Seq = true, 0xFFFFFF00 // wraps soon
				default:
					data.Seq = 0xFFFFFF01 + uint32(sent*Segment)
					data.Payload = min(Segment, share-sent*Segment)
				}
				s.Send(from.Node, from.NIC, data)
				ack := TCP{Src: data.Dst, Dst: data.Src, Flow: data.Flow, Seq: 5, ack: data.Seq}
				s.Send(to.Node, to.NIC, ack)
			}
		}
	}
}

// TCP is a segment to be sent.
type TCP struct {
	Src, Dst netip.AddrPort
	Seq, ack uint32
	Payload  int
	SYN      bool
	Flow     int
	TTL      uint8
	Datagram []byte // for UDP: the payload
	TOS      uint8  // for UDP
}

// Frame builds the segment. Its payload depends on the sequence number.
func (s *Scene) Frame(k TCP, ttl uint8, src, dst plan.MAC) []byte {
	if k.Datagram != nil {
		return s.UDPFrame(k, ttl, src, dst)
	}
	ethernet := &golayers.Ethernet{SrcMAC: net.HardwareAddr(src[:]), DstMAC: net.HardwareAddr(dst[:]),
		EthernetType: golayers.EthernetTypeIPv4}
	segment := &golayers.TCP{SrcPort: golayers.TCPPort(k.Src.Port()), DstPort: golayers.TCPPort(k.Dst.Port()),
		Seq: k.Seq, Ack: k.ack, SYN: k.SYN, ACK: true, Window: 1000}
	stack := []gopacket.SerializableLayer{ethernet}
	if k.Src.Addr().Is4() {
		ip := &golayers.IPv4{Version: 4, TTL: ttl, Id: uint16(s.IDs), Protocol: golayers.IPProtocolTCP,
			SrcIP: k.Src.Addr().AsSlice(), DstIP: k.Dst.Addr().AsSlice()}
		segment.SetNetworkLayerForChecksum(ip)
		stack = append(stack, ip)
	} else {
		ethernet.EthernetType = golayers.EthernetTypeIPv6
		ip := &golayers.IPv6{Version: 6, HopLimit: ttl, NextHeader: golayers.IPProtocolTCP,
			SrcIP: k.Src.Addr().AsSlice(), DstIP: k.Dst.Addr().AsSlice()}
		segment.SetNetworkLayerForChecksum(ip)
		stack = append(stack, ip)
	}
	buffer := gopacket.NewSerializeBuffer()
	payload := bytes.Repeat([]byte{byte(k.Seq), byte(k.Seq >> 8), byte(k.Seq >> 16), byte(k.Seq >> 24)},
		(k.Payload+3)/4)[:k.Payload]
	if err := gopacket.SerializeLayers(buffer,
		gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		append(stack, segment, gopacket.Payload(payload))...); err != nil {
		s.T.Fatal(err)
	}
	return buffer.Bytes()
}

// Send adds a segment at every tap from a NIC along the plan's routes to another NIC.
func (s *Scene) Send(node, nic string, k TCP) {
	s.IDs++
	s.Now += s.Step
	if k.TTL == 0 {
		k.TTL = 64
	}
	at, _ := (&evidence.Capture{Plan: s.Plan}).Interface(node, nic)
	if at == nil {
		s.T.Fatalf("no port %s:%s", node, nic)
	}
	s.Hops(node, at, k, s.Now)
}

// Hops adds the sightings of a segment: it leaves a port, enters the next port, and so on.
func (s *Scene) Hops(node string, at *plan.Interface, k TCP, now int64) {
	c := &evidence.Capture{Plan: s.Plan}
	for ttl := k.TTL; ; ttl-- {
		peer, nic := c.Interface(spec.SplitPort(at.Peer))
		frame := s.Frame(k, ttl, at.MAC, peer.MAC)
		s.Sightings = append(s.Sightings,
			Sighting{Tap: node + ":" + at.Name, Out: true, Time: now, ID: s.IDs, Frame: frame,
				Length: len(frame)},
			Sighting{Tap: at.Peer, Time: now + 200, ID: s.IDs, Frame: frame, Length: len(frame)})
		if nic || ttl <= 1 {
			return
		}
		node, _ = spec.SplitPort(at.Peer)
		sw := s.Plan.Switch(node)
		for _, own := range sw.Loopbacks {
			if own.Addr() == k.Dst.Addr() {
				return
			}
		}
		at = s.next(sw, k)
		now += 1000
	}
}

// next is the port by which a switch sends a segment: the one whose subnet the
// destination is in, or else one of the route's.
func (s *Scene) next(sw *plan.Switch, k TCP) *plan.Interface {
	for i := range sw.Ports {
		for _, prefix := range sw.Ports[i].Addrs {
			if prefix.Masked().Contains(k.Dst.Addr()) {
				return &sw.Ports[i]
			}
		}
	}
	var route *plan.Route
	for r := range sw.Routes.All() {
		if dst := r.Dst; dst.Contains(k.Dst.Addr()) && (route == nil || dst.Bits() > route.Dst.Bits()) {
			route = &r
		}
	}
	if route == nil {
		s.T.Fatalf("%s has no route to %s", sw.Name, k.Dst)
	}
	hop := route.NextHops[0]
	if len(route.NextHops) > 1 {
		hop = route.NextHops[s.Uplink(k.Flow, len(route.NextHops))]
	}
	port, _ := (&evidence.Capture{Plan: s.Plan}).Interface(sw.Name, hop.Dev)
	return port
}

// Remove deletes the sightings that match.
func (s *Scene) Remove(match func(Sighting) bool) {
	before := len(s.Sightings)
	s.Sightings = slices.DeleteFunc(s.Sightings, match)
	if len(s.Sightings) == before {
		s.T.Fatal("the mutation changed nothing")
	}
}

// Change edits the sightings that match.
func (s *Scene) Change(match func(Sighting) bool, edit func(*Sighting)) {
	changed := 0
	for i := range s.Sightings {
		if match(s.Sightings[i]) {
			edit(&s.Sightings[i])
			changed++
		}
	}
	if changed == 0 {
		s.T.Fatal("the mutation changed nothing")
	}
}

// Packet returns the id of the first packet with payload that passes a tap in a direction, in the
// second half of the capture.
func (s *Scene) Packet(tap string, out bool) uint64 {
	for _, k := range s.Sightings[len(s.Sightings)/2:] {
		if k.Tap == tap && k.Out == out && k.Length > Segment {
			return k.ID
		}
	}
	s.T.Fatalf("no packet at %s", tap)
	return 0
}

// Insert adds sightings.
func (s *Scene) Insert(k ...Sighting) { s.Sightings = append(s.Sightings, k...) }

// Of returns the sighting of a packet at a tap in a direction.
func (s *Scene) Of(id uint64, tap string, out bool) Sighting {
	for _, k := range s.Sightings {
		if k.ID == id && k.Tap == tap && k.Out == out {
			return k
		}
	}
	s.T.Fatalf("packet %d was not at %s", id, tap)
	return Sighting{}
}

// Options returns the options with which the scene's capture is judged.
func (s *Scene) Options() evidence.Options {
	return evidence.Options{Plan: s.Plan, Keys: s.Keys, Drops: s.Queues, Lost: s.Lost, Harm: s.Harm,
		Interrupted: s.Interrupted, Sends: s.Sends}
}

// Write makes the capture, as package capture writes it.
func (s *Scene) Write() []byte {
	if !s.Unsorted {
		slices.SortStableFunc(s.Sightings, func(a, b Sighting) int { return int(a.Time - b.Time) })
	}
	var out bytes.Buffer
	application := s.application
	if s.Foreign {
		application = "somebody"
	}
	note := pcapng.SectionNote{Dilation: 1, Epoch: time.Unix(0, 0), Plan: s.Plan.Hash(), Hits: s.Hits}
	w, err := pcapng.NewWriter(&out, pcapng.Section{Application: application,
		Comments: []string{string(note.AppendTo(nil))}})
	if err != nil {
		s.T.Fatal(err)
	}
	index, noted := map[string]int{}, map[string]*pcapng.TapNote{}
	add := func(node string, ports []plan.Interface, hardware string) {
		for _, port := range ports {
			name := node + ":" + port.Name
			if s.Untapped[name] {
				continue
			}
			i, err := w.AddInterface(pcapng.Interface{Name: name, Description: port.Link, Hardware: hardware,
				LinkType: 1, SnapLen: uint32(cmp.Or(s.Snap, 200))})
			if err != nil {
				s.T.Fatal(err)
			}
			index[name], noted[name] = i, &pcapng.TapNote{Limited: s.Limited[name]}
		}
	}
	for _, n := range s.Plan.Nodes {
		add(n.Name, n.NICs, pcapng.HardwareNIC)
	}
	for _, sw := range s.Plan.Switches {
		add(sw.Name, sw.Ports, pcapng.HardwareSwitchPort)
	}
	seen, snap := map[string]uint64{}, cmp.Or(s.Snap, 200)
	for _, k := range s.Sightings {
		i, tapped := index[k.Tap]
		if !tapped {
			continue
		}
		seen[k.Tap]++
		p := pcapng.Packet{Interface: i, Time: k.Time, Data: k.Frame[:min(len(k.Frame), snap)],
			Length: k.Length}
		if !s.Foreign {
			p.Has, p.ID, p.Flags = pcapng.HasFlags|pcapng.HasID, k.ID, pcapng.Inbound
			if k.Out {
				p.Flags = pcapng.Outbound
			}
			if k.Foreign {
				p.Flags |= pcapng.Promiscuous
			}
			if k.Record {
				p.Flags = 0
			}
		}
		if k.Queue > 0 {
			p.Has, p.Queue = p.Has|pcapng.HasQueue, uint32(k.Queue-1)
		}
		if k.Comment != "" {
			if note, ok := pcapng.ParseAnnotation([]byte(k.Comment)); ok {
				noted[k.Tap].Count(note.Verdict)
			}
			p.Comments = [][]byte{[]byte(k.Comment)}
		}
		if err := w.WritePacket(&p); err != nil {
			s.T.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(index)) {
		if s.NoCounts {
			break
		}
		err := w.WriteStatistics(pcapng.Statistics{
			Comments:  []string{string(noted[name].AppendTo(nil))},
			Interface: index[name], Time: s.Now, Start: Start, End: s.Now + 1_000_000,
			Received: seen[name] + s.Drops[name] + s.Limited[name],
			Accepted: seen[name] + s.Drops[name] + s.Limited[name],
			Dropped:  s.Drops[name], Delivered: seen[name],
			Has: pcapng.HasStart | pcapng.HasEnd | pcapng.HasReceived | pcapng.HasDropped |
				pcapng.HasAccepted | pcapng.HasDelivered,
		})
		if err != nil {
			s.T.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		s.T.Fatal(err)
	}
	return out.Bytes()
}

// Text returns a result in lines.
func Text(r evidence.Result) string {
	return fmt.Sprintf("%s %s: %s\n  %s", r.Verdict, r.Name, r.Summary, fmt.Sprint(r.Details))
}

// AddrPort returns the address of a rank with a port.
func AddrPort(r evidence.Rank, port int) netip.AddrPort {
	return netip.AddrPortFrom(r.Addr, uint16(port))
}

// Begin removes the first len/part sightings, and then all up to the next packet that a port
// receives. So the capture begins with a packet that left before.
func (s *Scene) Begin(part int) {
	first := s.Sightings[len(s.Sightings)/part].Time
	for _, k := range s.Sightings {
		if k.Time >= first && !k.Out {
			first = k.Time
			break
		}
	}
	s.Remove(func(k Sighting) bool { return k.Time < first })
}

// Wants compares a result with a verdict, and requires words in one of its lines.
func Wants(t *testing.T, r evidence.Result, want verdict.Verdict, says string) {
	t.Helper()
	if said := strings.Join(append(r.Details, r.Summary), "\n"); r.Verdict != want ||
		!strings.Contains(said, says) {
		t.Errorf("want %s and %q: %v", want, says, r)
	}
}

// Judge runs a check on a scene, compares the verdict, and requires words in the result.
func Judge(t *testing.T, s *Scene, check evidence.Check, want verdict.Verdict, says string) {
	t.Helper()
	results, _ := s.Run(check)
	if text := Text(results[0]); results[0].Verdict != want || !strings.Contains(text, says) {
		t.Errorf("got %s\nwant %s with %q", text, want, says)
	}
}
