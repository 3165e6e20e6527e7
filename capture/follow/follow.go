// Package follow finds out where time went between the packets of a capture. It follows each packet from
// tap to tap by its id, puts packets together to messages, and accounts for the time of each.
//
// A packet's time is the time between the records of two taps, hop by hop. Within a switch it is a wait in
// a queue. On a link it is serialisation (frame length over the link's rate) and propagation (the link's
// delay), both from the plan. What the first link took beyond them the packet spent in the queue of the
// sender's NIC. Soft switches record how late they were behind their model. Times of the model are
// accounted to the fabric, and the difference to the emulator. So the parts of a packet add up to its time
// exactly.
//
// A message's time is from the record of its first packet at the sender's NIC to the arrival of its last
// missing byte at the receiver's NIC. The packet that brings this byte decides. The time until the sender
// first sent these bytes is serialisation of the message's earlier packets, recovery of bytes that it sent
// again, and else the sender's own. The time from there until it sent the copy that arrived is recovery. The
// rest is the time of that packet. A packet that its receiver discarded because an earlier one was missing
// brings no bytes: see inorder.go.
//
// A contribution to a sum that a switch makes is a message up to the arrival of the sum. Between the last hop
// of the contribution and the first hop of the sum the switch gathers the contributions of other ranks.
//
// Messages of reliable datagrams have numbers. A message of RoCEv2 is a SEND, a WRITE or the answer of a
// READ, from the packet FIRST to the packet LAST. TCP has no messages: here it is the bytes up to a segment
// with PSH, which Linux sets at the end of each write. Any other UDP datagram is a message. QUIC
// hides its messages, and sends the contents of lost datagrams again in others.
package follow

import (
	"iter"
	"net/netip"
	"time"

	"railbed/capture/display"
	"railbed/capture/pcapng"
	"railbed/capture/report"
)

// Part is a kind of time that a packet or message spends.
type Part uint8

// Parts, in the order of a message's life.
const (
	// Host is time in which the sender sent nothing of the message and had nothing to send again, before it
	// first sent the bytes that arrived last.
	Host Part = iota
	// Recover is the time in which the sender sent bytes again. It is the time from a packet with new bytes
	// to the last repeat before more new bytes. For the bytes that arrived last it is the time from their
	// first sending to the sending that arrived.
	Recover
	// Queue is time in queues of NICs and switches.
	Queue
	// Pause is time in queues that priority flow control had stopped.
	Pause
	// Fault is the time for which faults held packets back on links, by delay, reorder or limit.
	Fault
	// Gather is the time in which a switch that aggregates had a rank's contribution and had not sent the
	// sum.
	Gather
	// Serialise is the time that bytes take at the rate of a link.
	Serialise
	// Propagate is the time on links, jitter included.
	Propagate
	// Unseen is time between two taps that are not the two ends of a link or ports of one switch.
	Unseen
	// Emulator is by how much the emulation fell behind its model. It is negative where it caught up.
	Emulator

	// Parts is the number of parts.
	Parts = iota
)

var partNames = [Parts]string{"host", "recover", "queue", "pause", "fault", "gather", "serialise",
	"propagate", "unseen", "emulator"}

// String returns the part's name.
func (p Part) String() string { return partNames[p] }

// Account is the time of each Part, in nanoseconds of the capture's clock.
type Account [Parts]int64

// Total returns the sum of the parts.
func (a *Account) Total() (ns int64) {
	for _, part := range a {
		ns += part
	}
	return ns
}

// Add adds another account.
func (a *Account) Add(b *Account) {
	for i := range a {
		a[i] += b[i]
	}
}

// Largest returns the part with the most time.
func (a *Account) Largest() (most Part) {
	for part := range Part(Parts) {
		if a[part] > a[most] {
			most = part
		}
	}
	return most
}

// holdup is a fault that held a packet back.
type holdup struct {
	due    int64 // when the port began to send the packet
	record int   // the number of the fault's own record
}

