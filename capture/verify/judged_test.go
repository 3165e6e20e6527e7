package verify

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/capture/verify/ranks"
	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// inFiles are the checks of specimens, as files write them.
var inFiles = map[string]string{
	"bytes-per-rank":            "bytes-per-rank: {workload: ar, tolerance: 2%}",
	"rank-nic":                  "rank-nic: ar",
	"crossed":                   "crossed: ar",
	"rail-local":                "rail-local: ar",
	"partial-sums":              "partial-sums: ar",
	"conservation":              `conservation: "*"`,
	"path-spread":               "path-spread: {switch: leaf1}",
	"marks":                     `marks: {share: "<= 1%", count: "== 0"}`,
	"drops":                     `drops: {count: "== 0"}`,
	"lossless":                  "lossless: {}",
	"trims":                     `trims: {count: ">= 1"}`,
	"pauses":                    `pauses: {count: "== 0"}`,
	"deadlock":                  "deadlock: none",
	"reordering":                `reordering: {share: "<= 1%"}`,
	"outage":                    `outage: {from: h0, longest: "<= 20ms"}`,
	"throughput":                `throughput: {from: h0, rate: ">= 1mbit"}`,
	"queue-depth":               `queue-depth: {max: "<= 30KB"}`,
	"pacing":                    "pacing: {workload: ar, rate: 100mbit}",
	"roce icrc":                 "roce: {rule: icrc}",
	"roce psn":                  "roce: {rule: psn}",
	"roce acks":                 "roce: {rule: acks}",
	"roce writes":               "roce: {rule: writes}",
	"roce go-back-n":            "roce: {rule: go-back-n}",
	"roce cnp":                  "roce: {rule: cnp}",
	"roce rate-decrease":        "roce: {rule: rate-decrease}",
	"that " + spec.ThatRDPlaced: "that: " + spec.ThatRDPlaced,
	"that " + spec.ThatRDNeeded: "that: " + spec.ThatRDNeeded,
	"latency":                   `latency: {from: h0, per: flow, p99: "<= 1ms"}`,
	"link-bytes":                `link-bytes: {link: "h0--leaf1 a-to-b", is: "<= 15KB"}`,
	"flows":                     `flows: {from: h0, count: "<= 1"}`,
	"rule never":                `rule: {never: 'railbed.verdict == "drop"'}`,
	"rule always":               "rule: {always: 'ip.dsfield.dscp == 24', where: tcp}",
	"rule count":                `rule: {count: 'udp.dstport == 17000', at: "h2:eth0", per: flow, is: "<= 100"}`,
	"rule count in a window":    `rule: {count: 'udp.dstport == 17000', at: h2, is: "<= 2", window: 2ms}`,
	"rule share":                `rule: {share: 'ip.dsfield.ecn == 3', where: ip, is: "<= 1%"}`,
	"rule after": `rule: {after: 'udp.dstport == 17000', expect: 'udp.srcport == 17000', within: 5ms,
  same: [ip.src=ip.dst, udp.srcport=udp.dstport], at: "h0:eth0"}`,
	"rule in-order": `rule: {in-order: tcp.seq_raw, at: "h2:eth0"}`,
	"rule sum":      `rule: {sum: frame.len, where: udp, at: "h2:eth0", is: "<= 14200"}`,
}

// TestJudgedExamples judges a sound and a broken run by each check that files can ask for. The findings are
// the examples of `railbed explain` and of the reference.
func TestJudgedExamples(t *testing.T) {
	var made []Judged
	for _, name := range everyCheck() {
		one := Judged{Check: inFiles[name]}
		if one.Check == "" || specimens[name] == nil {
			t.Errorf("%s has no example: want two runs in specimens_test.go, of which the check "+
				"passes one and fails the other, and the text of the check in inFiles above", name)
			continue
		}
		for _, broken := range []bool{false, true} {
			s, _ := specimens[name](t, broken)
			asked, _, err := spec.ParsePacketsCheck("example", one.Check, "ar")
			if err != nil {
				t.Fatal(err)
			}
			check, err := New(asked, Sources{
				Traffic:  func(string) (evidence.Workload, error) { return s.Workload, nil },
				Crossing: func(string) (Crossing, error) { return ranks.CrossingOf(s.Workload), nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			results, _ := s.Run(check)
			r := results[0]
			if want := map[bool]verdict.Verdict{false: pass, true: fail}[broken]; r.Verdict != want {
				t.Errorf("%s, broken %t: want %s: %v", one.Check, broken, want, r)
			}
			one.Kind = asked.Kind()
			if !broken {
				one.Pass = r.Summary
			} else if one.Fail = r.Summary; len(r.Details) > 0 {
				one.Detail = strings.TrimSpace(r.Details[0])
			}
		}
		made = append(made, one)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(made); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("judged.json", text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(text.Bytes(), judged) {
		t.Error("judged.json has other findings; make generate writes it")
	}
}
