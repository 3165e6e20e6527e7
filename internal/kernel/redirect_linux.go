package kernel

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// redirectPriority is the priority of Redirect's filter.
const redirectPriority = 1

// Redirect makes the kernel send every frame that arrives at an interface out of another interface
// of the namespace (tc-mirred). The namespace's own stack does not see these frames, but packet
// sockets do. Redirect replaces all existing filters and reads the result back. If the filter is
// already in place, it changes nothing. The kernel deletes the filter with either interface.
func Redirect(ns *Namespace, from, to int) error {
	handle, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("redirect interface %d to %d: %w", from, to, err)
	}
	defer handle.Close()
	if redirected(handle, from, to) == nil {
		return nil
	}
	clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: from,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	// An existing filter redirects to an interface that no longer exists, and would come first.
	_ = handle.QdiscDel(clsact)
	if err := handle.QdiscReplace(clsact); err != nil {
		return fmt.Errorf("redirect interface %d to %d: add clsact: %w", from, to, err)
	}
	filter := &netlink.U32{ // every kernel with tc has it; without keys it matches everything
		FilterAttrs: netlink.FilterAttrs{LinkIndex: from, Parent: netlink.HANDLE_MIN_INGRESS,
			Priority: redirectPriority, Protocol: unix.ETH_P_ALL},
		Actions: []netlink.Action{netlink.NewMirredAction(to)},
	}
	if err := handle.FilterReplace(filter); err != nil {
		return fmt.Errorf("redirect interface %d to %d: add filter: %w", from, to, err)
	}
	if err := redirected(handle, from, to); err != nil {
		return fmt.Errorf("redirect interface %d to %d: %w", from, to, err)
	}
	return nil
}

// RedirectLine is the sequence of tc(8) lines, joined by "&&", that is equivalent to Redirect.
func RedirectLine(node, from, to string) string {
	return fmt.Sprintf("tc -n %[1]s qdisc replace dev %[2]s clsact && tc -n %[1]s filter replace dev %[2]s "+
		"ingress pref %[4]d protocol all "+
		"u32 match u32 0 0 action mirred egress redirect dev %[3]s", node, from, to, redirectPriority)
}

// redirected returns how the filters of an interface differ from Redirect's, or nil.
func redirected(handle *netlink.Handle, from, to int) error {
	link, err := handle.LinkByIndex(from)
	if err != nil {
		return err
	}
	filters, err := handle.FilterList(link, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return err
	}
	for _, filter := range filters {
		u32, is := filter.(*netlink.U32)
		if !is || u32.Priority != redirectPriority || len(u32.Actions) != 1 {
			continue // a hash table of the filter, or another program's
		}
		if mirred, is := u32.Actions[0].(*netlink.MirredAction); is && mirred.Ifindex == to &&
			mirred.MirredAction == netlink.TCA_EGRESS_REDIR {
			return nil
		}
	}
	return fmt.Errorf("kernel has %d filters, want one that redirects to interface %d", len(filters), to)
}

// LinkEvents returns a socket that becomes readable whenever an interface of the namespace appears,
// disappears or changes its state. The content has no details: the reader must list the interfaces.
// ENOBUFS means that events were lost.
func LinkEvents(ns *Namespace) (events *os.File, err error) {
	err = ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		events = os.NewFile(uintptr(fd), "link events")
		return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK})
	})
	if err != nil {
		if events != nil {
			events.Close()
		}
		return nil, fmt.Errorf("watch links: %w", err)
	}
	return events, nil
}
