package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"railbed/nodes"
)

// process is a command in a node; a goroutine of its own waits for it.
type process struct {
	pid  int
	done chan struct{}
	exit nodes.Exit
	err  error
}

func watch(p *os.Process) *process {
	watched := &process{pid: p.Pid, done: make(chan struct{})}
	go func() {
		defer close(watched.done)
		state, err := p.Wait()
		if err != nil {
			watched.err = fmt.Errorf("wait for process %d: %w", p.Pid, err)
			return
		}
		status := state.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			watched.exit = nodes.Exit{Code: 128 + int(status.Signal()), Signal: status.Signal()}
			return
		}
		watched.exit = nodes.Exit{Code: status.ExitStatus()}
	}()
	return watched
}

// Pid implements nodes.Process.
func (p *process) Pid() int { return p.pid }

// Signal implements nodes.Process. A process group keeps its leader's number while
// it has members, so a late signal cannot hit a stranger's group.
func (p *process) Signal(signal syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(-p.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process group %d: %w", p.pid, err)
	}
	return nil
}

// Wait implements nodes.Process.
func (p *process) Wait() (nodes.Exit, error) {
	<-p.done
	return p.exit, p.err
}

// environment is the node's environment with the command's entries over it.
func (n *node) environment(extra []string) []string {
	nics := make([]string, len(n.config.Node.NICs))
	for i, nic := range n.config.Node.NICs {
		nics[i] = nic.Name
	}
	names := strings.Join(nics, ",")
	environment := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8",
		"RAILBED_TESTBED=" + n.config.Testbed, "RAILBED_NODE=" + n.config.Node.Name,
	}
	if names != "" {
		// The NICs that the stacks may use. Without this UCX and OpenMPI would
		// also try the node's loopback address.
		environment = append(environment, "UCX_NET_DEVICES="+names,
			"OMPI_MCA_btl_tcp_if_include="+names, "OMPI_MCA_oob_tcp_if_include="+names,
			"GLOO_SOCKET_IFNAME="+nics[0], "NCCL_SOCKET_IFNAME="+names)
	}
	for name, value := range n.config.Node.Env {
		environment = set(environment, name, value)
	}
	for _, entry := range extra {
		if name, value, ok := strings.Cut(entry, "="); ok {
			environment = set(environment, name, value)
		}
	}
	slices.Sort(environment)
	return environment
}

func set(environment []string, name, value string) []string {
	for i, entry := range environment {
		if strings.HasPrefix(entry, name+"=") {
			environment[i] = name + "=" + value
			return environment
		}
	}
	return append(environment, name+"="+value)
}

// lookPath finds a program in the mount namespace of the calling thread, along
// the PATH that the program will have.
func lookPath(name, dir string, environment []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join("/", dir, name)
		}
		return name, executable(name)
	}
	var path string
	for _, entry := range environment {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	for _, directory := range filepath.SplitList(path) {
		candidate := filepath.Join("/", directory, name)
		if executable(candidate) == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%w: no %q in PATH %s", nodes.ErrNotFound, name, path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: no file %s (a node has its own /tmp and /run)", nodes.ErrNotFound, path)
	case err != nil:
		return err
	case info.IsDir() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%w: %s is not an executable file", nodes.ErrNotFound, path)
	}
	return nil
}
