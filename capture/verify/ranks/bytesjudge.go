package ranks

import (
	"cmp"
	"fmt"
	"math"

	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/internal/units"
)

// worstPair returns the largest deviation, as a share, of the bytes from one rank to another from
// the expected number. It is not known where no such number is expected.
func (b *bytesPerRank) worstPair() (worst float64, known bool) {
	for i, sum := range b.sums() {
		for to, want := range b.roles.Workload.Ranks[i].ExpectedTo {
			if want == 0 {
				continue
			}
			known = true
			if deviation := sum.to[to].off(want) / float64(want); math.Abs(deviation) > math.Abs(worst) {
				worst = deviation
			}
		}
	}
	return worst, known
}

// judgeEmpty compares the number of messages without payload that a rank sent with the expected
// number.
func (b *bytesPerRank) judgeEmpty(f *evidence.Finding, i int, sum sent) {
	name, want := b.roles.Name(i), b.roles.Workload.Ranks[i].Empty.Messages
	if sum.flows == 0 {
		f.Unclear = append(f.Unclear, name+": no packet of the workload")
		return
	}
	least, most := float64(want)*(1-b.tolerance), float64(want)*(1+b.tolerance)
	line := plural.Text("%s: sent %d messages, want %.0f to %.0f", name, sum.empty, least, most)
	switch count := float64(sum.empty); {
	case count >= least && count <= most:
	case sum.blind > 0 || count < least && b.partly(i, sum):
		f.Unclear = append(f.Unclear, line)
	case count < least:
		f.Absent = append(f.Absent, line)
	default:
		f.Wrong = append(f.Wrong, line)
	}
	if sum.fresh > 0 && sum.empty <= want {
		f.Wrong = append(f.Wrong, plural.Text("%s: sent %d bytes in messages that should have none", name,
			sum.fresh))
	}
}

// partly reports whether the capture may lack bytes of a rank.
func (b *bytesPerRank) partly(i int, sum sent) bool {
	return sum.gaps() || b.unread[i] > 0 || b.full
}

// judge compares one rank's bytes with both numbers. most is the largest expected number of any
// rank.
func (b *bytesPerRank) judge(f *evidence.Finding, i int, sum sent, most units.Bytes) {
	rank := &b.roles.Workload.Ranks[i]
	name := b.roles.Name(i)
	if b.unread[i] > 0 {
		f.Unclear = append(f.Unclear, plural.Text("%s: %d datagrams cannot be read", name, b.unread[i]))
	}
	all := payload{sum.fresh, sum.left}
	switch {
	case rank.Empty != nil:
		b.judgeEmpty(f, i, sum)
		return
	case sum.stream == 0 && sum.empty == 0 && (rank.Expected > 0 || most == 0):
		f.Unclear = append(f.Unclear, name+": no packet of the workload")
		return
	case sum.overflow:
		f.Unclear = append(f.Unclear, plural.Text("%s: more than %d gaps in one flow", name, maxHoles))
		return
	case sum.unseen > 0:
		f.Unclear = append(f.Unclear, plural.Text("%s: %d bytes of its flows never passed its tap", name,
			sum.unseen))
	}
	if sum.again > 0 && all.off(rank.Expected) != 0 {
		f.Unclear = append(f.Unclear, plural.Text(
			"%s: %d bytes of its flows passed its tap only when they were sent again", name, sum.again))
	}
	// Packets that the tap lost, or that left before the capture, explain too few bytes, but never
	// too many.
	compare := func(what string, sent payload, want units.Bytes, slack float64) {
		difference := sent.off(want)
		if math.Abs(difference) <= slack {
			return
		}
		line := plural.Text("%s: sent %d bytes%s %d (%+.2f%%)", name, sent.bytes, what, uint64(want),
			100*difference/float64(cmp.Or(want, most)))
		switch {
		case difference < 0 && b.partly(i, sum), difference > 0 && difference <= float64(sum.blind):
			f.Unclear = append(f.Unclear, line)
		case difference < 0:
			f.Absent = append(f.Absent, line)
		default:
			f.Wrong = append(f.Wrong, line)
		}
	}
	compare(", the algorithm sends", all, rank.Expected, b.tolerance*float64(cmp.Or(rank.Expected, most)))
	for to, want := range rank.ExpectedTo {
		if other := &b.roles.Workload.Ranks[to]; other.Node != rank.Node {
			slack := b.tolerance * float64(max(want, rank.Expected/units.Bytes(len(rank.ExpectedTo))))
			compare(fmt.Sprintf(" to rank %d, the algorithm sends", other.Rank), sum.to[to], want, slack)
		}
	}
	if _, _, within := b.roles.Workload.Within(); rank.Reported != nil && !within {
		compare(", the worker counted", payload{bytes: sum.stream}, units.Bytes(*rank.Reported),
			max(reportedBytes, reportedShare*float64(*rank.Reported)))
	}
}
