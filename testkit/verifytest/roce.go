package verifytest

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// MTU is the path MTU of the tests.
const MTU = 256

// QP is a queue pair that sends requests, and the queue pair that answers them. Both follow the
// rules except where a test makes them deviate.
type QP struct {
	*Scene
	Asker, Answerer int // ranks
	To, Back        infiniband.QPN
	PSN             infiniband.PSN // the next request's
	MSN             uint32
	ECN             wire.ECN
	Port            int
}

// NewQP returns a scene with a queue pair between two hosts of different leaves. Its PSNs wrap at
// the packet that Healthy loses.
func NewQP(t testing.TB, family int) *QP {
	s := NewScene(t)
	s.Snap = 9000
	s.RDRanks(family)
	return &QP{Scene: s, Asker: 0, Answerer: 2, To: 0x11, Back: 0x12, PSN: 0xFFFFF3, MSN: 0xFFFFFE,
		Port: 0xC001}
}

// carry sends a packet of one rank to another.
func (q *QP) carry(from, to int, f *infiniband.Fields, payload int, ecn wire.ECN) {
	if f.BTH.PKey == 0 {
		f.BTH.PKey = infiniband.PKey
	}
	p := make(infiniband.Packet, infiniband.Len(f.BTH.Opcode, payload))
	p.Encode(f, payload)
	for i := range p.Payload() {
		p.Payload()[i] = byte(i) ^ byte(f.BTH.PSN)
	}
	ranks := q.Workload.Ranks
	q.Send(ranks[from].Node, ranks[from].NIC, TCP{
		Src:      AddrPort(ranks[from], q.Port),
		Dst:      AddrPort(ranks[to], infiniband.Port),
		Datagram: p,
		TOS:      uint8(ecn),
	})
}

// Ask sends a request with a PSN, after edit has changed its fields.
func (q *QP) Ask(o infiniband.Opcode, psn infiniband.PSN, payload int, edit ...func(*infiniband.Fields)) {
	f := infiniband.Fields{BTH: infiniband.BTHFields{Opcode: o, DestQP: q.To, PSN: psn, AckReq: o.Ends()},
		RETH: infiniband.RETHFields{VA: 4096, RKey: 7, Length: uint32(payload)}}
	for _, e := range edit {
		e(&f)
	}
	q.carry(q.Asker, q.Answerer, &f, payload, q.ECN)
}

// Next sends a request with the next PSN.
func (q *QP) Next(o infiniband.Opcode, payload int, edit ...func(*infiniband.Fields)) {
	q.Ask(o, q.PSN, payload, edit...)
	q.PSN = q.PSN.Add(1)
}

// Reply sends a response with an opcode and a syndrome.
func (q *QP) Reply(o infiniband.Opcode, psn infiniband.PSN, syndrome infiniband.Syndrome, payload int) {
	f := infiniband.Fields{BTH: infiniband.BTHFields{Opcode: o, DestQP: q.Back, PSN: psn},
		AETH: infiniband.AETHFields{Syndrome: syndrome, MSN: q.MSN & 0xFFFFFF}}
	q.carry(q.Answerer, q.Asker, &f, payload, wire.NotECT)
}

// Ack acknowledges all requests up to a PSN, and a number of further completed messages.
func (q *QP) Ack(psn infiniband.PSN, messages uint32) {
	q.MSN += messages
	q.Reply(infiniband.Acknowledge, psn, infiniband.AckUnlimited, 0)
}

// NAK sends a NAK for a sequence error at a PSN.
func (q *QP) NAK(psn infiniband.PSN) {
	q.Reply(infiniband.Acknowledge, psn, infiniband.NakSequence, 0)
}

// Keeps sends the NAK of selective repeat: the responder awaits one PSN and keeps a later packet.
// Both are distances before the next request's PSN.
func (q *QP) Keeps(awaited, kept int) {
	msn := q.MSN
	q.MSN = uint32(q.PSN.Add(kept))
	q.Reply(infiniband.Acknowledge, q.PSN.Add(awaited), infiniband.NakSelective, 0)
	q.MSN = msn
}

// Length sets the length in a RETH.
func Length(n uint32) func(*infiniband.Fields) {
	return func(f *infiniband.Fields) { f.RETH.Length = n }
}

