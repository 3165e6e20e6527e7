package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"railbed/fabric"
	"railbed/internal/frame"
	"railbed/internal/vmimage"
	"railbed/nodes"
)

// Paths in the guest before its root is mounted.
const (
	devDir   = "/dev"
	lowerDir = "/lower"
	upperDir = "/upper"
	rootDir  = "/root"
)

// devicePatience is how long a device may take to appear after its driver was loaded. On a busy
// host it has been seen to take a second.
const devicePatience = time.Minute

// GuestMain is the guest's first process. It never returns: it ends by a restart of the guest, on
// which QEMU exits.
func GuestMain([]string) int {
	if err := guest(); err != nil {
		fmt.Println("railbed:", err) // on the console
	}
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART); err != nil {
		panic(err) // the first process's end is a kernel panic, with the same effect
	}
	return 1
}

// guest serves the host until the host closes the channel.
func guest() error {
	a := newAgent()
	loaded := a.loadModules()
	if err := unix.Mount("devtmpfs", devDir, "devtmpfs", 0, ""); err != nil {
		return errors.Join(loaded, fmt.Errorf("mount /dev: %w", err))
	}
	port, err := openPort()
	if err != nil {
		return errors.Join(loaded, err)
	}
	session, err := yamux.Server(port, sessionConfig())
	if err != nil {
		return err
	}
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return fmt.Errorf("the connection to the host ended: %w", err)
		}
		go a.serve(stream, loaded)
	}
}

