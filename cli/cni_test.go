package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"railbed/internal/kernel"
	"railbed/internal/reexec"
	"railbed/nodes/cni"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
)

// cniFile has four nodes, two of which are somebody else's containers.
func cniFile(name string) string {
	return fmt.Sprintf("name: %s\nfabric: {topology: leaf-spine, params: {leaves: 2, spines: 2, "+
		"hosts-per-leaf: 2}}\nnodes: {\"h[2-3]\": {runtime: cni}}\n", name)
}

// container is somebody's network namespace.
type container struct {
	id   string
	ns   *kernel.Namespace
	path string
}

func newContainer(t *testing.T, id string) *container {
	t.Helper()
	ns, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return &container{id: id, ns: ns, path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd())}
}

// run runs a program in the container's namespace.
func (c *container) run(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	err = c.ns.Do(func() error {
		text, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		output = string(text)
		return err
	})
	return output, err
}

// must is run that succeeds.
func (c *container) must(t *testing.T, args ...string) string {
	t.Helper()
	output, err := c.run(t, args...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, output)
	}
	return output
}

// runtime is a runtime of containers, by the library of the CNI project, with this test
// as the plugin.
type runtime struct {
	*libcni.CNIConfig
	list *libcni.NetworkConfigList
}

func newRuntime(t *testing.T, args ...string) *runtime {
	t.Helper()
	plugins := t.TempDir()
	self, err := os.Readlink(reexec.Self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(plugins, cni.Type)); err != nil {
		t.Fatal(err)
	}
	list, err := libcni.ConfListFromBytes(
		[]byte(must(t, append([]string{"cni", "config"}, args...)...).stdout))
	if err != nil {
		t.Fatal(err)
	}
	return &runtime{libcni.NewCNIConfigWithCacheDir([]string{plugins}, t.TempDir(), nil), list}
}

func (r *runtime) of(c *container) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: c.id, NetNS: c.path, IfName: "eth0"}
}

func (r *runtime) add(t *testing.T, c *container) *current.Result {
	t.Helper()
	got, err := r.AddNetworkList(t.Context(), r.list, r.of(c))
	if err != nil {
		t.Fatal(err)
	}
	result, err := current.GetResult(got)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (r *runtime) del(t *testing.T, c *container) {
	t.Helper()
	if err := r.DelNetworkList(context.Background(), r.list, r.of(c)); err != nil {
		t.Error(err)
	}
}

// wants fails the test unless the error is of the code, and says that.
func wants(t *testing.T, err error, code uint, says string) {
	t.Helper()
	var plugin *types.Error
	if !errors.As(err, &plugin) || plugin.Code != code || !strings.Contains(plugin.Msg, says) {
		t.Errorf("got %v; want code %d, and %q", err, code, says)
	}
}

// stateOf is a testbed's, as inspect shows it.
func stateOf(t *testing.T, name string) (state supervisor.State) {
	t.Helper()
	if err := json.Unmarshal([]byte(must(t, "inspect", name, "-o", "json").stdout), &state); err != nil {
		t.Fatal(err)
	}
	return state
}

// attached are the nodes that are taken, with the containers that have them.
func attached(t *testing.T, name string) map[string]string {
	t.Helper()
	taken := map[string]string{}
	for _, p := range stateOf(t, name).CNI {
		if p.Attached != nil {
			taken[p.Node] = p.Attached.Container
		}
	}
	return taken
}

// A runtime attaches containers to a running testbed and detaches them.
func TestCNI(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Ping)
	const name = "cli-cni"
	must(t, "up", writeFile(t, cniFile(name)))
	t.Cleanup(func() { must(t, "down", name); noTrace(t, name) })
	r := newRuntime(t, name)
	a, b, c := newContainer(t, "a"), newContainer(t, "b"), newContainer(t, "c")

	result := r.add(t, a)
	var addresses []string
	for _, ip := range result.IPs {
		addresses = append(addresses, fmt.Sprint(result.Interfaces[*ip.Interface].Name, " ",
			ip.Address.String()))
	}
	want := []string{"eth0 10.128.0.5/31", "eth0 fd00:a2::5/127", "lo 10.0.0.5/32", "lo fd00:a1::5/128"}
	if !slices.Equal(addresses, want) {
		t.Errorf("the result has %v, want h2's %v", addresses, want)
	}
	if in := a.must(t, "ip", "-o", "address"); !strings.Contains(in, "10.128.0.5/31") ||
		!strings.Contains(in, "fd00:a1::5/128") {
		t.Errorf("the container has\n%s", in)
	}
	for _, route := range result.Routes {
		family := "-4"
		if route.GW.To4() == nil {
			family = "-6"
		}
		if got := a.must(t, "ip", family, "route", "show", route.Dst.String()); !strings.Contains(got,
			"via "+route.GW.String()) {
			t.Errorf("route %s of the result is %q in the container", route.Dst.String(), got)
		}
	}
	a.must(t, "ping", "-c1", "-W5", "10.0.0.1")
	must(t, "exec", "h1", "-t", name, "--", "ping", "-6", "-c1", "-W5", "h2")
	if err := r.CheckNetworkList(t.Context(), r.list, r.of(a)); err != nil {
		t.Error(err)
	}
	must(t, "inspect", name, "--verify")
	if got := do(t, "exec", "h2", "-t", name, "--", "true"); got.code == 0 ||
		!strings.Contains(got.stderr, "h2 is a container") {
		t.Errorf("exec in a container: exit %d, %s", got.code, got.stderr)
	}

	r.add(t, b)
	_, err := r.AddNetworkList(t.Context(), r.list, r.of(c))
	wants(t, err, types.ErrTryAgainLater, "all 2 are taken")
	if err := r.GetStatusNetworkList(t.Context(), r.list); err == nil {
		t.Error("STATUS is well with no port free")
	}
	b.must(t, "ping", "-c1", "-W5", "10.0.0.5") // a

	for range 2 { // the second has nothing to do
		r.del(t, a)
	}
	if in := a.must(t, "ip", "-o", "address") + a.must(t, "ip", "rule"); strings.Contains(in, "10.") ||
		strings.Contains(in, "eth0") {
		t.Errorf("DEL leaves\n%s", in)
	}
	if err := r.GetStatusNetworkList(t.Context(), r.list); err != nil {
		t.Error(err)
	}
	wants(t, r.CheckNetworkList(t.Context(), r.list, r.of(a)), types.ErrInternal, "no such attachment")
	if err := r.GCNetworkList(t.Context(), r.list,
		&libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "b",
			IfName: "eth0"}}}); err != nil {
		t.Error(err)
	}
	if got := attached(t, name); len(got) != 1 || got["h3"] != "b" {
		t.Errorf("GC leaves %v, want b on h3", got)
	}
	if err := r.GCNetworkList(t.Context(), r.list, nil); err != nil {
		t.Error(err)
	}
	if got := attached(t, name); len(got) != 0 {
		t.Errorf("GC leaves %v, want none", got)
	}

	chosen := r.of(a)
	chosen.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAME", "p"}, {"RAILBED_PORT", "h3"}}
	if _, err := r.AddNetworkList(t.Context(), r.list, chosen); err != nil {
		t.Error(err)
	}
	if got := attached(t, name); len(got) != 1 || got["h3"] != "a" {
		t.Errorf("the container asked for h3, and attached are %v", got)
	}
	r.del(t, a)
	r.add(t, c)
	c.ns.Close() // a container that ends without a DEL
	hosttest.Until(t, "the node of a container that is gone",
		func() bool { return len(attached(t, name)) == 0 })
}
