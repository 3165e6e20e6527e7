package netns_test

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/nodes"
	"railbed/nodes/netns"
	"railbed/plan"
	"railbed/testkit/hosttest"
)

// viewNode is a node for the tests of its view of the host.
func viewNode(t *testing.T, name, machine string) nodes.Node {
	t.Helper()
	namespace, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	node, err := netns.Runtime{}.Create(t.Context(), nodes.Config{
		Testbed: "test-view", Namespace: namespace, Node: plan.Node{Name: name, MachineID: machine},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	return node
}

// output runs a script in the node and returns what it printed.
func output(t *testing.T, node nodes.Node, script string) string {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	process, err := node.Start(t.Context(),
		nodes.Command{Args: []string{"sh", "-c", script}, Stdout: write, Stderr: write})
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := process.Wait()
	if err != nil || exit != (nodes.Exit{}) {
		t.Fatalf("%s: %+v, %v\n%s", script, exit, err, text)
	}
	return strings.TrimSpace(string(text))
}

const (
	machineA = "0000000000000000000000000000000a"
	machineB = "0000000000000000000000000000000b"
)

// ownEtc gives the test an /etc of its own in its own mount namespace, with a submount.
func ownEtc(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"upper", "work", "below"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	options := "lowerdir=/etc,userxattr,upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	mount(t, "overlay", "/etc", "overlay", 0, options)
	// A mount below /etc, as containers and systems with generated files have them.
	write(t, filepath.Join(dir, "below", "file"), "below\n")
	if err := os.MkdirAll("/etc/railbed-below", 0o755); err != nil {
		t.Fatal(err)
	}
	mount(t, filepath.Join(dir, "below"), "/etc/railbed-below", "", unix.MS_BIND, "")
}

// mount mounts until the test ends.
func mount(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		t.Fatalf("mount %s on %s: %v", source, target, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", target, err)
		}
	})
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replace replaces a file as editors and package managers do: by renaming another file over it.
func replace(t *testing.T, path, content string) {
	t.Helper()
	write(t, path+".new", content)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestIdentitySurvivesARename: the host replaces the files of its identity while nodes run, and
// the nodes keep theirs. Linux takes away a mount on a file when the file is replaced, also in other
// mount namespaces.
func TestIdentitySurvivesARename(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	if !hosttest.InMounts(t) {
		return
	}
	ownEtc(t)
	nodeA, nodeB := viewNode(t, "a", machineA), viewNode(t, "b", machineB)
	const identity = "cat /etc/machine-id /etc/hostname /etc/hosts /etc/resolv.conf"
	of := map[nodes.Node]string{nodeA: output(t, nodeA, identity), nodeB: output(t, nodeB, identity)}
	if of[nodeA] == of[nodeB] || !strings.Contains(of[nodeA], machineA) {
		t.Fatalf("identities before: %q and %q", of[nodeA], of[nodeB])
	}
	for _, name := range []string{"machine-id", "hostname", "hosts", "resolv.conf"} {
		replace(t, "/etc/"+name, "the host's\n")
	}
	for node, before := range of {
		if after := output(t, node, identity); after != before {
			t.Errorf("identity became %q, was %q", after, before)
		}
	}
	if got := output(t, nodeA, "cat /etc/railbed-below/file"); got != "below" {
		t.Errorf("a mount below /etc shows %q in the node, want its file", got)
	}
	// The store of the identity files is not in reach of programs.
	if got, want := output(t, nodeA, "ls -A /run "+nodes.ProgramDir), "/run:\n.railbed\n\n/run/.railbed:\n"+
		"railbed"; got != want {
		t.Errorf("/run of the node holds %q, want %q", got, want)
	}
	// What a node writes is the node's.
	output(t, nodeA, "echo mine > /etc/hosts; echo mine > /etc/railbed-made")
	if text, err := os.ReadFile("/etc/hosts"); err != nil || string(text) != "the host's\n" {
		t.Errorf("after a node wrote its /etc/hosts, the host's is %q, %v", text, err)
	}
	if _, err := os.Stat("/etc/railbed-made"); err == nil {
		t.Error("a file that a node made in its /etc is in the host's")
	}
}

// TestResolverBehindALink: the node has its own resolv.conf where the host's is a link into
// /run, as systemd-resolved makes it: the node has another /run.
func TestResolverBehindALink(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	if !hosttest.InMounts(t) {
		return
	}
	ownEtc(t)
	mount(t, "tmpfs", "/run", "tmpfs", 0, "mode=755")
	if err := os.MkdirAll("/run/systemd/resolve", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, "/run/systemd/resolve/stub-resolv.conf", "nameserver 127.0.0.53\n")
	if err := os.Remove("/etc/resolv.conf"); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.Symlink("../run/systemd/resolve/stub-resolv.conf", "/etc/resolv.conf"); err != nil {
		t.Fatal(err)
	}
	namespace, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	node, err := netns.Runtime{}.Create(t.Context(), nodes.Config{
		Testbed: "test-dns", Namespace: namespace,
		Node: plan.Node{Name: "a", MachineID: machineA,
			Management: &plan.ManagementNIC{DNS: []string{"192.0.2.53"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	if got := output(t, node, "cat /etc/resolv.conf"); got != "nameserver 192.0.2.53" {
		t.Errorf("resolv.conf of the node: %q, want its name server", got)
	}
}

// TestSharedMemoryBehindALink: the node has shared memory of its own where the host's /dev/shm is a
// link into /run, as Debian had it.
func TestSharedMemoryBehindALink(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	if !hosttest.InMounts(t) {
		return
	}
	dir := t.TempDir()
	for _, name := range []string{"null", "zero", "urandom"} {
		write(t, filepath.Join(dir, name), "")
		mount(t, "/dev/"+name, filepath.Join(dir, name), "", unix.MS_BIND, "")
	}
	if err := os.Symlink("/run/shm", filepath.Join(dir, "shm")); err != nil {
		t.Fatal(err)
	}
	mount(t, dir, "/dev", "", unix.MS_BIND|unix.MS_REC, "")
	nodeA, nodeB := viewNode(t, "a", machineA), viewNode(t, "b", machineB)
	output(t, nodeA, "echo mine > /dev/shm/f")
	if got := output(t, nodeB, "ls -A /dev/shm; stat -L -c %a /dev/shm"); got != "1777" {
		t.Errorf("/dev/shm of another node: %q, want an empty directory of mode 1777", got)
	}
}

// TestIdentityWithoutOverlay: a node has its identity where the kernel stacks no further overlay.
func TestIdentityWithoutOverlay(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	if !hosttest.InMounts(t) {
		return
	}
	ownEtc(t)
	ownEtc(t)
	node := viewNode(t, "a", machineA)
	if got := output(t, node, "cat /etc/machine-id /etc/hostname"); got != machineA+"\na" {
		t.Errorf("machine id and name of the node: %q", got)
	}
	replace(t, "/etc/railbed-other", "other\n")
	if got := output(t, node, "cat /etc/railbed-other"); got != "other" {
		t.Errorf("the node sees %q, want the host's file, as it has no overlay here", got)
	}
}

// writable lists the files of /proc and /sys that the calling command may open for writing. It
// skips files of processes, and writes nothing.
const writable = `find /proc /sys -xdev -type f -perm /222 -not -path '/proc/[0-9]*' 2>/dev/null | while read -r f; do
	[ -f "$f" ] && ( : 1<>"$f" ) 2>/dev/null && echo "$f"
done; find /proc/sys -type f -perm /222 | while read -r f; do ( : 1<>"$f" ) 2>/dev/null && echo "$f"; done; true`

// owned reports whether a node may write to a path of /proc: its own namespaces have it.
func owned(path string) bool {
	for _, prefix := range []string{"/proc/sys/net/", "/proc/sys/fs/mqueue/", "/proc/pressure/"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	name, kernel := strings.CutPrefix(path, "/proc/sys/kernel/")
	return kernel && slices.Contains([]string{
		"hostname", "domainname", "sem", "msgmax", "msgmnb", "msgmni", "shmall", "shmmax", "shmmni",
		"shm_rmid_forced",
		"auto_msgmni", "msg_next_id", "sem_next_id", "shm_next_id", "ns_last_pid",
	}, name)
}

// TestHostsKernelIsNotTheNodes: root of a node cannot write to the host's files in /proc and /sys,
// such as /proc/sys/kernel/core_pattern and /proc/sysrq-trigger. It can still write to the files of
// the node's own namespaces.
func TestHostsKernelIsNotTheNodes(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	node := viewNode(t, "a", machineA)
	for _, path := range strings.Fields(output(t, node, writable)) {
		if !owned(path) {
			t.Errorf("a node may write the host's %s", path)
		}
	}
	// Programs of the node cannot load modules, set the host's clock, read its log or start another kernel.
	// capabilities(7): 16, 17, 22, 25, 32 to 35.
	const hostOnly = 1<<16 | 1<<17 | 1<<22 | 1<<25 | 1<<32 | 1<<33 | 1<<34 | 1<<35
	for _, process := range []string{"1", "self"} {
		status := output(t, node, "grep CapBnd /proc/"+process+"/status | cut -f2")
		if bounding, err := strconv.ParseUint(status, 16, 64); err != nil || bounding&hostOnly != 0 {
			t.Errorf("process %s of the node may have capabilities %#x, %v, of the host's alone", process,
				bounding&hostOnly, err)
		}
	}
	// The first process of the node leads its programs to no file of the testbed.
	if got := output(t, node, "readlink /proc/1/fd/* | grep -v "+
		"-e ^/dev/null$ -e ^anon_inode: || true"); got != "" {
		t.Errorf("programs of the node can open %q of the node's first process", got)
	}
	for _, path := range []string{"/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/timer_list",
		"/proc/sched_debug"} {
		if got := output(t, node, "[ ! -e "+path+" ] || head -c 1 "+path+" | wc -c"); got != "" &&
			got != "0" {
			t.Errorf("a node reads the host's %s", path)
		}
	}
	for _, path := range []string{"/proc/acpi", "/proc/asound", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap"} {
		if got := output(t, node, "ls -A "+path+" 2>/dev/null | wc -l"); got != "0" {
			t.Errorf("%s shows the host's %s files in a node", path, got)
		}
	}
	// What is the node's stays the node's, and is not the host's.
	for path, value := range map[string]string{
		"/proc/sys/net/ipv4/ip_forward": "1", "/proc/sys/net/ipv4/conf/lo/rp_filter": "2",
		"/proc/sys/net/ipv4/ping_group_range": "0\t0",
		"/proc/sys/kernel/hostname":           "renamed", "/proc/sys/kernel/shmmni": "1234",
		"/proc/sys/fs/mqueue/msg_max": "11",
	} {
		if !strings.HasPrefix(path, "/proc/sys/net/") && hosttest.Probe(hosttest.Root) != nil {
			continue // Linux gives root of a user namespace no other ones
		}
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := output(t, node, "printf '"+value+"' > "+path+" && cat "+path); got != value {
			t.Errorf("%s of the node is %q after writing %q", path, got, value)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
			t.Errorf("%s of the host became %q, %v; was %q", path, after, err, before)
		}
	}
}
