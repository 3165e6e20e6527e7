package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/internal/verdict"
)

// TestVerifyNamesTaps holds that a capture whose interfaces have other names is judged once
// --tap says which ports they are, and that no interface is left out without a word.
func TestVerifyNamesTaps(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte("name: x\nfabric: {topology: single-switch, params: {hosts: 2}}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	const ports = "h0:eth0, h1:eth0, leaf1:p0, leaf1:p1"
	one, two := writeCapture(t, "eth0", 1515), writeCapture(t, "eth0,eth1", 1515)
	strange := writeCapture(t, "eth\x1b[31m", 1515)
	const pcap = "../capture/verify/rocechecks/testdata/rxe/write-lost-behind.pcap"
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a name": {[]string{one, "--tap", "eth0=h0:eth0"}, verdict.ExitFail,
			"h0:eth0: 1 packet over the MTU of 1500"},
		"a number": {[]string{two, "--tap", "0=h0:eth0", "--tap", "eth1=h1:eth0"},
			verdict.ExitFail, "h0:eth0: 1 packet over the MTU of 1500"},
		"a pcap file": {[]string{pcap, "--tap", "0=h1:eth0", "--mtu", "1500"},
			verdict.ExitInconclusive, "1 tap in"},
		"no names": {[]string{pcap}, verdict.ExitUsage,
			"no interface of the capture is a port of the plan: the capture has 0, and the plan " + ports +
				"; say which is which, as in --tap 0=h0:eth0"},
		"other names": {[]string{two}, verdict.ExitUsage,
			"the capture has eth0, eth1, and the plan " + ports +
				"; say which is which, as in --tap eth0=h0:eth0"},
		"a part": {[]string{two, "--tap", "eth0=h0:eth0"}, verdict.ExitFail,
			"; not in the plan, and in no check: eth1\n"},
		"a part, as JSON": {[]string{two, "--tap", "eth0=h0:eth0", "-o", "json"}, verdict.ExitFail,
			"\"not_in_plan\": [\n    \"eth1\"\n  ]"},
		"no such interface": {[]string{two, "--tap", "eth2=h0:eth0"}, verdict.ExitUsage,
			"--tap eth2=h0:eth0: the capture has no interface eth2; it has eth0, eth1"},
		"no such port": {[]string{two, "--tap", "eth0=h0:eth1"}, verdict.ExitUsage,
			`"h0:eth1" is no port of the plan; did you mean "h0:eth0"?`},
		"no port": {[]string{two, "--tap", "eth0=h0"}, verdict.ExitUsage,
			"want INTERFACE=NODE:PORT, such as eth0=h0:eth0"},
		"no interface": {[]string{two, "--tap", "h0:eth0"}, verdict.ExitUsage,
			"want INTERFACE=NODE:PORT"},
		"an interface twice": {[]string{two, "--tap", "eth0=h0:eth0", "--tap", "eth0=h1:eth0"},
			verdict.ExitUsage, "interface eth0 is h0:eth0 already"},
		"a port twice": {[]string{two, "--tap", "eth0=h0:eth0", "--tap", "eth1=h0:eth0"},
			verdict.ExitUsage, "h0:eth0 is interface eth0 already"},
		"a name with an escape": {[]string{strange}, verdict.ExitUsage,
			`the capture has eth\x1b[31m, and the plan`},
	} {
		code, stdout, stderr := railbed("", append([]string{"verify", "--testbed-file", file}, c.args...)...)
		if code != c.code || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", name, code, c.code, c.says, stdout, stderr)
		}
	}
	code, stdout, stderr := railbed("", "verify", one, "--tap", "eth0=h0:eth0", "--check",
		`marks: {at: h0, count: ">= 1"}`)
	if code != verdict.ExitInconclusive || !strings.Contains(stdout, "marks h0") {
		t.Errorf("without a plan: exit %d:\n%s%s", code, stdout, stderr)
	}
	if _, out, _ := railbed("", "__complete", "verify", "x.pcapng", "--testbed-file", file, "--tap",
		"eth0="); !strings.Contains(out, "eth0=h1:eth0\n") {
		t.Errorf("completion: %s", out)
	}
}
