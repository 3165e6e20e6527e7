package verify

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sort"

	"railbed/capture/pcapng"
)

// Packets are sorted by their times within a window of at most so many packets, and
// bytes. Where it is not known how far apart they are, as in a stream, it is of
// windowStream packets.
const (
	windowPackets = 1 << 15
	windowStream  = 1 << 12
	windowLeast   = 16 // among which repeated records are found
	windowBytes   = 32 << 20
)

// displaced is behind how many packets the one stands that is furthest from its place by
// time. It reads the capture and goes back to where it was; of what cannot go back
// nothing is known.
func displaced(ctx context.Context, in io.Reader) (packets int, known bool) {
	seeker, can := in.(io.Seeker)
	if !can {
		return 0, false
	}
	at, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, false
	}
	defer func() {
		if _, err := seeker.Seek(at, io.SeekStart); err != nil {
			known = false
		}
	}()
	r, err := pcapng.NewReader(in)
	if err != nil {
		return 0, true // whoever reads it says so
	}
	r.TimesOnly()
	// The latest packets that are later than all before them, by number.
	var latest []int64
	var numbers []int
	for n := 0; n%contextEvery != 0 || ctx.Err() == nil; n++ {
		p, err := r.Next()
		if err != nil {
			return packets, true
		}
		if len(latest) == 0 || p.Time >= latest[len(latest)-1] {
			if len(latest) >= 2*windowPackets {
				latest, numbers = append(latest[:0], latest[windowPackets:]...),
					append(numbers[:0], numbers[windowPackets:]...)
			}
			latest, numbers = append(latest, p.Time), append(numbers, n)
			continue
		}
		behind := sort.Search(len(latest), func(i int) bool { return latest[i] > p.Time })
		packets = max(packets, n-numbers[behind])
	}
	return packets, true
}

// chunkSize is how many bytes of packets are kept together, the longest one at least.
const chunkSize = 64 << 10

// window brings packets into the order of their times, as far as they are at most so
// many packets apart, and leaves out those that stand in the file twice.
type window struct {
	packets []windowed // sorted from front on
	front   int
	bytes   int
	most    int    // packets
	last    *chunk // that packets are added to
	spare   []*chunk
	exact   bool // times and ids tell all packets apart, so that equal ones are one
	out     pcapng.Packet

	sorted, repeated uint64
}

// windowed is a packet, whose bytes and comments are in a chunk.
type windowed struct {
	pcapng.Packet
	in *chunk
}

// chunk is the memory of some packets. It is used again when all of them were taken.
type chunk struct {
	data     []byte
	comments [][]byte
	packets  int
}

func (w *window) len() int { return len(w.packets) - w.front }

// full says that a packet has to be taken before another is added.
func (w *window) full() bool { return w.len() >= w.most || w.bytes > windowBytes }

// add takes a copy of a packet.
func (w *window) add(raw *pcapng.Packet) {
	at := len(w.packets)
	if w.len() > 0 && w.packets[at-1].Time > raw.Time {
		at = w.front + sort.Search(w.len(), func(i int) bool { return w.packets[w.front+i].Time > raw.Time })
	}
	if w.exact || raw.Has&pcapng.HasID != 0 {
		for i := at - 1; i >= w.front && w.packets[i].Time == raw.Time; i-- {
			if same(&w.packets[i].Packet, raw) {
				w.repeated++
				return
			}
		}
	}
	if at < len(w.packets) {
		w.sorted++
	}
	if w.front > 0 && len(w.packets) == cap(w.packets) {
		at -= w.front
		w.packets = w.packets[:copy(w.packets, w.packets[w.front:])]
		w.front = 0
	}
	w.packets = slices.Insert(w.packets, at, w.copy(raw))
	w.bytes += len(raw.Data)
}

// copy puts the bytes of a packet into a chunk.
func (w *window) copy(raw *pcapng.Packet) windowed {
	c := w.last
	if c == nil || len(c.data)+len(raw.Data) > cap(c.data) {
		c = w.fresh(len(raw.Data))
	}
	c.packets++
	p := windowed{*raw, c}
	at := len(c.data)
	c.data = append(c.data, raw.Data...)
	p.Data = c.data[at:len(c.data):len(c.data)]
	if len(raw.Comments) > 0 {
		from := len(c.comments)
		for _, comment := range raw.Comments {
			if len(c.data)+len(comment) <= cap(c.data) {
				at := len(c.data)
				c.data = append(c.data, comment...)
				comment = c.data[at:len(c.data):len(c.data)]
			} else {
				comment = bytes.Clone(comment)
			}
			c.comments = append(c.comments, comment)
		}
		p.Comments = c.comments[from:len(c.comments):len(c.comments)]
	}
	return p
}

// fresh begins a chunk with room for a packet.
func (w *window) fresh(least int) *chunk {
	w.last = nil
	if n := len(w.spare); n > 0 && cap(w.spare[n-1].data) >= least {
		w.last, w.spare = w.spare[n-1], w.spare[:n-1]
		w.last.data, w.last.comments = w.last.data[:0], w.last.comments[:0]
	} else {
		w.last = &chunk{data: make([]byte, 0, max(chunkSize, least))}
	}
	return w.last
}

// take removes the first packet, which is valid until the next add.
func (w *window) take() *pcapng.Packet {
	p := &w.packets[w.front]
	w.front++
	w.bytes -= len(p.Data)
	w.out = p.Packet
	if p.in.packets--; p.in.packets == 0 && p.in != w.last {
		w.spare = append(w.spare, p.in)
	}
	return &w.out
}

// same reports whether two packets are one record.
func same(a, b *pcapng.Packet) bool {
	return a.Interface == b.Interface && a.Has == b.Has && a.ID == b.ID && a.Flags == b.Flags &&
		a.Length == b.Length && a.Queue == b.Queue &&
		slices.EqualFunc(a.Comments, b.Comments, bytes.Equal) && bytes.Equal(a.Data, b.Data)
}