// Sight is the record of a packet at a tap.
type Sight struct {
	// Number is the number of the record in the file, from 1, as Wireshark's frame.number.
	Number int
	Tap    int // index of Recording.Taps
	Out    bool
	// Event is set if the packet does not pass the tap but enters or leaves a queue there.
	Event bool
	// Verdict and Reason are from a switch's record, "" without one.
	Verdict, Reason string
	Time            int64 // ns since 1970
	// Due is Time less the lateness that was recorded.
	Due   int64
	Depth int64 // bytes in the queue, -1 if unknown
	Queue int8  // priority, -1 if unknown
	// timed is set if the lateness was recorded.
	timed bool
	next  int32 // index of the packet's next sight, -1 at the end
}

// Packet is a packet on its way. A packet that is sent again is another Packet.
type Packet struct {
	ID uint64
	// Flow is an index of Recording.Flows, -1 for packets other than IP.
	Flow int
	// Message is an index of Recording.Messages, -1 if the packet carries no part of a message. A segment
	// of TCP that was sent again may go on in the messages that follow.
	Message int
	Length  int // bytes on the wire at the first tap, without FCS
	// Position is where in the message the packet's bytes begin, and Bytes their number. In RoCEv2 it is a
	// count of packets.
	Position, Bytes int64
	// PSN is the packet's number in its protocol: a PSN, or TCP's sequence number.
	PSN uint32
	// Arrived is the time at the receiver's NIC, 0 if the packet did not come there whole. The receiver may
	// have discarded the packet: see Discarded.
	Arrived int64
	// Trimmed is set if a switch cut the payload off, and Again if the message's sender had sent the packet's
	// first byte before.
	Trimmed, Again bool
	dscp           uint8
	answers        bool // it only acknowledges
	asks           bool // it is a NAK of RoCEv2 that asks for the packets from PSN on
	// Dropped is the reason of a switch or NIC that dropped the packet, or "".
	Dropped string

	first, last int32 // sights
	bytes       span  // what the packet carries, in the positions of its stream
	// behind is the packet that the receiver awaited when it discarded this one, as it takes packets in their
	// order only. It is -1 for other packets.
	behind   int32
	identity uint64
	changed  int32 // the first sight at which its bytes were others than at the first, or 0
	unsound  bool  // it came to a switch with a wrong IP header
}

// Discarded reports whether the packet arrived, and its receiver discarded it because an earlier one was
// missing.
func (p *Packet) Discarded() bool { return p.behind >= 0 }

// Flow is one direction of a conversation.
type Flow struct {
	Src, Dst netip.AddrPort
	// Protocol is tcp, udp, quic, rd, roce, agg (to and from aggregation), or the number of an IP protocol.
	Protocol string
	// From and To are the nodes of the addresses, or "".
	From, To string
	// FromRank and ToRank are ranks of Workload, -1 if unknown.
	FromRank, ToRank int
	Workload         string
	Packets          int
}

// Message is a message and its packets.
type Message struct {
	// Number counts messages from 1 in the order of their starts.
	Number int
	// ID is the message's number in its protocol. In TCP and RoCEv2 it counts the flow's messages from 1.
	ID   uint64
	Flow int
	// QP is the destination queue pair of RoCEv2.
	QP    uint32
	Bytes int64 // 0 if unknown
	// Packets are indices of Recording.Packets in the order in which they were sent.
	Packets []int32
	// Again is how many packets were sent again, and Lost how many never arrived whole.
	Again, Lost int
	// Start is the time at which the first packet was sent.
	Start int64
	// Placed is the time at which the last missing byte arrived, 0 if some byte did not.
	Placed int64
	// Acknowledged is the time at which the last acknowledgement came to the sender's NIC, 0 if unknown.
	Acknowledged int64
	// Critical is the index of the packet that brought the last missing byte, -1 if Placed is 0.
	Critical int
	// Account adds up to Placed less Start. It is empty if Placed is 0.
	Account Account

	bytes   span // in the positions of its stream; its end is 0 if unknown
	missing int  // packets without an acknowledgement

	held  int64 // time in which the sender waited for the receiver's window
	round int   // of a contribution to a sum: an index of Recording.rounds, from 1 on
}

// Took returns how long the message took to arrive, 0 if it did not arrive.
func (m *Message) Took() time.Duration {
	if m.Placed == 0 {
		return 0
	}
	return time.Duration(m.Placed - m.Start)
}

