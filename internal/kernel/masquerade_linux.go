package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Masquerade is a packet filter table that connects one address behind an interface to the host's
// networks. Packets from the address leave with the host's address, and their answers are forwarded
// back. Nothing else is forwarded from or to the interface. The kernel deletes the table when the
// socket that created it is closed, even by a crash (Linux 5.12).
type Masquerade struct {
	table string
	conn  *Conn
}

// Constants of linux/netfilter.h and linux/netfilter/nf_tables.h.
const (
	verdictDrop, verdictAccept = 0, 1
	tableOwner                 = 2 // NFT_TABLE_F_OWNER: the socket owns the table
)

// NewMasquerade creates the table in the calling thread's network namespace.
func NewMasquerade(table, dev string, from netip.Addr) (*Masquerade, error) {
	conn, err := openFilter()
	if err != nil {
		return nil, err
	}
	m := &Masquerade{table, conn}
	b := NewBatch("", nil)
	line := func() string { return fmt.Sprintf("nft add table ip %s { flags owner; }", table) }
	control := func(kind uint16) {
		b.begin(kind, 0, line)
		b.u8(unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES)
		b.end()
	}
	control(unix.NFNL_MSG_BATCH_BEGIN)
	b.filter(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, line)
	b.attrString(unix.NFTA_TABLE_NAME, table)
	b.attrBE32(unix.NFTA_TABLE_FLAGS, tableOwner)
	b.end()
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, dev)
	b.addChain(table, "forward", "filter", unix.NF_INET_FORWARD, 0)
	b.addRule(table, "forward", func() {
		b.compareName(unix.NFT_META_IIFNAME, unix.NFT_CMP_EQ, name)
		b.compareSource(unix.NFT_CMP_NEQ, from)
		b.drop()
	})
	b.addRule(table, "forward", func() {
		b.compareName(unix.NFT_META_OIFNAME, unix.NFT_CMP_EQ, name)
		b.isNoAnswer()
		b.drop()
	})
	const sourceNAT = 100 // NF_IP_PRI_NAT_SRC
	b.addChain(table, "postrouting", "nat", unix.NF_INET_POST_ROUTING, sourceNAT)
	b.addRule(table, "postrouting", func() {
		b.compareSource(unix.NFT_CMP_EQ, from)
		b.compareName(unix.NFT_META_OIFNAME, unix.NFT_CMP_NEQ, name)
		b.expression("masq", func() {})
	})
	control(unix.NFNL_MSG_BATCH_END)
	if err := conn.doFilter(b); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if have, err := m.rules(); err != nil || have != 3 {
		return nil, errors.Join(fmt.Errorf("add table %s to the packet filter: kernel has %d rules, want 3",
			table, have), err, m.Close())
	}
	return m, nil
}

// Close deletes the table.
func (m *Masquerade) Close() error { return m.conn.Close() }

// rules returns the number of rules in the table.
func (m *Masquerade) rules() (count int, err error) {
	err = m.conn.dumpFilter("rules", unix.NFT_MSG_GETRULE, func(body []byte) error {
		return eachAttr(body, func(kind uint16, value []byte) {
			if kind == unix.NFTA_RULE_TABLE && cString(value) == m.table {
				count++
			}
		})
	})
	return count, err
}

// DroppingForward returns the chains, as "filter FORWARD", that by default drop IPv4 packets which
// the calling thread's namespace would forward. Rules in these chains may accept some packets.
func DroppingForward() (chains []string, err error) {
	conn, err := openFilter()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	err = conn.dumpFilter("chains", unix.NFT_MSG_GETCHAIN, func(body []byte) error {
		var table, name string
		hook, policy := uint32(unix.NF_INET_NUMHOOKS), uint32(verdictAccept)
		err := eachAttr(body, func(kind uint16, value []byte) {
			switch {
			case kind == unix.NFTA_CHAIN_TABLE:
				table = cString(value)
			case kind == unix.NFTA_CHAIN_NAME:
				name = cString(value)
			case kind == unix.NFTA_CHAIN_POLICY && len(value) == 4:
				policy = binary.BigEndian.Uint32(value)
			case kind == unix.NFTA_CHAIN_HOOK:
				_ = eachAttr(value, func(kind uint16, value []byte) {
					if kind == unix.NFTA_HOOK_HOOKNUM && len(value) == 4 {
						hook = binary.BigEndian.Uint32(value)
					}
				})
			}
		})
		if hook == unix.NF_INET_FORWARD && policy == verdictDrop {
			chains = append(chains, table+" "+name)
		}
		return err
	})
	return chains, err
}

// openFilter opens a socket to the packet filter of the calling thread's namespace.
func openFilter() (*Conn, error) { return openNetlink(unix.NETLINK_NETFILTER) }

