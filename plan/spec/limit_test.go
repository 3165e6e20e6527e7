package spec

import (
	"strings"
	"testing"
)

// TestLimitsInTime: during and outside name a fault or a step of the file, in a check that can be limited.
func TestLimitsInTime(t *testing.T) {
	file := func(check string) error {
		_, err := Decode("f", []byte(`name: a
fabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: soft}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - fault: {where: h0, drop: {}, for: 1s}
  - fault: {name: lost, where: h1, drop: {}, for: 1s}
  - traffic: {name: bulk, from: [h0], to: [h1], for: 1s}
checks:
  - packets: `+check+"\n"))
		return err
	}
	for check, want := range map[string]string{
		"{rule: {never: ip}, during: fault-1}":             "",
		"{rule: {never: ip}, outside: lost}":               "",
		`{throughput: {rate: ">= 1mbit"}, during: bulk}`:   "",
		"{rule: {never: ip}, during: lots}":                `f:9:42: no fault or step is named "lots"; did you mean "lost"?`,
		"{rule: {never: ip}, during: fault-2}":             `no fault or step is named "fault-2"; did you mean "fault-1"?`,
		"{during: lost}":                                   "want exactly one of bytes-per-rank, ",
		"{rule: {never: ip}, during: lost, outside: bulk}": "during and outside are both set; remove one",
		"{deadlock: none, during: lost}": "f:9:31: during in a check of deadlock, which is about the whole " +
			"capture; remove it; it can be in checks of marks, ",
	} {
		switch err := file(check); {
		case err == nil && want != "", err != nil && want == "":
			t.Errorf("%s: %v, want %q", check, err, want)
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %q", check, err, want)
		}
	}
}
