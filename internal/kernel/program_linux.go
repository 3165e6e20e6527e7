package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// programHandle is the handle, and the priority, of AttachProgram's filter.
const programHandle = 1

// AttachProgram makes the kernel run an eBPF program for each packet that an interface is about to queue
// (clsact egress, tc-bpf(8)). The program replaces an earlier one of AttachProgram, so that every packet passes
// one of the two. AttachProgram reads the result back. The kernel removes the program with the interface. fd is
// the program's descriptor, and id its number in the kernel.
func AttachProgram(ns *Namespace, index, fd int, id uint32) (err error) {
	handle, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("attach a program to interface %d: %w", index, err)
	}
	defer handle.Close()
	switch added := handle.QdiscAdd(clsact(index)); {
	case added == nil:
		defer func() {
			if err != nil {
				_ = handle.QdiscDel(clsact(index)) // nothing uses it
			}
		}()
	case !errors.Is(added, unix.EEXIST):
		return fmt.Errorf("attach a program to interface %d: add clsact: %w", index, added)
	}
	filter := &netlink.BpfFilter{FilterAttrs: programFilter(index), Fd: fd, Name: "railbed-faults",
		DirectAction: true}
	if err := handle.FilterReplace(filter); err != nil {
		return fmt.Errorf("attach a program to interface %d: add filter: %w", index, err)
	}
	link, err := handle.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("attach a program to interface %d: %w", index, err)
	}
	filters, err := handle.FilterList(link, netlink.HANDLE_MIN_EGRESS)
	if err != nil {
		return fmt.Errorf("attach a program to interface %d: %w", index, err)
	}
	for _, filter := range filters {
		if is, bpf := filter.(*netlink.BpfFilter); bpf && is.Id == int(id) && is.DirectAction {
			return nil
		}
	}
	return fmt.Errorf("attach a program to interface %d: kernel has %d filters, want program %d", index,
		len(filters), id)
}

// DetachProgram undoes AttachProgram. It removes the discipline that holds the program unless keep is set:
// then other filters use it, too.
func DetachProgram(ns *Namespace, index int, keep bool) error {
	handle, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("detach a program from interface %d: %w", index, err)
	}
	defer handle.Close()
	if keep {
		err = handle.FilterDel(&netlink.BpfFilter{FilterAttrs: programFilter(index)})
	} else {
		err = handle.QdiscDel(clsact(index))
	}
	if err != nil {
		return fmt.Errorf("detach a program from interface %d: %w", index, err)
	}
	return nil
}

func programFilter(index int) netlink.FilterAttrs {
	return netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: programHandle,
		Priority: programHandle, Protocol: unix.ETH_P_ALL}
}

// clsact is the discipline of an interface that holds filters beside its queue.
func clsact(index int) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}

// ProgramLine is the sequence of tc(8) lines, joined by "&&", that is equivalent to AttachProgram.
func ProgramLine(node, dev string, id uint32) string {
	return fmt.Sprintf("tc -n %[1]s qdisc replace dev %[2]s clsact && tc -n %[1]s filter replace dev %[2]s "+
		"egress pref %[3]d handle %[3]d protocol all bpf direct-action id %[4]d", node, dev, programHandle, id)
}

// UnprogramLine is the tc(8) line that is equivalent to DetachProgram.
func UnprogramLine(node, dev string, keep bool) string {
	if keep {
		return fmt.Sprintf("tc -n %s filter delete dev %s egress pref %d", node, dev, programHandle)
	}
	return fmt.Sprintf("tc -n %s qdisc delete dev %s clsact", node, dev)
}
