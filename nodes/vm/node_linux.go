package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"railbed/internal/frame"
	"railbed/internal/reexec"
	"railbed/internal/units"
	"railbed/internal/vmimage"
	"railbed/nodes"
	"railbed/nodes/cgroup"
)

// bootPatience bounds a guest's boot. Without KVM a boot takes four seconds of an idle core.
// Several guests and a race detector may share two cores.
const bootPatience = 3 * time.Minute

// Paths in the initramfs. The program is started under the name of its part, which selects its main
// function.
var initName = reexec.Argv(GuestPart)[0]

const (
	moduleDir   = "/modules"
	moduleOrder = moduleDir + "/order"
	rootTag     = "root"
)

// bootModules are the modules that every guest needs, the channel's first.
var bootModules = []string{"virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "virtio_net",
	"virtio_rng"}

// processor chooses between KVM and TCG. It boots a guest to find out, at most once for all nodes.
func (r *Runtime) processor(ctx context.Context, config nodes.Config) (string, error) {
	if r.Processor != "" {
		return r.Processor, nil
	}
	r.accel.Do(func() { r.chosen, r.refused = r.choose(ctx, config) })
	return r.chosen, nil
}

// choose boots a guest with KVM, if QEMU's user may use KVM.
func (r *Runtime) choose(ctx context.Context, config nodes.Config) (string, error) {
	const patience = 20 * time.Second
	if err := vmimage.OpenKVM(otherUser() != 0); err != nil {
		return TCG, err
	}
	trial := config
	trial.Node.NICs, trial.Node.Management, trial.Node.Modules, trial.Cgroup = nil, nil, nil, nil
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	n, err := r.boot(ctx, trial, KVM)
	if err != nil {
		return TCG, fmt.Errorf("boot a guest with KVM: %w", err)
	}
	return KVM, n.Close()
}

// node is a guest that has booted.
type node struct {
	config  nodes.Config
	qemu    *qemu
	session *yamux.Session
	cables  *cables
	ids     atomic.Uint64

	mu     sync.Mutex // guards the next two fields
	closed bool
	memory cgroup.MemoryEvents // the last answer to Squeeze

	ending sync.Once
	ended  error
}

// boot boots a guest and makes it the node.
func (r *Runtime) boot(ctx context.Context, config nodes.Config, processor string) (_ *node, err error) {
	kernel, initrd, err := r.files(config.Node.Modules)
	if err != nil {
		return nil, fmt.Errorf("boot %s: %w", config.Node.Name, err)
	}
	taps, err := openTaps(config)
	if err != nil {
		return nil, fmt.Errorf("boot %s: %w", config.Node.Name, err)
	}
	n := &node{config: config}
	n.qemu, err = startQEMU(config, processor, kernel, initrd, taps)
	closeAll(taps)
	if err != nil {
		return nil, fmt.Errorf("boot %s: %w", config.Node.Name, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bootPatience, fmt.Errorf("the guest was not up after %s",
		bootPatience))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = n.qemu.process.Kill() })
	err = n.connect()
	if !stop() {
		err = awaited(ctx, err)
	}
	if err != nil {
		n.qemu.kill() // all its output is there once it has ended
		err = fmt.Errorf("boot %s: %w; %s", config.Node.Name, err, n.qemu.words())
		return nil, errors.Join(err, n.end())
	}
	return n, nil
}

// connect waits for the guest's first process and configures it.
func (n *node) connect() (err error) {
	if n.session, err = yamux.Client(n.qemu.serial, sessionConfig()); err != nil {
		return err
	}
	monitor, err := openMonitor(n.qemu.monitor)
	if err != nil {
		return err
	}
	c := n.config
	stream, err := n.open(hello{Configure: &identityOf{Node: c.Node, Hosts: nodes.HostsFile(c.Hosts),
		Dilation: c.Dilation}})
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := answer(frame.NewReader(stream), frame.Started, &started{}); err != nil {
		return err
	}
	n.cables, err = watchCables(c, monitor)
	return err
}

// open opens a stream.
func (n *node) open(h hello) (*yamux.Stream, error) {
	stream, err := n.session.OpenStream()
	if err != nil {
		return nil, err
	}
	if err := frame.NewWriter(stream).WriteJSON(frame.Message, h); err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	return stream, nil
}

// answer reads one frame of a kind, or a failure.
func answer(from *frame.Reader, want frame.Type, into any) error {
	kind, payload, err := from.Read()
	switch {
	case err != nil:
		return err
	case kind == want:
		return json.Unmarshal(payload, into)
	case kind != frame.Failure:
		return fmt.Errorf("guest sent a frame of type %d, want %d", kind, want)
	}
	var refused refusal
	if err := json.Unmarshal(payload, &refused); err != nil {
		return err
	}
	switch {
	case refused.NotFound:
		return &absent{refused.Error, nodes.ErrNotFound}
	case refused.NoFolder:
		return &absent{refused.Error, nodes.ErrNoFolder}
	case refused.Sysctl != nil:
		return refused.Sysctl
	case refused.Unsupported != nil:
		return refused.Unsupported
	}
	return errors.New(refused.Error)
}

