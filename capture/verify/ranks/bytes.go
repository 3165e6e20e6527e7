// Package ranks has the checks of the ranks of a workload: whether they send the bytes of their
// algorithm, through their own NICs, over any transport.
package ranks

import (
	"fmt"
	"math"
	"slices"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/capture/verify/rocechecks"
	"railbed/internal/infiniband"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// The worker's count and the packets measure the same number. They may differ by this share, or by
// this many bytes, which an aborted connection may have left in its socket.
const (
	reportedShare = 0.001
	reportedBytes = 1024
)

// encryptedReason is why no payload is counted over quic.
const encryptedReason = "QUIC encrypts its packets, so that they do not show which bytes are payload"

// bytesPerRank compares the payload that each rank sent, in total and to each other rank, with the
// payload that its algorithm sends. It also compares all bytes that the rank sent with the worker's
// own count. The check counts payload in packets that left through the rank's NIC:
//
//   - over TCP each byte of a stream once, by its sequence number, without the Framing that the
//     workload states, and without streams of replies;
//   - over roce the payload of WRITEs and SENDs, each PSN once;
//   - over rd the payload of the messages, each packet once. Bytes that the rank gave up may belong to
//     the algorithm's payload or not.
//
// Over quic the check is inconclusive: packets do not show which of their bytes are payload.
//
// Payload between ranks of one node passes no tap. A workload may leave such payload out
// (Workload.Across). The check then skips the comparison with the workers' counts, which include
// it.
//
// Where a rank states how many bytes it never received, the check compares that number. It has to
// be the bytes that left for the rank, less the bytes that its acknowledgements count as received.
type bytesPerRank struct {
	roles     *evidence.Roles
	tolerance float64
	capture   *evidence.Capture
	flows     evidence.Slots[*rankFlow] // of TCP, by index
	datagrams map[rdKey]*rankStream
	requests  *rocechecks.Requests
	asked     evidence.Slots[roceStream]        // by Request.Flow
	placed    map[evidence.RDSpace]*placedBytes // nil if no rank states Missing
	updates   []updates                         // to aggregating switches, by rank
	unread    []uint64                          // unreadable datagrams, by rank
	full      bool                              // too many streams of datagrams
}

// rankFlow is a TCP flow of a rank.
type rankFlow struct {
	stream
	evidence.Role
	// goodbye reports whether the stream ends with a goodbye. blind reports whether it may end with
	// one, in a packet that was not captured so far.
	goodbye, blind bool
}

// rankStream is the stream of one engine of a rank to another engine.
type rankStream struct {
	rdStream
	rank, to int
	late     bool // it began before the capture
}

// roceStream holds the requests of a rank to a queue pair.
type roceStream struct {
	rank, to        int
	late            bool   // it began before the capture, as far as is known
	largest         int    // payload
	fresh, repeated uint64 // bytes of payload
	empty           uint64 // requests without payload
	unseen          int64  // PSNs of requests that were not seen
}

var _ = evidence.Register(evidence.Kind{Key: "bytes-per-rank",
	Example: "{formula: ring-all-reduce, tolerance: 2%}", Timed: evidence.Never,
	Conditions: conditions.Conditions{Examine: bytesConditions},
	Make: func(p *spec.PacketsCheck, s evidence.Sources) (evidence.Check, error) {
		w, err := s.Traffic(p.Work())
		return NewBytesPerRank(w, p.BytesPerRank.Tolerance), err
	}})

// bytesConditions checks that the packets of a workload whose bytes are counted show their payload.
func bytesConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	for _, step := range l.Over("quic") {
		if step.Name == p.BytesPerRank.Workload {
			l.Never(path, "want transport: tcp, rd or roce there, or the check rank-nic",
				"packets of %s do not show which bytes are payload, because QUIC encrypts them", step.Name)
		}
	}
	l.Named(path, p)
}

