package datagram

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/wire"
)

// MostCut and MostCutBytes bound a send that the kernel cuts into datagrams (UDP_MAX_SEGMENTS, and
// the length of an IPv4 packet).
const (
	MostCut      = 64
	MostCutBytes = 0xFFFF - wire.IPv6Len - wire.UDPLen
)

// Control is memory for the control message of a sent header.
type Control struct {
	header unix.Cmsghdr
	value  [8]byte
}

// None removes the control message from a header.
func (c *Control) None(h *Header) {
	h.Control = nil
	h.SetControllen(0)
}

// Cut makes the kernel cut the data of a header into datagrams of size bytes (UDP_SEGMENT). The
// last may be shorter. If the socket is not connected and has IP_PMTUDISC_DO or IP_PMTUDISC_PROBE,
// the datagrams' IPv4 identifications are 0, 1, 2 and so on (ip_select_ident_segs,
// inet_gso_segment).
func (c *Control) Cut(h *Header, size int) {
	*(*uint16)(unsafe.Pointer(&c.value)) = uint16(size)
	c.set(h, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
}

// TrafficClass sets the IPv4 type of service, or the IPv6 traffic class, of a header's data.
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

// CutsNothing reports whether an error may mean that the kernel cannot cut a message into
// datagrams. Kernels before Linux 4.18 cannot. Nor can they for a device that leaves checksums to
// the kernel (before 6.11) or encrypts (IPsec). If a single datagram fails, too, sending it alone
// shows that.
func CutsNothing(errno unix.Errno) bool {
	return errno == unix.EIO || errno == unix.EINVAL || errno == unix.EMSGSIZE
}
