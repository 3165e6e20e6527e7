package follow

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// framesListed bounds the records that a filter lists by number.
const framesListed = 32

// filter returns a display filter of Wireshark for the packets of a message. In TCP and RoCEv2 it has the
// range of their sequence numbers. Otherwise it has the numbers of their records, which Wireshark does not
// have for a recording in several files.
func (r *Recording) filter(message int) string {
	m := &r.Messages[message]
	f := &r.Flows[m.Flow]
	ends := address("src", f.Src) + " && " + address("dst", f.Dst)
	switch f.Protocol {
	case "roce":
		return fmt.Sprintf("%s && infiniband.bth.destqp == %#x && %s", ends, m.QP,
			r.numbers(m, "infiniband.bth.psn"))
	case "tcp":
		return fmt.Sprintf("%s && tcp.srcport == %d && tcp.dstport == %d && tcp.len > 0 && %s", ends,
			f.Src.Port(), f.Dst.Port(), r.numbers(m, "tcp.seq_raw"))
	}
	var frames []int
	for _, p := range m.Packets {
		for _, s := range r.Sights(int(p)) {
			frames = append(frames, s.Number)
		}
	}
	slices.Sort(frames)
	first, last := frames[0], frames[len(frames)-1]
	file, _ := r.inFile(first)
	switch {
	case file != "":
		return fmt.Sprintf("%s && udp.dstport == %d", ends, f.Dst.Port())
	case len(frames) > framesListed:
		return fmt.Sprintf("%s && udp.dstport == %d && frame.number >= %d && frame.number <= %d", ends,
			f.Dst.Port(), first, last)
	}
	return "frame.number in {" + strings.Trim(strings.ReplaceAll(fmt.Sprint(frames), " ", ", "), "[]") + "}"
}

// address returns a filter for an end of a flow: src or dst.
func address(end string, at netip.AddrPort) string {
	protocol := "ip"
	if at.Addr().Is6() {
		protocol = "ipv6"
	}
	return fmt.Sprintf("%s.%s == %s", protocol, end, at.Addr())
}

// numbers returns a filter for the range of a message's sequence numbers, which may wrap.
func (r *Recording) numbers(m *Message, field string) string {
	order := slices.DeleteFunc(slices.Clone(m.Packets), func(p int32) bool {
		return r.Packets[p].bytes.from < m.bytes.from // of the message before, too
	})
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Compare(r.Packets[a].bytes.from, r.Packets[b].bytes.from)
	})
	from, to := r.Packets[order[0]].PSN, r.Packets[order[len(order)-1]].PSN
	switch {
	case from == to:
		return fmt.Sprintf("%s == %d", field, from)
	case from > to:
		return fmt.Sprintf("(%s >= %d || %s <= %d)", field, from, field, to)
	}
	return fmt.Sprintf("%s >= %d && %s <= %d", field, from, field, to)
}
