package capture

import (
	"time"

	"railbed/capture/layers"
	"railbed/internal/feed"
)

// joinWindow is the maximum time between the captures of one packet at a node's NIC and at its
// emulated NIC. It also bounds how long packets are remembered.
const joinWindow = time.Second

// joinSlack is the maximum time by which the timestamps of the two captures may be in the wrong
// order. The switch converts its timestamps to its own clock and back, and compares that clock with
// the wall clock once a second.
const joinSlack = 200 * time.Microsecond

// namedWindow is the maximum time that a packet may take through a dilated fabric.
const namedWindow = time.Minute

// mostPassages bounds the number of remembered packets when packets are not found again.
const mostPassages = 1 << 18

// passage is a packet that one side captured and the other side has not captured yet.
type passage struct {
	value uint64 // serial or id
	time  int64
}

// lane holds the passages of identical packets, in their order.
type lane struct {
	first passage
	more  []passage
}

// passages are packets that wait to be found again by a key, which is the same on both sides.
// Identical packets leave in the order in which they came. Passages older than one or two windows
// are forgotten.
type passages struct {
	young, old map[uint64]lane
	window     int64
	turned     int64 // the packets' time at which young became old
}

func newPassages(window time.Duration) *passages {
	return &passages{young: map[uint64]lane{}, old: map[uint64]lane{}, window: int64(window)}
}

// push adds a packet.
func (p *passages) push(key, value uint64, at int64) {
	if at-p.turned > p.window || at < p.turned-p.window || len(p.young) > mostPassages {
		p.young, p.old, p.turned = p.old, p.young, at
		clear(p.young)
	}
	one := passage{value, at}
	l, known := p.young[key]
	if known {
		l.more = append(l.more, one)
	} else {
		l.first = one
	}
	p.young[key] = l
}

// pop removes and returns the first packet of a key between two times. It discards earlier packets
// of the key. It finds nothing if the first packet is later.
func (p *passages) pop(key uint64, from, to int64) (value uint64, found bool) {
	for _, generation := range []map[uint64]lane{p.old, p.young} {
		for {
			l, known := generation[key]
			if !known {
				break
			}
			if l.first.time > to {
				return 0, false
			}
			first := l.first
			l.take(generation, key, -1)
			if first.time >= from {
				return first.value, true
			}
		}
	}
	return 0, false
}

// remove removes the last packet of a key that has a given value.
func (p *passages) remove(key, value uint64) {
	for _, generation := range []map[uint64]lane{p.young, p.old} {
		l, known := generation[key]
		for i := len(l.more) - 1; known && i >= -1; i-- {
			if i >= 0 && l.more[i].value == value || i < 0 && l.first.value == value {
				l.take(generation, key, i)
				return
			}
		}
	}
}

// take removes from a lane of a generation a passage of more, or with -1 the first one.
func (l lane) take(generation map[uint64]lane, key uint64, i int) {
	switch {
	case i >= 0:
		l.more = append(l.more[:i], l.more[i+1:]...)
	case len(l.more) == 0:
		delete(generation, key)
		return
	default:
		l.first, l.more = l.more[0], l.more[1:]
	}
	generation[key] = l
}

// joiner gives packets that packet sockets capture at nodes' NICs the ids of the frames that soft
// switches record. A soft switch numbers each frame that it receives from a node and writes a
// record. It writes another record when it delivers a frame to a node. Between the socket and the
// switch, frames are neither reordered nor lost without a count. So the k-th of several identical
// packets on one side is the k-th on the other side.
//
// The records of soft switches come in their own order, but before or after the sockets' packets.
// The sockets' packets get their ids in the order of their time.
type joiner struct {
	run     uint64
	entered *passages // serials without a matching socket packet yet
	left    *passages
	// owed are the ids of packets that got an id before the soft switch's record came. named maps
	// the serials of those records to the ids.
	owed  *passages
	named *passages
	made  uint64 // number of ids that no serial gave
}

func newJoiner(run string) *joiner {
	return &joiner{run: layers.Identity([]byte(run), len(run)), entered: newPassages(joinWindow),
		left: newPassages(joinWindow), owed: newPassages(joinWindow), named: newPassages(namedWindow)}
}

// joinKey returns a key that is the same for a packet at a node's NIC and at its emulated NIC.
func joinKey(data []byte, length, tap int) uint64 {
	return layers.Mix(layers.Identity(data[:min(len(data), feed.PassSnap)], length), uint64(tap))
}

// id returns the id of a frame from its serial: the named id if there is one.
func (j *joiner) id(serial uint64) uint64 {
	if len(j.named.young)+len(j.named.old) > 0 {
		if l, known := j.named.young[serial]; known {
			return l.first.value
		}
		if l, known := j.named.old[serial]; known {
			return l.first.value
		}
	}
	return layers.Mix(j.run, serial)
}

// enter records that a node sent a frame to the switch at a time.
func (j *joiner) enter(key, serial uint64, at int64) {
	if id, owed := j.owed.pop(key, at-int64(joinWindow), at+int64(joinSlack)); owed {
		j.named.push(serial, id, at)
		return
	}
	j.entered.push(key, serial, at)
}

// sent returns the id of a packet that a node's NIC sent at a time, before the switch received it.
func (j *joiner) sent(key uint64, at int64) uint64 {
	if serial, found := j.entered.pop(key, at-int64(joinSlack), at+int64(joinWindow)); found {
		return j.id(serial)
	}
	id := j.unknown()
	j.owed.push(key, id, at)
	return id
}

// arrived returns the id of a packet that a node's NIC received at a time, after the switch had
// delivered it.
func (j *joiner) arrived(key uint64, at int64) uint64 {
	if serial, found := j.left.pop(key, at-int64(joinWindow), at+int64(joinSlack)); found {
		return j.id(serial)
	}
	return j.unknown()
}

// unknown returns a new id for a packet without a record of a soft switch.
func (j *joiner) unknown() uint64 {
	j.made++
	return layers.Mix(^j.run, j.made)
}
