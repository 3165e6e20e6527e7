package capture

import (
	"slices"
	"unsafe"

	"railbed/capture/pcapng"
)

// entry is a packet that waits to be written. Its bytes are in its bucket.
type entry struct {
	time      int64
	id        uint64
	dropped   uint64 // packets that the tap lost before this packet
	offset    uint32
	captured  uint32
	length    uint32
	tap       uint32
	flags     pcapng.Flags
	unordered bool
	unwanted  bool // outside the recording: it is joined and not written
	join      bool // id is a key from which joiner finds the id
	note      note // set for a soft switch's tap
}

// entrySize is the number of bytes of an entry, which count against the memory bound.
const entrySize = int(unsafe.Sizeof(entry{}))

// bucketShift makes a bucket 2^20 ns wide, about a millisecond. At full rate that is a few hundred
// packets, which the sort finds in the CPU cache.
const bucketShift = 20

// bucketCount is the number of buckets of the wheel. They span about a quarter of a second, more
// than any hold-back window.
const bucketCount = 256

// bucketBytes is the room for data that a new bucket has. A bucket that grows to it in steps would touch
// twice the memory; in a short recording most of the time goes into the first touch of pages.
const bucketBytes = 64 << 10

type bucket struct {
	entries []entry
	data    []byte
}

// order sorts the packets of all taps by time. Packets go into buckets of about a millisecond, and
// a bucket is sorted when its time has passed. The cost per packet is constant whatever the number
// of taps. Buffers are reused, the last used first, so that there are as many as the hold-back window needs.
type order struct {
	wheel [bucketCount]bucket
	// next is the number (time >> bucketShift) of the first bucket that was not emitted yet.
	next int64
	// last is one more than the highest bucket number in use.
	last int64
	held int // bytes in buckets
	most int // bound on held
	emit func(*entry, []byte)
	keys []sortKey
	// spare are the buffers of emitted buckets.
	spare []bucket
}

// sortKey is the place of an entry in its bucket. Keys are sorted and not entries, which are large.
type sortKey struct {
	time  int64
	index int
}

func newOrder(start int64, most int, emit func(*entry, []byte)) *order {
	return &order{next: start >> bucketShift, last: start >> bucketShift, most: most, emit: emit}
}

// add copies a packet. A packet older than the emitted ones goes into the first bucket and is
// marked as unordered.
func (o *order) add(e entry, data []byte) {
	number := e.time >> bucketShift
	if number < o.next {
		number, e.unordered = o.next, true
	}
	if number >= o.next+bucketCount { // only after the clock jumped ahead
		for o.next < o.last && number >= o.next+bucketCount {
			o.advance()
		}
		o.next = max(o.next, number-bucketCount+1) // a year is 30 billion empty buckets
	}
	b := &o.wheel[number%bucketCount]
	if b.entries == nil {
		*b = o.take()
	}
	e.offset, e.captured = uint32(len(b.data)), uint32(len(data))
	b.data = append(b.data, data...)
	b.entries = append(b.entries, e)
	o.last = max(o.last, number+1)
	o.held += len(data) + entrySize
	for o.held > o.most {
		o.advance()
	}
}

// take returns an empty bucket with room.
func (o *order) take() bucket {
	last := len(o.spare) - 1
	if last < 0 {
		return bucket{make([]entry, 0, bucketBytes/1024), make([]byte, 0, bucketBytes)}
	}
	b := o.spare[last]
	o.spare = o.spare[:last]
	return b
}

// release emits every packet before the time, in whole buckets.
func (o *order) release(before int64) {
	for o.next < before>>bucketShift && o.next < o.last {
		o.advance()
	}
	// Without packets there is nothing to emit, but later packets are still compared with this
	// time.
	o.next = max(o.next, before>>bucketShift)
	o.last = max(o.last, o.next)
}

// releaseAll emits the remaining packets.
func (o *order) releaseAll() {
	for o.next < o.last {
		o.advance()
	}
}

// restart emits the remaining packets and continues at another time, which may be earlier.
func (o *order) restart(at int64) {
	o.releaseAll()
	o.next, o.last = at>>bucketShift, at>>bucketShift
}

// advance sorts and emits the first bucket.
func (o *order) advance() {
	b := &o.wheel[o.next%bucketCount]
	o.next++
	o.last = max(o.last, o.next)
	if len(b.entries) == 0 {
		return
	}
	o.keys = o.keys[:0]
	for i := range b.entries {
		o.keys = append(o.keys, sortKey{b.entries[i].time, i})
	}
	slices.SortFunc(o.keys, func(x, y sortKey) int {
		switch {
		case x.time < y.time:
			return -1
		case x.time > y.time:
			return 1
		}
		return x.index - y.index
	})
	for _, key := range o.keys {
		e := &b.entries[key.index]
		o.emit(e, b.data[e.offset:e.offset+e.captured])
	}
	o.held -= len(b.data) + len(b.entries)*entrySize
	o.spare = append(o.spare, bucket{b.entries[:0], b.data[:0]})
	*b = bucket{}
}
