package follow

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Selection selects messages. Its zero value selects all.
type Selection struct {
	Workload string
	Rank     *int    // that sends or receives
	QP       *uint32 // destination
	// From and To are nodes, addresses, or addresses with ports; "" selects all.
	From, To string
}

// Select returns the indices of the selected messages, in the order of their starts.
func (r *Recording) Select(s Selection) (messages []int) {
	for i := range r.Messages {
		m := &r.Messages[i]
		f := &r.Flows[m.Flow]
		switch {
		case s.Workload != "" && f.Workload != s.Workload:
		case s.Rank != nil && (f.Workload == "" || f.FromRank != *s.Rank && f.ToRank != *s.Rank):
		case s.QP != nil && (f.Protocol != "roce" || m.QP != *s.QP):
		case !isEnd(s.From, f.From, f.Src), !isEnd(s.To, f.To, f.Dst):
		default:
			messages = append(messages, i)
		}
	}
	return messages
}

// isEnd reports whether a text names a node, its address, or its address with a port. "" names each.
func isEnd(text, node string, addr netip.AddrPort) bool {
	return text == "" || text == node || text == addr.Addr().String() || text == addr.String()
}

// Slowest returns up to count of the messages that took longest, the slowest first. Messages that did not
// arrive come before all others, as they took longest.
func (r *Recording) Slowest(messages []int, count int) []int {
	sorted := slices.Clone(messages)
	took := func(i int) int64 {
		if m := &r.Messages[i]; m.Placed > 0 {
			return m.Placed - m.Start
		}
		return r.End - r.Start
	}
	slices.SortStableFunc(sorted, func(a, b int) int { return cmp.Compare(took(b), took(a)) })
	return sorted[:min(count, len(sorted))]
}

// Sum adds up messages of a workload, or of a protocol outside of workloads. Times are in the testbed's own
// time.
type Sum struct {
	Workload string `json:"workload,omitempty"`
	Protocol string `json:"protocol"`
	Messages int    `json:"messages"`
	// Unfinished counts messages of which some byte did not arrive.
	Unfinished int           `json:"unfinished"`
	Bytes      int64         `json:"bytes"`
	Packets    int           `json:"packets"`
	Again      int           `json:"sent_again"`
	Lost       int           `json:"lost"`
	P50        time.Duration `json:"p50_ns"`
	P99        time.Duration `json:"p99_ns"`
	Most       time.Duration `json:"most_ns"`
	// Account is the sum over all messages, which overlap in time.
	Account Account `json:"account"`
}

// Sums adds up messages by workload and protocol, in the order in which these began.
func (r *Recording) Sums(messages []int) (sums []Sum) {
	var times [][]int64
	at := map[[2]string]int{}
	for _, i := range messages {
		m := &r.Messages[i]
		f := &r.Flows[m.Flow]
		key := [2]string{f.Workload, f.Protocol}
		n, known := at[key]
		if !known {
			n = len(sums)
			at[key] = n
			sums, times = append(sums, Sum{Workload: f.Workload, Protocol: f.Protocol}), append(times, nil)
		}
		s := &sums[n]
		s.Messages++
		s.Bytes += m.Bytes
		s.Packets += len(m.Packets)
		s.Again += m.Again
		s.Lost += m.Lost
		if m.Placed == 0 {
			if r.Sees(m.Flow, m.Start) {
				s.Unfinished++
			}
			continue
		}
		own := r.own(m.Account)
		s.Account.Add(&own)
		times[n] = append(times[n], m.Placed-m.Start)
	}
	for n := range sums {
		slices.Sort(times[n])
		rank := func(percent int) time.Duration { // nearest rank
			if len(times[n]) == 0 {
				return 0
			}
			return r.Own(times[n][(len(times[n])*percent+99)/100-1])
		}
		sums[n].P50, sums[n].P99, sums[n].Most = rank(50), rank(99), rank(100)
	}
	return sums
}