// Tap is a tap of the capture.
type Tap struct {
	Node, Port string
	NIC        bool
	Link       string
	// Lost is how many packets the capture lost there.
	Lost uint64

	whole    bool // no filter left packets out, and none were lost
	recorded func(at int64) bool
}

// Recording holds the packets and messages of a capture, or of several captures of a run. It takes 100 bytes
// for each record, 200 for each packet and 300 for each message, up to Options.Memory.
type Recording struct {
	Taps     []Tap
	Flows    []Flow
	Packets  []Packet
	Messages []Message
	// Start and End are the times of the first and the last record.
	Start, End int64
	// Dilation is the factor by which the testbed's time was slower than the clock of all times here.
	Dilation int64
	// Lost counts packets that the capture lost. Truncated is set if its end is missing. Missing names the
	// files of a recording in several files that are missing.
	Lost      uint64
	Truncated bool
	Missing   []string
	// LeftOut counts the records after End that were not followed, because Options.Memory holds no more.
	LeftOut int

	// parts are the files of each recording, and files their names. Origins are the places of records in the
	// recordings, if there are several.
	parts   [][]pcapng.Part
	files   [][]string
	origins []pcapng.Origin

	most    int64 // Options.Memory
	sights  []Sight
	records []int32 // by record number less 1, the index of the packet
	lanes   []lane  // by tap, in the order of Taps
	paused  map[line][]span
	cpus    map[string]float64 // of nodes with a share of the host's
	planned bool
	soft    map[string]bool // soft switches.
	// tapped are the taps of nodes' NICs, and of switches with own addresses.
	tapped  map[string][]int
	ends    map[string]bool // switches with own addresses.
	rounds  [][]int         // the messages that contribute to the same sum, from index 1 on.
	slowed  map[string]*slowdown
	kernels map[string]report.NodeKernel // of a run's nodes
	lacking *report.Contention           // processors that nodes lacked
	// heldBack are the faults that held packets back, by the number of the record of the port that sent the
	// packet.
	heldBack map[int]holdup
	// storms are the faults that let the peers of ports send pauses, by the tap of the port.
	storms map[int]string
	// incidents are changes of links and nodes by the steps of the run, and links the nodes at the ends of
	// links.
	incidents []incident
	links     map[string][2]string
	closed    []closure
}

// PacketOf returns the index of the packet of a record, or -1.
func (r *Recording) PacketOf(number int) int {
	if number < 1 || number > len(r.records) {
		return -1
	}
	return int(r.records[number-1])
}

// Context returns what the recording knows of a record's packet.
func (r *Recording) Context(number int) (c display.Context) {
	packet := r.PacketOf(number)
	if packet < 0 {
		return c
	}
	p := &r.Packets[packet]
	if p.Message >= 0 {
		c.Message, c.Start = r.Messages[p.Message].Number, r.Messages[p.Message].Start
	}
	if p.Flow >= 0 && r.Flows[p.Flow].FromRank >= 0 && r.Flows[p.Flow].Workload != "" {
		c.Rank = &r.Flows[p.Flow].FromRank
	}
	return c
}

// Sights returns the records of a packet in the order of their times.
func (r *Recording) Sights(packet int) (all []Sight) {
	for at := r.Packets[packet].first; at >= 0; at = r.sights[at].next {
		all = append(all, r.sights[at])
	}
	return all
}

// Sent returns the time of the packet's first record.
func (r *Recording) Sent(packet int) int64 { return r.sights[r.Packets[packet].first].Time }

// First returns the number of the packet's first record.
func (r *Recording) First(packet int) int { return r.sights[r.Packets[packet].first].Number }

// Pauses returns the times at which flow control stopped a priority of a tap, in no order.
func (r *Recording) Pauses() iter.Seq2[int, int64] {
	return func(yield func(int, int64) bool) {
		for at, spans := range r.paused {
			for _, s := range spans {
				if !yield(at.tap, s.from) {
					return
				}
			}
		}
	}
}

// Own converts nanoseconds of the capture's clock to the testbed's own time.
func (r *Recording) Own(ns int64) time.Duration { return time.Duration(ns / r.Dilation) }
