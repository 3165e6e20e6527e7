package datagram

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/wire"
)

// MostCut and MostCutBytes bound what the kernel cuts into datagrams
// (UDP_MAX_SEGMENTS, and the length of an IPv4 packet).
const (
	MostCut      = 64
	MostCutBytes = 0xFFFF - wire.IPv6Len - wire.UDPLen
)

// Control is memory for the control message of a header that is sent.
type Control struct {
	header unix.Cmsghdr
	value  [8]byte
}

// None takes the control message from a header.
func (c *Control) None(h *Header) {
	h.Control = nil
	h.SetControllen(0)
}

// Cut has the kernel cut what a header sends into datagrams of so many bytes, of which
// the last may be shorter (UDP_SEGMENT). Those of a socket that is not connected and
// has IP_PMTUDISC_DO or IP_PMTUDISC_PROBE have 0, 1, 2 and so on for their
// identification of IPv4 (ip_select_ident_segs, inet_gso_segment).
func (c *Control) Cut(h *Header, size int) {
	*(*uint16)(unsafe.Pointer(&c.value)) = uint16(size)
	c.set(h, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
}

// TrafficClass sets the type of service of IPv4, or the traffic class of IPv6, of what
// a header sends.
func (c *Control) TrafficClass(h *Header, v6 bool, class uint8) {
	level, kind := int32(unix.IPPROTO_IP), int32(unix.IP_TOS)
	if v6 {
		level, kind = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	*(*int32)(unsafe.Pointer(&c.value)) = int32(class)
	c.set(h, level, kind, 4)
}

func (c *Control) set(h *Header, level, kind int32, size int) {
	c.header.Level, c.header.Type = level, kind
	c.header.SetLen(unix.CmsgLen(size))
	h.Control = (*byte)(unsafe.Pointer(c))
	h.SetControllen(unix.CmsgSpace(size))
}

// CutsNothing are the errors of a message that the kernel is to cut into datagrams and
// cannot: of one that does not know how (before Linux 4.18), and of a device that
// leaves checksums to the kernel (before 6.11) or encrypts (IPsec). Where a datagram
// alone has the error, too, sending it says so.
func CutsNothing(errno unix.Errno) bool {
	return errno == unix.EIO || errno == unix.EINVAL || errno == unix.EMSGSIZE
}
