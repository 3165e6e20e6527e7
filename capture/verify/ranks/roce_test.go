package ranks

import (
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/testkit/verifytest"
)

// roceRing is two ranks that write 3,000 bytes to each other, of which one packet goes
// twice, by queue pairs that they say are theirs.
func roceRing(t testing.TB) (*verifytest.Scene, [2]*verifytest.QP) {
	first := verifytest.NewQP(t, 4)
	s := first.Scene
	s.Workload.Ranks = []evidence.Rank{s.Workload.Ranks[0], s.Workload.Ranks[2]}
	first.Answerer = 1
	second := &verifytest.QP{Scene: s, Asker: 1, Answerer: 0, To: 0x1011, Back: 0x1012, PSN: 77, MSN: 0,
		Port: 0xC002}
	for i := range s.Workload.Ranks {
		sent := uint64(3000)
		rank := &s.Workload.Ranks[i]
		rank.Rank, rank.Transport, rank.Engines, rank.Flows = i, evidence.TransportRoCE, 0, nil
		rank.Expected, rank.Reported, rank.Missing = 3000, &sent, nil
		rank.QueuePairs = &evidence.QueuePairs{First: []uint32{0x1010, 0x10}[i], Count: 16}
	}
	for i, q := range []*verifytest.QP{first, second} {
		q.Connect(uint32(i + 1))
		for range 3 {
			q.Write()
			q.Ack(q.PSN.Add(-1), 1)
		}
		q.Ask(infiniband.WriteLast, q.PSN.Add(-1), 1000-3*verifytest.MTU)
		q.Read(700) // no bytes of the rank that asks
	}
	return s, [2]*verifytest.QP{first, second}
}

// TestRoCEBytesPerRank: payload of WRITEs counts once, for the rank that sent it, and
// only where it goes to a queue pair of the workload.
// silence has one of two ranks send nothing to the other's queue pairs, as the formula and
// its worker say.
func silence(s *verifytest.Scene, rank int) {
	s.Workload.Ranks[1-rank].QueuePairs.First = 0x9000
	s.Workload.Ranks[rank].Expected, s.Workload.Ranks[rank].Reported = 0, new(uint64)
}

// neighbour adds a rank that shares the address of rank 0 and is to send nothing. Rank 1 reports a peer of
// the queue pair to which rank 0 writes.
func neighbour(s *verifytest.Scene, peer int) {
	added := s.Workload.Ranks[0]
	added.Rank, added.Expected, added.Reported = 2, 0, new(uint64)
	added.QueuePairs = &evidence.QueuePairs{First: 0x5000, Count: 16}
	s.Workload.Ranks = append(s.Workload.Ranks, added)
	s.Workload.Pattern, s.Workload.Pairs = evidence.Pairs, [][2]int{{0, 1}, {1, 0}, {2, 1}}
	s.Workload.Ranks[1].QueuePairs.Peers = map[uint32]int{0x11: peer}
	s.Workload.Ranks[0].QueuePairs.Peers = map[uint32]int{0x1011: 1}
}

// emptied has rank 1 send three messages without a byte to a queue pair of its own, where it is
// to send so many.
func emptied(s *verifytest.Scene, q *verifytest.QP, want uint64) {
	s.Workload.Ranks[0].QueuePairs.First, q.To = 0x2000, 0x2001
	q.Connect(3)
	for range 3 {
		q.Next(infiniband.WriteOnly, 0)
	}
	s.Workload.Ranks[1].Expected, s.Workload.Ranks[1].Empty = 0, &evidence.Empty{Messages: want}
}

