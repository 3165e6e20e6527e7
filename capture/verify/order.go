package verify

import (
	"bytes"
	"slices"
	"sort"

	"railbed/capture/pcapng"
)

// Packets are sorted by their times within a window of so many packets, and bytes.
const (
	windowPackets = 1 << 15
	windowBytes   = 32 << 20
)

// window brings packets into the order of their times, as far as they are at most so
// many packets apart, and leaves out those that stand in the file twice.
type window struct {
	packets []*pcapng.Packet // sorted; the next one first
	spare   []*pcapng.Packet
	bytes   int
	exact   bool // times and ids tell packets apart, so that equal ones are one

	sorted, repeated uint64
}

// add takes a copy of a packet.
func (w *window) add(raw *pcapng.Packet) {
	at := len(w.packets)
	if at > 0 && w.packets[at-1].Time > raw.Time {
		at = sort.Search(at, func(i int) bool { return w.packets[i].Time > raw.Time })
	}
	if w.exact {
		for i := at - 1; i >= 0 && w.packets[i].Time == raw.Time; i-- {
			if same(w.packets[i], raw) {
				w.repeated++
				return
			}
		}
	}
	if at < len(w.packets) {
		w.sorted++
	}
	w.packets = slices.Insert(w.packets, at, w.copy(raw))
	w.bytes += len(raw.Data)
}

// full says that a packet has to be taken before another is added.
func (w *window) full() bool { return len(w.packets) >= windowPackets || w.bytes > windowBytes }

// take removes the first packet, which is valid until the next take.
func (w *window) take() *pcapng.Packet {
	p := w.packets[0]
	w.packets = w.packets[1:]
	w.bytes -= len(p.Data)
	w.spare = append(w.spare, p)
	return p
}

func (w *window) copy(raw *pcapng.Packet) *pcapng.Packet {
	p := new(pcapng.Packet)
	// The packet that was taken last is still in use.
	if n := len(w.spare); n > 1 {
		p, w.spare = w.spare[0], w.spare[1:]
	}
	data, comments := append(p.Data[:0], raw.Data...), p.Comments[:0]
	for i, comment := range raw.Comments {
		var room []byte
		if i < cap(comments) {
			room = comments[:i+1][i][:0]
		}
		comments = append(comments, append(room, comment...))
	}
	*p = *raw
	p.Data, p.Comments = data, comments
	return p
}

// same reports whether two packets are one record.
func same(a, b *pcapng.Packet) bool {
	return a.Interface == b.Interface && a.Has == b.Has && a.ID == b.ID && a.Flags == b.Flags && a.Length == b.Length && a.Queue == b.Queue &&
		slices.EqualFunc(a.Comments, b.Comments, bytes.Equal) && bytes.Equal(a.Data, b.Data)
}
