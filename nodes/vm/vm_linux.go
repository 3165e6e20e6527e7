// Package vm runs nodes as virtual machines: each node has a kernel of its own, a
// distribution's, with what the host's kernel may lack, such as rdma_rxe and netem.
//
// # The machine
//
// QEMU boots the kernel that package vmimage finds, with KVM where a guest boots
// with it and in software (TCG) elsewhere, which makes the guest's processor 10 to
// 20 times slower than the host's. The initramfs holds this program, which is the
// guest's first process, and the modules that the node asks for. The guest's root
// is the host's over virtio-9p, read-only, under an overlay in the guest's memory:
// the host's programs run in it, and what it writes is gone with it. It has its own
// /proc, /sys, /dev, /run, /tmp and /var/tmp. The homes of people and the host's
// secrets are not there: not behind links, not at other mounts, and not where the
// host's database of users or the user's environment has them (hide_linux.go). Where
// Railbed is root, files that other users may not read are not there either. An ordinary
// user's guests read what the user may read.
//
// # The network
//
// A NIC of the node stays an interface of the node's network namespace, made,
// shaped and verified as every node's (package fabric), where it is seen by
// recordings and by what measures arrivals. There it has no address: its frames are
// redirected to a tap, and those of the tap to it (tc-mirred). QEMU has the open tap
// and nothing else of the network. What the NIC's shaper holds back counts against
// the tap's send buffer, so that it holds back the guest. The guest has the plan's
// addresses, neighbours and routes, set by the code that sets those of other nodes.
// So does its NIC beside the fabric, which the plugins made, and whose address is moved
// into the guest.
// A tap, and not QEMU's datagram netdev to the soft switch: it works with every kind
// of switch, a frame crosses no process of ours, and the way back pushes back.
//
// # Rights
//
// QEMU runs as a user of its own where Railbed is root, without capabilities, with
// its seccomp sandbox, in PID, mount, IPC and UTS namespaces of its own and in the
// node's network namespace. It is the first process of its PID namespace, a child
// of the supervisor's, so that it ends with the supervisor however that ends.
//
// # Commands
//
// The guest's first process starts commands at the host's request, over a
// virtio-serial port that carries a stream for each descriptor (yamux): a reader
// that is slow holds back its own stream alone. Process ids are the guest's.
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

// Parts under which the executable is started: Part on the host, where it becomes
// QEMU, and GuestPart as the first process of a guest.
const (
	Part      = "vm"
	GuestPart = "init-vm"
)

// Runtime makes nodes that are virtual machines. Its zero value is ready. It is
// safe for concurrent use, and guests boot at the same time.
type Runtime struct {
	// Processor is how guests run: KVM, TCG, or "", KVM where a guest boots with it.
	Processor string

	mu      sync.Mutex
	kernel  *vmimage.Kernel
	memory  map[string]*os.File // kernel and initramfs by content, sealed
	accel   sync.Once
	chosen  string // of Processor, once accel is done
	refused error  // why not KVM
}

// Processors of Runtime.
const (
	KVM = "kvm"
	TCG = "tcg"
)

// Create implements nodes.Runtime. The node is up when Create returns: its kernel
// has booted, and its NICs have their addresses. What the host lacks is a
// *verdict.UnsupportedError.
func (r *Runtime) Create(ctx context.Context, config nodes.Config) (nodes.Node, error) {
	processor, err := r.processor(ctx, config)
	if err != nil {
		return nil, err
	}
	return r.boot(ctx, config, processor)
}

// Slow is why guests run without KVM, or nil. It is known after the first Create.
func (r *Runtime) Slow() error {
	if r.chosen == KVM {
		return nil
	}
	return r.refused
}

// Close frees what guests were booted from. Nodes stay.
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

// Check refuses guests that the host has no memory for now: all of their memory,
// and what QEMU takes itself.
func Check(all []plan.Node) error {
	const overhead units.Bytes = 150 << 20 // of QEMU, 64 MiB of it for what TCG translates
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
			Reason: fmt.Sprintf("%d VMs take %s with QEMU's own, and the host has %s", count, wanted,
				available>>20<<20),
			Remedy: "give the nodes less with memory, or make fewer of them VMs",
		}
	}
	return nil
}