func TestRoCEBytesPerRank(t *testing.T) {
	for what, c := range map[string]struct {
		change func(s *verifytest.Scene, qs [2]*verifytest.QP)
		want   verdict.Verdict
		says   string
	}{
		"nothing": {func(*verifytest.Scene, [2]*verifytest.QP) {}, pass, "6000 bytes"},
		"a rank sends more": {func(s *verifytest.Scene, qs [2]*verifytest.QP) { qs[1].Write() }, fail,
			"sent 4000 bytes, the algorithm sends 3000"},
		"a rank sends less": {func(s *verifytest.Scene, _ [2]*verifytest.QP) {
			s.Workload.Ranks[1].Expected = 4000
		}, fail, "sent 3000 bytes, the algorithm sends 4000"},
		"a worker counts other bytes": {func(s *verifytest.Scene, _ [2]*verifytest.QP) {
			n := uint64(9000)
			s.Workload.Ranks[0].Reported = &n
		}, fail, "the worker counted 9000"},
		"a capture that began late": {func(s *verifytest.Scene, _ [2]*verifytest.QP) {
			s.Begin(4)
		}, verdict.Inconclusive,
			"bytes, the algorithm sends 3000"},
		"bytes of somebody else's": {func(s *verifytest.Scene, qs [2]*verifytest.QP) {
			qs[1].To = 0x5001
			qs[1].PSN = 9
			qs[1].Write()
		}, pass, "6000 bytes"},
		"requests never passed the tap": {func(s *verifytest.Scene, qs [2]*verifytest.QP) {
			qs[1].Write()
			qs[1].PSN = qs[1].PSN.Add(4)
			qs[1].Write()
			n := uint64(6000)
			s.Workload.Ranks[1].Expected, s.Workload.Ranks[1].Reported = 6000, &n
		}, verdict.Inconclusive, "never passed its tap"},
		"requests that left late": {func(s *verifytest.Scene, qs [2]*verifytest.QP) {
			qs[1].Ask(infiniband.WriteOnly, qs[1].PSN.Add(1), 10)
			qs[1].Ask(infiniband.WriteOnly, qs[1].PSN, 10)
			n := uint64(3020)
			s.Workload.Ranks[1].Expected, s.Workload.Ranks[1].Reported = 3020, &n
		}, pass, "6020 bytes"},
		"a queue pair's next life": {func(s *verifytest.Scene, qs [2]*verifytest.QP) {
			qs[1].PSN = qs[1].PSN.Add(1 << 20)
			qs[1].Write()
			n := uint64(4000)
			s.Workload.Ranks[1].Expected, s.Workload.Ranks[1].Reported = 4000, &n
		}, verdict.Inconclusive, "1 queue pair continued with an unrelated PSN"},
		"a rank is to send nothing": {func(s *verifytest.Scene, _ [2]*verifytest.QP) {
			silence(s, 1)
		}, pass, "expected 0"},
		"who is to send nothing sends": {func(s *verifytest.Scene, _ [2]*verifytest.QP) {
			s.Workload.Ranks[1].Expected = 0
		}, fail, "sent 3000 bytes, the algorithm sends 0 (+100.00%)"},
		"nobody is to send": {func(s *verifytest.Scene, _ [2]*verifytest.QP) {
			silence(s, 0)
			silence(s, 1)
		}, verdict.Inconclusive, "no packet of the workload"},
		"what goes to each": {func(s *verifytest.Scene, _ [2]*verifytest.QP) {
			s.Workload.Ranks[0].ExpectedTo, s.Workload.Ranks[1].ExpectedTo = []units.Bytes{0, 3000},
				[]units.Bytes{3000, 0}
		}, pass, "+0.00% of the bytes from one rank to another"},
		"what goes to another one": {func(s *verifytest.Scene, _ [2]*verifytest.QP) {
			s.Workload.Ranks[1].ExpectedTo = []units.Bytes{2500, 0}
		}, fail, "sent 3000 bytes to rank 0, the algorithm sends 2500 (+20.00%)"},
		"messages without a byte": {func(s *verifytest.Scene, qs [2]*verifytest.QP) {
			emptied(s, qs[1], 3)
		}, pass, "rank 1"},
		"one of them too few": {func(s *verifytest.Scene, qs [2]*verifytest.QP) {
			emptied(s, qs[1], 4)
		}, fail, "sent 3 messages, want 4 to 4"},
		"one of them too many": {func(s *verifytest.Scene, qs [2]*verifytest.QP) {
			emptied(s, qs[1], 2)
		}, fail, "sent 3 messages, want 2 to 2"},
		"one of them with a byte": {func(s *verifytest.Scene, qs [2]*verifytest.QP) {
			emptied(s, qs[1], 3)
			qs[1].Next(infiniband.WriteOnly, 1)
		}, fail, "sent 1 byte in messages that should have none"},
		"a silent rank of the same address": {func(s *verifytest.Scene, _ [2]*verifytest.QP) {
			neighbour(s, 0)
		}, pass, "6000 bytes"},
		"two ranks of one address without peers": {func(s *verifytest.Scene, _ [2]*verifytest.QP) {
			neighbour(s, 0)
			s.Workload.Ranks[1].QueuePairs.Peers = nil
		}, verdict.Inconclusive, "may be of several ranks that share an address"},
		"a peer of another address": {func(s *verifytest.Scene, _ [2]*verifytest.QP) {
			neighbour(s, 1)
		}, verdict.Inconclusive, "may be of several ranks that share an address"},
		"the other rank of the address sent": {func(s *verifytest.Scene, _ [2]*verifytest.QP) {
			neighbour(s, 2)
		}, fail, "sent 3000 bytes, the algorithm sends 0"},
		"queue pairs of others": {func(s *verifytest.Scene, _ [2]*verifytest.QP) {
			s.Workload.Ranks[1].QueuePairs.First = 0x9000
		}, verdict.Inconclusive, "no packet of the workload"},
	} {
		t.Run(what, func(t *testing.T) {
			s, qs := roceRing(t)
			c.change(s, qs)
			results, _ := s.Run(NewBytesPerRank(s.Workload, units.Ratio{Num: 2, Den: 100}))
			if got := results[0]; got.Verdict != c.want ||
				!strings.Contains(strings.Join(append(got.Details, got.Summary), "\n"), c.says) {
				t.Errorf("want %s and %q: %v", c.want, c.says, got)
			}
		})
	}
}
