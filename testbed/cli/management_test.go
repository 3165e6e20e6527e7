package cli_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/testbed/hosttest"
	"railbed/testbed/verdict"
)

// railbed runs the command in the container's namespace.
func (c *container) railbed(t *testing.T, args ...string) outcome {
	t.Helper()
	cmd := command(args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := c.ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its exit code says it
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// get fetches a page from the namespace of the caller, once somebody listens.
func get(address string) (text string, err error) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var conn net.Conn
		if conn, err = net.DialTimeout("tcp", address, time.Second); err != nil {
			continue
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
		var response *http.Response
		if response, err = client.Get("http://" + address + "/hostname"); err != nil {
			continue
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		return string(body), err
	}
	return "", err
}

// A node that asks for it, and no other, reaches the host, which reaches it, by the
// port that is published, too. Nothing of that is left when the supervisor is killed.
func TestManagement(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Busybox, hosttest.CNIPlugins)
	const name = "cli-management"
	host := newContainer(t, "host") // stands for the host, so that the real one is left alone
	host.must(t, "ip", "link", "set", "lo", "up")
	text := fmt.Sprintf("name: %s\nfabric: {topology: single-switch, params: {hosts: 3}}\nnodes: {h0: {management: {publish: [\"18080:80\"]}}, h1: {management: {}}}\n", name)
	file := writeFile(t, text)
	before := host.must(t, "ip", "-o", "address") + host.must(t, "ip", "route") + host.must(t, "iptables-save")
	if got := host.railbed(t, "up", file); got.code != 0 {
		t.Fatal(got)
	}
	t.Cleanup(func() { do(t, "down", name) })
	serve := command("exec", "h0", "-t", name, "--", "busybox", "httpd", "-f", "-p", "80", "-h", "/etc")
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer serve.Wait()
	for _, address := range []string{"127.0.0.1:18080", "172.31.254.1:18080", "172.31.254.2:80"} {
		var page string
		err := host.ns.Do(func() (err error) {
			page, err = get(address)
			return err
		})
		if err != nil || page != "h0\n" {
			t.Errorf("%s: %q, %v; want the page of h0", address, page, err)
		}
	}
	for node, reaches := range map[string]bool{"h1": true, "h2": false} {
		if got := do(t, "exec", node, "-t", name, "--", "ping", "-c1", "-W1", "172.31.254.254"); (got.code == 0) != reaches {
			t.Errorf("%s pings the host: exit %d, want %t", node, got.code, reaches)
		}
	}
	must(t, "inspect", name, "--verify")
	if got := host.railbed(t, "up", file); got.code != 0 || !strings.Contains(got.stdout, "up already") {
		t.Errorf("up again: %+v", got)
	}
	other := writeFile(t, strings.Replace(text, name, name+"2", 1))
	if got := host.railbed(t, "up", other); got.code == 0 || !strings.Contains(got.stderr, "addressing.management4") {
		t.Errorf("a second one with the same subnet: %+v", got)
	}
	noTrace(t, name+"2")
	if err := syscall.Kill(supervisorOf(name), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	after := ""
	for end := time.Now().Add(5 * time.Second); after != before && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		after = host.must(t, "ip", "-o", "address") + host.must(t, "ip", "route") + host.must(t, "iptables-save")
	}
	if after != before {
		t.Errorf("the host has\n%s\nand had\n%s", after, before)
	}
	// The port is free again, and one that is not is told.
	var listener net.Listener
	if err := host.ns.Do(func() (err error) { listener, err = net.Listen("tcp", ":18080"); return err }); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if got := host.railbed(t, "up", file); got.code == verdict.ExitPass || !strings.Contains(got.stderr, "publish port 80 of h0: listen tcp :18080") {
		t.Errorf("a port that is taken: %+v", got)
	}
	noTrace(t, name)
}
