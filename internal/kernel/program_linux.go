package kernel

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// programHandle is the handle, and the priority, of AttachProgram's filter.
const programHandle = 1

// AddClsact adds the discipline that holds the programs of an interface beside its queue. The kernel empties
// the interface's queue meanwhile (qdisc_graft of 6.1).
func (b *Batch) AddClsact(dev string, index int) {
	b.beginQdisc(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, index, Ingress, clsactHandle,
		func() string { return fmt.Sprintf("tc -n %s qdisc replace dev %s clsact", b.node, dev) })
	b.attrString(unix.TCA_KIND, "clsact")
	b.end()
}

const clsactHandle QdiscHandle = 0xffff0000

// AttachProgram makes the kernel run an eBPF program for each packet that an interface is about to queue
// (clsact egress, tc-bpf(8)). The interface needs AddClsact's discipline. The program replaces an earlier one
// of AttachProgram, so that every packet passes one of the two. AttachProgram reads the result back. The
// kernel removes the program with the interface. fd is the program's descriptor, and id its number in the
// kernel.
func AttachProgram(ns *Namespace, index, fd int, id uint32) error {
	handle, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("attach a program to interface %d: %w", index, err)
	}
	defer handle.Close()
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

// DetachProgram undoes AttachProgram.
func DetachProgram(ns *Namespace, index int) error {
	handle, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err == nil {
		defer handle.Close()
		err = handle.FilterDel(&netlink.BpfFilter{FilterAttrs: programFilter(index)})
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

// ProgramLine is the tc(8) line that is equivalent to AttachProgram.
func ProgramLine(node, dev string, id uint32) string {
	return fmt.Sprintf("tc -n %s filter replace dev %s egress pref %[3]d handle %[3]d protocol all "+
		"bpf direct-action id %[4]d", node, dev, programHandle, id)
}

// UnprogramLine is the tc(8) line that is equivalent to DetachProgram.
func UnprogramLine(node, dev string) string {
	return fmt.Sprintf("tc -n %s filter delete dev %s egress pref %d", node, dev, programHandle)
}
