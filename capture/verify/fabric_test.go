package verify

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/capture/pcapng"
	"railbed/internal/hosttest"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/plantest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// clusterFile is two leaves and two spines with two hosts on each leaf: every
// kind of path and a choice of uplinks.
const clusterFile = `
name: cluster
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}
  links:
    default: {rate: 1gbit, mtu: 1500}
`

// sighting is a packet at a tap, before it is written.
type sighting struct {
	tap     string
	out     bool
	time    int64
	id      uint64
	frame   []byte
	length  int
	comment string
	queue   int  // priority and one; 0 is not said
	foreign bool // it is for another address
}

// scene is a capture that a test takes apart before it is written.
type scene struct {
	t         testing.TB
	plan      *plan.Plan
	workload  Workload
	sightings []sighting
	now       int64
	step      int64
	ids       uint64
	// uplink chooses among equal-cost paths by the flow's number.
	uplink func(flow, paths int) int
	// counts of the taps, and what the writing leaves out.
	drops       map[string]uint64
	queues      map[string]uint64 // what the kernel's queues counted as dropped, by port
	interrupted func(link string) bool
	limited     map[string]uint64
	untapped    map[string]bool
	noCounts    bool
	snap        int  // bytes kept of a packet, 0 is 200
	foreign     bool // no ids, no directions, not our name
	unsorted    bool // written as they are
	application string
	small       bool // few packets
}

const (
	start       = int64(1_700_000_000_000_000_000)
	connections = 16 // of each rank to the next one
	segment     = 1000
	size        = 480_000
	service     = 7000
)

func newScene(t testing.TB) *scene {
	return &scene{
		t: t, plan: plantest.Compile(t, clusterFile), now: start, step: 20_000,
		uplink:      func(flow, paths int) int { return flow % paths },
		drops:       map[string]uint64{},
		queues:      map[string]uint64{},
		limited:     map[string]uint64{},
		untapped:    map[string]bool{},
		application: "railbed",
	}
}

// ring plays a ring all-reduce: every rank sends 2(n-1)/n of the size to the
// next one, over several connections, and gets bare acknowledgements back.
func (s *scene) ring(family int) {
	ranks := s.plan.Ranks
	address := func(r plan.Rank) netip.Addr {
		if family == 6 {
			return r.Addr6
		}
		return r.Addr4
	}
	for i, r := range ranks {
		s.workload.Ranks = append(s.workload.Ranks, Rank{
			Rank:     i,
			Node:     r.Node,
			NIC:      r.NIC,
			Addr:     address(r),
			Port:     service,
			Expected: ringAllReduceBytes(len(ranks), size, 1),
		})
	}
	s.workload.Name = "ar"
	share := int(ringAllReduceBytes(len(ranks), size, 1)) / connections
	if s.small {
		share = 4 * segment
		for i := range s.workload.Ranks {
			s.workload.Ranks[i].Expected = units.Bytes(share * connections)
		}
	}
	for sent := -1; sent*segment < share; sent++ {
		for c := range connections {
			for i := range ranks {
				from, to := s.workload.Ranks[i], s.workload.Ranks[(i+1)%len(ranks)]
				data := tcp{src: netip.AddrPortFrom(from.Addr, uint16(20000+c)),
					dst: netip.AddrPortFrom(to.Addr, service), flow: i*connections + c}
				switch {
				case sent < 0:
					data.syn, data.seq = true, 0xFFFFFF00 // wraps soon
				default:
					data.seq = 0xFFFFFF01 + uint32(sent*segment)
					data.payload = min(segment, share-sent*segment)
				}
				s.send(from.Node, from.NIC, data)
				ack := tcp{src: data.dst, dst: data.src, flow: data.flow, seq: 5, ack: data.seq}
				s.send(to.Node, to.NIC, ack)
			}
		}
	}
}

// tcp is a segment to be sent.
type tcp struct {
	src, dst netip.AddrPort
	seq, ack uint32
	payload  int
	syn      bool
	flow     int
	ttl      uint8
	datagram []byte // then it is UDP
	tos      uint8  // of a datagram
}

