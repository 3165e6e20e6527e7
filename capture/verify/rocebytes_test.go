package verify

import (
	"strings"
	"testing"

	"railbed/internal/infiniband"
	"railbed/internal/units"
	"railbed/internal/verdict"
)

// roceRing is two ranks that write 3,000 bytes to each other, of which one packet goes
// twice, by queue pairs that they say are theirs.
func roceRing(t testing.TB) (*scene, [2]*roceQP) {
	first := newRoCEScene(t, 4)
	s := first.scene
	s.workload.Ranks = []Rank{s.workload.Ranks[0], s.workload.Ranks[2]}
	first.answerer = 1
	second := &roceQP{scene: s, asker: 1, answerer: 0, to: 0x1011, back: 0x1012, psn: 77, msn: 0,
		port: 0xC002}
	for i := range s.workload.Ranks {
		sent := uint64(3000)
		rank := &s.workload.Ranks[i]
		rank.Rank, rank.Transport, rank.Engines, rank.Flows = i, TransportRoCE, 0, nil
		rank.Expected, rank.Reported, rank.Missing = 3000, &sent, nil
		rank.QueuePairs = &QueuePairs{First: []uint32{0x1010, 0x10}[i], Count: 16}
	}
	for i, q := range []*roceQP{first, second} {
		q.connect(uint32(i + 1))
		for range 3 {
			q.write()
			q.ack(q.psn.Add(-1), 1)
		}
		q.ask(infiniband.WriteLast, q.psn.Add(-1), 1000-3*roceMTU)
		q.read(700) // no bytes of the rank that asks
	}
	return s, [2]*roceQP{first, second}
}

// TestRoCEBytesPerRank: payload of WRITEs counts once, for the rank that sent it, and
// only where it goes to a queue pair of the workload.
// silence has one of two ranks send nothing to the other's queue pairs, as the formula and
// its worker say.
func silence(s *scene, rank int) {
	s.workload.Ranks[1-rank].QueuePairs.First = 0x9000
	s.workload.Ranks[rank].Expected, s.workload.Ranks[rank].Reported = 0, new(uint64)
}

// emptied has rank 1 send three messages without a byte to a queue pair of its own, where it is
// to send so many.
func emptied(s *scene, q *roceQP, want uint64) {
	s.workload.Ranks[0].QueuePairs.First, q.to = 0x2000, 0x2001
	q.connect(3)
	for range 3 {
		q.next(infiniband.WriteOnly, 0)
	}
	s.workload.Ranks[1].Expected, s.workload.Ranks[1].Empty = 0, &Empty{Messages: want}
}

func TestRoCEBytesPerRank(t *testing.T) {
	for what, c := range map[string]struct {
		change func(s *scene, qs [2]*roceQP)
		want   verdict.Verdict
		says   string
	}{
		"nothing": {func(*scene, [2]*roceQP) {}, pass, "6000 bytes"},
		"a rank sends more": {func(s *scene, qs [2]*roceQP) { qs[1].write() }, fail,
			"sent 4000 bytes, the algorithm sends 3000"},
		"a rank sends less": {func(s *scene, _ [2]*roceQP) {
			s.workload.Ranks[1].Expected = 4000
		}, fail, "sent 3000 bytes, the algorithm sends 4000"},
		"a worker counts other bytes": {func(s *scene, _ [2]*roceQP) {
			n := uint64(9000)
			s.workload.Ranks[0].Reported = &n
		}, fail, "the worker counted 9000"},
		"a capture that began late": {func(s *scene, _ [2]*roceQP) { s.begin(4) }, verdict.Inconclusive,
			"bytes, the algorithm sends 3000"},
		"bytes of somebody else's": {func(s *scene, qs [2]*roceQP) {
			qs[1].to = 0x5001
			qs[1].psn = 9
			qs[1].write()
		}, pass, "6000 bytes"},
		"requests never passed the tap": {func(s *scene, qs [2]*roceQP) {
			qs[1].write()
			qs[1].psn = qs[1].psn.Add(4)
			qs[1].write()
			n := uint64(6000)
			s.workload.Ranks[1].Expected, s.workload.Ranks[1].Reported = 6000, &n
		}, verdict.Inconclusive, "never passed its tap"},
		"requests that left late": {func(s *scene, qs [2]*roceQP) {
			qs[1].ask(infiniband.WriteOnly, qs[1].psn.Add(1), 10)
			qs[1].ask(infiniband.WriteOnly, qs[1].psn, 10)
			n := uint64(3020)
			s.workload.Ranks[1].Expected, s.workload.Ranks[1].Reported = 3020, &n
		}, pass, "6020 bytes"},
		"a queue pair's next life": {func(s *scene, qs [2]*roceQP) {
			qs[1].psn = qs[1].psn.Add(1 << 20)
			qs[1].write()
			n := uint64(4000)
			s.workload.Ranks[1].Expected, s.workload.Ranks[1].Reported = 4000, &n
		}, verdict.Inconclusive, "1 queue pairs went on with a PSN from elsewhere"},
		"a rank is to send nothing": {func(s *scene, _ [2]*roceQP) { silence(s, 1) }, pass, "expected 0"},
		"who is to send nothing sends": {func(s *scene, _ [2]*roceQP) {
			s.workload.Ranks[1].Expected = 0
		}, fail, "sent 3000 bytes, the algorithm sends 0 (+100.00%)"},
		"nobody is to send": {func(s *scene, _ [2]*roceQP) {
			silence(s, 0)
			silence(s, 1)
		}, verdict.Inconclusive, "no packet of the workload"},
		"what goes to each": {func(s *scene, _ [2]*roceQP) {
			s.workload.Ranks[0].ExpectedTo, s.workload.Ranks[1].ExpectedTo = []units.Bytes{0, 3000},
				[]units.Bytes{3000, 0}
		}, pass, "to each other rank is at most +0.00% off"},
		"what goes to another one": {func(s *scene, _ [2]*roceQP) {
			s.workload.Ranks[1].ExpectedTo = []units.Bytes{2500, 0}
		}, fail, "sent 3000 bytes to rank 0, the algorithm sends 2500 (+20.00%)"},
		"messages without a byte": {func(s *scene, qs [2]*roceQP) { emptied(s, qs[1], 3) }, pass, "rank 1"},
		"one of them too few": {func(s *scene, qs [2]*roceQP) {
			emptied(s, qs[1], 4)
		}, fail, "sent 3 messages, want 4 to 4"},
		"one of them too many": {func(s *scene, qs [2]*roceQP) {
			emptied(s, qs[1], 2)
		}, fail, "sent 3 messages, want 2 to 2"},
		"one of them with a byte": {func(s *scene, qs [2]*roceQP) {
			emptied(s, qs[1], 3)
			qs[1].next(infiniband.WriteOnly, 1)
		}, fail, "sent 1 bytes in messages that have none"},
		"queue pairs of others": {func(s *scene, _ [2]*roceQP) {
			s.workload.Ranks[1].QueuePairs.First = 0x9000
		}, verdict.Inconclusive, "no packet of the workload"},
	} {
		t.Run(what, func(t *testing.T) {
			s, qs := roceRing(t)
			c.change(s, qs)
			results, _ := s.run(NewBytesPerRank(s.workload, units.Ratio{Num: 2, Den: 100}))
			if got := results[0]; got.Verdict != c.want ||
				!strings.Contains(strings.Join(append(got.Details, got.Summary), "\n"), c.says) {
				t.Errorf("want %s and %q: %v", c.want, c.says, got)
			}
		})
	}
}
