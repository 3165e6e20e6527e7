package hosttest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Feature is something that a test needs from the host.
type Feature string

// The features. Root is the host's own root, not the root of a user namespace. Netns is the right
// to make network, mount, PID, IPC and UTS namespaces. UserNS is an ordinary user's right to make a
// user namespace with a network namespace in it. Testbed is the right to bring a testbed up: Netns
// for root, UserNS for everyone else. VM is QEMU and a kernel that it can boot, for package vmtest.
const (
	Root    Feature = "root"
	Netns   Feature = "netns"
	UserNS  Feature = "userns"
	Testbed Feature = "testbed"
	Ping    Feature = "ping"
	Tshark  Feature = "tshark"
	// Traceroute is Debian's traceroute, whose options the tests use.
	Traceroute Feature = "traceroute"
	// IP is iproute2's ip.
	IP      Feature = "ip"
	Ethtool Feature = "ethtool"
	Tcpdump Feature = "tcpdump"
	Python  Feature = "python3"
	// PythonAES is AES-GCM for the distribution's Python, /usr/bin/python3, which has no AES-GCM of
	// its own.
	PythonAES Feature = "python3-cryptography"
	Mininet   Feature = "mininet"
	OpenMPI   Feature = "openmpi"
	// MPICC compiles programs for OpenMPI.
	MPICC Feature = "mpicc"
	UCX   Feature = "ucx"
	// MPICH, Libfabric, Redis and IPerf3 are stacks that scenarios run.
	MPICH     Feature = "mpich"
	Redis     Feature = "redis"
	Libfabric Feature = "libfabric"
	IPerf3    Feature = "iperf3"
	// Etcd is etcd with etcdctl, for a scenario.
	Etcd Feature = "etcd"
	// PyTorch is also a stack, of some hundred megabytes: no test requires it.
	PyTorch Feature = "pytorch"
	// FRR provides the routing daemons of routers.
	FRR Feature = "frr"
	// Docker is an engine that tests can start, for package dockertest.
	Docker Feature = "docker"
	// Podman is Podman as a container engine.
	Podman Feature = "podman"
	// Containerd is containerd as a container engine, with its ctr.
	Containerd Feature = "containerd"
	// Busybox is the program from which tests build containers.
	Busybox Feature = "busybox"
	// CNIPlugins are the plugins of the CNI project.
	CNIPlugins Feature = "cni-plugins"
	// Rping is librdmacm's example program, for guests whose kernels have RDMA.
	Rping Feature = "rping"
	// Perftest and Verbs are RDMA's benchmarks and examples, for the same guests.
	Perftest Feature = "perftest"
	Verbs    Feature = "verbs"
	// Pyverbs is rdma-core's libibverbs for the distribution's Python, with the provider
	// of rdma_rxe, for guests whose kernels have RDMA.
	Pyverbs Feature = "pyverbs"
	// Chromium renders pages.
	Chromium Feature = "chromium"
	// Mkdocs is mkdocs with the theme of mkdocs-material, for the manual.
	Mkdocs Feature = "mkdocs"
	// YAMLServer is yaml-language-server, with which most editors read YAML.
	YAMLServer Feature = "yaml-language-server"
	VM         Feature = "vm"
	// Tap is the right to make a tap device in a network namespace that the test made.
	Tap Feature = "tap"
)

// requireEnv lists the features whose absence fails a test.
const requireEnv = "RAILBED_REQUIRE"

// probeTimeout bounds one probe; mn and tshark need about a second on a busy
// machine.
const probeTimeout = 20 * time.Second

var probes = map[Feature]func() error{
	Root:       probeRoot,
	Netns:      probeNetns,
	UserNS:     probeUserNS,
	Testbed:    probeTestbed,
	Ping:       program("ping", "-V"),
	Tshark:     program("tshark", "--version"),
	Traceroute: program("traceroute", "--version"),
	IP:         program("ip", "-V"),
	Ethtool:    program("ethtool", "--version"),
	Tcpdump:    program("tcpdump", "--version"),
	Python:     program("python3", "--version"),
	PythonAES:  program("/usr/bin/python3", "-c", "import cryptography.hazmat.primitives.ciphers.aead"),
	Mininet:    program("mn", "--version"),
	OpenMPI:    program("mpirun", "--version"),
	MPICC:      program("mpicc", "--version"),
	UCX:        program("ucx_info", "-v"),
	MPICH:      program("mpiexec.mpich", "--version"),
	Libfabric:  program("fi_info", "--version"),
	Redis:      program("redis-server", "--version"),
	IPerf3:     program("iperf3", "--version"),
	Etcd:       program("etcdctl", "version"),
	PyTorch:    installed("/usr/lib/python3/dist-packages/torch/__init__.py"),
	FRR:        installed("/usr/lib/frr/zebra"),
	Docker:     program("dockerd", "--version"),
	Podman:     program("podman", "--version"),
	Containerd: program("containerd", "--version"),
	Busybox:    program("busybox"),
	CNIPlugins: probeCNIPlugins,
	Rping:      installed("rping"),
	Perftest:   installed("ib_write_bw"),
	Verbs:      installed("ibv_rc_pingpong"),
	Pyverbs:    probePyverbs,
	Chromium:   program("chromium", "--version"),
	Mkdocs:     installed("/usr/share/mkdocs/themes/material/mkdocs_theme.yml"),
	YAMLServer: program("yaml-language-server", "--version"),
	VM:         probeVM,
	Tap:        probeTap,
}

// probed holds one sync.OnceValue per feature: a probe runs once per process.
var probed = func() map[Feature]func() error {
	once := make(map[Feature]func() error, len(probes))
	for feature, probe := range probes {
		once[feature] = sync.OnceValue(probe)
	}
	return once
}()