// frame builds the segment. Its payload depends on the sequence number.
func (s *scene) frame(k tcp, ttl uint8, src, dst plan.MAC) []byte {
	if k.datagram != nil {
		return s.udpFrame(k, ttl, src, dst)
	}
	ethernet := &golayers.Ethernet{SrcMAC: net.HardwareAddr(src[:]), DstMAC: net.HardwareAddr(dst[:]),
		EthernetType: golayers.EthernetTypeIPv4}
	segment := &golayers.TCP{SrcPort: golayers.TCPPort(k.src.Port()), DstPort: golayers.TCPPort(k.dst.Port()),
		Seq: k.seq, Ack: k.ack, SYN: k.syn, ACK: true, Window: 1000}
	stack := []gopacket.SerializableLayer{ethernet}
	if k.src.Addr().Is4() {
		ip := &golayers.IPv4{Version: 4, TTL: ttl, Id: uint16(s.ids), Protocol: golayers.IPProtocolTCP,
			SrcIP: k.src.Addr().AsSlice(), DstIP: k.dst.Addr().AsSlice()}
		segment.SetNetworkLayerForChecksum(ip)
		stack = append(stack, ip)
	} else {
		ethernet.EthernetType = golayers.EthernetTypeIPv6
		ip := &golayers.IPv6{Version: 6, HopLimit: ttl, NextHeader: golayers.IPProtocolTCP,
			SrcIP: k.src.Addr().AsSlice(), DstIP: k.dst.Addr().AsSlice()}
		segment.SetNetworkLayerForChecksum(ip)
		stack = append(stack, ip)
	}
	buffer := gopacket.NewSerializeBuffer()
	payload := bytes.Repeat([]byte{byte(k.seq), byte(k.seq >> 8), byte(k.seq >> 16), byte(k.seq >> 24)},
		(k.payload+3)/4)[:k.payload]
	if err := gopacket.SerializeLayers(buffer,
		gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		append(stack, segment, gopacket.Payload(payload))...); err != nil {
		s.t.Fatal(err)
	}
	return buffer.Bytes()
}

// send walks a segment from a NIC along the plan's routes to another NIC.
func (s *scene) send(node, nic string, k tcp) {
	s.ids++
	s.now += s.step
	if k.ttl == 0 {
		k.ttl = 64
	}
	at, _ := (&Capture{Plan: s.plan}).port(node, nic)
	if at == nil {
		s.t.Fatalf("no port %s:%s", node, nic)
	}
	s.hops(node, at, k, s.now)
}

// hops sees the segment leave a port, enter the next, and so on.
func (s *scene) hops(node string, at *plan.Interface, k tcp, now int64) {
	c := &Capture{Plan: s.plan}
	for ttl := k.ttl; ; ttl-- {
		peer, nic := c.port(splitPort(at.Peer))
		frame := s.frame(k, ttl, at.MAC, peer.MAC)
		s.sightings = append(s.sightings,
			sighting{tap: node + ":" + at.Name, out: true, time: now, id: s.ids, frame: frame,
				length: len(frame)},
			sighting{tap: at.Peer, time: now + 200, id: s.ids, frame: frame, length: len(frame)})
		if nic || ttl <= 1 {
			return
		}
		node, _ = splitPort(at.Peer)
		sw := s.plan.Switch(node)
		for _, own := range sw.Loopbacks {
			if own.Addr() == k.dst.Addr() {
				return
			}
		}
		at = s.next(sw, k)
		now += 1000
	}
}

// next is the port by which a switch sends a segment: the one whose subnet the
// destination is in, or else one of the route's.
func (s *scene) next(sw *plan.Switch, k tcp) *plan.Interface {
	for i := range sw.Ports {
		for _, prefix := range sw.Ports[i].Addrs {
			if prefix.Masked().Contains(k.dst.Addr()) {
				return &sw.Ports[i]
			}
		}
	}
	var route *plan.Route
	for r := range sw.Routes.All() {
		if dst := r.Dst; dst.Contains(k.dst.Addr()) && (route == nil || dst.Bits() > route.Dst.Bits()) {
			route = &r
		}
	}
	if route == nil {
		s.t.Fatalf("%s has no route to %s", sw.Name, k.dst)
	}
	hop := route.NextHops[0]
	if len(route.NextHops) > 1 {
		hop = route.NextHops[s.uplink(k.flow, len(route.NextHops))]
	}
	port, _ := (&Capture{Plan: s.plan}).port(sw.Name, hop.Dev)
	return port
}

// remove deletes the sightings that match.
func (s *scene) remove(match func(sighting) bool) {
	before := len(s.sightings)
	s.sightings = slices.DeleteFunc(s.sightings, match)
	if len(s.sightings) == before {
		s.t.Fatal("the mutation changed nothing")
	}
}

// change edits the sightings that match.
func (s *scene) change(match func(sighting) bool, edit func(*sighting)) {
	changed := 0
	for i := range s.sightings {
		if match(s.sightings[i]) {
			edit(&s.sightings[i])
			changed++
		}
	}
	if changed == 0 {
		s.t.Fatal("the mutation changed nothing")
	}
}

