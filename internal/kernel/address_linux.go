package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Address is an address of an interface.
type Address struct {
	Index  int
	Prefix netip.Prefix
	// Tentative is set while IPv6 duplicate address detection holds the
	// address back.
	Tentative bool
}

// AddAddress adds an address with its subnet to an interface. IPv6 addresses skip duplicate address
// detection, which would hold back the first packets for one to two seconds.
func (b *Batch) AddAddress(dev string, index int, prefix netip.Prefix) {
	b.address(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, index, prefix, func() string {
		return fmt.Sprintf("ip -n %s address replace %s dev %s%s", b.node, prefix, dev, nodad(prefix))
	})
}

// DeleteAddress removes an address from an interface.
func (b *Batch) DeleteAddress(dev string, index int, prefix netip.Prefix) {
	b.address(unix.RTM_DELADDR, 0, index, prefix, func() string {
		return fmt.Sprintf("ip -n %s address delete %s dev %s", b.node, prefix, dev)
	})
}

func nodad(prefix netip.Prefix) string {
	if prefix.Addr().Is4() {
		return ""
	}
	return " nodad"
}

func (b *Batch) address(kind, flags uint16, index int, prefix netip.Prefix, line func() string) {
	addr := prefix.Addr()
	var addressFlags, scope uint8
	if addr.Is6() {
		addressFlags = unix.IFA_F_NODAD
	}
	b.begin(kind, flags, line)
	b.u8(family(addr), uint8(prefix.Bits()), addressFlags, scope)
	b.u32(uint32(index))
	b.attrAddr(unix.IFA_LOCAL, addr)
	b.attrAddr(unix.IFA_ADDRESS, addr)
	b.end()
}

// Addresses lists the namespace's addresses, in the kernel's order.
func (c *Conn) Addresses() ([]Address, error) {
	request := NewBatch("", nil)
	request.begin(unix.RTM_GETADDR, unix.NLM_F_DUMP, nil)
	request.u8(unix.AF_UNSPEC, 0, 0, 0)
	request.u32(0)
	request.end()
	var addresses []Address
	err := c.dump("addresses", request, func() { addresses = nil }, func(_ uint16, body []byte) error {
		if len(body) < unix.SizeofIfAddrmsg {
			return fmt.Errorf("address message of %d bytes, want at least %d", len(body),
				unix.SizeofIfAddrmsg)
		}
		var local, address netip.Addr
		flags := uint32(body[2])
		err := eachAttr(body[unix.SizeofIfAddrmsg:], func(kind uint16, value []byte) {
			switch kind {
			case unix.IFA_LOCAL:
				local, _ = netip.AddrFromSlice(value)
			case unix.IFA_ADDRESS:
				address, _ = netip.AddrFromSlice(value)
			case unix.IFA_FLAGS:
				flags = u32(value)
			}
		})
		if !local.IsValid() { // IPv6 addresses without a peer only have IFA_ADDRESS
			local = address
		}
		addresses = append(addresses, Address{
			Index:     int(binary.NativeEndian.Uint32(body[4:])),
			Prefix:    netip.PrefixFrom(local, int(body[1])),
			Tentative: flags&unix.IFA_F_TENTATIVE != 0,
		})
		return err
	})
	return addresses, err
}

// Neighbor is a permanent neighbour entry.
type Neighbor struct {
	Index int
	Addr  netip.Addr
	MAC   MAC
}

// AddNeighbor adds a permanent neighbour entry. It needs no address resolution traffic. It also
// takes no place in the kernel's one neighbour cache of 1,024 entries, which counts only entries
// that can expire.
func (b *Batch) AddNeighbor(dev string, n Neighbor) {
	b.begin(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, func() string {
		return fmt.Sprintf("ip -n %s neighbour replace %s lladdr %s dev %s nud permanent", b.node, n.Addr,
			MACText(n.MAC), dev)
	})
	b.ndmsg(family(n.Addr), n.Index, unix.NUD_PERMANENT)
	b.attrAddr(unix.NDA_DST, n.Addr)
	b.attrBytes(unix.NDA_LLADDR, n.MAC[:])
	b.end()
}

// AddProxy makes the host answer on an interface for an address that is not on that interface's
// link.
func (b *Batch) AddProxy(dev string, index int, addr netip.Addr) {
	b.begin(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, func() string {
		return fmt.Sprintf("ip -n %s neighbour replace proxy %s dev %s", b.node, addr, dev)
	})
	b.ndmsg(family(addr), index, unix.NUD_PERMANENT)
	b.buf[len(b.buf)-2] = unix.NTF_PROXY
	b.attrAddr(unix.NDA_DST, addr)
	b.end()
}

// ndmsg appends a struct ndmsg.
func (b *Batch) ndmsg(family uint8, index int, state uint16) {
	b.u8(family, 0)
	b.u16(0)
	b.u32(uint32(index))
	b.u16(state)
	b.u8(0, 0) // flags, type
}

const sizeofNdmsg = 12

// Neighbors lists the namespace's permanent neighbour entries.
func (c *Conn) Neighbors() ([]Neighbor, error) {
	request := NewBatch("", nil)
	request.begin(unix.RTM_GETNEIGH, unix.NLM_F_DUMP, nil)
	request.ndmsg(unix.AF_UNSPEC, 0, 0)
	request.end()
	var neighbors []Neighbor
	err := c.dump("neighbours", request, func() { neighbors = nil }, func(_ uint16, body []byte) error {
		n, state, err := parseNeighbor(body)
		if n.Addr.IsValid() && state&unix.NUD_PERMANENT != 0 {
			neighbors = append(neighbors, n)
		}
		return err
	})
	return neighbors, err
}
