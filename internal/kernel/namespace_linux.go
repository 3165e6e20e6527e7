// Package kernel is the only package that configures the kernel's network: namespaces, links,
// addresses, routes, neighbours, qdiscs and offloads. It reads back every setting that it makes and
// compares it.
package kernel

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace held only by an open descriptor, not by a mount or a process.
// The namespace is gone when the descriptor is closed and the last process in it has ended. Do, Dup
// and Become are safe for concurrent use, also during and after Close. They then fail, and never
// use a descriptor number that has been reused for another file.
type Namespace struct {
	mu     sync.RWMutex // guards handle; held for reading while the descriptor is used
	handle netns.NsHandle
}

// errClosed is the error of a closed namespace.
var errClosed = errors.New("the network namespace is closed")

// NewNamespace creates a network namespace.
func NewNamespace() (*Namespace, error) {
	var created netns.NsHandle
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil { // onThread puts the thread back
			return err
		}
		created, err = ownNamespace()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create network namespace: %w", err)
	}
	return &Namespace{handle: created}, nil
}

// OpenNamespace opens a namespace that another program keeps at a path.
func OpenNamespace(path string) (*Namespace, error) {
	handle, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return &Namespace{handle: handle}, nil
}

// CurrentNamespace returns the network namespace of the calling thread.
func CurrentNamespace() (*Namespace, error) {
	handle, err := ownNamespace()
	if err != nil {
		return nil, err
	}
	return &Namespace{handle: handle}, nil
}

// NamespaceOf returns the network namespace of a namespace file that another process opened. The
// caller keeps the file.
func NamespaceOf(file *os.File) (*Namespace, error) {
	kind, err := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_NSTYPE)
	if err == nil && kind != unix.CLONE_NEWNET {
		err = fmt.Errorf("namespace of type %#x, want %#x", kind, unix.CLONE_NEWNET)
	}
	if err != nil {
		return nil, fmt.Errorf("read type of network namespace: %w", err)
	}
	fd, err := dupCloexec(int(file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("duplicate namespace descriptor: %w", err)
	}
	return &Namespace{handle: netns.NsHandle(fd)}, nil
}

// Fd is the namespace's descriptor. It is valid until Close, which must not run concurrently with
// its use.
func (n *Namespace) Fd() int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return int(n.handle)
}

// use runs fn with the descriptor, which stays open meanwhile.
func (n *Namespace) use(fn func(netns.NsHandle) error) error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if !n.handle.IsOpen() {
		return errClosed
	}
	return fn(n.handle)
}

// Do runs fn on an OS thread inside the namespace. Sockets and files that fn
// opens stay in the namespace; goroutines that it starts do not.
func (n *Namespace) Do(fn func() error) error {
	return onThread(func() error {
		if err := n.use(netns.Set); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return fn()
	})
}

// Close drops the descriptor. A second Close does nothing.
func (n *Namespace) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.handle.IsOpen() {
		return nil
	}
	return n.handle.Close()
}

// onThread runs fn on a goroutine of its own, locked to its thread, and then returns the thread to
// its previous namespace. If that fails, the thread stays locked. It then ends with the goroutine,
// instead of running other code in the wrong namespace.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := ownNamespace()
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		err = fn()
		if restore := netns.Set(home); restore != nil {
			err = errors.Join(err, fmt.Errorf("leave network namespace: %w (thread ended)", restore))
		} else {
			runtime.UnlockOSThread()
		}
		done <- errors.Join(err, home.Close())
	}()
	return <-done
}

// ownNamespace opens the calling thread's network namespace. It uses thread-self instead of process
// and thread number, as netns.Get does. In a PID namespace whose /proc is still its parent's, the
// numbers differ.
func ownNamespace() (netns.NsHandle, error) {
	handle, err := netns.GetFromPath("/proc/thread-self/ns/net")
	if err != nil {
		return netns.None(), fmt.Errorf("open own network namespace: %w", err)
	}
	return handle, nil
}

// Become replaces this namespace by another namespace, under the same descriptor number. Every
// holder of this Namespace, or of its path, then refers to the other namespace.
func (n *Namespace) Become(other *Namespace) error {
	err := n.use(func(own netns.NsHandle) error {
		return other.use(func(theirs netns.NsHandle) error {
			return unix.Dup3(int(theirs), int(own), unix.O_CLOEXEC)
		})
	})
	if err != nil {
		return fmt.Errorf("replace network namespace: %w", err)
	}
	return nil
}

// Dup returns an open file of the namespace, to be handed to another process.
func (n *Namespace) Dup() (*os.File, error) {
	var fd int
	err := n.use(func(own netns.NsHandle) (err error) {
		fd, err = dupCloexec(int(own))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("duplicate namespace descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), "netns"), nil
}
