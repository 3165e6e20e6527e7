package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"railbed/internal/rundir"
	"railbed/testkit/hosttest"
)

// withContainerd runs containerd with its own folders, in mount and PID namespaces that end with
// it. The namespaces are necessary because the paths are fixed at which ctr looks for networks and
// plugins, and at which shims have their sockets.
const withContainerd = `set -e
mkdir -p "$PWD$RUN" run opt/cni etc/cni/net.d lib
mount --bind "$RUN" "$PWD$RUN"
for at in run opt etc; do mount --rbind $at /$at; done
mount --bind lib /var/lib
ln -s "$PLUGINS" /opt/cni/bin
cp conflist /etc/cni/net.d/1.conflist
printf 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n' > config
containerd --config config --root "$PWD/root" --state "$PWD/state" --address "$PWD/socket" --log-level error &
until ctr -a socket version > /dev/null 2>&1; do kill -0 $!; sleep 0.02; done
ctr -a socket run --rm --cni --rootfs "$PWD/rootfs" one /bin/busybox sh -c 'busybox ip address show eth0 && busybox ping -c1 -W5 10.0.0.1'
kill $!
wait $! || true
`

// Containerd runs a container in a node of the testbed, by its own library for CNI, and
// takes it away again.
func TestCNIContainerd(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Containerd, hosttest.Busybox)
	const name = "cli-cni-containerd"
	must(t, "up", writeFile(t, cniFile(name)))
	t.Cleanup(func() { must(t, "down", name); noTrace(t, name) })
	run, err := rundir.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	busyboxRoot(t, filepath.Join(dir, "rootfs"))
	if err := os.WriteFile(filepath.Join(dir, "conflist"),
		[]byte(must(t, "cni", "config", name, "--cni-version", "1.0.0").stdout), 0o644); err != nil {
		t.Fatal(err)
	}
	runtime := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh",
		"-c", withContainerd)
	runtime.Dir, runtime.WaitDelay = dir, time.Second
	runtime.Env = append(os.Environ(), "PLUGINS="+installed(t), "RUN="+filepath.Dir(run.Path))
	output, err := runtime.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "inet 10.128.0.5/31") ||
		!strings.Contains(string(output), " 0% packet loss") {
		t.Errorf("containerd: %v\n%s", err, output)
	}
	if got := attached(t, name); len(got) != 0 {
		t.Errorf("the container is gone, and attached are %v", got)
	}
}
