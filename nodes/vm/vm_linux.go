// Package vm runs nodes as virtual machines. Each node boots its own kernel, a distribution's, with
// features that the host's kernel may lack, such as rdma_rxe and netem.
//
// # The machine
//
// QEMU boots the kernel that package vmimage finds. It uses KVM where a guest boots with it, and
// software emulation (TCG) elsewhere. Under TCG the guest's processor is 10 to 20 times slower than
// the host's. The initramfs holds this program, which is the guest's first process, and the modules
// that the node requires. The guest's root is the host's over virtio-9p, read-only, under an
// overlay in the guest's memory. The host's programs run in the guest, and files that they write
// disappear with the guest. The guest has its own /proc, /sys, /dev, /run, /tmp and /var/tmp.
//
// The guest does not see home directories or the host's secrets (hide_linux.go). They are hidden
// behind links and at other mounts, too, and wherever the host's user database or the user's
// environment places them. Where Railbed is root, the guest also lacks files that other users may
// not read. An ordinary user's guests read the files that the user may read.
//
// # The network
//
// A NIC of the node stays an interface of the node's network namespace, made, shaped and verified
// as every node's (package fabric). Recordings and measurements of arrivals see it there. In the
// namespace the NIC has no address: tc-mirred redirects its frames to a tap, and the tap's frames
// to the NIC. QEMU has the open tap and no other part of the network. Frames that the NIC's shaper
// holds back count against the tap's send buffer, so the shaper pushes back on the guest. The guest
// has the plan's addresses, neighbours and routes, set by the same code as on other nodes. The
// node's NIC outside the fabric, which the plugins made, is treated alike: its address is moved
// into the guest.
//
// The link is a tap rather than QEMU's datagram netdev to the soft switch. A tap works with every
// kind of switch, its frames cross no process of Railbed, and the send direction has backpressure.
//
// # Rights
//
// Where Railbed is root, QEMU runs as a separate user without capabilities. It runs under its
// seccomp sandbox, in its own PID, mount, IPC and UTS namespaces and in the node's network
// namespace. QEMU is the first process of its PID namespace and a child of the supervisor, so it
// ends with the supervisor, however the supervisor ends.
//
// # Commands
//
// The guest's first process starts commands at the host's request, which arrives over a
// virtio-serial port. The port carries one stream for each descriptor (yamux), so a slow reader
// holds back its own stream alone. Process ids are the guest's.
package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/internal/vmimage"
	"railbed/nodes"
	"railbed/plan"
	"railbed/plan/spec"
)

// Parts under which the executable is started: Part on the host, where it becomes QEMU, and
// GuestPart as the first process of a guest.
const (
	Part      = "vm"
	GuestPart = "init-vm"
)

// Runtime makes nodes that are virtual machines. Its zero value is ready. It is safe for concurrent
// use, and guests boot at the same time.
type Runtime struct {
	// Processor selects how guests run: KVM, TCG, or "" for KVM where a guest boots with it.
	Processor string

	mu      sync.Mutex
	kernel  *vmimage.Kernel
	memory  map[string]*os.File // kernel and initramfs by content, sealed
	accel   sync.Once
	chosen  string // Processor to use, once accel is done
	refused error  // why not KVM
}

// Processors of Runtime.
const (
	KVM = "kvm"
	TCG = "tcg"
)

// Create implements nodes.Runtime. The node is up when Create returns: its kernel has booted, and
// its NICs have their addresses. If the host lacks a requirement, the error is a
// *verdict.UnsupportedError.
func (r *Runtime) Create(ctx context.Context, config nodes.Config) (nodes.Node, error) {
	processor, err := r.processor(ctx, config)
	if err != nil {
		return nil, err
	}
	return r.boot(ctx, config, processor)
}

// Slow returns the reason why guests run without KVM, or nil. It is known after the first Create.
func (r *Runtime) Slow() error {
	if r.chosen == KVM {
		return nil
	}
	return r.refused
}

// Close frees the files from which guests were booted. Nodes stay.
func (r *Runtime) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, file := range r.memory {
		errs = append(errs, file.Close())
	}
	r.memory = nil
	return errors.Join(errs...)
}

// Check refuses guests for which the host has no free memory now. It counts all of their memory,
// and QEMU's own.
func Check(all []plan.Node) error {
	const overhead units.Bytes = 150 << 20 // of QEMU, with 64 MiB for code that TCG translates
	var wanted units.Bytes
	count := 0
	for _, n := range all {
		if n.Runtime == spec.VM {
			wanted += n.Guest().Memory + overhead
			count++
		}
	}
	if count == 0 {
		return nil
	}
	available, err := availableMemory()
	if err != nil {
		return err
	}
	if wanted > available {
		return &verdict.UnsupportedError{
			Feature: "memory",
			Reason: fmt.Sprintf("%d VMs need %s with QEMU's own memory, the host has %s free", count, wanted,
				available>>20<<20),
			Remedy: "set a lower memory for the VM nodes, or use fewer VM nodes",
		}
	}
	return nil
}
