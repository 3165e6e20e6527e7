package verify

import (
	"fmt"
	"math"

	"railbed/fabric/units"
	"railbed/testbed/verdict"
)

// A worker's count and the packets are two readings of one number. They may
// differ by this share, or by this many bytes: what a connection that was cut
// still had in its socket.
const (
	reportedShare = 0.001
	reportedBytes = 1024
)

// BytesPerRank compares what each rank sent with the formula of its algorithm
// and with the worker's own count. What a rank sent is the TCP payload of the
// workload's flows that left through its NIC's tap, each byte once:
// retransmissions are told apart by their sequence numbers, and reported.
type BytesPerRank struct {
	roles     *roles
	tolerance float64
	capture   *Capture
	streams   []*stream // by flow index
	rank      []int     // by flow index
}

// NewBytesPerRank makes the check. The tolerance is a share of the expected
// bytes, by which a rank may send more or less; headers of the transport and
// replies count as sent.
func NewBytesPerRank(w Workload, tolerance units.Ratio) *BytesPerRank {
	return &BytesPerRank{roles: newRoles(w), tolerance: tolerance.Float()}
}

// Begin implements Check.
func (b *BytesPerRank) Begin(c *Capture) { b.capture = c }

// Packet implements Check.
func (b *BytesPerRank) Packet(p *Packet) {
	if p.Direction != Out || p.Drop != "" || p.Payload == 0 && !p.SYN {
		return
	}
	role := b.roles.of(p.Flow)
	if !role.relevant || role.rank < 0 {
		return
	}
	if rank := &b.roles.workload.Ranks[role.rank]; p.Tap.Port != rank.NIC || p.Tap.Node != rank.Node {
		return
	}
	for len(b.streams) <= p.Flow.Index {
		b.streams = append(b.streams, nil)
		b.rank = append(b.rank, -1)
	}
	s := b.streams[p.Flow.Index]
	if s == nil {
		s = new(stream)
		b.streams[p.Flow.Index], b.rank[p.Flow.Index] = s, role.rank
	}
	s.add(p.Seq, p.Payload, p.SYN)
}

// sent is what one rank sent.
type sent struct {
	fresh, repeated uint64
	unseen          int64
	overflow        bool
	flows           int
}

func (b *BytesPerRank) sums() []sent {
	sums := make([]sent, len(b.roles.workload.Ranks))
	for i, s := range b.streams {
		if s == nil {
			continue
		}
		sum := &sums[b.rank[i]]
		sum.fresh += s.fresh
		sum.repeated += s.repeated
		sum.unseen += s.unseen()
		sum.overflow = sum.overflow || s.overflow
		sum.flows++
	}
	return sums
}

// Result implements Check.
func (b *BytesPerRank) Result() Result {
	r := Result{Name: "bytes-per-rank " + b.roles.workload.Name, Measured: map[string]float64{}}
	if from, to, within := b.roles.workload.neighboursWithin(); within {
		r.Verdict = verdict.Inconclusive
		r.Summary = fmt.Sprintf("rank %d sends to rank %d on the same node, %s, which crosses no link", from.Rank, to.Rank, from.Node)
		return r
	}
	taps, unclear := b.roles.taps(b.capture)
	if b.roles.ambiguous > 0 {
		unclear = append(unclear, fmt.Sprintf("%d flows may be of several ranks that share an address", b.roles.ambiguous))
	}
	lossy := b.capture.lossy(taps)
	var wrong []string
	var fresh, repeated uint64
	worst := 0.0
	for i, sum := range b.sums() {
		rank := &b.roles.workload.Ranks[i]
		fresh += sum.fresh
		repeated += sum.repeated
		deviation := 0.0
		if rank.Expected > 0 {
			deviation = float64(sum.fresh)/float64(rank.Expected) - 1
		}
		if math.Abs(deviation) > math.Abs(worst) {
			worst = deviation
		}
		r.Measured[fmt.Sprintf("rank%d.bytes", rank.Rank)] = float64(sum.fresh)
		r.Measured[fmt.Sprintf("rank%d.retransmitted", rank.Rank)] = float64(sum.repeated)
		w, u := b.judge(i, sum, lossy)
		wrong, unclear = append(wrong, w...), append(unclear, u...)
		r.Details = append(r.Details, fmt.Sprintf("%s: %d bytes in %d flows, expected %d (%+.2f%%), %d bytes retransmitted",
			b.roles.name(i), sum.fresh, sum.flows, rank.Expected, deviation*100, sum.repeated))
	}
	r.Measured["deviation"] = worst
	r.Measured["retransmitted"] = float64(repeated)
	r.Summary = fmt.Sprintf("%d ranks sent %d bytes, each at most %+.2f%% off what the algorithm sends; %d bytes retransmitted",
		len(b.roles.workload.Ranks), fresh, worst*100, repeated)
	if len(b.roles.workload.Ranks) == 0 {
		unclear = append(unclear, "the workload has no ranks")
	}
	b.capture.conclude(&r, taps, wrong, unclear)
	return r
}

// judge compares one rank's bytes with both numbers.
func (b *BytesPerRank) judge(i int, sum sent, lossy bool) (wrong, unclear []string) {
	rank := &b.roles.workload.Ranks[i]
	name := b.roles.name(i)
	if sum.fresh == 0 {
		return nil, []string{name + ": no packet of the workload"}
	}
	if sum.overflow {
		return nil, []string{fmt.Sprintf("%s: more than %d gaps in one flow", name, maxHoles)}
	}
	if sum.unseen > 0 {
		unclear = append(unclear, fmt.Sprintf("%s: %d bytes of its flows never passed its tap", name, sum.unseen))
	}
	// Packets that the tap lost explain too few bytes, but never too many.
	compare := func(what string, want, slack float64) {
		difference := float64(sum.fresh) - want
		if math.Abs(difference) <= slack {
			return
		}
		line := fmt.Sprintf("%s: sent %d bytes, %s %.0f (%+.2f%%)", name, sum.fresh, what, want, 100*difference/want)
		if difference < 0 && (lossy || sum.unseen > 0) {
			unclear = append(unclear, line)
		} else {
			wrong = append(wrong, line)
		}
	}
	compare("the algorithm sends", float64(rank.Expected), b.tolerance*float64(rank.Expected))
	if rank.Reported != nil {
		reported := float64(*rank.Reported)
		compare("the worker counted", reported, max(reportedBytes, reportedShare*reported))
	}
	return wrong, unclear
}
