package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"railbed/nodes/cni"
	"railbed/testkit/hosttest"
)

// installed is a directory with the plugin in it, as railbed cni install makes it.
func installed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if got := must(t, "cni", "install", dir); got.stdout != filepath.Join(dir, cni.Type)+"\n" {
		t.Errorf("install printed %q", got.stdout)
	}
	return dir
}

// busyboxRoot makes a container's files, with BusyBox as their one program.
func busyboxRoot(t *testing.T, path string) {
	t.Helper()
	for _, folder := range []string{"bin", "proc", "sys", "dev", "etc", "run", "tmp"} {
		if err := os.MkdirAll(filepath.Join(path, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(busybox)
	if err == nil {
		err = os.WriteFile(filepath.Join(path, "bin", "busybox"), program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Podman runs a container in a node of the testbed, and takes it away again.
func TestCNIPodman(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Podman, hosttest.Busybox)
	const name = "cli-cni-podman"
	must(t, "up", writeFile(t, cniFile(name)))
	t.Cleanup(func() { must(t, "down", name); noTrace(t, name) })
	dir := t.TempDir()
	networks, rootfs := filepath.Join(dir, "net"), filepath.Join(dir, "rootfs")
	busyboxRoot(t, rootfs)
	if err := os.Mkdir(networks, 0o755); err != nil {
		t.Fatal(err)
	}
	// crun wants cgroups of one version, and some hosts have both.
	settings := fmt.Sprintf("[network]\nnetwork_backend = \"cni\"\ncni_plugin_dirs = [%q]\n"+
		"network_config_dir = %q\ndefault_network = %q\n[engine]\ncgroup_manager = \"cgroupfs\"\n"+
		"events_logger = \"none\"\nruntime = \"runc\"\n[containers]\ncgroupns = \"host\"\n",
		installed(t), networks, "railbed-"+name)
	for path, text := range map[string]string{
		filepath.Join(dir, "containers.conf"): settings,
		filepath.Join(networks, "railbed-1.conflist"): must(t, "cni", "config", name, "--cni-version",
			"1.0.0").stdout,
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	podman := hosttest.WithOwnRun(nil, "podman", "--root", filepath.Join(dir, "root"), "--runroot",
		filepath.Join(dir, "runroot"), "--tmpdir", filepath.Join(dir, "tmp"), "--storage-driver", "vfs",
		// Raising limits takes a capability that not every root has.
		"run", "--rm", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", "--network",
		"railbed-"+name, "--rootfs", rootfs,
		"/bin/busybox", "sh", "-c", "busybox ip address show eth0 && busybox ping -c1 -W5 10.0.0.1")
	podman.Env = append(os.Environ(), "CONTAINERS_CONF="+filepath.Join(dir, "containers.conf"))
	output, err := podman.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "inet 10.128.0.5/31") ||
		!strings.Contains(string(output), " 0% packet loss") {
		t.Errorf("podman: %v\n%s", err, output)
	}
	if got := attached(t, name); len(got) != 0 {
		t.Errorf("the container is gone, and attached are %v", got)
	}
}

// The lines of the README: cnitool adds a namespace to a running testbed, and a ping
// crosses the testbed from it.
func TestCnitool(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Ping)
	const name = "cli-cnitool"
	must(t, "up", writeFile(t, cniFile(name)))
	t.Cleanup(func() { must(t, "down", name) })
	networks := t.TempDir()
	if err := os.WriteFile(filepath.Join(networks, "cluster.conflist"),
		[]byte(must(t, "cni", "config", name).stdout), 0o644); err != nil {
		t.Fatal(err)
	}
	mine, plugins := newContainer(t, "mine"), installed(t)
	for _, operation := range []string{"add", "check", "del", "del"} {
		cnitool := hosttest.WithOwnRun(nil, "go", "tool", "cnitool", operation, "railbed-"+name, mine.path)
		cnitool.Env = append(os.Environ(), "CNI_PATH="+plugins, "NETCONFPATH="+networks)
		if output, err := cnitool.CombinedOutput(); err != nil {
			t.Fatalf("cnitool %s: %v\n%s", operation, err, output)
		}
		if operation == "check" {
			mine.must(t, "ping", "-c1", "-W5", "10.0.0.1")
		}
	}
}

// An ordinary user's testbed and an ordinary user's runtime, each in a user namespace of
// its own and without rights in the other's.
func TestCNIRootless(t *testing.T) {
	hosttest.Long(t)
	if !hosttest.InUserNS(t) {
		return
	}
	if err := syscall.Mount("none", "/run", "tmpfs", 0, "mode=0755"); err != nil { // the host's is not ours
		t.Fatal(err)
	}
	const name = "cli-cni-user"
	must(t, "up", writeFile(t, cniFile(name)))
	t.Cleanup(func() { must(t, "down", name) })
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte(pluginConfig(t, name, "1.1.0")), 0o600); err != nil {
		t.Fatal(err)
	}
	const script = `
unshare --net sleep 20 &
export CNI_NETNS=/proc/$!/ns/net CNI_CONTAINERID=c CNI_IFNAME=eth0 CNI_PATH=/
until [ "$(readlink $CNI_NETNS)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
for operation in ADD CHECK STATUS; do CNI_COMMAND=$operation "$PLUGIN" < "$CONFIG" || echo "$operation failed"; done
touch "$CONFIG.attached"
read answer
nsenter --net=$CNI_NETNS ping -c1 -W5 10.0.0.1
CNI_COMMAND=DEL "$PLUGIN" < "$CONFIG" || echo "DEL failed"
kill $!`
	runtime := exec.Command("unshare", "--user", "--map-root-user", "--net", "--pid", "--fork",
		"--mount-proc", "sh", "-c", script)
	runtime.Env = append(os.Environ(), "PLUGIN="+filepath.Join(installed(t), cni.Type), "CONFIG="+config)
	var output bytes.Buffer
	runtime.Stdout, runtime.Stderr = &output, &output
	answer, err := runtime.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.Start(); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, "the attached container", func() bool {
		_, err := os.Stat(config + ".attached")
		return err == nil
	})
	must(t, "link", "down", "h2--leaf2", "-t", name)
	must(t, "link", "up", "h2--leaf2", "-t", name)
	_ = answer.Close()
	if err := runtime.Wait(); err != nil || !strings.Contains(output.String(), " 0% packet loss") ||
		strings.Contains(output.String(), "failed") {
		t.Errorf("%v\n%s", err, output.String())
	}
}