// doFilter sends the batch as a transaction, which the kernel applies completely or not at all. The
// kernel acknowledges the requests in the batch; the batch's end only since Linux 6.10.
func (c *Conn) doFilter(b *Batch) error {
	asked := 0
	for i, start := range b.starts {
		c.seq++
		binary.NativeEndian.PutUint32(b.buf[start+8:], c.seq)
		if i > 0 && i < len(b.starts)-1 {
			flags := b.buf[start+6:]
			binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
			asked++
		}
	}
	first := c.seq - uint32(len(b.starts)) + 1
	if err := c.send(b.buf); err != nil {
		return fmt.Errorf("send to packet filter: %w", err)
	}
	var refused error
	for answers := 0; answers < asked && refused == nil; {
		err := c.receive(func(header unix.NlMsghdr, body []byte) error {
			index := header.Seq - first
			if header.Type != unix.NLMSG_ERROR || index >= uint32(len(b.starts)) {
				return nil
			}
			answers++
			if errno := errnoOf(body); errno != 0 && refused == nil {
				refused = &RequestError{Line: b.lines[index](), Errno: errno,
					Detail: extendedAck(header, body)}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read answers of the packet filter: %w", err)
		}
	}
	return refused
}

func (c *Conn) dumpFilter(what string, kind uint16, each func(body []byte) error) error {
	request := NewBatch("", nil)
	request.filter(kind, unix.NLM_F_DUMP, nil)
	request.end()
	return c.dump(what+" of the packet filter", request, func() {}, func(_ uint16, body []byte) error {
		const general = 4 // struct nfgenmsg
		return each(body[min(general, len(body)):])
	})
}

// filter begins a message to the packet filter.
func (b *Batch) filter(kind, flags uint16, line func() string) {
	b.begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, line)
	b.u8(unix.NFPROTO_IPV4, unix.NFNETLINK_V0, 0, 0)
}

// attrBE32 appends a number in the packet filter's byte order.
func (b *Batch) attrBE32(kind uint16, value uint32) {
	b.attrBytes(kind, binary.BigEndian.AppendUint32(nil, value))
}

// within appends one attribute with the contents that fn appends.
func (b *Batch) within(kind uint16, fn func()) {
	start := b.nest(unix.NLA_F_NESTED | kind)
	fn()
	b.unnest(start)
}

func (b *Batch) addChain(table, name, kind string, hook, priority uint32) {
	b.filter(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, func() string {
		return fmt.Sprintf("nft add chain ip %s %s { type %s hook %s priority %d; }", table, name, kind, name,
			priority)
	})
	b.attrString(unix.NFTA_CHAIN_TABLE, table)
	b.attrString(unix.NFTA_CHAIN_NAME, name)
	b.within(unix.NFTA_CHAIN_HOOK, func() {
		b.attrBE32(unix.NFTA_HOOK_HOOKNUM, hook)
		b.attrBE32(unix.NFTA_HOOK_PRIORITY, priority)
	})
	b.attrString(unix.NFTA_CHAIN_TYPE, kind)
	b.end()
}

// addRule adds the rule whose expressions fn appends.
func (b *Batch) addRule(table, chain string, fn func()) {
	b.filter(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, func() string {
		return fmt.Sprintf("nft add rule ip %s %s", table, chain)
	})
	b.attrString(unix.NFTA_RULE_TABLE, table)
	b.attrString(unix.NFTA_RULE_CHAIN, chain)
	b.within(unix.NFTA_RULE_EXPRESSIONS, fn)
	b.end()
}

func (b *Batch) expression(name string, fn func()) {
	b.within(unix.NFTA_LIST_ELEM, func() {
		b.attrString(unix.NFTA_EXPR_NAME, name)
		b.within(unix.NFTA_EXPR_DATA, fn)
	})
}

// compare compares the register with data. All expressions here use the same register.
func (b *Batch) compare(op uint32, data []byte) {
	b.expression("cmp", func() {
		b.attrBE32(unix.NFTA_CMP_SREG, unix.NFT_REG_1)
		b.attrBE32(unix.NFTA_CMP_OP, op)
		b.within(unix.NFTA_CMP_DATA, func() { b.attrBytes(unix.NFTA_DATA_VALUE, data) })
	})
}

// compareName compares the name of a packet's interface.
func (b *Batch) compareName(key, op uint32, name []byte) {
	b.expression("meta", func() {
		b.attrBE32(unix.NFTA_META_DREG, unix.NFT_REG_1)
		b.attrBE32(unix.NFTA_META_KEY, key)
	})
	b.compare(op, name)
}

// compareSource compares the source address.
func (b *Batch) compareSource(op uint32, address netip.Addr) {
	const offset = 12 // RFC 791
	b.expression("payload", func() {
		b.attrBE32(unix.NFTA_PAYLOAD_DREG, unix.NFT_REG_1)
		b.attrBE32(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER)
		b.attrBE32(unix.NFTA_PAYLOAD_OFFSET, offset)
		b.attrBE32(unix.NFTA_PAYLOAD_LEN, 4)
	})
	b.compare(op, address.AsSlice())
}

// isNoAnswer matches packets of connections that hosts on the other side did not open.
func (b *Batch) isNoAnswer() {
	const established, related = 1 << 1, 1 << 2 // linux/netfilter/nf_conntrack_common.h
	data := func(kind uint16, value uint32) {
		b.within(kind, func() { b.attrU32(unix.NFTA_DATA_VALUE, value) })
	}
	b.expression("ct", func() {
		b.attrBE32(unix.NFTA_CT_DREG, unix.NFT_REG_1)
		b.attrBE32(unix.NFTA_CT_KEY, unix.NFT_CT_STATE)
	})
	b.expression("bitwise", func() {
		b.attrBE32(unix.NFTA_BITWISE_SREG, unix.NFT_REG_1)
		b.attrBE32(unix.NFTA_BITWISE_DREG, unix.NFT_REG_1)
		b.attrBE32(unix.NFTA_BITWISE_LEN, 4)
		data(unix.NFTA_BITWISE_MASK, established|related)
		data(unix.NFTA_BITWISE_XOR, 0)
	})
	b.compare(unix.NFT_CMP_EQ, make([]byte, 4))
}

func (b *Batch) drop() {
	b.expression("immediate", func() {
		b.attrBE32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		b.within(unix.NFTA_IMMEDIATE_DATA, func() {
			b.within(unix.NFTA_DATA_VERDICT, func() { b.attrBE32(unix.NFTA_VERDICT_CODE, verdictDrop) })
		})
	})
}