// Address sets the address in a RETH.
func Address(va uint64) func(*infiniband.Fields) {
	return func(f *infiniband.Fields) { f.RETH.VA = va }
}

// Part sends a packet of a READ's response. ahead is the distance of its PSN from the next
// request's.
func (q *QP) Part(o infiniband.Opcode, ahead, bytes int) {
	q.Reply(o, q.PSN.Add(ahead), infiniband.AckUnlimited, bytes)
}

// Write sends a WRITE of 1,000 bytes, four packets.
func (q *QP) Write() {
	q.Next(infiniband.WriteFirst, MTU, Length(1000))
	q.Next(infiniband.WriteMiddle, MTU)
	q.Next(infiniband.WriteMiddle, MTU)
	q.Next(infiniband.WriteLast, 1000-3*MTU)
}

// Lose loses the last packet behind its NIC.
func (q *QP) Lose() {
	left := false
	q.Remove(func(k Sighting) bool {
		if k.ID != q.IDs {
			return false
		}
		first := !left
		left = true
		return !first
	})
}

// Healthy adds requests of every kind with their answers, and one loss that is repaired.
func (q *QP) Healthy() {
	q.Write()
	q.Ack(q.PSN.Add(-1), 1)
	q.Next(infiniband.WriteOnly, 100)
	q.Next(infiniband.WriteOnlyImm, 201)
	q.Ack(q.PSN.Add(-1), 2) // for both
	q.Read(700)
	q.Next(infiniband.FetchAdd, 0)
	q.MSN++
	q.Reply(infiniband.AtomicAcknowledge, q.PSN.Add(-1), infiniband.AckUnlimited, 0)
	q.Next(infiniband.SendOnlyImm, 3)
	q.Ack(q.PSN.Add(-1), 1)
	q.GoBack()
}

// Read sends a READ, and its response in packets of the path MTU.
func (q *QP) Read(bytes uint32) {
	psn := q.PSN
	q.Ask(infiniband.ReadRequest, psn, 0, Length(bytes))
	q.MSN++
	n := max(1, (int(bytes)+MTU-1)/MTU)
	for i := range n {
		o := infiniband.ReadResponseMiddle
		switch {
		case n == 1:
			o = infiniband.ReadResponseOnly
		case i == 0:
			o = infiniband.ReadResponseFirst
		case i == n-1:
			o = infiniband.ReadResponseLast
		}
		q.Reply(o, psn.Add(i), infiniband.AckUnlimited, min(MTU, int(bytes)-i*MTU))
	}
	q.PSN = psn.Add(n)
}

// GoBack loses the second packet of a WRITE, and sends this packet and all later packets again.
func (q *QP) GoBack() {
	first := q.PSN
	q.Next(infiniband.WriteFirst, MTU, Length(1000))
	q.Next(infiniband.WriteMiddle, MTU)
	q.Lose()
	q.Next(infiniband.WriteMiddle, MTU)
	q.Next(infiniband.WriteLast, 1000-3*MTU)
	q.NAK(first.Add(1))
	q.Ask(infiniband.WriteMiddle, first.Add(1), MTU)
	q.Ask(infiniband.WriteMiddle, first.Add(2), MTU)
	q.Ask(infiniband.WriteLast, first.Add(3), 1000-3*MTU)
	q.Ack(first.Add(3), 1)
}

// Seal sets the ICRC of a frame and clears the UDP checksum, as rdma_rxe does.
func Seal(frame []byte) {
	at := wire.EthernetLen + infiniband.HeadersIPv4
	if frame[wire.EthernetLen]>>4 == 6 {
		at = wire.EthernetLen + infiniband.HeadersIPv6
	}
	wire.UDP(frame[at-wire.UDPLen:]).SetChecksum(0)
	if p := infiniband.Packet(frame[at:]); p.Valid() {
		p.Seal(frame[wire.EthernetLen:at])
	}
}

// Dumped returns the results of checks for a tcpdump recording at a tap: a pcap with neither
// directions nor names.
func (q *QP) Dumped(tap string, checks ...evidence.Check) []evidence.Result {
	slices.SortStableFunc(q.Sightings, func(a, b Sighting) int { return int(a.Time - b.Time) })
	var out bytes.Buffer
	w := pcapgo.NewWriterNanos(&out)
	err := w.WriteFileHeader(65535, golayers.LinkTypeEthernet)
	for _, k := range q.Sightings {
		if err == nil && k.Tap == tap {
			err = w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, k.Time),
				CaptureLength: len(k.Frame), Length: len(k.Frame)}, k.Frame)
		}
	}
	if err != nil {
		q.T.Fatal(err)
	}
	results, _, err := evidence.Run(q.T.Context(), &out, evidence.Options{}, checks...)
	if err != nil {
		q.T.Fatal(err)
	}
	return results
}

