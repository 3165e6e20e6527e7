// Package netns runs nodes as namespaces. Each node has its own network, IPC, UTS, mount and PID
// namespace, so that two nodes never look like one host to the programs in them. A node costs no
// process while nothing runs in it.
//
// The network namespace is given. The other namespaces are created with the node's init, a
// re-execution of this program that the first command starts. Init builds the node's view (hosts
// file, hostname, machine id, boot id, /proc, /sys, /tmp, /run, /dev/shm) and then only reaps
// processes. Commands are children of the supervisor, cloned from a thread that has entered the
// node's namespaces.
package netns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/reexec"
	"railbed/nodes"
)

// initTimeout bounds the start of a node's init. 8 inits at once on 2 busy cores need less than a
// second.
const initTimeout = 20 * time.Second

// Runtime makes netns nodes. Its zero value is ready.
type Runtime struct{}

// Create implements nodes.Runtime. It makes no system call: see the package comment.
func (Runtime) Create(_ context.Context, config nodes.Config) (nodes.Node, error) {
	return &node{config: config}, nil
}

type node struct {
	config nodes.Config

	mu     sync.Mutex // guards the fields below, and serialises the first start
	closed bool
	init   *os.Process
	view   view
}

// view holds descriptors of a running node's namespaces.
type view struct {
	mount, uts, ipc, pid int
	// root is the init's root directory. It differs from the mount namespace's root if Railbed
	// itself runs in a chroot.
	root int
	// proc is the node's /proc, for counting its processes.
	proc int
}

// Start implements nodes.Node.
func (n *node) Start(ctx context.Context, command nodes.Command) (nodes.Process, error) {
	if len(command.Args) == 0 {
		return nil, fmt.Errorf("start command in %s: no program named", n.config.Node.Name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fmt.Errorf("start %s in %s: %w", command.Args[0], n.config.Node.Name, nodes.ErrClosed)
	}
	if n.init == nil {
		if err := n.startInit(ctx); err != nil {
			return nil, fmt.Errorf("start init of %s: %w", n.config.Node.Name, err)
		}
	}
	started, err := n.spawn(command)
	if err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", command.Args[0], n.config.Node.Name, err)
	}
	return started, nil
}

// startInit starts the node's init and opens its namespaces.
func (n *node) startInit(ctx context.Context) (err error) {
	ours, theirs, err := reexec.SocketPair()
	if err != nil {
		return err
	}
	defer ours.Close()
	deadline := time.Now().Add(initTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	process, err := n.cloneInit(theirs)
	theirs.Close()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			process.Kill()
			process.Wait()
		}
	}()
	if err := ours.SetDeadline(deadline); err != nil {
		return err
	}
	if err := json.NewEncoder(ours).Encode(initConfigOf(n.config)); err != nil {
		return fmt.Errorf("send configuration: %w", err)
	}
	answer, err := io.ReadAll(ours)
	if err != nil {
		return fmt.Errorf("wait for answer: %w", err)
	}
	if string(answer) != initReady {
		return fmt.Errorf("build view: %s", strings.TrimSpace(string(answer)))
	}
	defaultOOM(process.Pid)
	n.view, err = openView(process.Pid)
	if err != nil {
		return err
	}
	n.init = process
	return nil
}

// cloneInit clones the init from a thread inside the node's network namespace. The init stays out
// of the node's control group, whose limits are for programs.
func (n *node) cloneInit(channel *os.File) (process *os.Process, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	err = reexec.OnLastThread(func() (err error) {
		if err := unix.Setns(n.config.Namespace.Fd(), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		if err := dropHostCapabilities(); err != nil {
			return err
		}
		process, err = os.StartProcess(reexec.Self, reexec.Argv(Part, n.config.Node.Name), &os.ProcAttr{
			Dir: "/",
			// Without containermaxprocs=0 Go's runtime keeps files of the host's control group
			// open.
			Env:   []string{"GOMAXPROCS=1", "GODEBUG=containermaxprocs=0"},
			Files: []*os.File{null, null, os.Stderr, channel},
			Sys: &syscall.SysProcAttr{
				Setsid:     true,
				Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
			},
		})
		return err
	})
	return process, err
}

func openView(pid int) (view, error) {
	base := "/proc/" + strconv.Itoa(pid)
	v := view{mount: -1, uts: -1, ipc: -1, pid: -1, root: -1, proc: -1}
	for _, entry := range []struct {
		fd   *int
		path string
	}{
		{&v.mount, base + "/ns/mnt"}, {&v.uts, base + "/ns/uts"}, {&v.ipc, base + "/ns/ipc"},
		{&v.pid, base + "/ns/pid"}, {&v.root, base + "/root"}, {&v.proc, base + "/root/proc"},
	} {
		fd, err := unix.Open(entry.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			v.close()
			return view{}, fmt.Errorf("open %s: %w", entry.path, err)
		}
		*entry.fd = fd
	}
	return v, nil
}

func (v *view) close() {
	for _, fd := range []*int{&v.mount, &v.uts, &v.ipc, &v.pid, &v.root, &v.proc} {
		if *fd > 0 {
			unix.Close(*fd)
		}
		*fd = -1
	}
}

// spawn clones the command from a thread that has entered all of the node's namespaces.
func (n *node) spawn(command nodes.Command) (*process, error) {
	var started *os.Process
	err := reexec.OnLastThread(func() (err error) {
		started, err = n.spawnHere(command)
		return err
	})
	if err != nil {
		return nil, err
	}
	defaultOOM(started.Pid)
	return watch(started), nil
}

// defaultOOM removes the protection that a program inherits from the supervisor: when memory runs
// out, programs are killed before their owner. It ignores a process that has ended.
func defaultOOM(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("0"), 0)
}

