package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/link"
	softports "railbed/fabric/port"
	"railbed/fabric/softswitch/live"
	"railbed/internal/descriptors"
	"railbed/internal/kernel"
	"railbed/internal/verdict"
	"railbed/plan"
)

// ForeignNIC is the testbed's handle on a NIC from Attach: the port to the NIC, and the descriptors needed
// to change its link and to measure its lateness.
type ForeignNIC struct {
	port *softports.Handle
	// far is the namespace of the NIC's far end. The NIC loses its carrier when the far end is set
	// down there.
	far *kernel.Namespace
	// home is nil if there is no path to the NIC's namespace that does not keep the namespace
	// alive.
	home *home
	// monitor is the packet socket that measures arrivals at the NIC. It keeps the NIC's namespace
	// alive. So it only exists together with home, which indicates when the namespace must end.
	monitor *os.File
	watched bool // the soft switches have the packet socket
	inside  foreignInterface
}

// foreignInterface describes the NIC in its namespace.
type foreignInterface struct {
	Name  string         `json:"name"`
	Index int            `json:"index"`
	Sends plan.Direction `json:"sends"` // the settings with which its shaper was made
}

// foreignText is a ForeignNIC without its descriptors, which are sent in the order of its fields.
type foreignText struct {
	Port  softports.Description `json:"port"`
	Files int                   `json:"files"` // number of descriptors of the port
	NIC   foreignInterface      `json:"nic"`
	Home  *homeText             `json:"home,omitempty"`
}

// home is the path of a network namespace of another runtime: a directory and a name in it. It
// refers to the namespace without keeping it alive, independently of the caller's mounts.
type home struct {
	homeText
	folder *os.File
}