// Need skips the test unless the host has every feature, or fails it if RAILBED_REQUIRE names a
// missing one. Each feature is probed once per process. Under -short, Need skips every test,
// because make check needs nothing from the host. Need is safe for concurrent use.
func Need(t testing.TB, features ...Feature) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: it needs the host: " + fmt.Sprint(features))
	}
	for _, feature := range features {
		err := Probe(feature)
		if err == nil {
			continue
		}
		line := fmt.Sprintf("cannot run here: %s: %v", feature, err)
		if required(os.Getenv(requireEnv), feature) {
			t.Fatalf("%s (%s names it)", line, requireEnv)
		}
		t.Skip(line)
	}
}

// Sampled reports whether row i of a long table is tried: every row, or with RAILBED_SAMPLE=n:k the rows
// whose number is k modulo n. Without :k, k is 0. With -short, n is 6 by default. Sampled fails the test if n
// is below 1 or k is not below n.
func Sampled(t testing.TB, i int) bool { return sampled(t, "RAILBED_SAMPLE", i) }

// Long skips the test if RAILBED_LONG=n:k selects other tests: a test runs if a hash of its name is k modulo
// n. With -short, n is 6 by default. Tests call Long if they take more than a few seconds, or if they run a
// testbed as many others do.
func Long(t testing.TB) {
	if !sampled(t, "RAILBED_LONG", int(crc32.ChecksumIEEE([]byte(t.Name())))) {
		t.Skip("RAILBED_LONG=" + os.Getenv("RAILBED_LONG") + " selects other long tests")
	}
}

// FewMoments reports whether RAILBED_MOMENTS=few asks the tests of random moments for fewer of them.
func FewMoments() bool { return os.Getenv("RAILBED_MOMENTS") == "few" }

func sampled(t testing.TB, variable string, i int) bool {
	text := os.Getenv(variable)
	switch {
	case text == "" && testing.Short():
		text = "6"
	case text == "":
		return true
	}
	every, from, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(every)
	k, err2 := strconv.Atoi(cmp.Or(from, "0"))
	if err != nil || err2 != nil || n < 1 || k < 0 || k >= n {
		t.Fatalf("%s is %q; want n or n:k, with n from 1 on and k from 0 to n-1", variable, text)
	}
	return i%n == k
}

// Probe returns, in one line, the reason why the host lacks a feature, or nil. The answer is kept
// for the life of the process.
func Probe(feature Feature) error {
	probe, known := probed[feature]
	if !known {
		return errors.New("no such feature")
	}
	return probe()
}

// required reports whether the list, "netns,docker" or "all", names the feature.
func required(list string, feature Feature) bool {
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == "all" || name == string(feature) {
			return true
		}
	}
	return false
}

// probePyverbs loads the library, which finds its providers when it is first used, and looks for
// the provider of rdma_rxe.
func probePyverbs() error {
	if err := program("/usr/bin/python3", "-c", "import pyverbs.device")(); err != nil {
		return err
	}
	_, err := os.Stat("/etc/libibverbs.d/rxe.driver")
	return err
}

// installed only looks for a program, for programs that have no harmless invocation, or for a file.
func installed(name string) func() error {
	return func() (err error) {
		if filepath.IsAbs(name) {
			_, err = os.Stat(name)
			return err
		}
		_, err = exec.LookPath(name)
		return err
	}
}

// probeCNIPlugins looks for one plugin, because one package contains all, and for the programs that
// the plugins run.
func probeCNIPlugins() error {
	for _, dir := range []string{"/opt/cni/bin", "/usr/lib/cni"} {
		if _, err := os.Stat(dir + "/portmap"); err == nil {
			_, err = exec.LookPath("iptables")
			return err
		}
	}
	return errors.New("no plugin portmap in /opt/cni/bin or /usr/lib/cni")
}

// program returns the probe of an installed program: the program must run and exit with 0.
func program(name string, args ...string) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
		defer cancel()
		output, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w%s", name, strings.Join(args, " "), err, lastLine(output))
		}
		return nil
	}
}

// lastLine returns ": " and the last line of a program's output, or "" if there is none.
func lastLine(output []byte) string {
	lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
	if last := string(bytes.TrimSpace(lines[len(lines)-1])); last != "" {
		return ": " + last
	}
	return ""
}

// namespaces are the namespaces that a testbed makes beside its user namespace.
const namespaces = syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
	syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS

func probeNetns() error {
	command := child(stageNothing)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	return unshareError(command.Run())
}

func probeUserNS() error {
	runtime.LockOSThread() // ordinaryUser sets a parent-death signal
	defer runtime.UnlockOSThread()
	return unshareError(ordinaryUser(child(stageNamespace)).Run())
}

func probeTestbed() error {
	if os.Geteuid() == 0 {
		return probeNetns()
	}
	return probeUserNS()
}

// probeRoot takes on another user's identity, which root of a user namespace with one mapped user
// cannot do. It also checks the mapping, for user namespaces with many mapped users.
func probeRoot() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("user id is %d, want 0", os.Geteuid())
	}
	mapping, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return err
	}
	if fields := strings.Fields(string(mapping)); len(fields) != 3 || fields[2] != "4294967295" {
		return errors.New("root of a user namespace, not of the host")
	}
	runtime.LockOSThread() // ordinaryUser sets a parent-death signal
	defer runtime.UnlockOSThread()
	if err := ordinaryUser(child(stageNothing)).Run(); err != nil {
		return fmt.Errorf("setuid %d: %w", ordinaryUID, err)
	}
	return nil
}

// unshareError adds the unshare(1) command with which a user can repeat the refused system call.
func unshareError(err error) error {
	if err == nil {
		return nil
	}
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("unshare: %w", err)
}
