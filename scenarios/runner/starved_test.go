package runner

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/usage"
	"railbed/reporting"
	"railbed/testkit/hosttest"
)

// Programs of a node that take the processors from the reader of a flood: the run names who starved, and is
// not faithful.
func TestStarvedReaderIsNamed(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Python)
	r := runAll(t, t.Context(), options(t, fmt.Sprintf(`
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: bridge}
  links: {default: {rate: 200mbit}}
steps:
  - exec: {name: reader, nodes: [h1], background: true, command: [nice, -n, "19", python3, -c,
	"import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.bind(('',5001))\ns.settimeout(20)\ntry:\n  while 1: s.recv(2000)\nexcept OSError: pass"]}
  - exec: {name: bound, nodes: [h1], command: [sh, -c,
	"until grep -q :1389 /proc/self/net/udp; do sleep 0.02; done"]}
  - exec: {name: loops, nodes: [h1], background: true, command: [sh, -c,
	"for i in $(seq %d); do timeout 2 sh -c 'while :; do :; done' & done; wait"]}
  - exec: {name: flood, nodes: [h0], command: [python3, -c,
	"import socket,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.connect(('h1',5001))\ne=time.time()+1.5\nwhile time.time()<e:\n  try: s.send(b'x'*100)\n  except OSError: pass"]}
`, 3*runtime.NumCPU())))
	f := r.Fidelity
	if len(f.Nodes) != 2 || f.Nodes[0].Node != "h1" || f.Nodes[0].Drops[usage.UDPReceiveBuffer] == 0 ||
		f.Nodes[0].Denied() < 0.2 || f.Verdict == report.Faithful ||
		!slices.ContainsFunc(f.Reasons, func(reason string) bool {
			return strings.HasPrefix(reason, "h1: its sockets had no room for ")
		}) {
		t.Errorf("%s %q, nodes %+v", f.Verdict, f.Reasons, f.Nodes)
	}
	var text strings.Builder
	err := reporting.WriteText(&text, r, reporting.TextOptions{Verbose: true})
	if err != nil || !strings.Contains(text.String(), "udp-receive-buffer ") {
		t.Errorf("%v\n%s", err, text.String())
	}
}
