package vm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/creack/pty"
	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"railbed/internal/frame"
	"railbed/internal/reexec"
	"railbed/nodes"
	"railbed/nodes/cgroup"
)

// agent is the part of the guest's first process that serves the host. It reaps: all processes of
// the guest are its descendants.
type agent struct {
	ready atomic.Bool
	nics  *os.File // the NICs' driver, not yet loaded; nil if it is built into the kernel

	reaper *nodes.Reaper

	// group has the programs of the node and not the agent. It is nil if the kernel cannot limit memory,
	// for the reason ungrouped.
	group     *cgroup.Group
	ungrouped error

	mu      sync.Mutex // guards streams
	streams map[carried]chan *yamux.Stream
}

func newAgent() *agent {
	return &agent{reaper: nodes.NewReaper(), streams: map[carried]chan *yamux.Stream{}}
}

// stream returns the channel for a stream that the host has opened, or will open.
func (a *agent) stream(c carried) chan *yamux.Stream {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streams[c] == nil {
		a.streams[c] = make(chan *yamux.Stream, 1)
	}
	return a.streams[c]
}

func (a *agent) deliver(c carried, stream *yamux.Stream) {
	select {
	case a.stream(c) <- stream:
	default: // the host never opens two
		stream.Close()
	}
}

// take waits for a stream. The host opened the stream before it requested the command.
func (a *agent) take(c carried) *yamux.Stream {
	stream := <-a.stream(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.streams, c)
	return stream
}

// command starts a command, answers, and waits until the command has ended.
func (a *agent) command(request startRequest, control *yamux.Stream, to *frame.Writer) {
	streams := map[descriptor]*yamux.Stream{}
	for _, what := range request.Carried {
		streams[what] = a.take(carried{request.ID, what})
	}
	c := &guestCommand{streams: streams}
	pid, ended, err := a.start(c, request)
	if err != nil {
		_ = refuse(to, err)
		for _, stream := range streams {
			stream.Close()
		}
		return
	}
	if to.WriteJSON(frame.Started, started{PID: pid}) != nil {
		return // the guest ends with the host
	}
	go c.execute(pid, control)
	status := <-ended
	c.ended.Store(true)
	_ = to.WriteJSON(frame.Exit, exited{Exit: nodes.ExitOf(status), Sent: c.written()})
}

// guestCommand is a command in the guest, with its streams.
type guestCommand struct {
	streams map[descriptor]*yamux.Stream
	sources map[descriptor]*source
	screen  *os.File // the terminal's other side, or nil
	ended   atomic.Bool
}

// start opens a command's descriptors and starts it.
func (a *agent) start(c *guestCommand, request startRequest) (pid int, ended <-chan syscall.WaitStatus,
	err error) {
	path := reexec.Self
	dir, err := nodes.Directory(request.Dir, request.DirHas)
	if err != nil {
		return 0, nil, err
	}
	if !request.Self {
		if path, err = nodes.LookPath(request.Args[0], dir, request.Env); err != nil {
			return 0, nil, err
		}
	}
	files, err := c.open(request)
	defer closeAll(files)
	if err != nil {
		return 0, nil, errors.Join(err, c.abandon())
	}
	fds := make([]uintptr, len(files))
	for i, file := range files {
		fds[i] = file.Fd()
	}
	terminal := request.Terminal != nil
	group := a.group
	if request.Unlimited {
		group = nil
	}
	directory, grouped := group.Descriptor()
	pid, ended, err = a.reaper.Start(path, request.Args, &syscall.ProcAttr{
		Dir: dir, Env: request.Env, Files: fds,
		Sys: &syscall.SysProcAttr{Setsid: terminal, Setctty: terminal, Setpgid: !terminal,
			UseCgroupFD: grouped, CgroupFD: directory},
	})
	if err != nil {
		return 0, nil, errors.Join(fmt.Errorf("start %s: %w", path, err), c.abandon())
	}
	c.carry()
	return pid, ended, nil
}

// open opens the command's descriptors, 0 to 2 or 3.
func (c *guestCommand) open(request startRequest) (files []*os.File, err error) {
	c.sources = map[descriptor]*source{}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	files = []*os.File{null, null, null}
	if size := request.Terminal; size != nil && c.streams[stdin] != nil {
		screen, terminal, err := pty.Open()
		if err != nil {
			return files[:1], fmt.Errorf("open terminal: %w", err)
		}
		if err := pty.Setsize(screen, &pty.Winsize{Rows: size.Rows, Cols: size.Cols}); err != nil {
			return files[:1], errors.Join(fmt.Errorf("open terminal: %w", err), screen.Close(),
				terminal.Close())
		}
		c.screen = screen
		c.sources[stdout] = &source{file: screen, terminal: true, done: make(chan struct{})}
		return []*os.File{terminal, terminal, terminal}, null.Close()
	}
	made := files[:1]
	for i, what := range []descriptor{stdin, stdout, stderr} {
		if c.streams[what] == nil {
			continue
		}
		reader, writer, err := os.Pipe()
		if err != nil {
			return made, err
		}
		ours, theirs := reader, writer
		if !what.output() {
			ours, theirs = writer, reader
		}
		files[i], made = theirs, append(made, theirs)
		c.sources[what] = &source{file: ours, done: make(chan struct{})}
	}
	if c.streams[channelIn] != nil {
		ours, theirs, err := reexec.SocketPair()
		if err != nil {
			return made, err
		}
		files = append(files, theirs)
		c.sources[channelIn] = &source{file: ours, shared: true, done: make(chan struct{})}
		c.sources[channelOut] = &source{file: ours, done: make(chan struct{})}
	}
	return files, nil
}

