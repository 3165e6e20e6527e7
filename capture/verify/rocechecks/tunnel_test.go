package rocechecks

import (
	"slices"
	"testing"

	"railbed/internal/infiniband"
	"railbed/testkit/verifytest"
)

// TestTunnels: RoCEv2 in an IP tunnel has an ICRC that covers no header of the tunnel. Checks judge the outer
// packets, which are no RoCEv2, and so find nothing.
func TestTunnels(t *testing.T) {
	q := verifytest.NewQP(t, 4)
	q.Snap = 2000
	for range 3 {
		q.Next(infiniband.WriteOnly, 952, verifytest.Length(952))
	}
	q.Now += 1_000_000_000
	results, _ := q.Run(newICRC())
	verifytest.Wants(t, results[0], pass, "")
	q.Change(func(verifytest.Sighting) bool { return true }, func(k *verifytest.Sighting) {
		outer := slices.Clone(k.Frame[14:34])
		outer[9], outer[2], outer[3] = 4, byte((len(k.Frame)+6)>>8), byte(len(k.Frame)+6)
		k.Frame = slices.Concat(k.Frame[:14], outer, k.Frame[14:])
		k.Length = len(k.Frame)
	})
	results, _ = q.Run(newICRC())
	verifytest.Wants(t, results[0], unclear, "")
}
