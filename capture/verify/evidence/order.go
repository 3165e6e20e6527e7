package evidence

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sort"

	"railbed/capture/pcapng"
)

// Packets are sorted by their times within a window of at most windowPackets packets and
// windowBytes bytes. In a stream the distance of displaced packets is unknown, and the window holds
// windowStream packets.
const (
	windowPackets = 1 << 15
	windowStream  = 1 << 12
	windowLeast   = 16 // finds repeated records among this many
	windowBytes   = 32 << 20
)

// displaced returns the greatest number of packets by which a packet stands behind its place in
// time. It reads the capture and seeks back to where it began. If the reader cannot seek, the
// number is not known.
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
		return 0, true // the caller's own reader reports the error
	}
	r.TimesOnly()
	// latest are the times of packets that are later than all packets before them, and numbers
	// their indexes.
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

// chunkSize is the capacity of a chunk in bytes of packets. A longer packet gets a chunk of its own
// size.
const chunkSize = 64 << 10

// window sorts packets by time. It corrects displacements of at most as many packets as it holds. It
// leaves out packets that stand in the file twice.
type window struct {
	packets []windowed // sorted from front on
	front   int
	bytes   int
	most    int    // packets
	last    *chunk // chunk to which packets are added
	spare   []*chunk
	exact   bool // times and ids tell all packets apart, so that equal packets are repeats
	out     pcapng.Packet

	sorted, repeated uint64
}

// windowed is a packet whose bytes and comments are in a chunk.
type windowed struct {
	pcapng.Packet
	in *chunk
}

// chunk is the memory of some packets. It is reused when all of them were taken.
type chunk struct {
	data     []byte
	comments [][]byte
	packets  int
}

func (w *window) len() int { return len(w.packets) - w.front }

// full reports whether a packet has to be taken before another is added.
func (w *window) full() bool { return w.len() >= w.most || w.bytes > windowBytes }

// add inserts a copy of a packet.
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

// copy copies the bytes of a packet into a chunk.
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

// fresh starts a chunk with room for a packet.
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

// take removes the first packet. The returned packet is valid until the next add.
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

// same reports whether two packets are the same record.
func same(a, b *pcapng.Packet) bool {
	return a.Interface == b.Interface && a.Has == b.Has && a.ID == b.ID && a.Flags == b.Flags &&
		a.Length == b.Length && a.Queue == b.Queue &&
		slices.EqualFunc(a.Comments, b.Comments, bytes.Equal) && bytes.Equal(a.Data, b.Data)
}