func (n *node) spawnHere(command nodes.Command) (*os.Process, error) {
	// Enter the group before the node's mount namespace hides the control files.
	group := n.config.Cgroup
	if command.Unlimited {
		group = nil
	}
	if err := group.Enter(); err != nil {
		return nil, err
	}
	if err := n.enter(); err != nil {
		return nil, err
	}
	if err := dropHostCapabilities(); err != nil {
		return nil, err
	}
	environment := nodes.Environment(n.config, nodes.ProgramDir, command.Env)
	// Between clone and exec the child shares this process's memory. So /proc/self/exe in its PID
	// namespace is this executable, wherever the file is.
	path := reexec.Self
	dir, err := nodes.Directory(command.Dir, command.DirHas)
	if err != nil {
		return nil, err
	}
	if !command.Self {
		if path, err = nodes.LookPath(command.Args[0], dir, environment); err != nil {
			return nil, err
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	files := []*os.File{orNull(command.Stdin, null), orNull(command.Stdout, null),
		orNull(command.Stderr, null)}
	if command.Channel != nil {
		files = append(files, command.Channel)
	}
	if n.config.Nice > 0 { // the thread's own value, which the program inherits
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, n.config.Nice); err != nil {
			return nil, fmt.Errorf("set nice %d: %w", n.config.Nice, err)
		}
	}
	cgroupFd, useCgroup := group.Descriptor()
	return os.StartProcess(path, command.Args, &os.ProcAttr{
		Dir:   dir,
		Env:   environment,
		Files: files,
		Sys: &syscall.SysProcAttr{
			// Without a terminal the command gets no session of its own. The kernel's autogroups
			// would give each session a full share of the processor, and the switches no more than
			// one.
			Setsid:      command.Terminal,
			Setctty:     command.Terminal,
			Setpgid:     !command.Terminal,
			UseCgroupFD: useCgroup,
			CgroupFD:    cgroupFd,
		},
	})
}

// enter moves the calling thread into the node. The mount namespace is last but one, as paths
// resolve in it from then on. The PID namespace applies only to the thread's children.
func (n *node) enter() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare thread's root directory: %w", err)
	}
	for _, step := range []struct {
		fd, kind int
		name     string
	}{
		{n.config.Namespace.Fd(), unix.CLONE_NEWNET, "network"},
		{n.view.uts, unix.CLONE_NEWUTS, "UTS"},
		{n.view.ipc, unix.CLONE_NEWIPC, "IPC"},
		{n.view.mount, unix.CLONE_NEWNS, "mount"},
		{n.view.pid, unix.CLONE_NEWPID, "PID"},
	} {
		if err := unix.Setns(step.fd, step.kind); err != nil {
			return fmt.Errorf("enter %s namespace: %w", step.name, err)
		}
	}
	// Entering a mount namespace moves the thread to that namespace's root.
	if err := unix.Fchdir(n.view.root); err != nil {
		return fmt.Errorf("enter root directory: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter root directory: %w", err)
	}
	return nil
}

func orNull(file, null *os.File) *os.File {
	if file == nil {
		return null
	}
	return file
}

// Processes implements nodes.Node.
func (n *node) Processes() (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.init == nil {
		return 0, nil
	}
	// Open a new descriptor, as reading a directory moves its offset.
	fd, err := unix.Openat(n.view.proc, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("read processes of %s: %w", n.config.Node.Name, err)
	}
	directory := os.NewFile(uintptr(fd), "proc")
	defer directory.Close()
	names, err := directory.Readdirnames(-1)
	if err != nil {
		return 0, fmt.Errorf("read processes of %s: %w", n.config.Node.Name, err)
	}
	count := 0
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 1 {
			count++
		}
	}
	return count, nil
}

// Close implements nodes.Node. Killing the init makes the kernel kill every other process of the
// PID namespace first. So when the init has ended, the others have, too.
func (n *node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.init == nil {
		return n.config.Cgroup.Close()
	}
	err := n.init.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	_, waitErr := n.init.Wait()
	n.view.close()
	n.init = nil
	return errors.Join(err, waitErr, n.config.Cgroup.Close())
}
