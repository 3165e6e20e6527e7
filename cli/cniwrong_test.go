package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"railbed/internal/reexec"
	"railbed/internal/rundir"
	"railbed/nodes/cni"
	"railbed/testkit/hosttest"
)

// manyFile has more NICs than have sockets of their own in the soft switches, in one
// subnet, and three containers.
func manyFile(name string) string {
	return fmt.Sprintf("name: %s\nfabric: {topology: single-switch, params: {hosts: 12}, switch: "+
		"{forwarding: l2}, links: {default: {mtu: 4200}}}\nnodes: {\"h[1-3]\": {runtime: cni}}\n", name)
}

// Changes in a container are found. The rest of the container is not checked. Wrong calls return
// errors that say what is wrong.
func TestCNIDrift(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Ping)
	const name = "cli-cni-drift"
	must(t, "up", writeFile(t, cniFile(name)))
	t.Cleanup(func() { must(t, "down", name) })
	r := newRuntime(t, name, "--port", "h3")
	a := newContainer(t, "a")
	// The container has another network already, as a pod has.
	for _, line := range []string{"link set lo up", "link add eth9 type veth peer name eth8",
		"address add 192.0.2.2/24 dev eth9", "link set eth9 up", "link set eth8 up",
		"route add default via 192.0.2.1 dev eth9"} {
		a.must(t, append([]string{"ip"}, strings.Fields(line)...)...)
	}
	r.add(t, a)
	if got := a.must(t, "ip", "route", "show", "default"); !strings.Contains(got, "eth9") {
		t.Errorf("the default route is %q, want the other network's", got)
	}
	check := func() error { return r.CheckNetworkList(t.Context(), r.list, r.of(a)) }
	if err := check(); err != nil {
		t.Error(err)
	}
	for _, drift := range []struct{ change, back, says string }{
		{"link set eth0 mtu 1400", "link set eth0 mtu 1500", "kernel has 1400, want 1500"},
		{"address del 10.128.0.7/31 dev eth0", "",
			"add address 10.128.0.7/31 to h3:eth0: kernel has no such address"},
		{"address del 10.0.0.6/32 dev lo", "", "add address 10.0.0.6/32"},
		{"route del 10.128.0.0/28", "", "add route 10.128.0.0/28"},
		{"neigh del 10.128.0.6 dev eth0", "", "add neighbour 10.128.0.6"},
		{"link set eth0 name eth1", "", "no such interface"},
	} {
		a.must(t, append([]string{"ip"}, strings.Fields(drift.change)...)...)
		wants(t, check(), types.ErrInternal, drift.says)
		if drift.back != "" {
			a.must(t, append([]string{"ip"}, strings.Fields(drift.back)...)...)
			continue
		}
		if strings.Contains(drift.change, "name") {
			a.must(t, "ip", "link", "set", "eth1", "name", "eth0")
		}
		r.del(t, a)
		r.add(t, a)
		if err := check(); err != nil {
			t.Errorf("after %s, DEL and ADD: %v", drift.change, err)
		}
	}
	_, err := r.AddNetworkList(t.Context(), r.list, r.of(a))
	wants(t, err, 100, "attached already, to h3")
	r.del(t, a)
	a.must(t, "ip", "route", "add", "10.0.0.0/16", "dev", "eth9")
	_, err = r.AddNetworkList(t.Context(), r.list, r.of(a))
	wants(t, err, types.ErrInternal,
		"add route 10.0.0.0/16: the namespace already has a route there through eth9; give the testbed "+
			"other addresses (key addressing)")
	a.must(t, "ip", "route", "del", "10.0.0.0/16", "dev", "eth9")
	for _, taken := range []struct{ address, dev string }{{"10.128.0.7/32", "eth9"}, {"10.128.0.7/32", "lo"},
		{"10.0.0.6/32", "eth9"}} {
		a.must(t, "ip", "address", "add", taken.address, "dev", taken.dev)
		_, err = r.AddNetworkList(t.Context(), r.list, r.of(a))
		address, _, _ := strings.Cut(taken.address, "/")
		wants(t, err, types.ErrInternal, "add address "+address+"/")
		wants(t, err, types.ErrInternal,
			"the namespace already has it on "+taken.dev+
				"; give the testbed other addresses (key addressing)")
		a.must(t, "ip", "address", "del", taken.address, "dev", taken.dev)
	}
	if got := attached(t, name); len(got) != 0 {
		t.Errorf("an ADD that failed leaves %v", got)
	}
	wrong := newRuntime(t, name, "--group", "x*")
	_, err = wrong.AddNetworkList(t.Context(), wrong.list, wrong.of(newContainer(t, "b")))
	wants(t, err, types.ErrInvalidNetworkConfig, "want one of h2 .. h3")
	none := newRuntime(t, name+"-none")
	_, err = none.AddNetworkList(t.Context(), none.list, none.of(newContainer(t, "b")))
	wants(t, err, types.ErrTryAgainLater, "no testbed of this name is up")
	none.del(t, a) // of a testbed that is no more
	if err := none.GetStatusNetworkList(t.Context(), none.list); err == nil {
		t.Error("STATUS is well without a testbed")
	}
	for _, text := range []string{`{"cniVersion":"1.0.0","name":"x","type":"railbed"}`,
		`{"cniVersion":"1.0.0","name":"x","type":"railbed","testbed":"t","directory":"t"}`} {
		if code, _, answer := call(t, "ADD", a, text); code == 0 ||
			answer.Code != types.ErrInvalidNetworkConfig || answer.Details == "" {
			t.Errorf("%s: exit %d, %+v; want a wrong configuration, and what would be right", text, code,
				answer)
		}
	}
	if got := do(t, "cni", "config", name, "--port", "h2", "--group", "h*"); got.code != 2 {
		t.Errorf("a port and a group: %+v", got)
	}
}

