package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// The following functions change or remove objects that a plan's builder did not make. Only the
// kernel's description of them is known.

// setLink begins a change of an interface.
func (b *Batch) setLink(name string, index int, change string) {
	b.begin(unix.RTM_NEWLINK, 0, func() string {
		return fmt.Sprintf("ip -n %s link set %s %s", b.node, name, change)
	})
	b.ifinfo(index, 0, 0)
}

// SetName renames an interface. Kernels before 6.2 refuse it with EBUSY while
// the interface is up.
func (b *Batch) SetName(name string, index int, newName string) {
	b.setLink(name, index, "name "+newName)
	b.attrString(unix.IFLA_IFNAME, newName)
	b.end()
}

// SetMTU changes an interface's MTU.
func (b *Batch) SetMTU(name string, index, mtu int) {
	b.setLink(name, index, fmt.Sprintf("mtu %d", mtu))
	b.attrU32(unix.IFLA_MTU, uint32(mtu))
	b.end()
}

// SetMAC changes an interface's hardware address.
func (b *Batch) SetMAC(name string, index int, mac MAC) {
	b.setLink(name, index, "address "+MACText(mac))
	b.attrBytes(unix.IFLA_ADDRESS, mac[:])
	b.end()
}

// SetNoMaster removes an interface from its bridge.
func (b *Batch) SetNoMaster(name string, index int) {
	b.setLink(name, index, "nomaster")
	b.attrU32(unix.IFLA_MASTER, 0)
	b.end()
}

// SetBridge sets a bridge to the settings that AddBridge uses. The kernel accepts the forward delay
// only once the spanning tree is off.
func (b *Batch) SetBridge(name string, index int) {
	b.setLink(name, index, "type bridge stp_state 0")
	b.linkInfo("bridge", func() { b.attrU32(unix.IFLA_BR_STP_STATE, 0) })
	b.end()
	b.setLink(name, index, "type bridge stp_state 0 forward_delay 0 mcast_snooping 0")
	b.linkInfo("bridge", b.bridgeData)
	b.end()
}

// DeleteLink deletes an interface, and with a veth its peer.
func (b *Batch) DeleteLink(name string, index int) {
	b.begin(unix.RTM_DELLINK, 0, func() string {
		return fmt.Sprintf("ip -n %s link delete %s", b.node, name)
	})
	b.ifinfo(index, 0, 0)
	b.end()
}

// DeleteRoute deletes a route returned by Conn.Routes, whatever its type.
func (b *Batch) DeleteRoute(r Route) {
	b.begin(unix.RTM_DELROUTE, 0, func() string {
		return fmt.Sprintf("ip -n %s route delete %s metric %d", b.node, r, r.Metric)
	})
	addr, table := r.Dst.Addr(), r.table()
	b.u8(family(addr), uint8(r.Dst.Bits()), 0, r.TOS, uint8(min(table, unix.RT_TABLE_COMPAT)), 0,
		unix.RT_SCOPE_NOWHERE, r.Type)
	b.u32(0) // flags
	b.attrU32(unix.RTA_TABLE, uint32(table))
	if r.Dst.Bits() > 0 {
		b.attrAddr(unix.RTA_DST, addr)
	}
	if r.Metric != 0 {
		b.attrU32(unix.RTA_PRIORITY, uint32(r.Metric))
	}
	if len(r.Hops) == 1 { // with several paths, IPv6 would only remove the named one
		b.via(r.Hops[0].Via, addr)
		b.attrU32(unix.RTA_OIF, uint32(r.Hops[0].Index))
	}
	b.end()
}

// DeleteNeighbor deletes a neighbour entry.
func (b *Batch) DeleteNeighbor(dev string, n Neighbor) {
	b.begin(unix.RTM_DELNEIGH, 0, func() string {
		return fmt.Sprintf("ip -n %s neighbour delete %s dev %s", b.node, n.Addr, dev)
	})
	b.ndmsg(family(n.Addr), n.Index, 0)
	b.attrAddr(unix.NDA_DST, n.Addr)
	b.end()
}

// DeleteAnyRule deletes the first rule of the priority and source, whatever it
// does.
func (b *Batch) DeleteAnyRule(r Rule) {
	b.begin(unix.RTM_DELRULE, 0, func() string {
		return fmt.Sprintf("ip %s -n %s rule delete priority %d from %s", r.version(), b.node, r.Priority,
			r.From)
	})
	b.u8(family(r.From.Addr()), 0, uint8(r.From.Bits()), 0, 0, 0, 0, 0)
	b.u32(0) // flags
	b.attrU32(unix.FRA_PRIORITY, uint32(r.Priority))
	if r.From.Bits() > 0 {
		b.attrAddr(unix.FRA_SRC, r.From.Addr())
	}
	b.end()
}

// Ingress is the parent of an interface's clsact or ingress discipline, which exists beside the
// root discipline.
const Ingress QdiscHandle = 0xfffffff1 // TC_H_CLSACT, TC_H_INGRESS

// DeleteIngress deletes an interface's clsact or ingress discipline with its
// filters.
func (b *Batch) DeleteIngress(dev string, index int) {
	b.beginQdisc(unix.RTM_DELQDISC, 0, index, Ingress, 0, func() string {
		return fmt.Sprintf("tc -n %s qdisc delete dev %s clsact", b.node, dev)
	})
	b.end()
}