// first is the id of the first packet after a share of the capture that passes
// a tap in a direction with at least a payload's length.
func (s *scene) packet(tap string, out bool) uint64 {
	for _, k := range s.sightings[len(s.sightings)/2:] {
		if k.tap == tap && k.out == out && k.length > segment {
			return k.id
		}
	}
	s.t.Fatalf("no packet at %s", tap)
	return 0
}

func (s *scene) insert(k ...sighting) { s.sightings = append(s.sightings, k...) }

// of is one sighting of a packet.
func (s *scene) of(id uint64, tap string, out bool) sighting {
	for _, k := range s.sightings {
		if k.id == id && k.tap == tap && k.out == out {
			return k
		}
	}
	s.t.Fatalf("packet %d was not at %s", id, tap)
	return sighting{}
}

// options returns the facts that are known beside the scene's capture.
func (s *scene) options() Options {
	return Options{Plan: s.plan, Drops: s.queues, Interrupted: s.interrupted}
}

// write makes the capture, as package capture writes it.
func (s *scene) write() []byte {
	if !s.unsorted {
		slices.SortStableFunc(s.sightings, func(a, b sighting) int { return int(a.time - b.time) })
	}
	var out bytes.Buffer
	application := s.application
	if s.foreign {
		application = "somebody"
	}
	w, err := pcapng.NewWriter(&out,
		pcapng.Section{Application: application,
			Comments: []string{"railbed dilation=1 epoch=0ns plan=" + s.plan.Hash()}})
	if err != nil {
		s.t.Fatal(err)
	}
	index, noted := map[string]int{}, map[string]*pcapng.TapNote{}
	add := func(node string, ports []plan.Interface, hardware string) {
		for _, port := range ports {
			name := node + ":" + port.Name
			if s.untapped[name] {
				continue
			}
			i, err := w.AddInterface(pcapng.Interface{Name: name, Description: port.Link, Hardware: hardware,
				LinkType: 1, SnapLen: uint32(cmp.Or(s.snap, 200))})
			if err != nil {
				s.t.Fatal(err)
			}
			index[name], noted[name] = i, &pcapng.TapNote{Limited: s.limited[name]}
		}
	}
	for _, n := range s.plan.Nodes {
		add(n.Name, n.NICs, pcapng.HardwareNIC)
	}
	for _, sw := range s.plan.Switches {
		add(sw.Name, sw.Ports, pcapng.HardwareSwitchPort)
	}
	seen, snap := map[string]uint64{}, cmp.Or(s.snap, 200)
	for _, k := range s.sightings {
		i, tapped := index[k.tap]
		if !tapped {
			continue
		}
		seen[k.tap]++
		p := pcapng.Packet{Interface: i, Time: k.time, Data: k.frame[:min(len(k.frame), snap)],
			Length: k.length}
		if !s.foreign {
			p.Has, p.ID, p.Flags = pcapng.HasFlags|pcapng.HasID, k.id, pcapng.Inbound
			if k.out {
				p.Flags = pcapng.Outbound
			}
			if k.foreign {
				p.Flags |= pcapng.Promiscuous
			}
		}
		if k.queue > 0 {
			p.Has, p.Queue = p.Has|pcapng.HasQueue, uint32(k.queue-1)
		}
		if k.comment != "" {
			if note, ok := pcapng.ParseAnnotation([]byte(k.comment)); ok {
				noted[k.tap].Count(note.Verdict)
			}
			p.Comments = [][]byte{[]byte(k.comment)}
		}
		if err := w.WritePacket(&p); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(index)) {
		if s.noCounts {
			break
		}
		err := w.WriteStatistics(pcapng.Statistics{
			Comments:  []string{string(noted[name].AppendTo(nil))},
			Interface: index[name], Time: s.now, Start: start, End: s.now + 1_000_000,
			Received: seen[name] + s.drops[name] + s.limited[name],
			Accepted: seen[name] + s.drops[name] + s.limited[name],
			Dropped:  s.drops[name], Delivered: seen[name],
			Has: pcapng.HasStart | pcapng.HasEnd | pcapng.HasReceived | pcapng.HasDropped |
				pcapng.HasAccepted | pcapng.HasDelivered,
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		s.t.Fatal(err)
	}
	return out.Bytes()
}

func text(r Result) string {
	return fmt.Sprintf("%s %s: %s\n  %s", r.Verdict, r.Name, r.Summary, fmt.Sprint(r.Details))
}

func addrPort(r Rank, port int) netip.AddrPort { return netip.AddrPortFrom(r.Addr, uint16(port)) }
