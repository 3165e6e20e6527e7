package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// The trials of links, qdiscs and rules use rtnetlink directly. They send the kernel one request
// each and return the kernel's own message for a refusal (NLMSGERR_ATTR_MSG), not the error of
// Railbed's network code.

// request is the body of an rtnetlink request: a fixed header, then attributes.
type request []byte

// attr appends one attribute, padded to 4 bytes (netlink(7)).
func (r request) attr(kind uint16, data []byte) request {
	r = binary.NativeEndian.AppendUint16(r, uint16(unix.SizeofRtAttr+len(data)))
	r = binary.NativeEndian.AppendUint16(r, kind)
	r = append(r, data...)
	for len(r)%4 != 0 {
		r = append(r, 0)
	}
	return r
}

func zeroTerminated(text string) []byte { return append([]byte(text), 0) }

// ask sends one request to the kernel in the process's network namespace and returns the kernel's
// error. NLM_F_ACK makes the kernel answer in any case.
func ask(kind, flags uint16, body request) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open rtnetlink socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1); err != nil {
		return fmt.Errorf("set NETLINK_EXT_ACK: %w", err)
	}
	message := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	message = binary.NativeEndian.AppendUint16(message, kind)
	message = binary.NativeEndian.AppendUint16(message, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	message = binary.NativeEndian.AppendUint32(message, 1) // sequence number
	message = binary.NativeEndian.AppendUint32(message, 0) // port: the kernel fills it in
	message = append(message, body...)
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send to rtnetlink: %w", err)
	}
	answer := make([]byte, 8192)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return fmt.Errorf("receive from rtnetlink: %w", err)
	}
	return refusal(answer[:n])
}

// refusal returns the error in an NLMSG_ERROR answer: the errno, and the kernel's message if there
// is one. The message follows the request's header and, if NLM_F_CAPPED is not set, its body
// (netlink(7), struct nlmsgerr).
func refusal(answer []byte) error {
	const errorLen = unix.SizeofNlMsghdr + 4 + unix.SizeofNlMsghdr
	if len(answer) < errorLen || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("rtnetlink gave no acknowledgement")
	}
	code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:]))
	if code == 0 {
		return nil
	}
	failure := error(unix.Errno(-code))
	flags := binary.NativeEndian.Uint16(answer[6:])
	if flags&unix.NLM_F_ACK_TLVS == 0 {
		return failure
	}
	rest := answer[errorLen:]
	if flags&unix.NLM_F_CAPPED == 0 {
		asked := int(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr+4:])) - unix.SizeofNlMsghdr
		rest = rest[min(max(asked, 0), len(rest)):]
	}
	for len(rest) >= unix.SizeofRtAttr {
		length := int(binary.NativeEndian.Uint16(rest))
		if length < unix.SizeofRtAttr || length > len(rest) {
			break
		}
		if binary.NativeEndian.Uint16(rest[2:]) == unix.NLMSGERR_ATTR_MSG {
			return fmt.Errorf("%w: %s", failure, unix.ByteSliceToString(rest[unix.SizeofRtAttr:length]))
		}
		rest = rest[min((length+3)&^3, len(rest)):]
	}
	return failure
}

// linkCount makes the names of the links of a child unique.
var linkCount int

func newLinkName() string {
	linkCount++
	return fmt.Sprintf("probe%d", linkCount)
}

// veth data of <linux/veth.h>.
const vethInfoPeer = 1

// addLink adds a link of a kind that needs no settings, or a vxlan, which needs its number.
func addLink(kind string) (name string, err error) {
	name = newLinkName()
	info := request{}.attr(unix.IFLA_INFO_KIND, []byte(kind))
	switch kind {
	case "veth":
		peer := request(make([]byte, unix.SizeofIfInfomsg)).attr(unix.IFLA_IFNAME, zeroTerminated(name+"p"))
		info = info.attr(unix.IFLA_INFO_DATA, request{}.attr(vethInfoPeer, peer))
	case "vxlan":
		number := binary.NativeEndian.AppendUint32(nil, 7)
		port := binary.BigEndian.AppendUint16(nil, 4789)
		info = info.attr(unix.IFLA_INFO_DATA,
			request{}.attr(unix.IFLA_VXLAN_ID, number).attr(unix.IFLA_VXLAN_PORT, port))
	}
	body := request(make([]byte, unix.SizeofIfInfomsg)).
		attr(unix.IFLA_IFNAME, zeroTerminated(name)).
		attr(unix.IFLA_LINKINFO, info)
	if err := ask(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body); err != nil {
		return "", fmt.Errorf("add %s: %w", kind, err)
	}
	return name, nil
}