type homeText struct {
	Name   string `json:"name"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// findHome returns nil if other processes cannot follow the path.
func findHome(path string, ns *kernel.Namespace) *home {
	const mostLinks = 8
	for range mostLinks { // links in other programs' /proc/PID/fd cannot be followed
		to, err := os.Readlink(path)
		if err != nil || !filepath.IsAbs(to) {
			break
		}
		path = to
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path)) // because /proc/self differs for each process
	if err != nil {
		return nil
	}
	fd, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	var stat unix.Stat_t
	h := &home{homeText{Name: filepath.Base(path)}, os.NewFile(uintptr(fd), folder)}
	if err := unix.Fstat(ns.Fd(), &stat); err == nil {
		h.Device, h.Inode = uint64(stat.Dev), stat.Ino
	}
	if strings.HasPrefix(folder, fmt.Sprintf("/proc/%d/", os.Getpid())) || !h.alive() {
		_ = h.folder.Close() // it is unused
		return nil
	}
	return h
}

// alive reports whether the name still refers to the namespace.
func (h *home) alive() bool {
	var stat unix.Stat_t
	err := unix.Fstatat(int(h.folder.Fd()), h.Name, &stat, 0)
	if errors.Is(err, fs.ErrPermission) { // no right to follow the link; it exists while its process does
		return unix.Fstatat(int(h.folder.Fd()), h.Name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil
	}
	return err == nil && uint64(stat.Dev) == h.Device && stat.Ino == h.Inode
}

// open opens the namespace.
func (h *home) open() (*kernel.Namespace, error) {
	fd, err := unix.Openat(int(h.folder.Fd()), h.Name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open its network namespace: %w", err)
	}
	file := os.NewFile(uintptr(fd), h.Name)
	defer file.Close()
	if !h.alive() {
		return nil, errors.New("open its network namespace: the namespace is gone")
	}
	return kernel.NamespaceOf(file)
}

// Close closes everything that was not handed on.
func (n *ForeignNIC) Close() error {
	var errs []error
	if n.port != nil {
		errs = append(errs, n.port.Close())
	}
	if n.far != nil {
		errs = append(errs, n.far.Close())
	}
	if n.home != nil {
		errs = append(errs, n.home.folder.Close())
	}
	if n.monitor != nil {
		errs = append(errs, n.monitor.Close())
	}
	*n = ForeignNIC{}
	return errors.Join(errs...)
}

// Give sends the ForeignNIC to another process, and closes it here.
func (n *ForeignNIC) Give(to *net.UnixConn) error {
	far, err := n.far.Dup()
	if err != nil {
		return errors.Join(err, n.Close())
	}
	text := foreignText{Port: n.port.Description, Files: len(n.port.Files), NIC: n.inside}
	files := append(slices.Clone(n.port.Files), far)
	if n.home != nil {
		text.Home = &n.home.homeText
		files = append(files, n.home.folder)
	}
	if n.monitor != nil {
		files = append(files, n.monitor)
	}
	if err = descriptors.Send(to, text, files...); err != nil {
		err = fmt.Errorf("send the port of %s: %w", n.inside.Name, err)
	}
	return errors.Join(err, far.Close(), n.Close())
}

// Bounds of the message that Give sends: bytes of JSON, and descriptors.
const (
	maxForeignText  = 4096
	maxForeignFiles = 8
)

// TakeForeignNIC receives a ForeignNIC that Give sent.
func TakeForeignNIC(from *net.UnixConn) (*ForeignNIC, error) {
	var text foreignText
	files, err := descriptors.Receive(from, &text, make([]byte, maxForeignText), maxForeignFiles)
	if err != nil {
		return nil, fmt.Errorf("receive port descriptors: %w", err)
	}
	n := &ForeignNIC{port: &softports.Handle{Description: text.Port}, inside: text.NIC}
	next := func() (file *os.File) {
		if len(files) == 0 {
			err = errors.New("the message has too few descriptors")
			return nil
		}
		file, files = files[0], files[1:]
		return file
	}
	for range min(text.Files, len(files)) {
		n.port.Files = append(n.port.Files, next())
	}
	if far := next(); far != nil {
		n.far, err = kernel.NamespaceOf(far)
		err = errors.Join(err, far.Close())
	}
	if text.Home != nil && err == nil {
		n.home = &home{*text.Home, next()}
	}
	if len(files) > 0 && n.home != nil {
		n.monitor = next()
	}
	for _, file := range files {
		err = errors.Join(err, errors.New("the message has too many descriptors"), file.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("receive port descriptors: %w", err), n.Close())
	}
	return n, nil
}

// watchHome opens the packet socket that measures arrivals at the NIC, if there is a home that
// indicates when the namespace ends. The path is the namespace's.
func (n *ForeignNIC) watchHome(path string, ns *kernel.Namespace) error {
	if n.home = findHome(path, ns); n.home == nil {
		return nil
	}
	return ns.Do(func() (err error) {
		n.monitor, err = live.OpenMonitor(n.inside.Index)
		return err
	})
}

// refused returns the error for an operation on a NIC in another namespace that the testbed has no
// right to.
func (n *ForeignNIC) refused(end plan.End, what string, err error, remedy string) error {
	return &verdict.UnsupportedError{Feature: what + " of " + end.Node + ":" + end.Port,
		Reason: fmt.Sprintf("it is in a container of another runtime, where the testbed may not change "+
			"it: %v", err), Remedy: remedy}
}

// enter opens the NIC's namespace.
func (n *ForeignNIC) enter() (*kernel.Namespace, error) {
	if n.home == nil {
		return nil, errors.New("the testbed cannot open the path that the runtime gave for its namespace")
	}
	ns, err := n.home.open()
	if err != nil {
		return nil, err
	}
	if err := ns.Do(func() error { return nil }); err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return ns, nil
}

// reshape adapts the NIC's shaper to its link.
func (n *ForeignNIC) reshape(end plan.End, want, was link.Shaping) error {
	if want.Direction.Equal(was.Direction) {
		return nil
	}
	ns, err := n.enter()
	if err != nil {
		return n.refused(end, "the shaper", err, "DEL the container before the change and ADD it again")
	}
	defer ns.Close()
	conn, err := kernel.OpenIn(ns)
	if err != nil {
		return err
	}
	defer conn.Close()
	batch := kernel.NewBatch(end.Node, nil)
	want.Apply(batch, n.inside.Name, n.inside.Index, &was)
	if err := conn.Do(batch); err != nil {
		return fmt.Errorf("shape %s:%s: %w", end.Node, end.Port, err)
	}
	qdiscs, err := conn.Qdiscs()
	n.inside.Sends = want.Direction
	return errors.Join(append(want.Compare(queuesOf(qdiscs, n.inside.Index)), err)...)
}

// setCarrier turns the NIC's carrier on or off, and waits until the NIC has that state.
func (n *ForeignNIC) setCarrier(ctx context.Context, end plan.End, up bool) error {
	conn, err := kernel.OpenIn(n.far)
	if err != nil {
		return n.refused(end, "the carrier", err,
			"take down a-to-b and b-to-a one by one: both ends then keep their carrier")
	}
	defer conn.Close()
	links, err := conn.Links(false)
	if err != nil {
		return err
	}
	batch := kernel.NewBatch(end.Node, nil)
	for _, l := range links {
		if l.Group == linkGroup {
			batch.SetUp(l.Name, l.Index, up)
		}
	}
	if err := conn.Do(batch); err != nil {
		return fmt.Errorf("set carrier of %s:%s: %w", end.Node, end.Port, err)
	}
	ns, err := n.enter()
	if err != nil {
		return nil // the carrier is set, even if it cannot be checked
	}
	defer ns.Close()
	for deadline := time.Now().Add(carrierPatience); ; {
		if has, err := carrierOf(ns, n.inside.Index); err != nil || has == up {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("set carrier of %s:%s : kernel has %t, want %t", end.Node, end.Port, !up,
				up)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

func carrierOf(ns *kernel.Namespace, index int) (bool, error) {
	conn, err := kernel.OpenIn(ns)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	links, err := conn.Links(false)
	for _, l := range links {
		if l.Index == index {
			return l.Carrier && l.Operstate == "up", err
		}
	}
	return false, err
}
