package live_test

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"
	"time"

	"railbed/testkit/hosttest"
)

// tcpdump at the mirror shows what a program sends and receives past the kernel, once and in order, and
// nothing else. The kernel takes none of it.
func TestMirrorForTcpdump(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Tcpdump) // in a user namespace it cannot become its own user
	f, p, spaces := build(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, "+
		"switch: {kind: soft}, links: {default: {rate: 100mbit, mtu: 1500}}}\n"+
		"nodes: {h1: {nic-mirror: true}}\n")
	left, right := openBypass(t, p, spaces, "h0"), openBypass(t, p, spaces, "h1")
	dump := exec.CommandContext(t.Context(), "tcpdump", "-n", "-l", "-Q", "in", "--immediate-mode", "-A",
		"-s0", "-i", "mirror0")
	output, err := dump.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	ready, err := dump.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := spaces["h1"].Do(dump.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dump.Process.Kill()
		dump.Wait()
	})
	for lines := bufio.NewScanner(ready); lines.Scan() && !strings.Contains(lines.Text(), "listening on"); {
	}
	left.send(t, right.addr, bypassPort, time.Time{}, []byte("to-the-mirrored"))
	right.receive(t)
	right.send(t, left.addr, bypassPort, time.Time{}, []byte("from-the-mirrored"))
	left.receive(t)
	left.send(t, right.addr, bypassPort, time.Time{}, []byte("the-end"))
	right.receive(t)
	var shown []string
	for lines := bufio.NewScanner(output); lines.Scan(); {
		for _, word := range []string{"to-the-mirrored", "from-the-mirrored", "the-end"} {
			if strings.Contains(lines.Text(), word) {
				shown = append(shown, word)
			}
		}
		if len(shown) > 0 && shown[len(shown)-1] == "the-end" {
			break
		}
	}
	if got := strings.Join(shown, " "); got != "to-the-mirrored from-the-mirrored the-end" {
		t.Errorf("tcpdump shows %q", got)
	}
	if s := nicState(t, f, "h1"); s.Bypass.Received != 2 || s.Bypass.Sent != 1 || s.Bypass.MirrorFailed != 0 {
		t.Errorf("%+v, want 2 frames received, 1 sent and none that the mirror did not take", s.Bypass)
	}
}
