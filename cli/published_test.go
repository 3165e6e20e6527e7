package cli_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"railbed/testkit/hosttest"
)

// A server that accepts connections until its backlog is full, and answers none.
const deaf = "import socket, time\ns = socket.socket()\ns.bind(('', 80))\ns.listen(0)\nprint('deaf', " +
	"flush=True)\ntime.sleep(600)"

// A host on the network opens more connections to a published port than the testbed has
// descriptors, while the node answers none. The control socket and another node's port are still
// served.
func TestPublishedPortsAreBounded(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Busybox, hosttest.CNIPlugins, hosttest.Python)
	const name, descriptors, attackers = "cli-bounded", 800, 1500
	host, outside := managedHost(t)
	file := writeFile(t, fmt.Sprintf(`name: %s
fabric: {topology: single-switch, params: {hosts: 2}}
addressing: {management4: 172.31.253.0/24, management6: "fd00:c::/64"}
nodes: {h0: {management: {publish: ["18080:80"]}}, h1: {management: {publish: ["18081:80"]}}}
`, name))
	upWithFew(t, host, file, descriptors)
	startIn(t, name, "h0", "python3", "-c", deaf)
	startIn(t, name, "h1", "busybox", "httpd", "-f", "-p", "80", "-h", "/etc")
	t.Cleanup(func() { do(t, "down", name) }) // ends the programs, which the test waits for
	const other = "198.51.100.1:18081"
	if page, err := outside.from(func() (string, error) { return get(other) }); err != nil || page != "h1\n" {
		t.Fatalf("before: %q, %v", page, err)
	}
	var held []net.Conn
	defer func() {
		for _, conn := range held {
			conn.Close()
		}
	}()
	_, err := outside.from(func() (string, error) {
		for range attackers {
			conn, err := net.DialTimeout("tcp", "198.51.100.1:18080", 5*time.Second)
			if err != nil {
				return "", err
			}
			held = append(held, conn)
		}
		return "", nil
	})
	if err != nil {
		t.Fatalf("after %d connections: %v", len(held), err)
	}
	time.Sleep(time.Second) // the testbed takes what it takes
	if page, err := outside.from(func() (string, error) { return get(other) }); err != nil || page != "h1\n" {
		t.Errorf("another node's port: %q, %v; want the page of h1", page, err)
	}
	wantInspect(t, name)
}

// upWithFew brings a testbed up in a host's network, with a limit on descriptors.
func upWithFew(t *testing.T, host *container, file string, descriptors int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	up := exec.Command("bash", "-c", fmt.Sprintf(`ulimit -n %d && exec -a railbed "$0" up "$1"`, descriptors),
		self, file)
	if err := host.ns.Do(func() error {
		if output, err := up.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// wantInspect requires that a testbed with a node h1 answers inspect within 20 s.
func wantInspect(t *testing.T, name string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	inspect := exec.CommandContext(ctx, "bash", "-c", `exec -a railbed "$0" inspect "$1"`, self, name)
	if output, err := inspect.CombinedOutput(); err != nil || !strings.Contains(string(output), "h1") {
		t.Errorf("inspect: %v: %s", err, output)
	}
}