// abandon closes the files that open made for a command that did not start.
func (c *guestCommand) abandon() error {
	var errs []error
	for _, s := range c.sources {
		errs = append(errs, ignoreClosed(s.file.Close()))
	}
	return errors.Join(errs...)
}

// carry starts to carry bytes.
func (c *guestCommand) carry() {
	for what, s := range c.sources {
		if what.output() {
			go s.send(c.streams[what])
		} else {
			go s.receive(c.streams[what])
		}
	}
	if c.screen != nil {
		go func() { _, _ = io.Copy(c.screen, c.streams[stdin]) }() // until the host closes it
	}
}

// execute executes the host's requests while the command runs. If the host closes the stream before
// the command has ended, it did not wait for the start, and the command is killed.
func (c *guestCommand) execute(pid int, control io.Reader) {
	for from := frame.NewReader(control); ; {
		kind, payload, err := from.Read()
		if err != nil {
			if !c.ended.Load() {
				_ = syscall.Kill(-pid, syscall.SIGKILL)
			}
			return
		}
		switch kind {
		case frame.Signal:
			var request signalRequest
			if json.Unmarshal(payload, &request) == nil {
				_ = syscall.Kill(-pid, syscall.Signal(request.Signal)) // it may have ended
			}
		case frame.WindowSize:
			var size sizeRequest
			if json.Unmarshal(payload, &size) == nil && c.screen != nil {
				_ = pty.Setsize(c.screen, &pty.Winsize{Rows: size.Rows, Cols: size.Cols})
			}
		}
	}
}

// written returns how many bytes of each output the command has written.
func (c *guestCommand) written() map[descriptor]int64 {
	written := map[descriptor]int64{}
	for what, s := range c.sources {
		if what.output() {
			written[what] = s.written()
		}
	}
	return written
}

// source is the agent's end of one of a command's descriptors.
type source struct {
	file     *os.File
	terminal bool
	// shared: another source has the same file, and closes it.
	shared bool
	done   chan struct{} // closed when send has ended

	mu   sync.Mutex // held while bytes are read, and guards read
	read int64
}

// send carries bytes from the command to the host. It ends when no process of the guest has the
// descriptor any more, or when the host closes the stream.
func (s *source) send(stream *yamux.Stream) {
	defer close(s.done)
	defer s.file.Close()
	defer stream.Close()
	go func() {
		_, _ = io.Copy(io.Discard, stream) // the host sends nothing, and closes it
		_ = s.file.SetReadDeadline(time.Now())
	}()
	raw, err := s.file.SyscallConn()
	if err != nil {
		return
	}
	buffer := make([]byte, chunkSize)
	for {
		var n int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			n, failed = unix.Read(int(fd), buffer)
			s.read += int64(max(n, 0))
			return !errors.Is(failed, unix.EAGAIN)
		})
		if errors.Is(failed, unix.EINTR) {
			continue
		}
		if err != nil || failed != nil || n == 0 { // a terminal without processes reads as EIO
			return
		}
		if _, err := stream.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// receive carries bytes from the host to the command. It ignores write errors: a command may close
// its input.
func (s *source) receive(stream *yamux.Stream) {
	_, _ = io.Copy(s.file, stream)
	stream.Close()
	if !s.shared {
		s.file.Close()
		return
	}
	if raw, err := s.file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
}

// terminalPatience is how long a terminal's last output may take to its other side: the kernel
// passes it on with a delay.
const terminalPatience = 300 * time.Millisecond

// written is how many bytes were read, plus how many wait to be read.
func (s *source) written() int64 {
	if s.terminal {
		select {
		case <-s.done:
		case <-time.After(terminalPatience):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := 0
	if raw, err := s.file.SyscallConn(); err == nil {
		// if it is closed, nothing waits
		_ = raw.Control(func(fd uintptr) { waiting, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	return s.read + int64(max(waiting, 0))
}

// countProcesses counts the guest's processes, without the first one and the kernel's threads.
func countProcesses() (int, error) {
	directory, err := os.Open("/proc")
	if err != nil {
		return 0, err
	}
	defer directory.Close()
	names, err := directory.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	count := 0
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err != nil || pid == 1 {
			continue
		}
		// proc_pid_stat(5): the flags are the seventh field after the name.
		const flags, kernelThread = 7, 0x00200000 // PF_KTHREAD
		text, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended
		}
		_, after, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')'):], []byte(" "))
		fields := bytes.Fields(after)
		if len(fields) < flags {
			continue
		}
		if value, err := strconv.ParseUint(string(fields[flags-1]), 10, 32); err == nil &&
			value&kernelThread == 0 {
			count++
		}
	}
	return count, nil
}
