package docker

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/reexec"
	"railbed/nodes"
	"railbed/nodes/cgroup"
)

// opened are the namespaces whose descriptors the supervisor gets, in this order.
var opened = []string{"net", "mnt"}

// Main is a container's first process. It passes descriptors of the container's namespaces to the
// supervisor, starts the commands that the supervisor requests, and ends when the supervisor ends.
// Then the kernel kills all other processes in the container.
func Main([]string) int {
	if err := serve(); err != nil {
		fmt.Fprintf(os.Stderr, "railbed: %v\n", err)
		return 1
	}
	return 0
}

func serve() error {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socketTarget, Net: "unixpacket"})
	if err != nil {
		return err
	}
	channel, err := newPackets(conn, maxMessage)
	if err != nil {
		return err
	}
	files := make([]*os.File, len(opened))
	defer closeAll(files)
	for i, name := range opened {
		if files[i], err = os.Open("/proc/self/ns/" + name); err != nil {
			return err
		}
	}
	if err := channel.send(answer{PID: os.Getpid()}, files...); err != nil {
		return err
	}
	closeAll(files)
	in := &inside{channel: channel, reaper: nodes.NewReaper(), group: cgroup.Own(),
		commands: map[uint64]int{}, ended: map[uint64]int{}}
	go in.stopWhenAsked()
	for {
		var asked request
		files, err := channel.receive(&asked)
		if err != nil {
			return nil // the testbed is over
		}
		in.do(asked, files)
	}
}

// inside is the first process's state of the container.
type inside struct {
	channel *packets
	reaper  *nodes.Reaper
	group   *cgroup.Group
	exposed bool // whether programs are exposed: see groupExpose

	mu       sync.Mutex     // guards the fields below
	commands map[uint64]int // process ids of running commands; ended has those of the latest ended ones
	ended    map[uint64]int
}

// stopGrace is how long programs may take to end when the container is stopped from outside, as by
// docker stop, which waits for ten seconds.
const stopGrace = 8 * time.Second

// stopWhenAsked passes SIGTERM on, and exits when no other process is left.
func (in *inside) stopWhenAsked() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM, unix.SIGINT)
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGPIPE) // and dropped
	<-asked
	_ = in.channel.send(answer{Stopping: true}) // before the programs' ends are reported
	_ = syscall.Kill(-1, syscall.SIGTERM)
	for deadline := time.Now().Add(stopGrace); time.Now().Before(deadline); time.Sleep(
		10 * time.Millisecond) {
		if count, err := countProcesses(); err == nil && count == 0 {
			break
		}
	}
	os.Exit(128 + int(unix.SIGTERM))
}

// do executes one request.
func (in *inside) do(asked request, files []*os.File) {
	defer closeAll(files)
	reply := answer{ID: asked.ID}
	var err error
	switch {
	case asked.Configure != nil:
		in.exposed = asked.Configure.Exposed
		err = asked.Configure.write()
	case asked.Start != nil:
		if err = in.start(asked.ID, *asked.Start, files); err == nil {
			return
		}
	case asked.Signal != 0:
		in.signal(asked.ID, syscall.Signal(asked.Signal))
		return
	case asked.Count:
		reply.Count, err = countProcesses()
	case asked.Group != "":
		reply.Group, err = in.limited(asked.Group)
	}
	if err != nil {
		reply.Error, reply.NotFound = clipped(err.Error()), errors.Is(err, nodes.ErrNotFound)
		reply.NoFolder = errors.Is(err, nodes.ErrNoFolder)
	}
	_ = in.channel.send(reply) // the testbed may be over
}

// clipped shortens an error to the size that the supervisor accepts.
func clipped(text string) string { return text[:min(len(text), maxAnswer/4)] }