// plugin is a call of the plugin, as runtimes make it.
func plugin(operation string, c *container, config string) *exec.Cmd {
	return &exec.Cmd{
		Path: reexec.Self, Args: []string{cni.Type}, Stdin: strings.NewReader(config),
		Env: []string{"CNI_COMMAND=" + operation, "CNI_CONTAINERID=" + c.id, "CNI_NETNS=" + c.path,
			"CNI_IFNAME=eth0", "CNI_PATH=/"},
	}
}

func call(t *testing.T, operation string, c *container, config string) (code int, stdout string,
	answer types.Error) {
	t.Helper()
	cmd := plugin(operation, c, config)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	_ = cmd.Run() // its exit code says it
	_ = json.Unmarshal(out.Bytes(), &answer)
	return cmd.ProcessState.ExitCode(), out.String(), answer
}

func pluginConfig(t *testing.T, name, version string) string {
	t.Helper()
	dir, err := rundir.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"cniVersion":%q,"name":"n","type":"railbed","testbed":%q,"directory":%q}`, version,
		name, dir.Path)
}

// Addresses are given once: to ADDs at the same time, and after ADDs that were killed.
func TestCNIAtOnce(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Ping)
	const name = "cli-cni-once"
	must(t, "up", writeFile(t, manyFile(name)))
	t.Cleanup(func() { do(t, "down", name) })
	config := pluginConfig(t, name, "0.4.0")
	containers := make([]*container, 5)
	for i := range containers {
		containers[i] = newContainer(t, fmt.Sprint("c", i))
	}
	var group sync.WaitGroup
	var lock sync.Mutex
	taken := map[string]*container{} // by address
	refused := 0
	for i := range 2 * len(containers) { // each twice
		group.Go(func() {
			c := containers[i%len(containers)]
			code, out, answer := call(t, "ADD", c, config)
			lock.Lock()
			defer lock.Unlock()
			if code != 0 {
				refused++
				if answer.Code != types.ErrTryAgainLater && answer.Code != 100 {
					t.Errorf("ADD: %+v", answer)
				}
				return
			}
			var result struct{ IPs []struct{ Address string } }
			if err := json.Unmarshal([]byte(out), &result); err != nil || len(result.IPs) == 0 ||
				taken[result.IPs[0].Address] != nil {
				t.Errorf("%v: %s, and taken are %v", err, out, taken)
				return
			}
			taken[result.IPs[0].Address] = c
		})
	}
	group.Wait()
	if len(taken) != 3 || refused != 7 {
		t.Fatalf("%d ADDs got an address and %d were refused, want 3 and 7", len(taken), refused)
	}
	for address, c := range taken {
		must(t, "exec", "h0", "-t", name, "--", "ping", "-c1", "-W5", "-s4000", "-Mdo",
			strings.Split(address, "/")[0])
		if code, out, _ := call(t, "DEL", c, config); code != 0 {
			t.Error(out)
		}
	}

	a := containers[0]
	began := time.Now()
	if code, out, _ := call(t, "ADD", a, config); code != 0 {
		t.Fatal(out)
	}
	whole := time.Since(began)
	if code, out, _ := call(t, "DEL", a, config); code != 0 {
		t.Fatal(out)
	}
	const moments = 6
	for i := range moments {
		after := whole * time.Duration(i+1) / moments
		cmd := plugin("ADD", a, config)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed, or at its end
		if code, out, _ := call(t, "DEL", a, config); code != 0 {
			t.Errorf("DEL after an ADD killed after %v: %s", after, out)
		}
		if got := a.must(t, "ip", "-o", "address") + a.must(t, "ip", "rule"); strings.Contains(got, "eth0") ||
			strings.Contains(got, "10.") {
			t.Errorf("an ADD killed after %v of %v, and DEL, leave\n%s", after, whole, got)
		}
	}
	if got := attached(t, name); len(got) != 0 {
		t.Errorf("killed ADDs leave %v", got)
	}

	// The supervisor's death frees all.
	if code, out, _ := call(t, "ADD", a, config); code != 0 {
		t.Fatal(out)
	}
	if err := syscall.Kill(supervisorOf(name), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, "the end of the container's NIC with the supervisor", func() bool {
		return !strings.Contains(a.must(t, "ip", "-o", "link"), "eth0")
	})
	if code, out, _ := call(t, "DEL", a, config); code != 0 {
		t.Errorf("DEL after the testbed: %s", out)
	}
}
