// Package arena runs engines of reliable datagrams around one switch in virtual time: the engines
// are real, the links and queues are a model. It serves to compare modes of control and to train
// policies, at a cost of microseconds a packet.
//
// Each host has one link to the switch. Its NIC's pacer runs at the link's rate. The switch's port
// to each host has one bounded queue for data, with marks and trimming. Packets without payload,
// and trimmed ones, bypass queues. The seed determines every run.
package arena

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/rd/engine"
	"railbed/transports/rd/path"
	"railbed/transports/rd/rate"
)

// Options describe an arena. Hosts and Rate are required.
type Options struct {
	Seed  uint64
	Hosts int
	// Rate is the rate of each link, in bit/s.
	Rate uint64
	// Delay is the delay of each link. A packet passes two. Default 2 us.
	Delay time.Duration
	// Jitter is the longest delay of a host's reception of a packet.
	Jitter time.Duration
	// Payload is the payload of a full packet in bytes. Default 4,096.
	Payload int
	// Buffer is the size of a port's queue in bytes. Default 256 KiB.
	Buffer int
	// MarkFrom and MarkAll are depths of a queue, in bytes, between which the share of marked
	// packets grows from none to all. Default: no marks.
	MarkFrom, MarkAll int
	// Trim cuts off the payload of a packet that finds the buffer full. Otherwise the packet is
	// dropped.
	Trim bool
	// Uplink makes all packets pass one more queue before the queues of the hosts: the only link of a
	// leaf to a spine, at the same rate.
	Uplink bool
	// Control makes the controller for packets from one host to another. Default: line rate.
	Control func(from, to int) rate.Controller
}

const (
	defaultDelay   = 2 * time.Microsecond
	defaultPayload = 4096
)

// BDP is the number of bytes that pass a link in a round trip.
func (o *Options) BDP() int { return int(float64(o.Rate) / 8 * o.RoundTrip().Seconds()) }

// World is a running arena. It is not safe for concurrent use.
type World struct {
	Options
	Hosts  []*host
	Spine  port // the queue of Uplink
	now    clock.Time
	random *rand.Rand
	events clock.Queue[func()]
	// Sent, if set, is called for each packet with payload as it leaves its host.
	Sent func(now clock.Time, from, to int, bytes int)
}

// port counts the data at the switch's port to a host.
type port struct {
	Bytes        uint64 // of payload that passed
	Packets      uint64 // that passed
	Marked, Full uint64 // packets that passed with a mark; packets that found no room
	Deepest      int    // bytes
	DepthSum     uint64 // sum of the depths that arriving packets found
	free         clock.Time
}

// Mean is the mean depth that packets found, in bytes.
func (p *port) Mean() int { return int(p.DepthSum / max(p.Packets+p.Full, 1)) }

// host is an endpoint of one engine.
type host struct {
	Port   port // of the switch, towards it
	Engine *engine.Engine
	world  *World
	number int
	life   uint64
	alarm  clock.Time
	region engine.Region
	packet engine.Packet
	peers  []int // hosts, by the engine's number
	to     map[int]transports.Peer
	local  []byte
	done   map[uint64]func()
	next   uint64
}

