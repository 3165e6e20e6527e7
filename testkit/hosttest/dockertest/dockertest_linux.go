// Package dockertest gives a test a Docker engine of its own.
package dockertest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/testkit/hosttest"
)

// Engine is a Docker engine with its containerd, in a PID and a mount namespace of their own, so
// that nothing of them outlives the engine.
type Engine struct {
	// Host is the engine's address, in the format of DOCKER_HOST.
	Host string

	dir     string
	args    []string
	command *exec.Cmd
	output  bytes.Buffer
}

// patience bounds the start of an engine.
const patience = 60 * time.Second

// Start starts an engine, which ends with the test, and sets DOCKER_HOST to it.
func Start(t testing.TB) *Engine {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.Docker)
	return start(t, func(dir, host string) []string {
		return []string{
			"dockerd", "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
			"--pidfile", filepath.Join(dir, "pid"), "--host", host, "--iptables=false", "--ip-forward=false",
			"--bridge=none",
			"--cgroup-parent", "/" + cgroup(dir),
		}
	})
}

// podmanConfig keeps Podman within the rights of a root that may not raise limits. It selects a
// runtime that supports cgroups of both versions side by side.
const podmanConfig = `[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
cgroups = "enabled"
[engine]
runtime = "runc"
`

// StartPodman is like Start, for Podman's service with Docker's API.
func StartPodman(t testing.TB) *Engine {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.Podman)
	config := filepath.Join(t.TempDir(), "containers.conf")
	if err := os.WriteFile(config, []byte(podmanConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONTAINERS_CONF", config)
	return start(t, func(dir, host string) []string {
		return []string{
			"podman", "--root", filepath.Join(dir, "data"), "--runroot", filepath.Join(dir, "exec"),
			"--storage-driver", "vfs",
			"--cgroup-manager", "cgroupfs", "system", "service", "--time", "0", host,
		}
	})
}

func start(t testing.TB, args func(dir, host string) []string) *Engine {
	t.Helper()
	dir, err := os.MkdirTemp("", "docker") // a short path, because it holds sockets
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{Host: "unix://" + filepath.Join(dir, "s"), dir: dir}
	e.args = args(dir, e.Host)
	t.Cleanup(func() {
		e.Stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
		removeCgroups(cgroup(dir))
	})
	if err := e.Run(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_HOST", e.Host)
	return e
}

func cgroup(dir string) string { return "railbed-" + filepath.Base(dir) }

// Run starts the engine, or starts it again, and waits until it answers.
func (e *Engine) Run() error {
	e.command = hosttest.WithOwnRun([]string{"--pid", "--fork", "--kill-child", "--mount-proc"}, e.args...)
	e.output.Reset()
	e.command.Stdout, e.command.Stderr = &e.output, &e.output
	e.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := e.command.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ping(strings.TrimPrefix(e.Host, "unix://")) == nil {
			return nil
		}
	}
	e.Stop()
	return fmt.Errorf("%s did not answer in %s:\n%s", e.args[0], patience, e.output.String())
}

func ping(socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /_ping HTTP/1.0\r\n\r\n")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// Stop kills the engine and all its processes, like a crash of the host's engine.
func (e *Engine) Stop() {
	if e.command == nil {
		return
	}
	_ = e.command.Process.Kill() // kills unshare, and with it the first process of the namespace
	_ = e.command.Wait()
	e.command = nil
	// PIDs start again from 1, and the engine would take other processes for its own.
	_ = os.Remove(filepath.Join(e.dir, "pid"))
	_ = os.RemoveAll(filepath.Join(e.dir, "exec"))
}

// Root returns the path of an archive of a root file system with these programs of the host.
func Root(t testing.TB, programs ...string) string {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "root.tar")
	script, err := filepath.Abs(filepath.Join(module(), "scripts/container-root"))
	if err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command(script,
		append([]string{archive}, programs...)...).CombinedOutput(); err != nil {
		t.Fatalf("make root file system: %v\n%s", err, output)
	}
	return archive
}

// module returns the directory of go.mod, a parent of the test's.
func module() string {
	dir := "."
	for range 8 {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Join(dir, "..")
	}
	return dir
}

// removeCgroups removes the engine's cgroups, which have no processes any more.
func removeCgroups(name string) {
	matches, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
	for _, dir := range append(matches, "/sys/fs/cgroup/"+name) {
		inner, _ := filepath.Glob(dir + "/*/cgroup.procs")
		for _, file := range inner {
			_ = unix.Rmdir(filepath.Dir(file))
		}
		_ = unix.Rmdir(dir)
	}
}

// Docker runs Docker's own command and returns its output.
func (e *Engine) Docker(args ...string) (string, error) {
	output, err := exec.Command("docker", append([]string{"--host", e.Host}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return strings.TrimSpace(string(output)), nil
}
