package rules

import (
	"bytes"
	"fmt"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// BenchmarkRules judges a capture by a rule of each kind, and by none.
func BenchmarkRules(b *testing.B) {
	s := verifytest.NewScene(b)
	s.Ring(4)
	data := s.Write()
	all := []string{`never: 'railbed.verdict == "drop"'`, `count: tcp, per: flow, is: "<= 1000000"`,
		`share: ip.dsfield.ecn == 3, where: ip, is: "<= 5%"`, `sum: frame.len, per: port, is: "<= 1GB"`,
		`in-order: tcp.seq_raw, where: tcp.len > 0`, `count: tcp, window: 1us, per: flow, is: "<= 100"`,
		`after: tcp.len > 0, expect: tcp.len == 0, within: 1s, same: [ip.src=ip.dst]`}
	for _, count := range []int{0, 1, len(all)} {
		b.Run(fmt.Sprintf("%d rules", count), func(b *testing.B) {
			b.ReportAllocs()
			var packets uint64
			for b.Loop() {
				var checks []evidence.Check
				for _, text := range all[:count] {
					asked, _, err := spec.ParsePacketsCheck("rule", "rule: {"+text+"}")
					if err != nil {
						b.Fatal(err)
					}
					check, err := New(asked.Rule, nil, nil)
					if err != nil {
						b.Fatal(err)
					}
					checks = append(checks, check)
				}
				_, summary, err := evidence.Run(b.Context(), bytes.NewReader(data),
					evidence.Options{Plan: s.Plan}, checks...)
				if err != nil {
					b.Fatal(err)
				}
				packets += summary.Packets
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
		})
	}
}
