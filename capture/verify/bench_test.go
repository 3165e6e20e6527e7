package verify

import (
	"bytes"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/testkit/verifytest"
)

// BenchmarkVerify runs all checks over a capture; see "make bench" for tshark on
// the same file.
func BenchmarkVerify(b *testing.B) {
	s := verifytest.NewScene(b)
	s.Ring(4)
	data := s.Write()
	b.ReportAllocs()
	var packets uint64
	for b.Loop() {
		results, summary, err := evidence.Run(b.Context(), bytes.NewReader(data),
			evidence.Options{Plan: s.Plan}, checksOf(s)...)
		if err != nil || results[0].Verdict != pass {
			b.Fatal(err, results)
		}
		packets += summary.Packets
	}
	b.ReportMetric(float64(packets)/b.Elapsed().Seconds(), "packets/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
}