// addQdisc sets a qdisc on a new veth.
func addQdisc(kind string) error {
	name, err := addLink("veth")
	if err != nil {
		return err
	}
	link, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	// struct tcmsg of <linux/rtnetlink.h>: family and padding, ifindex,
	// handle, parent, info.
	parent, handle := uint32(tcRoot), uint32(1<<16)
	if kind == "clsact" {
		parent, handle = tcClsact, tcClsact&0xffff0000
	}
	body := request(binary.NativeEndian.AppendUint32(nil, 0))
	body = binary.NativeEndian.AppendUint32(body, uint32(link.Index))
	body = binary.NativeEndian.AppendUint32(body, handle)
	body = binary.NativeEndian.AppendUint32(body, parent)
	body = binary.NativeEndian.AppendUint32(body, 0)
	body = body.attr(unix.TCA_KIND, zeroTerminated(kind))
	if options := qdiscOptions(kind); options != nil {
		body = body.attr(unix.TCA_OPTIONS, options)
	}
	if err := ask(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body); err != nil {
		return fmt.Errorf("set %s: %w", kind, err)
	}
	return nil
}

// Of <linux/pkt_sched.h>.
const (
	tcRoot      = 0xffffffff // TC_H_ROOT
	tcClsact    = 0xfffffff1 // TC_H_CLSACT
	tcaTBFParms = 1
	tcaHTBInit  = 2
)

// qdiscOptions returns the fewest options that each kind accepts.
func qdiscOptions(kind string) request {
	words := func(values ...uint32) (encoded []byte) {
		for _, v := range values {
			encoded = binary.NativeEndian.AppendUint32(encoded, v)
		}
		return encoded
	}
	switch kind {
	case "tbf":
		// struct tc_tbf_qopt: rate (struct tc_ratespec, whose last word is bytes/s), peakrate,
		// limit in bytes, buffer in ticks of 64 ns, mtu. 125,000 bytes/s for 1,000,000 ticks are a
		// burst of 8,000 bytes.
		return request{}.attr(tcaTBFParms, words(0, 0, 125_000, 0, 0, 0, 65_536, 1_000_000, 0))
	case "htb":
		// struct tc_htb_glob: version, rate2quantum, defcls, debug, direct_pkts.
		return request{}.attr(tcaHTBInit, words(3, 10, 0, 0, 0))
	case "netem":
		// struct tc_netem_qopt: latency, limit in packets, loss, gap,
		// duplicate, jitter. It is the bare struct, without an attribute.
		return words(0, 1000, 0, 0, 0, 0)
	}
	return nil
}

// addRule adds the policy rule "from the address look in table 100".
func addRule(family byte, source []byte) error {
	// struct fib_rule_hdr: family, dst_len, src_len, tos, table, res1, res2,
	// action, flags.
	header := make(request, 12)
	header[0], header[2], header[4], header[7] = family, byte(8*len(source)), 100, unix.FR_ACT_TO_TBL
	body := header.attr(unix.FRA_SRC, source).
		attr(unix.FRA_PRIORITY, binary.NativeEndian.AppendUint32(nil, 1000))
	if err := ask(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body); err != nil {
		return fmt.Errorf("add rule for %s: %w", net.IP(source), err)
	}
	return nil
}

// setUp brings a link up.
func setUp(name string) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	// struct ifinfomsg: family, padding, type, index, flags, change.
	body := make(request, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(body[4:], uint32(link.Index))
	binary.NativeEndian.PutUint32(body[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(body[12:], unix.IFF_UP)
	if err := ask(unix.RTM_NEWLINK, 0, body); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}
