package bpf

import (
	"strings"
	"testing"

	"railbed/plan/spec"
)

// parse reads a fault as in a file.
func parse(t testing.TB, text string) *spec.Fault {
	t.Helper()
	f, err := spec.ParseFault("test", text)
	if err != nil {
		t.Fatal(err)
	}
	return &f
}

// TestCheck compiles faults, and refuses those that programs cannot express.
func TestCheck(t *testing.T) {
	for _, test := range []struct{ match, action, want string }{
		{"", "drop: {}", ""},
		{"udp", "drop: {nth: [5]}", ""},
		{"ip.src == 10.0.0.0/9 && !(tcp.len > 0 || udp)", "drop: {every: 3}", ""},
		{"infiniband.bth.psn == 5 || rd.data.message in {1..4, 9}", "mark: {}", ""},
		{"infiniband.ieth && infiniband.aeth.msn != 3", "truncate: {to: 64B}", ""},
		{"ipv6.src == ipv6.dst || udp.srcport === udp.dstport", "corrupt: {share: 1%}", ""},
		{"eth.src == 02:00:00:00:00:01 and frame.len > 100", "duplicate: {}", ""},
		{"", "delay: {by: 1ms}", "delay is not possible at a kernel link or switch"},
		{`udp && frame contains "GET"`, "drop: {}", "column 8: contains for frame is not possible"},
		{"eth.src[0:3] == 02:00:00", "drop: {}", "column 1: a slice of eth.src is not possible"},
		{"udp || vlan.id == 3", "drop: {}", "column 8: vlan.id is not readable"},
		{"railbed_gfc", "drop: {}", "column 1: railbed_gfc is not readable: only soft switches"},
		{"udp == 01:02", "drop: {}", "column 1: a comparison of the bytes of udp is not possible"},
		{"eth.src == ip.src", "drop: {}",
			"column 1: eth.src, which is an Ethernet address, compared with ip.src"},
	} {
		_, err := compile(parse(t, `{where: all, match: '`+test.match+`', `+test.action+`}`), test.match)
		switch {
		case err == nil && test.want != "":
			t.Errorf("%s of %s compiles, want %q", test.action, test.match, test.want)
		case err != nil && (test.want == "" || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s of %s: %v, want %q", test.action, test.match, err, test.want)
		}
	}
}
