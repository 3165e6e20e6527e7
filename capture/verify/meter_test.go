package verify

import (
	"math/rand/v2"
	"testing"
	"time"

	"railbed/capture/verify/evidence"
)

// TestMeterAgainstPackets compares what a meter has of each interval with a sum over
// all packets.
func TestMeterAgainstPackets(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		m := &meter{asked: 1e6, mtu: 1500}
		bytes := map[int64]uint64{}
		now, longest := int64(0), 0
		for range 3000 {
			p := &evidence.Packet{Time: now, Due: now, Length: 60 + random.IntN(1400), Depth: 1}
			m.add(p)
			bytes[now/int64(RateInterval)] += uint64(p.Length)
			longest = max(longest, p.Length)
			if random.IntN(400) == 0 {
				now += random.Int64N(3e9)
			}
			now += random.Int64N(1e7)
		}
		var most uint64
		for _, n := range bytes {
			most = max(most, n)
		}
		busiest, shares, busy := m.rate(true)
		if busiest != float64(most)*8/RateInterval.Seconds() || len(m.done) != len(bytes)-1 {
			t.Fatalf("seed %d: busiest %v in %d intervals, want %d bytes of %d", seed, busiest, len(m.done),
				most, len(bytes)-1)
		}
		if len(shares) == 0 || len(shares) >= len(bytes) || busy < time.Duration(len(shares))*busyLeast {
			t.Fatalf("seed %d: %d of %d intervals were busy, for %v", seed, len(shares), len(bytes), busy)
		}
	}
}