// new makes an arena in which each host has added every other.
func new(o Options) *World {
	for _, d := range []struct {
		field *int
		value int
	}{{&o.Payload, defaultPayload}, {&o.Buffer, 256 << 10}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if o.Delay == 0 {
		o.Delay = defaultDelay
	}
	w := &World{Options: o, now: 1, random: rand.New(rand.NewPCG(o.Seed, 0xA2E7A))}
	for n := range o.Hosts {
		h := &host{world: w, number: n, life: w.random.Uint64() | 1, to: make(map[int]transports.Peer),
			done: make(map[uint64]func())}
		h.region.Memory, h.region.Writable = make([]byte, 1<<20), true
		h.local = make([]byte, 1<<20)
		c := engine.Config{
			Life:        h.life,
			Payload:     o.Payload,
			FirstPath:   wire.PortRDPath,
			Room:        1 << 12,
			Pacer:       engine.NewPacer(o.Rate),
			PeerTimeout: time.Minute,
			Paths: func() path.Chooser {
				chooser, err := path.New(path.KindOblivious, 4, path.Options{Seed: w.random.Uint64()})
				if err != nil {
					panic(err)
				}
				return chooser
			},
		}
		if o.Control != nil {
			c.Control = func(to transports.Peer) rate.Controller { return o.Control(n, h.peers[to]) }
		}
		h.Engine = engine.New(c, h)
		w.Hosts = append(w.Hosts, h)
	}
	for _, h := range w.Hosts {
		for _, other := range w.Hosts {
			if other != h {
				h.to[other.number] = h.Engine.AddPeer(
					engine.Peer{Life: other.life, Engines: 1, Room: 1 << 10})
				h.peers = append(h.peers, other.number)
			}
		}
	}
	return w
}

// Forget resets the counts of ports.
func (w *World) Forget() {
	for _, h := range w.Hosts {
		h.Port = port{free: h.Port.free}
	}
}

// RoundTrip is the round trip of a full packet and its acknowledgement through empty queues.
func (o *Options) RoundTrip() time.Duration {
	bytes := 2*(cmp.Or(o.Payload, defaultPayload)+wire.RDDataLen+frame) + 2*(wire.RDAckLen+frame)
	return 4*cmp.Or(o.Delay, defaultDelay) + time.Duration(uint64(bytes)*8*uint64(time.Second)/o.Rate)
}

// Now is the virtual time.
func (w *World) Now() clock.Time { return w.now }

// Run advances the virtual time by d and executes all events until then.
func (w *World) Run(d time.Duration) {
	until := w.now.Add(d)
	for w.events.Len() > 0 && w.events.Next() <= until {
		at, do := w.events.Pop()
		w.now = max(w.now, at)
		do()
	}
	w.now = until
}

// At runs a function at a time.
func (w *World) At(t clock.Time, do func()) { w.events.Push(max(t, w.now), do) }

// Post sends a message of at most 1 MiB to another host, and calls done when it has arrived. It
// returns false when too many messages are outstanding.
func (h *host) Post(to, bytes int, done func()) bool {
	h.next++
	m := engine.Message{ID: h.next, Op: transports.OpWriteImm, Local: h.local[:bytes]}
	taken, err := h.Engine.Post(h.world.now, h.to[to], &m)
	if !taken || err != nil {
		return false
	}
	if done != nil {
		h.done[h.next] = done
	}
	h.world.At(h.world.now, h.drive)
	return true
}

// Stream keeps atOnce messages of so many bytes outstanding until all were sent. It calls done when
// all have arrived.
func (h *host) Stream(to, bytes, messages, atOnce int, done func()) {
	left := messages
	var next func()
	next = func() {
		if messages > 0 {
			messages--
			h.Post(to, bytes, func() {
				if left--; left == 0 && done != nil {
					done()
				}
				next()
			})
		}
	}
	for range atOnce {
		next()
	}
}

// Wake makes a host check again what it may send, after its controllers changed.
func (h *host) Wake() { h.world.At(h.world.now, h.drive) }

// Region implements engine.Host. All peers write to the same memory.
func (h *host) Region(uint64) *engine.Region { return &h.region }

// Reserve implements engine.Host.
func (h *host) Reserve() bool { return true }

// Deliver implements engine.Host.
func (h *host) Deliver(transports.Completion) {}

// Complete implements engine.Host.
func (h *host) Complete(c transports.Completion) {
	if done := h.done[c.ID]; done != nil {
		delete(h.done, c.ID)
		h.world.At(h.world.now, done)
	}
}

// Failed implements engine.Host.
func (h *host) Failed(transports.Peer, error) {}

func (h *host) drive() {
	for h.Engine.Next(h.world.now, &h.packet) {
		h.world.carry(h, &h.packet)
	}
	at := h.Engine.Deadline()
	if at == clock.Never {
		return
	}
	at = max(at, h.world.now+1)
	if h.alarm > h.world.now && h.alarm <= at {
		return
	}
	h.alarm = at
	h.world.At(at, func() {
		if h.alarm == at {
			h.alarm = 0
			h.drive()
		}
	})
}

// frame is the length of the headers around a packet on a link, in bytes.
const frame = wire.EthernetLen + wire.IPv4MinLen + wire.UDPLen

// carry carries a packet from a host to the switch.
func (w *World) carry(from *host, p *engine.Packet) {
	if p.Peer < 0 {
		return // a reject; does not occur, as each host has added every other
	}
	to := w.Hosts[from.peers[p.Peer]]
	data := append(append(make([]byte, 0, len(p.Header)+len(p.Payload)), p.Header...), p.Payload...)
	a := engine.Arrival{Data: data, Path: wire.PortRDPath + uint16(max(p.Path, 0)),
		From: netip.IPv4Unspecified()}
	payload := len(p.Payload)
	if payload > 0 && w.Sent != nil {
		w.Sent(w.now, from.number, to.number, len(data)+frame)
	}
	leaves := w.now.Add(w.serialise(len(data)+frame) + w.Delay)
	toHost := func(a engine.Arrival, payload int) {
		w.queue(&to.Port, a, payload, func(a engine.Arrival, _ int, after time.Duration) {
			w.deliver(to, a, after)
		})
	}
	w.At(leaves, func() {
		if !w.Uplink {
			toHost(a, payload)
			return
		}
		w.queue(&w.Spine, a, payload, func(a engine.Arrival, payload int, after time.Duration) {
			w.At(w.now.Add(after), func() { toHost(a, payload) })
		})
	})
}

func (w *World) serialise(bytes int) time.Duration {
	return time.Duration(uint64(bytes) * 8 * uint64(time.Second) / w.Rate)
}

// queue models a switch's port. next is called with the packet, the payload that is left of it, and the
// time until it arrives, unless the packet is dropped.
func (w *World) queue(port *port, a engine.Arrival, payload int,
	next func(a engine.Arrival, payload int, after time.Duration)) {
	size := len(a.Data) + frame
	if payload == 0 {
		next(a, 0, w.serialise(size)+w.Delay)
		return
	}
	depth := int(uint64(max(port.free.Sub(w.now), 0)) * w.Rate / 8 / uint64(time.Second))
	port.Deepest = max(port.Deepest, depth)
	port.DepthSum += uint64(depth)
	if depth+size > w.Buffer {
		port.Full++
		if w.Trim {
			a.Data = a.Data[:wire.RDDataLen]
			next(a, 0, w.serialise(len(a.Data)+frame)+w.Delay)
		}
		return
	}
	if w.MarkAll > 0 && depth > w.MarkFrom {
		a.Marked = depth >= w.MarkAll || w.random.IntN(w.MarkAll-w.MarkFrom) < depth-w.MarkFrom
	}
	port.Packets++
	port.Bytes += uint64(payload)
	if a.Marked {
		port.Marked++
	}
	port.free = max(port.free, w.now).Add(w.serialise(size))
	next(a, payload, port.free.Sub(w.now)+w.Delay)
}

func (w *World) deliver(to *host, a engine.Arrival, after time.Duration) {
	if w.Jitter > 0 {
		after += time.Duration(w.random.Int64N(int64(w.Jitter)))
	}
	w.At(w.now.Add(after), func() {
		to.Engine.Receive(w.now, a)
		to.drive()
	})
}
