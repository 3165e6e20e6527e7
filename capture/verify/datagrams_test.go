package verify

import (
	"bytes"
	"testing"

	"railbed/capture/verify/fabricchecks"
	"railbed/testkit/verifytest"
)

// The capture says how many datagrams could not be read.
func TestRDFaultsAreCounted(t *testing.T) {
	for snap, cut := range map[int]bool{0: false, 120: true} {
		s := verifytest.NewScene(t)
		s.RDRing(4)
		s.Snap = snap
		id, left := s.First(8)
		s.Change(func(k verifytest.Sighting) bool {
			return k.ID == id && k.Time > left+1000
		}, func(k *verifytest.Sighting) {
			k.Frame = bytes.Clone(k.Frame)
			k.Frame[42] = 0x50 // neither a block nor a datagram
		})
		_, summary := s.Run(fabricchecks.NewMTU(0))
		if summary.RDDamaged == 0 || summary.RDDamaged > 8 || summary.RDCut > 0 != cut {
			t.Errorf("snap length %d: %d damaged, %d cut off", snap, summary.RDDamaged, summary.RDCut)
		}
	}
}
