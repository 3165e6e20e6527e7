package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	containerapi "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/internal/reexec"
	"railbed/internal/verdict"
	"railbed/nodes"
)

// startTime bounds the start of a container's first process, after the engine reported its start.
const startTime = 20 * time.Second

// container is the container of a node.
type container struct {
	runtime *Runtime
	config  nodes.Config
	image   *resolved
	id      string
	ids     atomic.Uint64
	// life ends when the container is closed. work counts the goroutines that end before then.
	life context.Context
	die  context.CancelFunc
	work sync.WaitGroup

	limiting sync.Mutex  // held while a limit changes
	squeezed atomic.Bool // whether a limit of memory other than the file's is in force

	mu      sync.Mutex // guards the fields below
	closed  bool
	channel *packets // nil while the container does not run
	waiting map[uint64]chan answer
	gone    chan struct{} // closed when the channel has ended
	// lastPause is the pause before the latest restart, doubled.
	lastPause time.Duration
	paused    time.Time // when it began
	memory    memoryEvents

	ending sync.Once
	ended  error
}

// name is the container's name in docker ps.
func (c *container) name() string { return containerName(c.config.Testbed, c.config.Node.Name) }

func containerName(testbed, node string) string { return "railbed-" + testbed + "-" + node }

// socket is the host path of the socket that the first process connects to.
func (c *container) socket() string {
	return filepath.Join(c.runtime.options.RunDir, "containers", c.config.Node.Name, "socket")
}

// open makes and starts the container. After an error, remove removes any remains of it.
func (c *container) open(ctx context.Context) (*kernel.Namespace, error) {
	image, err := c.runtime.resolve(ctx, c.config)
	if err != nil {
		return nil, err
	}
	c.image = image
	listener, err := c.listen()
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	if c.id, err = c.create(ctx); err != nil {
		return nil, err
	}
	return c.run(ctx, listener)
}

// create makes the container. It removes a stopped container of the same name that a dead testbed
// of this run directory left and that is not recorded any more.
func (c *container) create(ctx context.Context) (id string, err error) {
	config, host := c.settings()
	engine := c.runtime.client
	made, err := engine.ContainerCreate(ctx, config, host, nil, nil, c.name())
	if errdefs.IsConflict(err) {
		old, oldErr := engine.ContainerInspect(ctx, c.name())
		if oldErr != nil || old.Config == nil || old.State == nil || old.State.Running ||
			old.Config.Labels[LabelRunDir] != c.runtime.options.RunDir {
			return "", c.taken(old.Config)
		}
		if err := engine.ContainerRemove(ctx, old.ID,
			containerapi.RemoveOptions{RemoveVolumes: true}); err != nil {
			return "", c.refused(err)
		}
		made, err = engine.ContainerCreate(ctx, config, host, nil, nil, c.name())
	}
	if err != nil {
		return "", c.refused(err)
	}
	return made.ID, nil
}

// taken explains which container has the name. Names with hyphens can collide between two testbeds.
func (c *container) taken(by *containerapi.Config) error {
	reason := "there is a container named " + c.name() + " already"
	remedy := "remove it (docker rm " + c.name() + "), or give the testbed another name"
	if by != nil && containerName(by.Labels[LabelTestbed], by.Labels[LabelNode]) == c.name() {
		testbed := by.Labels[LabelTestbed]
		reason += fmt.Sprintf(", of node %s of testbed %s", by.Labels[LabelNode], testbed)
		remedy = "take testbed " + testbed + " down (railbed down " + testbed +
			", or railbed gc if it is dead), or choose another --name"
	}
	return &verdict.UnsupportedError{Feature: "docker", Reason: reason, Remedy: remedy}
}

// refused converts an engine error that the file or the host caused.
func (c *container) refused(err error) error {
	if strings.Contains(err.Error(), "bind source path does not exist") {
		return &verdict.MistakeError{Text: fmt.Sprintf("binds of %s: %s", c.config.Node.Name,
			oneLine(err.Error()))}
	}
	if errdefs.IsInvalidArgument(err) || errdefs.IsInternal(err) {
		return &verdict.UnsupportedError{Feature: "docker", Reason: oneLine(err.Error())}
	}
	return err
}

// oneLine returns an engine's text on one line, without the prefix that all errors have.
func oneLine(text string) string {
	return strings.TrimPrefix(strings.Join(strings.Fields(text), " "), "Error response from daemon: ")
}

// listen makes the socket, again for each run of the container. Its directory belongs to the
// testbed, and only the owner can enter it. In the container every process may connect, but the
// first process, the only one at that time, connects first.
func (c *container) listen() (*net.UnixListener, error) {
	path := c.socket()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // it is mounted
	return listener, os.Chmod(path, 0o666)
}