// loadModules loads the modules of the initramfs, except for the NICs' driver: NICs copy settings
// when they appear. Other modules may have loaded some already.
func (a *agent) loadModules() error {
	order, err := os.ReadFile(moduleOrder)
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range strings.Fields(string(order)) {
		file, err := os.Open(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if filepath.Base(path) == nicDriver+".ko" {
			a.nics = file
			continue
		}
		errs = append(errs, load(file), file.Close())
	}
	return errors.Join(errs...)
}

// nicDriver is the module with the NICs' driver.
const nicDriver = "virtio_net"

// load loads a module from its open file. It does nothing for nil, as when the module is built into
// the kernel.
func load(file *os.File) error {
	if file == nil {
		return nil
	}
	return vmimage.Load(file)
}

// openPort opens the channel once the host's end is open, too. Before that a read returns end of
// file.
func openPort() (*os.File, error) {
	var port *os.File
	err := await("open the channel", func() error {
		ports, err := filepath.Glob(devDir + "/vport*p*")
		if err != nil || len(ports) != 1 {
			return errors.Join(err, unix.ENOENT)
		}
		port, err = os.OpenFile(ports[0], os.O_RDWR, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	raw, err := port.SyscallConn()
	if err != nil {
		return nil, err
	}
	err = await("wait for the host", func() (err error) {
		poll := []unix.PollFd{{Events: unix.POLLOUT}}
		if wrong := raw.Control(func(fd uintptr) {
			poll[0].Fd = int32(fd)
			_, err = unix.Poll(poll, 0)
		}); wrong != nil {
			return wrong
		}
		if err == nil && poll[0].Revents&unix.POLLHUP != 0 {
			err = unix.ENXIO
		}
		return err
	})
	return port, err
}

// await retries while a device does not exist yet.
func await(what string, try func() error) error {
	for start := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		err := try()
		if err == nil {
			return nil
		}
		soon := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EINTR)
		if !soon || time.Since(start) > devicePatience {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// configure makes the guest the node.
func (a *agent) configure(id identityOf) error {
	if err := enterRoot(); err != nil {
		return err
	}
	if err := mountKernel(); err != nil {
		return err
	}
	a.makeGroup(id.Node.Name)
	if err := nodes.LinkProgram(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(id.Node.Name)); err != nil {
		return fmt.Errorf("set hostname: %w", err)
	}
	if err := writeIdentity(id); err != nil {
		return err
	}
	return fabric.ConfigureGuest(id.Node, id.Dilation, func() error { return load(a.nics) })
}

// enterRoot makes an overlay the root of all processes, as switch_root(8) does. The overlay has the
// host's files below and the guest's writes above.
func enterRoot() error {
	err := await("mount the host's files", func() error {
		return unix.Mount(rootTag, lowerDir, "9p", unix.MS_RDONLY,
			"trans=virtio,version=9p2000.L,cache=loose,msize=262144")
	})
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", upperDir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	upper, work := upperDir+"/files", upperDir+"/work"
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	if err := unix.Mount("overlay", rootDir, "overlay", 0,
		"lowerdir="+lowerDir+",upperdir="+upper+",workdir="+work); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	if err := unix.Mount(devDir, rootDir+devDir, "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move /dev: %w", err)
	}
	return vmimage.Enter(rootDir)
}

// mountKernel mounts the kernel's file systems, and directories that all users may write to.
func mountKernel() error {
	for _, m := range []struct {
		kind, target, data string
		flags              uintptr
	}{
		{"proc", "/proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"sysfs", "/sys", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"cgroup2", "/sys/fs/cgroup", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"devpts", "/dev/pts", "ptmxmode=666", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"tmpfs", "/dev/shm", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
		{"tmpfs", "/tmp", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
		{"tmpfs", "/run", "mode=755", unix.MS_NOSUID | unix.MS_NODEV},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	if err := os.Chmod("/var/tmp", 0o1777); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writeIdentity writes the node's own files over the host's.
func writeIdentity(id identityOf) error {
	for path, content := range map[string]string{
		"/etc/hosts":       id.Hosts,
		"/etc/hostname":    id.Node.Name + "\n",
		"/etc/machine-id":  id.Node.MachineID + "\n",
		"/etc/resolv.conf": nodes.Resolver(id.Node),
	} {
		// A link on the host may lead to a folder that does not exist here.
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// configured configures the guest and answers with the result.
func (a *agent) configured(id identityOf, loaded error, to *frame.Writer) error {
	err := loaded
	if err == nil {
		err = a.configure(id)
	}
	if err != nil {
		return refuse(to, err)
	}
	a.ready.Store(true)
	return to.WriteJSON(frame.Started, started{PID: os.Getpid()})
}

func refuse(to *frame.Writer, err error) error {
	refused := refusal{Error: err.Error(), NotFound: errors.Is(err, nodes.ErrNotFound),
		NoFolder: errors.Is(err, nodes.ErrNoFolder)}
	errors.As(err, &refused.Sysctl)
	errors.As(err, &refused.Unsupported)
	return to.WriteJSON(frame.Failure, refused)
}

// reply answers with a value, or with an error if err is not nil.
func reply(to *frame.Writer, value any, err error) error {
	if err != nil {
		return refuse(to, err)
	}
	return to.WriteJSON(frame.Message, value)
}

// serve serves one stream that the host opened.
func (a *agent) serve(stream *yamux.Stream, loaded error) {
	var h hello
	kind, payload, err := frame.NewReader(stream).Read()
	if err == nil && kind == frame.Message {
		err = json.Unmarshal(payload, &h)
	}
	if err != nil {
		stream.Close()
		return
	}
	if h.Carry != nil { // its receiver closes it
		a.deliver(*h.Carry, stream)
		return
	}
	defer stream.Close()
	to := frame.NewWriter(stream)
	switch { // the host may be gone when it is answered
	case h.Configure != nil:
		_ = a.configured(*h.Configure, loaded, to)
	case !a.ready.Load():
		_ = refuse(to, errors.New("the guest is not configured"))
	case h.Count:
		count, err := countProcesses()
		_ = reply(to, count, err)
	case h.Squeeze != nil:
		events, err := a.squeeze(h.Squeeze.Limit)
		_ = reply(to, events, err)
	case h.Start != nil:
		a.command(*h.Start, stream, to)
	}
}
