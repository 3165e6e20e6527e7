package docker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/dockertest"
)

// said returns the output of a script in a node.
func said(t *testing.T, node nodes.Node, script string) string {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	process, err := node.Start(t.Context(),
		nodes.Command{Args: []string{"sh", "-c", script}, Stdout: writer, Stderr: writer})
	writer.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reader)
	if _, waitErr := process.Wait(); errors.Join(err, waitErr) != nil {
		t.Error(errors.Join(err, waitErr))
	}
	return strings.TrimSpace(string(text))
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func closed(t *testing.T, node nodes.Node) {
	t.Helper()
	if err := node.Close(); err != nil {
		t.Error(err)
	}
}

// settingsHold checks from inside a container that a file's settings apply.
func settingsHold(t *testing.T, r *Runtime, base spec.Container) {
	shared := t.TempDir()
	mustWrite(t, filepath.Join(shared, "f"), "host's")
	hosts := filepath.Join(t.TempDir(), "hosts")
	mustWrite(t, hosts, "127.0.0.1 users\n")
	base.Binds = []string{shared + ":/rw", shared + ":/ro:ro", hosts + ":/etc/hosts",
		hosts + ":/etc/machine-id:ro"}
	base.Capabilities, base.Devices = []string{"SYS_NICE"}, []string{"/dev/null:/dev/other:rw"}
	base.Ulimits = map[string]string{"nofile": "100:200"}
	node, err := tryNode(t, r, plan.Node{Name: "s", Container: &base, CPU: 0.5, Memory: 64 << 20,
		Env: map[string]string{"COLOUR": "red"}})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, node)
	for script, want := range map[string]string{
		"cat /ro/f; echo node >/rw/g; (echo x >/ro/h) 2>&1 | grep -o Read-only": "host'sRead-only",
		"ulimit -Sn; ulimit -Hn":         "100\n200",
		"echo $COLOUR":                   "red",
		"ls /dev/other":                  "/dev/other",
		"cat /etc/hosts /etc/machine-id": "127.0.0.1 users\n127.0.0.1 users",
		"echo x 2>&1 >/proc/sys/kernel/random/boot_id | grep -o Read-only": "Read-only",
		// CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, FSETID 4, KILL 5, SETGID 6, SETUID 7,
		// NET_BIND_SERVICE 10, NET_RAW 13, and SYS_NICE 23 (capability.h).
		"grep CapBnd /proc/self/status | cut -f2": "00000000008024fb",
	} {
		if got := said(t, node, script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	if got, err := os.ReadFile(filepath.Join(shared, "g")); err != nil || string(got) != "node\n" {
		t.Errorf("the bind has %q, %v", got, err)
	}
	if got, err := os.ReadFile(hosts); err != nil || string(got) != "127.0.0.1 users\n" {
		t.Errorf("the hosts file of a bind is %q, %v", got, err)
	}
	c := node.(*container)
	state, err := r.client.ContainerInspect(t.Context(), c.id)
	if err != nil || state.HostConfig.CPUQuota != 50_000 || state.HostConfig.Memory != 64<<20 ||
		state.HostConfig.NetworkMode != "none" || state.HostConfig.Privileged {
		t.Errorf("the engine has %+v, %v", state.HostConfig, err)
	}
}

// builds builds from a Dockerfile, whose settings hold, and leaves no image.
func builds(t *testing.T, r *Runtime, engine *dockertest.Engine, base spec.Container) {
	folder := t.TempDir()
	archive, err := os.ReadFile(base.RootFS)
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(folder, "root.tar"), string(archive))
	mustWrite(t, filepath.Join(folder, "Dockerfile"),
		"FROM scratch\nADD root.tar /\nCOPY . /copied\nRUN readlink /proc/self/ns/net >/network\n"+
			"ENV SIZE=large\nWORKDIR /usr\nUSER nobody\nSTOPSIGNAL SIGQUIT\nHEALTHCHECK --interval=10m CMD "+
			"ls /copied\nENTRYPOINT [\"sh\", \"-c\"]\nCMD [\"id -u; pwd; echo $SIZE\"]\n")
	mustWrite(t, filepath.Join(folder, ".dockerignore"),
		"# all but one\n*\n!root.tar\n!kept\nkept/**/*.log\n!kept/in/this.log\n")
	for _, name := range []string{"secret", "left/a", "kept/b", "kept/c.log", "kept/in/d.log",
		"kept/in/this.log"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, filepath.Join(folder, name), name)
	}
	if err := os.Symlink("b", filepath.Join(folder, "kept/link")); err != nil {
		t.Fatal(err)
	}
	device := unix.Mknod(filepath.Join(folder, "kept/device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	if err := errors.Join(device, unix.Mkfifo(filepath.Join(folder, "kept/pipe"), 0o640)); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(folder, "kept/socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	own, err := New(t.Context(), Options{RunDir: t.TempDir(), Base: folder})
	if err != nil {
		t.Fatal(err)
	}
	before, err := engine.Docker("images", "-aq")
	if err != nil {
		t.Fatal(err)
	}
	node := makeNode(t, own, "d", spec.Container{Build: ".", BuildNetwork: spec.BuildHost})
	if got := said(t, node, "id -u; echo $SIZE $HOME"); got != "65534\nlarge /nonexistent" {
		t.Errorf("a command has %q", got)
	}
	if got := said(t, node, "cd /copied; ls -R . | grep -v :; cat kept/link"); got != "kept\nroot.tar\n\n"+
		"b\ndevice\nin\nlink\npipe\n\nthis.log\nkept/b" {
		t.Errorf("the image has %q", got)
	}
	if got := said(t, node, "stat -c '%A %t,%T' /copied/kept/device "+
		"/copied/kept/pipe"); got != "crw------- 1,3\nprw-r----- 0,0" {
		t.Errorf("the image has %q", got)
	}
	for user, want := range map[string]string{"0": "0\n/usr\nlarge", "nobody": "65534\n/usr\nlarge"} {
		args := []string{"exec", "-u", user, "railbed-test-d", "sh", "-c", "id -u; pwd; echo $SIZE"}
		if user == "0" {
			args = append(args[:1], args[3:]...) // as docker exec has it by itself
		}
		if got, err := engine.Docker(args...); err != nil || got != want {
			t.Errorf("docker %v: %q, %v; want %q", args, got, err, want)
		}
	}
	hosts, err := os.Readlink("/proc/self/ns/net")
	if got := said(t, node, "cat /network"); err != nil || got != hosts {
		t.Errorf("RUN had the network %s, %v; want the host's, %s", got, err, hosts)
	}
	const want = "65534\n/usr\nlarge\n"
	hosttest.Eventually(t, fmt.Sprintf("the text %q of the entry point", want), func() error {
		var log strings.Builder
		if err := node.(*container).Log(t.Context(), &log); err != nil {
			t.Fatal(err)
		}
		if log.String() != want { // it may be under way
			return fmt.Errorf("it said %q", log.String())
		}
		return nil
	})
	closed(t, node)
	if err := own.Close(); err != nil {
		t.Error(err)
	}
	if after, err := engine.Docker("images", "-aq"); err != nil || after != before {
		t.Errorf("images %q before and %q after, %v", before, after, err)
	}
}

func TestAccounts(t *testing.T) {
	for text, want := range map[string]*syscall.Credential{
		"": nil, "root": nil, "0": nil, "0:5": {Gid: 5}, ":5": {Gid: 5}, "65000": {Uid: 65000},
		"65000:5": {Uid: 65000, Gid: 5},
	} {
		got, err := accountOf(text)
		if err != nil || (got.credential == nil) != (want == nil) ||
			want != nil && (got.credential.Uid != want.Uid || got.credential.Gid != want.Gid) {
			t.Errorf("%q: %+v, %v; want %+v", text, got.credential, err, want)
		}
	}
}

// waitsForHealth: a node is there when its check has passed, and not at all when it
// does not in time.
func waitsForHealth(t *testing.T, r *Runtime, base spec.Container) {
	base.Command = []string{"sh", "-c", "sleep 0.5; echo >/tmp/ready; sleep 1000"}
	base.Health = &spec.Health{Command: []string{"ls", "/tmp/ready"},
		Interval: units.Duration(100 * time.Millisecond)}
	node := makeNode(t, r, "h", base)
	if got := said(t, node, "ls /tmp/ready"); got != "/tmp/ready" {
		t.Errorf("the node is there before it is healthy: %s", got)
	}
	closed(t, node)
	base.Health = &spec.Health{Command: []string{"ls", "/never"},
		Interval: units.Duration(100 * time.Millisecond), Timeout: units.Duration(time.Second)}
	if node, err := tryNode(t, r, plan.Node{Name: "h", Container: &base}); err == nil ||
		!strings.Contains(err.Error(), "not healthy after 1s: the last health check exited with 2") {
		t.Errorf("node %v, error %v", node, err)
	}
}

// refused checks that impossible settings are refused, in one line each, and that nothing is left.
func refused(t *testing.T, r *Runtime, engine *dockertest.Engine, base spec.Container) {
	with := func(change func(*spec.Container)) spec.Container {
		c := base
		change(&c)
		return c
	}
	noTar := filepath.Join(t.TempDir(), "x.tar")
	mustWrite(t, noTar, "no archive")
	image, err := engine.Docker("import", base.RootFS, "local/base:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Docker("create", "--name", "railbed-test-r", image, "true"); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Docker("create", "--name", "railbed-test-s-t", "--label", LabelTestbed+"=test-s",
		"--label", LabelNode+"=t", image, "true"); err != nil {
		t.Fatal(err)
	}
	needsNetwork, badPattern := t.TempDir(), t.TempDir()
	mustWrite(t, filepath.Join(needsNetwork, "Dockerfile"),
		"FROM local/base:1\nRUN grep eth0 /proc/net/dev\n")
	mustWrite(t, filepath.Join(badPattern, "Dockerfile"), "FROM local/base:1\n")
	mustWrite(t, filepath.Join(badPattern, ".dockerignore"), "a[\n")
	noInstruction, noFile := t.TempDir(), t.TempDir()
	mustWrite(t, filepath.Join(noInstruction, "Dockerfile"), "FORM local/base:1\n")
	mustWrite(t, filepath.Join(noFile, "Dockerfile"), "FROM local/base:1\nCOPY absent /\n")
	containers, err := engine.Docker("ps", "-aq")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		node string
		c    spec.Container
		want string
	}{
		"no image": {"x", spec.Container{Image: "nobody/nothing:1", Pull: spec.PullNever},
			"image nobody/nothing:1: the engine does not have it, and pull is never; " +
				"make the image"},
		"no registry": {"x", spec.Container{Image: "127.0.0.1:1/nothing:1"},
			"image 127.0.0.1:1/nothing:1: unsupported here: pull it: "},
		"no archive": {"x", spec.Container{RootFS: noTar}, "rootfs " + noTar + ": "},
		"no folder": {"x", spec.Container{Build: "/nonexistent"},
			"build /nonexistent: stat /nonexistent/Dockerfile: no such file"},
		"no network": {"x", spec.Container{Build: needsNetwork},
			"returned a non-zero code: 1 (RUN has no network here, unless the file says build-network: " +
				"default or host)"},
		"no instruction": {"x", spec.Container{Build: noInstruction}, "unknown instruction: FORM"},
		"no file":        {"x", spec.Container{Build: noFile}, "COPY failed: file not found"},
		"no pattern":     {"x", spec.Container{Build: badPattern}, ".dockerignore: syntax error in pattern"},
		"no entry point": {"x", with(func(c *spec.Container) { c.Command = []string{"nothing"} }),
			`entry point of x: program not found in the node: no "nothing" in PATH`},
		"no check": {"x", with(func(c *spec.Container) {
			c.Health = &spec.Health{Command: []string{"nothing"},
				Interval: units.Duration(100 * time.Millisecond),
				Timeout:  units.Duration(500 * time.Millisecond)}
		}), `health of x: OCI runtime exec failed`},
		"no bind": {"x", with(func(c *spec.Container) {
			c.Binds = []string{"/nonexistent:/x"}
		}), "bind source path does not exist: /nonexistent"},
		"no device": {"x", with(func(c *spec.Container) {
			c.Devices = []string{"/dev/nothing"}
		}), `adding custom device "/dev/nothing"`},
		"its name": {"r", base,
			"there is a container named railbed-test-r already; remove it (docker rm railbed-test-r)"},
		"its name, by a hyphen": {"s-t", base,
			"there is a container named railbed-test-s-t already, of node t of testbed test-s; take " +
				"testbed test-s down (railbed down test-s, or"},
	} {
		t.Run(name, func(t *testing.T) {
			node, err := tryNode(t, r, plan.Node{Name: test.node, Container: &test.c})
			// What belongs to the file, such as a folder or a program of its image, is no lack of the host.
			ofFile := slices.Contains([]string{"no folder", "no network", "no pattern", "no entry point",
				"no check", "no image", "no archive", "no bind", "no instruction", "no file"}, name)
			if errors.As(err, new(*verdict.MistakeError)) != ofFile {
				t.Errorf("%v is a mistake of the file: %v, want %v", err, !ofFile, ofFile)
			}
			if err == nil || errors.Is(err, verdict.ErrUnsupported) == ofFile ||
				!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("node %v, error %v; want %q", node, err, test.want)
			}
		})
	}
	// Remains of the testbed from before a restart of the host are replaced.
	if _, err := engine.Docker("create", "--name", "railbed-test-o", "--label", LabelTestbed+"=test",
		"--label", LabelRunDir+"="+r.options.RunDir, "--label", LabelBoot+"=earlier", image,
		"true"); err != nil {
		t.Fatal(err)
	}
	closed(t, makeNode(t, r, "o", base))
	if left, err := engine.Docker("ps", "-aq"); err != nil || left != containers {
		t.Errorf("containers %q before and %q after, %v", containers, left, err)
	}
}
