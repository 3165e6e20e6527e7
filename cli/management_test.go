package cli_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"

	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/dockertest"
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
	for end := time.Now().Add(hosttest.Bound); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var conn net.Conn
		if conn, err = net.DialTimeout("tcp", address, time.Second); err != nil {
			continue
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
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

// echoed returns the reply to a datagram from the address to which it was sent.
func echoed(address, say string) (string, error) {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	answer := make([]byte, 100)
	for end := time.Now().Add(hosttest.Bound); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err = conn.Write([]byte(say)); err != nil {
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		var n int
		if n, err = conn.Read(answer); err == nil {
			return string(answer[:n]), nil
		}
	}
	return "", err
}

// echo answers each datagram.
const echo = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('', 53))\nwhile " +
	"True:\n  d, a = s.recvfrom(99)\n  s.sendto(b'h0: ' + d, a)"

// managedHost stands for the host, so that the real one is left alone, with somebody
// outside behind its interface.
func managedHost(t *testing.T) (host, outside *container) {
	t.Helper()
	host, outside = newContainer(t, "host"), newContainer(t, "outside")
	for _, c := range []*container{host, outside} {
		c.must(t, "ip", "link", "set", "lo", "up")
	}
	host.must(t, "ip", "link", "add", "out", "type", "veth", "peer", "name", "in")
	if err := host.ns.Do(func() error {
		return exec.Command("ip", "link", "set", "in", "netns", outside.path).Run()
	}); err != nil {
		t.Fatal(err)
	}
	for c, args := range map[*container]string{host: "198.51.100.1/24 dev out",
		outside: "198.51.100.2/24 dev in"} {
		c.must(t, append([]string{"ip", "address", "add"}, strings.Fields(args)...)...)
		c.must(t, "ip", "link", "set", args[strings.LastIndex(args, " ")+1:], "up")
	}
	host.must(t, "ip", "address", "add", "2001:db8:1::1/64", "dev", "out", "nodad")
	outside.must(t, "ip", "address", "add", "2001:db8:1::2/64", "dev", "in", "nodad")
	return host, outside
}

// state is all of the host that a management network could leave something in.
func (c *container) state(t *testing.T) string {
	// A carrier may come a moment later than its link, and with it what IPv6 makes of it.
	v6 := regexp.MustCompile(`(?m)^.*fe80.*\n`).ReplaceAllString(
		c.must(t, "ip", "-6", "-o", "address")+c.must(t, "ip", "-6", "route"), "")
	return v6 + c.must(t, "ip", "-4", "-o", "address") +
		strings.ReplaceAll(c.must(t, "ip", "route"), "linkdown ", "") + c.must(t, "iptables", "-S") +
		c.must(t, "iptables", "-S", "-t", "nat") + c.must(t, "sysctl", "net.ipv4.ip_forward")
}

// from returns the result of a function in the container's namespace.
func (c *container) from(do func() (string, error)) (text string, err error) {
	err = c.ns.Do(func() (err error) {
		text, err = do()
		return err
	})
	return text, err
}

// start starts a program in a node, which ends with the testbed.
func startIn(t *testing.T, name, node string, args ...string) {
	t.Helper()
	serve := command(append([]string{"exec", node, "-t", name, "--"}, args...)...)
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serve.Wait() })
}