// run starts the container and waits for its first process.
func (c *container) run(ctx context.Context, listener *net.UnixListener) (*kernel.Namespace, error) {
	engine := c.runtime.client
	if err := engine.ContainerStart(ctx, c.id, containerapi.StartOptions{}); err != nil {
		return nil, c.refused(err)
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("no answer within %s", startTime))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = listener.SetDeadline(time.Now()) })
	defer stop()
	ended, lost := engine.ContainerWait(ctx, c.id, containerapi.WaitConditionNotRunning)
	go func() {
		select {
		case how := <-ended:
			giveUp(fmt.Errorf("it ended with exit code %d", how.StatusCode))
		case <-lost: // at the latest when this function returns
		}
	}()
	conn, err := listener.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("wait for its first process: %w; %s", awaited(ctx, err), c.words())
	}
	channel, err := newPackets(conn, maxAnswer)
	if err != nil {
		return nil, err
	}
	var hello answer
	files, err := channel.receive(&hello)
	defer closeAll(files)
	if err == nil && len(files) != len(opened) {
		err = fmt.Errorf("%d descriptors, want %d", len(files), len(opened))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("receive from its first process: %w; %s", awaited(ctx, err),
			c.words()), channel.close())
	}
	namespace, err := kernel.NamespaceOf(files[0])
	if err != nil {
		return nil, errors.Join(err, channel.close())
	}
	if err := errors.Join(c.giveBootID(files[1]), enableIPv6(namespace)); err != nil {
		return nil, errors.Join(err, namespace.Close(), channel.close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.Join(nodes.ErrClosed, namespace.Close(), channel.close())
	}
	c.channel, c.gone = channel, make(chan struct{})
	gone := c.gone
	c.work.Go(func() { c.listenTo(channel, gone) })
	return namespace, nil
}

// awaited returns the reason why a wait ended.
func awaited(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// words returns the last lines that the container printed.
func (c *container) words() string {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	said, err := c.runtime.client.ContainerLogs(ctx, c.id,
		containerapi.LogsOptions{ShowStdout: true, ShowStderr: true, Tail: "3"})
	if err != nil {
		return "its log cannot be read: " + err.Error()
	}
	text, _ := plainLog(said)
	if text = oneLine(text); text == "" {
		return "its log is empty"
	}
	return "its log ends: " + text
}

// giveBootID mounts the node's own boot id over the host's: UCX and NCCL take two processes with
// one boot id for neighbours on one machine. An engine does not mount below /proc, but the owner of
// the mount namespace may.
func (c *container) giveBootID(mounts *os.File) error {
	path := filepath.Join(filepath.Dir(c.socket()), "boot_id")
	if err := os.WriteFile(path, []byte(nodes.BootID(c.config.Node.MachineID)), 0o644); err != nil {
		return err
	}
	return reexec.OnLastThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare thread's root directory: %w", err)
		}
		file, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("clone mount of %s: %w", path, err)
		}
		defer unix.Close(file)
		// Its owner in the container is the host's root. Linux has the call since 5.12.
		err = unix.MountSetattr(file, "", unix.AT_EMPTY_PATH,
			&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		if err != nil && !errors.Is(err, unix.ENOSYS) {
			return fmt.Errorf("make mount of %s read-only: %w", path, err)
		}
		if err := unix.Setns(int(mounts.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter mount namespace of the container: %w", err)
		}
		const target = "/proc/sys/kernel/random/boot_id"
		if err := unix.MoveMount(file, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount %s of the container: %w", target, err)
		}
		return nil
	})
}

// enableIPv6 undoes settings of engines for a namespace without an engine's network.
func enableIPv6(namespace *kernel.Namespace) error {
	return namespace.Do(func() error {
		for _, name := range []string{"all", "default", "lo"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("0"),
				0); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	})
}

// begin configures the container, runs its entry point, and waits until it is healthy.
func (c *container) begin(ctx context.Context) error {
	files := map[string]string{
		"/etc/hosts": nodes.HostsFile(c.config.Hosts), "/etc/resolv.conf": nodes.Resolver(c.config.Node),
		"/etc/machine-id": c.config.Node.MachineID + "\n",
	}
	maps.DeleteFunc(files, func(path, _ string) bool { return c.bound(path) })
	_, err := c.ask(ctx, request{Configure: &configuration{Files: files, Exposed: c.squeezed.Load()}})
	if err != nil {
		return fmt.Errorf("configure container: %w", err)
	}
	if err := c.startEntrypoint(ctx); err != nil {
		return err
	}
	return c.healthy(ctx)
}

// bound reports whether a path of the container is on the host, by a bind in the file.
func (c *container) bound(path string) bool {
	return slices.ContainsFunc(c.config.Node.Container.Binds, func(bind string) bool {
		target := filepath.Clean(strings.Split(bind, ":")[1])
		return path == target || strings.HasPrefix(path, target+"/")
	})
}

// startEntrypoint starts the container's entry point, if there is one.
func (c *container) startEntrypoint(ctx context.Context) error {
	args := c.entrypoint()
	if len(args) == 0 {
		return nil
	}
	p, err := c.startIn(ctx, nodes.Command{Args: args, Dir: c.image.dir}, true)
	if errors.Is(err, nodes.ErrNotFound) {
		return &verdict.MistakeError{Text: fmt.Sprintf("entry point of %s: %v; name a program of the "+
			"image with entrypoint or command, or say idle: true", c.config.Node.Name, err)}
	}
	if err != nil {
		return fmt.Errorf("start entry point: %w", err)
	}
	c.work.Go(func() { c.watchEntrypoint(p) })
	return nil
}