// NewBytesPerRank makes the check. The tolerance is a share of the expected bytes, by which a rank
// may send more or less. A rank that is to send nothing may send that share of the largest expected
// bytes of any rank.
func NewBytesPerRank(w evidence.Workload, tolerance units.Ratio) evidence.Check {
	b := &bytesPerRank{roles: evidence.NewRoles(w), tolerance: tolerance.Float(),
		datagrams: map[rdKey]*rankStream{},
		requests:  rocechecks.NewRequests(), updates: make([]updates, len(w.Ranks)),
		unread: make([]uint64, len(w.Ranks))}
	if slices.ContainsFunc(w.Ranks, func(r evidence.Rank) bool { return r.Missing != nil }) {
		b.placed = map[evidence.RDSpace]*placedBytes{}
	}
	return b
}

// Begin implements Check.
func (b *bytesPerRank) Begin(c *evidence.Capture) { b.capture = c }

// Packet implements Check.
func (b *bytesPerRank) Packet(p *evidence.Packet) {
	if p.Direction != evidence.Out || p.Drop != "" || p.Payload == 0 && !p.SYN {
		return
	}
	found := b.roles.Of(p)
	if !found.Relevant || found.Rank < 0 {
		return
	}
	if rank := &b.roles.Workload.Ranks[found.Rank]; !rank.Uses(p.Tap.Node, p.Tap.Port) {
		return
	}
	if p.Flow.Proto == evidence.ProtoUDP && p.Flow.Dst.Port() == infiniband.Port {
		b.request(p, found)
		return
	}
	if p.Aggregation != nil {
		b.updates[found.Rank].add(p.Aggregation)
		return
	}
	if p.Flow.Proto == evidence.ProtoUDP {
		b.datagram(p, found)
		return
	}
	slot := b.flows.At(p.Flow.Index)
	if *slot == nil {
		*slot = &rankFlow{Role: found}
	}
	f := *slot
	before := f.next
	f.add(p.Seq, p.Payload, p.SYN)
	if f.next != before { // otherwise the packet lies before the end of the stream
		f.goodbye, f.blind = isGoodbye(b.roles.Workload.Ranks[found.Rank].Framing, p)
	}
}

// datagram adds a reliable datagram of a rank.
func (b *bytesPerRank) datagram(p *evidence.Packet, of evidence.Role) {
	rank := of.Rank
	if p.RD == nil || !p.RD.Clear() {
		b.unread[rank]++
		return
	}
	if p.RD.Type == wire.RDAck && b.placed != nil {
		b.acknowledge(p, rank)
		return
	}
	if p.RD.Type != wire.RDData && p.RD.Type != wire.RDSkip {
		return
	}
	key := rdKeyOf(p)
	s := b.datagrams[key]
	if s == nil {
		if b.full = b.full || len(b.datagrams) >= maxRDSequences; b.full {
			return
		}
		s = &rankStream{rank: rank, to: of.To, late: p.RD.PSN != uint32(p.RD.Life>>32)}
		b.datagrams[key] = s
	}
	if p.RD.Type == wire.RDSkip {
		s.skip(p.RD)
	} else {
		before := s.fresh
		s.data(p.RD)
		if b.placed != nil {
			b.pair(p.RDSpace(false)).left += s.fresh - before
		}
	}
}

// updates are the elements that a rank sent to a switch that aggregates. A slot starts a new round
// when its last round was answered, so only a repeat has the same round.
type updates struct {
	epoch           uint16
	rounds          map[uint16]uint32 // the latest, by slot
	fresh, repeated uint64            // bytes of elements
}

func (u *updates) add(a wire.Aggregation) {
	if a.Kind() != wire.AggregationUpdate {
		return
	}
	if u.rounds == nil || int16(a.Epoch()-u.epoch) > 0 {
		u.epoch, u.rounds = a.Epoch(), map[uint16]uint32{}
	}
	bytes := uint64(a.DataLen())
	if last, met := u.rounds[a.Slot()]; met && int32(a.Round()-last) <= 0 {
		u.repeated += bytes
		return
	}
	u.rounds[a.Slot()] = a.Round()
	u.fresh += bytes
}

