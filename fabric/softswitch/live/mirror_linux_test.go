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

// A mirror that is down or deleted differs from the plan. A repair brings it back, and it shows frames
// again.
func TestMirrorIsRepaired(t *testing.T) {
	hosttest.Need(t, hosttest.IP)
	f, p, spaces := build(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, "+
		"switch: {kind: soft}}\nnodes: {h1: {nic-mirror: true}}\n")
	left, right := openBypass(t, p, spaces, "h0"), openBypass(t, p, spaces, "h1")
	for _, change := range [][]string{{"set", "mirror0", "down"}, {"del", "mirror0"}} {
		ip := exec.CommandContext(t.Context(), "ip", append([]string{"link"}, change...)...)
		if err := spaces["h1"].Do(ip.Run); err != nil {
			t.Fatal(change, err)
		}
		if err := f.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "h1:mirror0") {
			t.Errorf("%s: %v, want a difference of h1:mirror0", change, err)
		}
		if repairs, err := f.Repair(t.Context()); err != nil || len(repairs) != 1 {
			t.Errorf("%s: repaired %+v, %v", change, repairs, err)
		}
		before, err := mirrored(spaces["h1"])
		if err != nil {
			t.Fatal(change, err)
		}
		wantPass(t, left, right, "after the repair")
		if after, err := mirrored(spaces["h1"]); err != nil || after != before+1 {
			t.Errorf("%s: the mirror shows %d frames and then %d, %v; want one more", change, before, after,
				err)
		}
	}
}
