package capture

import (
	"time"

	"railbed/capture/layers"
	"railbed/internal/feed"
)

// joinWindow is how far apart the sightings of a packet by a node's NIC and by its
// emulated NIC may be. It bounds what is remembered, too.
const joinWindow = time.Second

// joinSlack is by how much the stamps of the two may be in the wrong order: the
// switch converts its stamps to its own clock and back, which it compares with the
// wall clock once a second.
const joinSlack = 200 * time.Microsecond

// namedWindow is how long a packet may be under way in a dilated fabric.
const namedWindow = time.Minute

// mostPassages bounds what is remembered where packets are not found again.
const mostPassages = 1 << 18

// passage is a packet that one side saw and the other side did not yet.
type passage struct {
	value uint64 // serial or id
	time  int64
}

// lane holds the passages of packets that are alike, in their order.
type lane struct {
	first passage
	more  []passage
}

// passages are packets that wait to be found again, by a key that is the same on both
// sides. Those that are alike leave in the order in which they came. What is older than
// one or two windows is forgotten.
type passages struct {
	young, old map[uint64]lane
	window     int64
	turned     int64 // when young became old, by the packets' time
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

// pop takes the first packet of a key between two times. Earlier packets of the key are
// forgotten. Pop finds nothing if the first packet is later.
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

// remove takes the last packet of a key that has a value.
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

// take removes a passage of more, or with -1 the first, from a lane of a generation.
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

// joiner gives the packets that packet sockets see at nodes' NICs the ids of the
// frames that soft switches see. A soft switch numbers each frame that it takes from
// a node. It writes a record then, and another one when it hands a frame to a node.
// Frames in between are neither reordered nor lost without a count: the k-th of several equal packets that
// one side saw is the k-th that the other saw.
//
// Records of soft switches come in their order, but before or after the sockets'
// packets, whose ids are computed in the order of their time.
type joiner struct {
	run     uint64
	entered *passages // serials that no socket's packet was found for yet
	left    *passages
	// owed are the ids of packets that got an id before the record of the soft switch
	// came. Named maps the serials in those records to the ids.
	owed  *passages
	named *passages
	made  uint64 // ids that no serial gave
}

func newJoiner(run string) *joiner {
	return &joiner{run: layers.Identity([]byte(run), len(run)), entered: newPassages(joinWindow),
		left: newPassages(joinWindow), owed: newPassages(joinWindow), named: newPassages(namedWindow)}
}

// joinKey is the same for a packet at a node's NIC and at its emulated NIC.
func joinKey(data []byte, length, tap int) uint64 {
	return layers.Mix(layers.Identity(data[:min(len(data), feed.PassSnap)], length), uint64(tap))
}

// id is the id of a frame with a serial, which may be named.
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

// enter takes note of a frame that a node handed over at a time.
func (j *joiner) enter(key, serial uint64, at int64) {
	if id, owed := j.owed.pop(key, at-int64(joinWindow), at+int64(joinSlack)); owed {
		j.named.push(serial, id, at)
		return
	}
	j.entered.push(key, serial, at)
}

// sent is the id of a packet that a node's NIC sent at a time, before the switch took it.
func (j *joiner) sent(key uint64, at int64) uint64 {
	if serial, found := j.entered.pop(key, at-int64(joinSlack), at+int64(joinWindow)); found {
		return j.id(serial)
	}
	id := j.unknown()
	j.owed.push(key, id, at)
	return id
}

// arrived is the id of a packet that a node's NIC received at a time, after the switch
// had handed it over.
func (j *joiner) arrived(key uint64, at int64) uint64 {
	if serial, found := j.left.pop(key, at-int64(joinWindow), at+int64(joinSlack)); found {
		return j.id(serial)
	}
	return j.unknown()
}

// unknown is the id of a packet without a record of a soft switch.
func (j *joiner) unknown() uint64 {
	j.made++
	return layers.Mix(^j.run, j.made)
}