// request adds a RoCEv2 packet of a rank. Each PSN counts once.
func (b *bytesPerRank) request(p *evidence.Packet, of evidence.Role) {
	c := p.RoCE
	if c == nil {
		b.unread[of.Rank]++
		return
	}
	at, known := b.requests.Place(p)
	if !known {
		return
	}
	s := b.asked.At(at.Flow)
	s.late = s.late || at.Late
	s.rank, s.to, s.largest = of.Rank, of.To, max(s.largest, c.Payload)
	if at.Again {
		s.repeated += uint64(c.Payload)
		return
	}
	s.unseen += int64(at.Unseen)
	s.fresh += uint64(c.Payload)
	if c.Payload == 0 && c.BTH.Opcode != infiniband.ReadRequest {
		s.empty++
	}
}

// sent sums up the payload of one rank.
type sent struct {
	fresh, repeated uint64 // payload
	stream          uint64 // payload and framing, each byte once
	empty           uint64 // messages
	left            uint64 // of the fresh bytes, those that the rank gave up
	unseen          int64
	again           uint64 // of the fresh bytes, those seen only in a retransmission
	late            bool   // a stream began before the capture
	overflow        bool
	blind           uint64 // bytes that may be goodbyes
	flows           int
	to              map[int]payload // by receiver
}

// payload is bytes of messages, each once. A rank gave up left of these bytes. They may belong to
// the payload that its algorithm sends or not: other bytes may replace them.
type payload struct{ bytes, left uint64 }

// off returns the number of bytes by which p differs from the wanted number.
func (p payload) off(want units.Bytes) float64 {
	switch least := p.bytes - min(p.left, p.bytes); {
	case uint64(want) > p.bytes:
		return -float64(uint64(want) - p.bytes)
	case uint64(want) < least:
		return float64(least - uint64(want))
	}
	return 0
}

// gaps reports whether the capture may lack payload of the rank.
func (s *sent) gaps() bool { return s.unseen > 0 || s.again > 0 || s.late }

// add adds a stream of the rank.
func (s *sent) add(to int, fresh, repeated, empty, left uint64, unseen int64) {
	if s.to == nil {
		s.to = map[int]payload{}
	}
	s.fresh, s.repeated, s.empty, s.left, s.unseen = s.fresh+fresh, s.repeated+repeated, s.empty+empty,
		s.left+left, s.unseen+unseen
	s.to[to] = payload{s.to[to].bytes + fresh, s.to[to].left + left}
	s.stream += fresh
	s.flows++
}

// addFlow adds a TCP flow of the rank.
func (s *sent) addFlow(f *rankFlow, framing *evidence.Framing) {
	s.overflow, s.late = s.overflow || f.overflow, s.late || f.fresh > 0 && !f.synced
	switch {
	case framing != nil && f.Reply:
		s.repeated, s.unseen, s.stream, s.flows = s.repeated+f.repeated, s.unseen+f.unseen(),
			s.stream+f.fresh, s.flows+1
		return
	case f.blind:
		s.blind += uint64(framing.Header)
	}
	s.add(f.To, f.fresh, f.repeated, 0, 0, f.unseen())
	if f.goodbye {
		s.to[f.To] = payload{bytes: s.to[f.To].bytes - min(s.to[f.To].bytes, uint64(framing.Header))}
	}
}

// unframe reduces the bytes of streams to bytes of payload. For a rank whose messages are empty it
// counts the messages.
func (s *sent) unframe(rank *evidence.Rank) {
	f := rank.Framing
	s.fresh = 0
	for to, p := range s.to {
		if rank.Empty != nil {
			s.empty += (p.bytes - min(p.bytes, uint64(f.Hello))) / uint64(max(f.Header, 1))
		}
		p.bytes -= min(p.bytes, around(f, to))
		s.to[to] = p
		s.fresh += p.bytes
	}
}