// A node that asks for it, and no other, reaches the host, which reaches it, by the
// ports that are published, too. Nothing of that is left when the supervisor is killed.
func TestManagement(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Busybox, hosttest.CNIPlugins, hosttest.Python)
	const name = "cli-management"
	host, outside := managedHost(t)
	text := fmt.Sprintf("name: %s\nfabric: {topology: single-switch, params: {hosts: 3}}\naddressing: "+
		"{management4: 172.31.254.0/24, management6: \"fd00:b::/64\"}\nnodes: {h0: {management: {publish: "+
		"[\"18080:80\", \"18053:53/udp\"]}}, h1: {management: {}}}\n", name)
	file := writeFile(t, text)
	before := host.state(t)
	if got := host.railbed(t, "up", file); got.code != 0 {
		t.Fatal(got)
	}
	t.Cleanup(func() { do(t, "down", name) })
	startIn(t, name, "h0", "busybox", "httpd", "-f", "-p", "80", "-h", "/etc")
	startIn(t, name, "h0", "python3", "-c", echo)
	for address, c := range map[string]*container{
		"127.0.0.1:18080": host, "[::1]:18080": host, "172.31.254.1:18080": host, "172.31.254.2:80": host,
		"198.51.100.1:18080": outside,
	} {
		if page, err := c.from(func() (string, error) { return get(address) }); err != nil || page != "h0\n" {
			t.Errorf("%s from %s: %q, %v; want the page of h0", address, c.id, page, err)
		}
	}
	for address, c := range map[string]*container{
		"127.0.0.1:18053": host, "[::1]:18053": host, "172.31.254.1:18053": host,
		"198.51.100.1:18053": outside,
	} {
		if answer, err := c.from(func() (string, error) {
			return echoed(address, address)
		}); err != nil || answer != "h0: "+address {
			t.Errorf("%s from %s: %q, %v; want the echo of h0", address, c.id, answer, err)
		}
	}
	for node, reaches := range map[string]bool{"h1": true, "h2": false} {
		if got := do(t, "exec", node, "-t", name, "--", "ping", "-c1", "-W1",
			"172.31.254.254"); (got.code == 0) != reaches {
			t.Errorf("%s pings the host: exit %d, want %t", node, got.code, reaches)
		}
	}
	network := inspectManagement(t, name)
	for node, reaches := range map[string]bool{"h1": true, "h2": false} {
		if got := do(t, "exec", node, "-t", name, "--", "ping", "-c1", "-W1",
			network.Host6.String()); (got.code == 0) != reaches {
			t.Errorf("%s pings the host by IPv6: exit %d, want %t", node, got.code, reaches)
		}
	}
	host.must(t, "ping", "-c1", "-W5", network.Gateway6.Next().String()) // h0
	must(t, "inspect", name, "--verify")
	if got := host.railbed(t, "up", file); got.code != 0 || !strings.Contains(got.stdout, "up already") {
		t.Errorf("up again: %+v", got)
	}
	clashes(t, host, text, name)
	if err := syscall.Kill(supervisorOf(name), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	returns(t, host, before)
	// The port is free again. A port that is not free is reported.
	var listener net.Listener
	if err := host.ns.Do(func() (err error) {
		listener, err = net.Listen("tcp", ":18080")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	want := fmt.Sprintf("railbed: %s:4:37: publish 18080/tcp for h0: unsupported here: the port is taken "+
		"by cli.test (process %d); publish another port, or end the program that has this port\n", file,
		os.Getpid())
	if got := host.railbed(t, "up", file); got.code != verdict.ExitUnsupported ||
		!strings.HasSuffix(got.stderr, want) {
		t.Errorf("a port that is taken: %+v, want %q", got, want)
	}
	noTrace(t, name)
}

// clashes brings up what a testbed that is up leaves no room for.
func clashes(t *testing.T, host *container, text, name string) {
	t.Helper()
	other := writeFile(t, strings.Replace(text, name, name+"2", 1))
	ours := ": unsupported here: the port is taken by testbed " + name +
		"; publish another port, or end the program that has this port\n"
	want := "railbed: " + other + ":4:37: publish 18080/tcp for h0" + ours + other +
		":4:49: publish 18053/udp for h0" + ours +
		other + ":3:27: subnet 172.31.254.0/24: unsupported here: the host has a route to 172.31.254.0/24; " +
		"want a free subnet, as addressing: {management4: 172."
	want6 := other + ":3:57: subnet fd00:b::/64: unsupported here: the host has a route to fd00:b::1/128; " +
		"want a free subnet, as addressing: {management6: \"fd00:a3:0:"
	if got := host.railbed(t, "up", other); got.code != verdict.ExitUnsupported ||
		!strings.HasPrefix(got.stderr, want) || !strings.Contains(got.stderr, want6) {
		t.Errorf("the same subnets and ports: %+v, want %q and %q", got, want, want6)
	}
	noTrace(t, name+"2")
}

// returns waits until the host is as it was.
func returns(t *testing.T, host *container, before string) {
	t.Helper()
	hosttest.Eventually(t, "the host as it was", func() error {
		if after := host.state(t); after != before {
			return fmt.Errorf("the host has\n%s\nand had\n%s", after, before)
		}
		return nil
	})
	if tables := tables(t, host); strings.Contains(tables, "railbed") {
		t.Errorf("the packet filter has the tables%s", tables)
	}
}

// tables returns the tables of the packet filter.
func tables(t *testing.T, c *container) string {
	t.Helper()
	names, err := c.from(func() (string, error) {
		filter, err := nftables.New()
		if err != nil {
			return "", err
		}
		tables, err := filter.ListTables()
		names := ""
		for _, table := range tables {
			names += " " + table.Name
		}
		return names, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Of two testbeds, with nodes of all kinds, those that ask for it reach what the host
// reaches, and no others; nor does anybody out there reach them.
func TestInternet(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Busybox, hosttest.CNIPlugins, hosttest.Docker,
		hosttest.VM, hosttest.Tap, hosttest.Ping)
	engine := dockertest.Start(t)
	host, outside := managedHost(t)
	root := dockertest.Root(t, "busybox", "ping", "true")
	text := fmt.Sprintf(`
name: cli-inet
fabric: {topology: leaf-spine, params: {leaves: 2, spines: 1, hosts-per-leaf: 2}}
nodes:
  "h[0-1]": {management: {internet: true}}
  h1: {runtime: docker, rootfs: %s, restart: always, management: {internet: true, dns: [198.51.100.2, "2001:db8::53"], publish: ["18080:80"]}}
  h2: {management: {}}
`, root)
	file := writeFile(t, text)
	want := "railbed: " + file + ":5:37: internet: unsupported here: the host does not forward packets " +
		"(net.ipv4.ip_forward is 0); allow it with sysctl -w net.ipv4.ip_forward=1, or remove internet\n"
	host.must(t, "sysctl", "-qw", "net.ipv4.ip_forward=0") // a new namespace has the value of the host
	if got := host.railbed(t, "up", file); got.code != verdict.ExitUnsupported || got.stderr != want {
		t.Errorf("on a host that does not forward: %+v, want %q", got, want)
	}
	noImage(t)
	host.must(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	host.must(t, "iptables", "-P", "FORWARD", "DROP") // as Docker's engine has it
	before := host.state(t)
	second := writeFile(t, `
name: cli-inet2
fabric: {topology: leaf-spine, params: {leaves: 2, spines: 1, hosts-per-leaf: 2}}
nodes: {"h[0-1]": {management: {internet: true, dns: [198.51.100.2]}}, h1: {runtime: vm, memory: 256MiB, management: {internet: true, dns: [198.51.100.2], publish: ["18081:80"]}}, h2: {management: {}}}
`)
	for name, file := range map[string]string{"cli-inet": file, "cli-inet2": second} {
		got := host.railbed(t, "up", file)
		if got.code != 0 || !strings.Contains(got.stderr,
			"warning: internet: the host's packet filter drops what it forwards unless a rule lets it pass "+
				"(filter FORWARD); as in iptables -I FORWARD -i rb") {
			t.Fatal(got)
		}
		t.Cleanup(func() { do(t, "down", name) })
	}
	host.must(t, "iptables", "-P", "FORWARD", "ACCEPT")
	before = strings.Replace(before, "FORWARD DROP", "FORWARD ACCEPT", 1)
	ping := func(testbed, node, address string, reaches bool) {
		t.Helper()
		wait := "0.2"
		if reaches {
			wait = "5"
		}
		if got := do(t, "exec", node, "-t", testbed, "--", "ping", "-c1", "-W"+wait,
			address); (got.code == 0) != reaches {
			t.Errorf("%s of %s pings %s: %+v, want %t", node, testbed, address, got, reaches)
		}
	}
	for _, testbed := range []string{"cli-inet", "cli-inet2"} {
		for node, reaches := range map[string]bool{"h0": true, "h1": true, "h2": false, "h3": false} {
			ping(testbed, node, "198.51.100.2", reaches)
		}
	}
	for testbed, want := range map[string]string{"cli-inet": "nameserver 198.51.100.2\nnameserver " +
		"2001:db8::53\n", "cli-inet2": "nameserver 198.51.100.2\n"} {
		if got := must(t, "exec", "h1", "-t", testbed, "--", "busybox", "cat",
			"/etc/resolv.conf").stdout; got != want {
			t.Errorf("h1 of %s asks %q, want %q", testbed, got, want)
		}
	}
	for _, test := range []struct{ want, args string }{{"/", "exec h1 -t cli-inet"},
		{"/usr", "exec h1 -t cli-inet -w /usr"}, {"/tmp", "exec h0 -t cli-inet"}} {
		cmd := command(append(strings.Fields(test.args), "--", "busybox", "pwd")...)
		cmd.Dir = "/tmp" // which is in each
		if got, err := cmd.Output(); err != nil || string(got) != test.want+"\n" {
			t.Errorf("%s begins in %q, %v; want %s", test.args, got, err, test.want)
		}
	}
	ping("cli-inet", "h1", "h3", true) // by the fabric, as before
	ping("cli-inet", "h0", "10.128.0.5", true)
	must(t, "inspect", "cli-inet", "--verify")
	must(t, "inspect", "cli-inet2", "--verify")
	startIn(t, "cli-inet2", "h1", "busybox", "httpd", "-f", "-p", "80", "-h", "/etc")
	for address, c := range map[string]*container{"127.0.0.1:18081": host, "198.51.100.1:18081": outside} {
		if page, err := c.from(func() (string, error) { return get(address) }); err != nil || page != "h1\n" {
			t.Errorf("%s from %s: %q, %v; want the page of the virtual machine", address, c.id, page, err)
		}
	}
	network := inspectManagement(t, "cli-inet")
	if tables := tables(t, host); !strings.Contains(tables, "railbed-cli-inet") {
		t.Errorf("tables%s, want one of cli-inet", tables)
	}
	// With a route of its own making h2 gets no farther, though the outside has one back;
	// nor does the outside get in.
	outside.must(t, "ip", "route", "add", network.Subnet.String(), "via", "198.51.100.1")
	for _, via := range []netip.Addr{network.Gateway, network.Host} {
		must(t, "exec", "h2", "-t", "cli-inet", "--", "ip", "route", "replace", "198.51.100.0/24", "via",
			via.String())
		ping("cli-inet", "h2", "198.51.100.2", false)
		if got, err := outside.run(t, "ping", "-c1", "-W0.2", network.Gateway.String()); err == nil {
			t.Errorf("the outside reaches what is behind the host: %s", got)
		}
	}
	stayIn6(t, host, outside, network)
	// Nor does what it sends in the bridge's name get out.
	must(t, "exec", "h2", "-t", "cli-inet", "--", "ip", "addr", "add", network.Gateway.String()+"/32", "dev",
		plan.ManagementName)
	must(t, "exec", "h2", "-t", "cli-inet", "--", "ip", "route", "replace", "198.51.100.0/24", "via",
		network.Host.String(), "src", network.Gateway.String())
	heard := outside.must(t, "grep", "^Icmp: [0-9]", "/proc/net/snmp")
	ping("cli-inet", "h2", "198.51.100.2", false)
	if now := outside.must(t, "grep", "^Icmp: [0-9]", "/proc/net/snmp"); now != heard {
		t.Errorf("the outside had %q, and has %q: it heard a node that was to stay in", heard, now)
	}
	// A container that runs again has its NIC again.
	if _, err := engine.Docker("kill", "railbed-cli-inet-h1"); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, "the NIC of a container that runs again", func() bool {
		return do(t, "exec", "h1", "-t", "cli-inet", "--", "ping", "-c1", "-W1", "198.51.100.2").code == 0
	})
	startIn(t, "cli-inet", "h1", "busybox", "httpd", "-f", "-p", "80", "-h", "/etc")
	if page, err := host.from(func() (string, error) {
		return get("127.0.0.1:18080")
	}); err != nil || page != "h1\n" {
		t.Errorf("the port of h1: %q, %v", page, err)
	}
	if err := syscall.Kill(supervisorOf("cli-inet"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	collects(t, engine, root, "cli-inet", "cli-inet2")
	must(t, "down", "cli-inet2")
	returns(t, host, before)
}

// stayIn6: over IPv6 nodes of all kinds and the host reach each other. No other host reaches them,
// nor do they reach other hosts, although the host forwards and all have routes.
func stayIn6(t *testing.T, host, outside *container, network plan.Management) {
	t.Helper()
	host.must(t, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
	node := func(end int) string { return fmt.Sprintf("%s%d", network.Subnet6.Addr(), end) }
	for name, to := range map[string]netip.Addr{"cli-inet": network.Host6,
		"cli-inet2": inspectManagement(t, "cli-inet2").Host6} {
		must(t, "exec", "h1", "-t", name, "--", "ping", "-c1", "-W5", to.String())
	}
	host.must(t, "ping", "-c1", "-W5", node(2))
	outside.must(t, "ip", "route", "add", network.Subnet6.String(), "via", "2001:db8:1::1")
	outside.must(t, "ping", "-c1", "-W5", network.Host6.String()) // the route leads there
	heard := func() string {
		return must(t, "exec", "h0", "-t", "cli-inet", "--", "grep", "Icmp6InEchos", "/proc/net/snmp6").stdout
	}
	before := heard()
	if got, err := outside.run(t, "ping", "-c1", "-W0.2", node(2)); err == nil || heard() != before {
		t.Errorf("the outside reaches h0: %s, %s, which had %s", got, heard(), before)
	}
	must(t, "exec", "h2", "-t", "cli-inet", "--", "ip", "route", "add", "2001:db8:1::/64", "via",
		network.Gateway6.String())
	for _, address := range []string{"2001:db8:1::1", "2001:db8:1::2"} {
		if got := do(t, "exec", "h2", "-t", "cli-inet", "--", "ping", "-c1", "-W0.2",
			address); got.code == 0 {
			t.Errorf("h2 reaches %s: %s", address, got.stdout)
		}
	}
	host.must(t, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=0")
}

// noImage tells in one line what is not there, at its place in the file.
func noImage(t *testing.T) {
	t.Helper()
	file := writeFile(t, "name: cli-noimage\nfabric: {topology: single-switch, params: {hosts: 2}}\n"+
		"nodes:\n  h0: {runtime: docker}\n  \"h*\": {image: nobody/nothing:1, pull: never}\n  h1: "+
		"{runtime: docker}\n")
	want := "railbed: " + file + ":5:17: bring up cli-noimage: open container of h"
	got := do(t, "up", file)
	if got.code != verdict.ExitFail || !strings.HasPrefix(got.stderr, want) ||
		strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("%+v, want %q", got, want)
	}
	noTrace(t, "cli-noimage")
}

// collects has gc remove what a testbed left in an engine whose supervisor was killed,
// beside what is not gc's.
func collects(t *testing.T, engine *dockertest.Engine, root, dead, alive string) {
	t.Helper()
	docker := func(args ...string) string {
		t.Helper()
		out, err := engine.Docker(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	hosttest.Until(t, "the end of the containers", func() bool { return docker("ps", "-q") == "" })
	image := docker("import", root) // for others: theirs is gc's
	label := func(node, dir string) []string {
		return []string{"--label", "io.railbed.testbed=x", "--label", "io.railbed.node=" + node, "--label",
			"io.railbed.boot=earlier", "--label", "io.railbed.run-dir=" + dir}
	}
	dirs, err := rundir.Root()
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"railbed-x-orphan": append(label("orphan", "/nonexistent/x"), image, "true"),
		"unlabelled":       {image, "true"},
		"railbed-x-living": append(label("living", filepath.Join(dirs, alive)), image, "true"),
	} {
		docker(append([]string{"create", "--name", name}, args...)...)
	}
	docker(append([]string{"run", "-d", "--network", "none", "--name", "railbed-x-elsewhere"},
		append(label("elsewhere", "/nonexistent/y"), image, "busybox", "sleep", "1000")...)...)
	for _, name := range strings.Fields(
		docker("images", "-q", "--filter", "label=io.railbed.image.testbed="+dead)) {
		docker("create", "--name", "users", name, "true") // whose image goes, but not it
	}
	sorted := func(names string) string {
		return strings.Join(slices.Sorted(slices.Values(strings.Fields(names))), " ")
	}
	names := func() string { return sorted(docker("ps", "-a", "--format", "{{.Names}}")) }
	const ours, others = "railbed-cli-inet-h1 railbed-x-orphan",
		"railbed-x-elsewhere railbed-x-living unlabelled users"
	for _, args := range [][]string{{"gc", "--dry-run"}, {"gc"}} {
		if got := names(); got != sorted(ours+" "+others) {
			t.Errorf("containers %s before %v", got, args)
		}
		got := must(t, args...)
		for _, name := range append(strings.Fields(ours), "image") {
			if want := " container " + name; !strings.Contains(got.stdout, want+"\n") &&
				!strings.Contains(got.stdout, " "+name+" sha256:") {
				t.Errorf("%v does not tell of %s: %q", args, name, got.stdout)
			}
		}
		for _, name := range strings.Fields(others) {
			if strings.Contains(got.stdout, name) {
				t.Errorf("%v tells of %s: %q", args, name, got.stdout)
			}
		}
	}
	if got := names(); got != others {
		t.Errorf("containers %s after gc, want %s", got, others)
	}
	docker(append([]string{"rm", "-f"}, strings.Fields(others)...)...)
	noTrace(t, dead)
}

// inspectManagement is a testbed's network beside the fabric.
func inspectManagement(t *testing.T, name string) (network plan.Management) {
	t.Helper()
	tb, err := testbed.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return *tb.Plan().Management
}