// absent is a guest's error that wraps nodes.ErrNotFound or nodes.ErrNoFolder, whose text it has.
type absent struct {
	text string
	kind error
}

func (a *absent) Error() string        { return a.text }
func (a *absent) Is(target error) bool { return target == a.kind }

// files returns the kernel and the initramfs with these modules.
func (r *Runtime) files(modules []string) (kernel, initrd *os.File, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kernel == nil {
		found, err := vmimage.FindKernel()
		if err != nil {
			return nil, nil, err
		}
		r.kernel = &found
	}
	kernel, err = r.kept("kernel", func() ([]byte, error) { return os.ReadFile(r.kernel.Image) })
	if err != nil {
		return nil, nil, err
	}
	initrd, err = r.kept("initramfs "+strings.Join(modules, " "), func() ([]byte, error) {
		return initramfs(*r.kernel, modules)
	})
	return kernel, initrd, err
}

// kept returns a file by name, and makes it once. The caller must hold mu.
func (r *Runtime) kept(name string, content func() ([]byte, error)) (*os.File, error) {
	if file, known := r.memory[name]; known {
		return file, nil
	}
	made, err := content()
	if err != nil {
		return nil, err
	}
	file, err := sealed(name, made)
	if err != nil {
		return nil, err
	}
	if r.memory == nil {
		r.memory = map[string]*os.File{}
	}
	r.memory[name] = file
	return file, nil
}

// initramfs returns an archive with this program and modules.
func initramfs(k vmimage.Kernel, modules []string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var a vmimage.Archive
	files, err := a.Modules(moduleDir, k, append(append([]string{}, bootModules...), modules...))
	if err != nil {
		return nil, err
	}
	a.File(moduleOrder, []byte(strings.Join(files, "\n")), 0o600)
	if err := a.Program("/"+initName, self); err != nil {
		return nil, err
	}
	for _, dir := range []string{devDir, lowerDir, upperDir, rootDir} {
		a.Dir(dir)
	}
	return a.Bytes(), nil
}

// Processes implements nodes.Node. It counts the guest's processes, without its kernel's threads.
func (n *node) Processes() (count int, err error) {
	if n.session.IsClosed() { // with the guest
		return 0, nil
	}
	if err := n.request(hello{Count: true}, &count); err != nil {
		return 0, fmt.Errorf("read processes of %s: %w", n.config.Node.Name, err)
	}
	return count, nil
}

// Squeeze implements nodes.MemoryLimiter. After the guest's end it returns the events of the last
// answer.
func (n *node) Squeeze(limit *units.Bytes) (before cgroup.MemoryEvents, err error) {
	over := limit == nil && n.session.IsClosed()
	if !over {
		err = n.request(hello{Squeeze: &squeezeRequest{limit}}, &before)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !over && err == nil {
		n.memory = before
	}
	return n.memory, err
}

// request opens a stream and reads the guest's Message into a value.
func (n *node) request(h hello, into any) error {
	stream, err := n.open(h)
	if err != nil {
		return n.gone(err)
	}
	defer stream.Close()
	if err := answer(frame.NewReader(stream), frame.Message, into); err != nil {
		return n.gone(err)
	}
	return nil
}

func (n *node) usable() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nodes.ErrClosed
	}
	return nil
}

// gone replaces an error of the channel if the cause is that the guest has ended.
func (n *node) gone(err error) error {
	if !n.session.IsClosed() {
		return err
	}
	return fmt.Errorf("the virtual machine has ended: %s", n.qemu.words())
}

// Close implements nodes.Node.
func (n *node) Close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	return n.end()
}

// end kills QEMU, and everything in the guest with it, and frees its resources.
func (n *node) end() error {
	n.ending.Do(func() {
		n.qemu.kill()
		var errs []error
		if n.session != nil {
			errs = append(errs, n.session.Close())
		}
		// Close these before waiting for their users.
		errs = append(errs, ignoreClosed(n.qemu.serial.Close()), ignoreClosed(n.qemu.monitor.Close()))
		if n.cables != nil {
			n.cables.close()
		}
		n.ended = errors.Join(append(errs, n.config.Cgroup.Close())...)
	})
	return n.ended
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// availableMemory is MemAvailable of proc_meminfo(5).
func availableMemory() (units.Bytes, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, "MemAvailable:"); is {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return units.Bytes(kib << 10), err
		}
	}
	return 0, errors.New("no MemAvailable in /proc/meminfo")
}