// entrypoint returns the command that runs in the container, by the rules of docker run: an entry
// point other than the image's is run without the image's command.
func (c *container) entrypoint() []string {
	settings := c.config.Node.Container
	switch {
	case settings.Idle:
		return nil
	case settings.Entrypoint != nil:
		return append(append([]string{}, settings.Entrypoint...), settings.Command...)
	case settings.Command != nil:
		return append(append([]string{}, c.image.entrypoint...), settings.Command...)
	}
	return append(append([]string{}, c.image.entrypoint...), c.image.command...)
}

// healthy waits for the health check of the file or the image.
func (c *container) healthy(ctx context.Context) error {
	settings := c.config.Node.Container
	limit := healthTime
	if h := c.image.health; h != nil {
		limit += h.StartPeriod
	}
	if settings.Health != nil && settings.Health.Timeout != 0 {
		limit = time.Duration(settings.Health.Timeout)
	}
	deadline := time.Now().Add(limit)
	for {
		state, err := c.runtime.client.ContainerInspect(ctx, c.id)
		if err != nil {
			return err
		}
		// Podman reports a container without a check as starting.
		if state.State == nil || state.State.Health == nil || state.Config == nil ||
			!checks(state.Config.Healthcheck) || state.State.Health.Status == containerapi.Healthy {
			return nil
		}
		if !state.State.Running {
			return fmt.Errorf("container ended before it was healthy; %s", c.words())
		}
		if time.Now().After(deadline) {
			last := "no health check has ended yet"
			if log := state.State.Health.Log; len(log) > 0 {
				if said := oneLine(log[len(log)-1].Output); strings.Contains(said, "exec failed") {
					return &verdict.MistakeError{Text: fmt.Sprintf("health of %s: %s; use a program of the "+
						"image as the health check", c.config.Node.Name, said)}
				}
				last = fmt.Sprintf("the last health check exited with %d and printed %q",
					log[len(log)-1].ExitCode, oneLine(log[len(log)-1].Output))
			}
			return fmt.Errorf("container is not healthy after %s: %s", limit, last)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(healthTick):
		}
	}
}

// checks reports whether there is a health check, other than the word for none.
func checks(h *containerapi.HealthConfig) bool {
	return h != nil && len(h.Test) > 0 && h.Test[0] != "NONE"
}

const (
	healthTime     = 30 * time.Second
	healthInterval = 500 * time.Millisecond
	healthTick     = 50 * time.Millisecond
)

// mounts returns Railbed's mounts and the file's.
func (c *container) mounts() []mount.Mount {
	all := append([]mount.Mount{readOnly(c.socket(), socketTarget)}, c.runtime.program.mounts...)
	for _, bind := range c.config.Node.Container.Binds {
		parts := strings.Split(bind, ":")
		all = append(all, mount.Mount{
			Type:     mount.TypeBind,
			Source:   c.runtime.path(parts[0]),
			Target:   parts[1],
			ReadOnly: len(parts) == 3 && parts[2] == "ro",
		})
	}
	return all
}

// Close implements nodes.Node. The container is removed with all its processes.
func (c *container) Close() error {
	c.mu.Lock()
	c.closed = true
	channel, gone := c.channel, c.gone
	c.mu.Unlock()
	c.die()
	c.ending.Do(func() {
		if channel != nil {
			// This ends the first process, so that the engine finds a stopped container.
			c.ended = channel.close()
			<-gone
		}
		c.work.Wait()
		c.runtime.turns <- struct{}{}
		defer func() { <-c.runtime.turns }()
		c.ended = errors.Join(c.ended, c.remove())
	})
	return c.ended
}

// remove removes the container, running or not.
func (c *container) remove() error {
	if c.id == "" {
		return nil
	}
	err := c.runtime.insist(func(ctx context.Context) error {
		return c.runtime.client.ContainerRemove(ctx, c.id,
			containerapi.RemoveOptions{Force: true, RemoveVolumes: true})
	})
	if err != nil {
		return fmt.Errorf("remove container %s: %w", c.name(), err)
	}
	return nil
}

// removeTime bounds the removal of one container.
const removeTime = 20 * time.Second

// listenTo distributes the container's answers, until the container is gone.
func (c *container) listenTo(channel *packets, gone chan struct{}) {
	for {
		var said answer
		files, err := channel.receive(&said)
		closeAll(files) // none are expected
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) &&
				!errors.Is(err, syscall.ECONNRESET) {
				_ = channel.close() // it violates the protocol
			}
			break
		}
		if said.Stopping {
			c.tell(Stopping, "the container was asked to stop, by docker stop or by its engine's end")
			continue
		}
		c.mu.Lock()
		to := c.waiting[said.ID]
		c.mu.Unlock()
		select {
		case to <- said: // a nil channel is never ready, and a channel is never full: two answers at most
		default:
		}
	}
	c.mu.Lock()
	if c.channel == channel {
		c.channel = nil
	}
	c.mu.Unlock()
	close(gone)
	c.lost()
}