// Flip changes a bit of the byte at an offset of a frame. A negative offset counts from the frame's
// end.
func Flip(at int) func(*Sighting) {
	return func(k *Sighting) {
		k.Frame = bytes.Clone(k.Frame)
		k.Frame[(at+len(k.Frame))%len(k.Frame)] ^= 0x20
	}
}

// Again sends the last requests again, one packet each.
func (q *QP) Again(o infiniband.Opcode, count, payload int) {
	for i := range count {
		q.Ask(o, q.PSN.Add(i-count), payload)
	}
}

// FirstLost begins a connection whose first packet is lost and sent again.
func (q *QP) FirstLost() {
	first := q.PSN
	q.Next(infiniband.WriteOnly, 100)
	q.Lose()
	q.Next(infiniband.WriteOnly, 100)
	q.NAK(first)
	q.Again(infiniband.WriteOnly, 2, 100)
	q.Ack(q.PSN.Add(-1), 2)
}

// CNP sends a congestion notification to the requester.
func (q *QP) CNP() {
	q.carry(q.Answerer, q.Asker, &infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.CNP,
		BECN: true, DestQP: q.Back}}, 0, wire.NotECT)
}

// Marked sends a WRITE that arrives with congestion experienced.
func (q *QP) Marked() {
	q.ECN = wire.CE
	q.Next(infiniband.WriteOnly, 100)
	q.ECN = wire.ECT0
}

// Wait advances the scene's clock.
func (q *QP) Wait(d time.Duration) { q.Now += int64(d) }

// Connect makes a connection, with messages of rdma_cm. The other direction starts at another PSN.
func (q *QP) Connect(comm uint32) {
	m := make(infiniband.MAD, infiniband.MADLen)
	m.EncodeCM(infiniband.AttributeREQ, uint64(comm))
	infiniband.REQ(m.CM()).Encode(&infiniband.REQFields{LocalComm: comm, QPN: q.Back, PSN: q.PSN.Add(-100)})
	q.manage(q.Asker, q.Answerer, m)
	q.Accept(q.Answerer, comm)
}

// Accept sends the reply of a rank that accepts a connection.
func (q *QP) Accept(rank int, comm uint32) {
	m := make(infiniband.MAD, infiniband.MADLen)
	m.EncodeCM(infiniband.AttributeREP, uint64(comm))
	infiniband.REP(m.CM()).Encode(
		&infiniband.REPFields{LocalComm: comm + 100, RemoteComm: comm, QPN: q.To, PSN: q.PSN})
	q.manage(rank, q.Asker, m)
}

// Disconnect asks to end the connection.
func (q *QP) Disconnect(comm uint32) {
	m := make(infiniband.MAD, infiniband.MADLen)
	m.EncodeCM(infiniband.AttributeDREQ, uint64(comm))
	infiniband.DREQ(m.CM()).Encode(
		&infiniband.DREQFields{Comm: infiniband.Comm{Local: comm, Remote: comm + 100}, QPN: q.To})
	q.manage(q.Asker, q.Answerer, m)
}

// manage sends a message of rdma_cm from one rank to another.
func (q *QP) manage(from, to int, m infiniband.MAD) {
	gsi := infiniband.Fields{
		BTH: infiniband.BTHFields{Opcode: infiniband.UDSendOnly, PKey: infiniband.PKey,
			DestQP: infiniband.GSI},
		DETH: infiniband.DETHFields{QKey: infiniband.GSIQKey, SrcQP: infiniband.GSI},
	}
	ranks := q.Workload.Ranks
	p := make(infiniband.Packet, infiniband.Len(infiniband.UDSendOnly, len(m)))
	p.Encode(&gsi, len(m))
	copy(p.Payload(), m)
	q.Send(ranks[from].Node, ranks[from].NIC,
		TCP{Src: AddrPort(ranks[from], q.Port), Dst: AddrPort(ranks[to], infiniband.Port), Datagram: p})
}