func (b *bytesPerRank) sums() []sent {
	ranks := b.roles.Workload.Ranks
	sums := make([]sent, len(ranks))
	for _, f := range b.flows {
		if f != nil {
			sums[f.Rank].addFlow(f, ranks[f.Rank].Framing)
		}
	}
	for i := range sums {
		if ranks[i].Framing != nil {
			sums[i].unframe(&ranks[i])
		}
	}
	for _, s := range b.datagrams {
		sum := &sums[s.rank]
		sum.add(s.to, s.fresh, s.repeated, s.empty, s.left, 0)
		sum.again += s.again
		sum.late = sum.late || s.late
	}
	for i := range b.updates {
		if u := &b.updates[i]; u.rounds != nil {
			sums[i].add(-1, u.fresh, u.repeated, 0, 0, 0)
		}
	}
	for i := range b.asked {
		s := &b.asked[i]
		sum := &sums[s.rank]
		sum.add(s.to, s.fresh, s.repeated, s.empty, 0, s.unseen*int64(s.largest)) // at most
		sum.late = sum.late || s.late
	}
	return sums
}

// Result implements Check.
func (b *bytesPerRank) Result() evidence.Result {
	r := evidence.Result{Name: "bytes-per-rank " + b.roles.Workload.Name, Measured: map[string]float64{}}
	from, to, within := b.roles.Workload.Within()
	if within && !b.roles.Workload.Across {
		r.Verdict = verdict.Inconclusive
		r.Summary = fmt.Sprintf("rank %d sends to rank %d on the same node, %s, which crosses no link",
			from.Rank, to.Rank, from.Node)
		return r
	}
	if b.roles.Encrypted() {
		r.Verdict, r.Summary = verdict.Inconclusive, encryptedReason
		return r
	}
	b.full = b.full || b.requests.Full()
	var f evidence.Finding
	if b.roles.Ambiguous > 0 {
		f.Unclear = append(f.Unclear, plural.Text("%d flows may be of several ranks that share an address",
			b.roles.Ambiguous))
	}
	var fresh, repeated uint64
	worst, most := 0.0, units.Bytes(0)
	for _, rank := range b.roles.Workload.Ranks {
		most = max(most, rank.Expected)
	}
	for i, sum := range b.sums() {
		rank := &b.roles.Workload.Ranks[i]
		fresh += sum.fresh
		repeated += sum.repeated
		deviation := 0.0
		if rank.Expected > 0 {
			deviation = payload{sum.fresh, sum.left}.off(rank.Expected) / float64(rank.Expected)
		}
		if math.Abs(deviation) > math.Abs(worst) {
			worst = deviation
		}
		r.Measured[rank.Measured("bytes")] = float64(sum.fresh)
		if rank.Empty != nil {
			r.Measured[rank.Measured("empty")] = float64(sum.empty)
		}
		r.Measured[rank.Measured("retransmitted")] = float64(sum.repeated)
		b.judge(&f, i, sum, most)
		b.judgeMissing(&f, i)
		r.Details = append(r.Details, plural.Text(
			"%s: %d bytes in %d flows, expected %d (%+.2f%%), %d bytes retransmitted",
			b.roles.Name(i), sum.fresh, sum.flows, rank.Expected, deviation*100, sum.repeated))
	}
	if pair, known := b.worstPair(); known {
		r.Measured["pair.deviation"] = pair
	}
	r.Measured["deviation"] = worst
	r.Measured["retransmitted"] = float64(repeated)
	r.Summary = plural.Text("%d ranks sent %d bytes, and sent %d again; largest deviation from the "+
		"algorithm: %+.2f%% of a rank's bytes", len(b.roles.Workload.Ranks), fresh, repeated, worst*100)
	if pair, known := r.Measured["pair.deviation"]; known {
		r.Summary += fmt.Sprintf(", %+.2f%% of the bytes from one rank to another", pair*100)
	}
	if len(b.roles.Workload.Ranks) == 0 {
		f.Unclear = append(f.Unclear, "the workload has no ranks")
	}
	if anew := b.requests.Anew(); anew > 0 {
		f.Unclear = append(f.Unclear, plural.Text("%d queue pairs continued with an unrelated PSN", anew))
	}
	if b.full {
		f.Unclear = append(f.Unclear, plural.Text("more than %d pairs of engines or queue pairs",
			maxRDSequences))
	}
	b.capture.Conclude(&r, b.roles.Need(b.capture), f)
	return r
}
