package cli_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"railbed/testkit/hosttest"
)

// echoPeer answers each datagram with itself, behind the node's name and the peer's port.
const echoPeer = `import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 53))
while True:
  d, a = s.recvfrom(65535)
  s.sendto(b'%s %d ' % (sys.argv[1].encode(), a[1]) + d, a)`

// ask sends a datagram until something comes back, and returns from which port the node saw it.
func ask(conn net.Conn, node string, say []byte) (port string, err error) {
	answer := make([]byte, 1<<16)
	for end := time.Now().Add(hosttest.Bound); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err = conn.Write(say); err != nil {
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		var n int
		if n, err = conn.Read(answer); err != nil {
			continue
		}
		parts := bytes.SplitN(answer[:n], []byte(" "), 3)
		if len(parts) != 3 || string(parts[0]) != node || !bytes.Equal(parts[2], say) {
			return "", fmt.Errorf("%d bytes came back for %d: %.20q; want the same behind %s and a port", n,
				len(say), answer[:n], node)
		}
		return string(parts[1]), nil
	}
	return "", err
}

// A published UDP port carries datagrams of any size both ways, for each peer by a port of its own.
// More peers than it remembers take the place of the quietest: neither they, nor another node's
// port, nor the control socket stay unanswered.
func TestPublishedUDPPortsAreBounded(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.CNIPlugins, hosttest.Python)
	const name, descriptors, attackers = "cli-bounded-udp", 800, 1000
	const most = descriptors / 4 / (2 * 6) // peers of a port: of two, each with six descriptors
	host, outside := managedHost(t)
	file := writeFile(t, fmt.Sprintf(`name: %s
fabric: {topology: single-switch, params: {hosts: 2}}
addressing: {management4: 172.31.252.0/24, management6: "fd00:d::/64"}
nodes: {h0: {management: {publish: ["18053:53/udp"]}}, h1: {management: {publish: ["18054:53/udp"]}}}
`, name))
	upWithFew(t, host, file, descriptors)
	for _, node := range []string{"h0", "h1"} {
		startIn(t, name, node, "python3", "-c", echoPeer, node)
	}
	t.Cleanup(func() { do(t, "down", name) }) // ends the programs, which the test waits for
	var peers []net.Conn
	defer func() {
		for _, conn := range peers {
			conn.Close()
		}
	}()
	dial := func(port string) net.Conn {
		t.Helper()
		if err := outside.ns.Do(func() error {
			conn, err := net.Dial("udp", "198.51.100.1:"+port)
			peers = append(peers, conn)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return peers[len(peers)-1]
	}
	first, second, other := dial("18053"), dial("18053"), dial("18054")
	asks := func(when string, conn net.Conn, node string, say []byte) string {
		t.Helper()
		port, err := ask(conn, node, say)
		if err != nil {
			t.Errorf("%s: %v", when, err)
		}
		return port
	}
	for _, size := range []int{1, 0, 1400, 60000} {
		asks(fmt.Sprintf("%d bytes", size), first, "h0", bytes.Repeat([]byte("x"), size))
	}
	if a, b := asks("a peer", first, "h0", []byte("a")),
		asks("another peer", second, "h0", []byte("b")); a == b {
		t.Errorf("the node sees two peers at port %s", a)
	}
	asks("another node", other, "h1", []byte("c"))

	held := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", supervisorOf(name)))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := held()
	for range attackers {
		if _, err := dial("18053").Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // so that the port's buffer holds them
	}
	hosttest.Until(t, "the peers' descriptors", func() bool { return held() >= before+most/2 })
	time.Sleep(time.Second) // the testbed may take more than it should
	if now := held(); now < before+most/2 || now > before+most+8 {
		t.Errorf("the supervisor had %d descriptors and has %d after %d peers, want %d more at most", before,
			now, attackers, most)
	}
	asks("the last of many peers", peers[len(peers)-1], "h0", []byte("x"))
	asks("a forgotten peer", first, "h0", []byte("e"))
	asks("another node after many peers", other, "h1", []byte("f"))
	wantInspect(t, name)
}