// write replaces files of the image or the engine.
func (c *configuration) write() error {
	for path, content := range c.Files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		// An image may have a link there, to a directory that is missing or that is the host's. A
		// mount of the engine is never on a link.
		if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// start starts a command, and reports its start and its end.
func (in *inside) start(id uint64, asked startRequest, files []*os.File) error {
	who, err := accountOf(asked.User)
	if err != nil {
		return err
	}
	if i := slices.Index(asked.Env, "HOME=/root"); i >= 0 && who.home != "" {
		asked.Env[i] = "HOME=" + who.home
	}
	path, args := reexec.Again(asked.Args)
	dir, err := nodes.Directory(asked.Dir, asked.DirHas, asked.Home)
	if err != nil {
		return err
	}
	if !asked.Self {
		args = asked.Args
		if path, err = nodes.LookPath(args[0], dir, asked.Env); err != nil {
			return err
		}
	}
	fds, screen, opened, err := descriptorsOf(asked, files)
	defer closeAll(opened)
	if err != nil {
		return err
	}
	// The lock ensures that the start is reported before the end.
	in.mu.Lock()
	defer in.mu.Unlock()
	pid, ended, err := in.reaper.Start(path, args, &syscall.ProcAttr{
		Dir: dir, Env: asked.Env, Files: fds,
		Sys: &syscall.SysProcAttr{
			Setsid:     asked.Terminal,
			Setctty:    asked.Terminal,
			Setpgid:    !asked.Terminal,
			Credential: who.credential,
		},
	})
	if err != nil {
		if screen != nil {
			screen.abandon()
		}
		return fmt.Errorf("start %s: %w", path, err)
	}
	if screen != nil {
		screen.carry()
	}
	in.commands[id] = pid
	if in.exposed {
		_ = expose(true) // it may have ended
	}
	_ = in.channel.send(answer{ID: id, PID: pid})
	go func() {
		exit := nodes.ExitOf(<-ended)
		if screen != nil {
			screen.end()
		}
		in.mu.Lock()
		delete(in.commands, id)
		in.ended[id] = pid
		delete(in.ended, id-endedKept)
		in.mu.Unlock()
		_ = in.channel.send(answer{ID: id, Exit: &exit})
	}()
	return nil
}

// descriptorsOf returns the descriptors for a command, from those that came with the request and
// those opened here.
func descriptorsOf(asked startRequest, files []*os.File) (fds []uintptr, screen *terminal, opened []*os.File,
	err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, nil, err
	}
	opened = []*os.File{null}
	fds = []uintptr{null.Fd(), null.Fd(), null.Fd()}
	if asked.Logged {
		fds[1], fds[2] = 1, 2
	}
	for i, present := range []bool{asked.Stdin, asked.Stdout, asked.Stderr, asked.Channel} {
		if !present {
			continue
		}
		if len(files) == 0 {
			return nil, nil, opened, errors.New("the message has fewer descriptors than it announces")
		}
		if i < 3 {
			fds[i] = files[0].Fd()
		} else {
			fds = append(fds, files[0].Fd())
		}
		if i == 0 && asked.Terminal {
			if screen, err = openTerminal(files[0]); err != nil {
				return nil, nil, opened, err
			}
		}
		files = files[1:]
	}
	if screen != nil {
		for i := range 3 {
			fds[i] = screen.inner.Fd()
		}
	}
	return fds, screen, opened, nil
}

// signal signals a command's group. The kernel does not reuse the group's number while the group
// has members. So if a process has the number of an ended leader, the number was reused and the
// group is another one.
func (in *inside) signal(id uint64, signal syscall.Signal) {
	in.mu.Lock()
	defer in.mu.Unlock()
	pid, runs := in.commands[id]
	if !runs {
		if pid = in.ended[id]; pid == 0 || syscall.Kill(pid, 0) == nil {
			return
		}
	}
	_ = syscall.Kill(-pid, signal) // it may have ended
}

// endedKept is how many ended commands can still be signalled.
const endedKept = 256

// account is the user of a command.
type account struct {
	credential *syscall.Credential // nil is root
	home       string
}

// accountOf parses a user as in a Dockerfile: name or number, and after a colon the same for a
// group.
func accountOf(text string) (account, error) {
	name, group, _ := strings.Cut(text, ":")
	if group == "" && (name == "" || name == "root" || name == "0") {
		return account{}, nil
	}
	credential := &syscall.Credential{}
	home := ""
	found, err := user.Lookup(cmp.Or(name, "root"))
	if err != nil {
		found, err = user.LookupId(name)
	}
	if err == nil {
		home = found.HomeDir
		credential.Uid, credential.Gid = number(found.Uid), number(found.Gid)
		groups, _ := found.GroupIds()
		for _, group := range groups {
			credential.Groups = append(credential.Groups, number(group))
		}
	} else if id, parseErr := strconv.ParseUint(name, 10, 32); parseErr == nil {
		credential.Uid = uint32(id)
	} else {
		return account{}, fmt.Errorf("user %q of the image is not in its /etc/passwd", name)
	}
	if group != "" {
		id := group
		if named, err := user.LookupGroup(group); err == nil {
			id = named.Gid
		}
		gid, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("group %q of the image is not in its /etc/group", group)
		}
		credential.Gid = uint32(gid)
	}
	return account{credential, home}, nil
}

// number parses a number of /etc/passwd. If the text is not a number, the result is 65534.
func number(text string) uint32 {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 65534
	}
	return uint32(id)
}

// countProcesses counts the container's processes, except for the first one.
func countProcesses() (int, error) {
	names, err := fs.Glob(os.DirFS("/proc"), "[0-9]*")
	if err != nil {
		return 0, err
	}
	count := 0
	for _, name := range names {
		if name != "1" {
			count++
		}
	}
	return count, nil
}
