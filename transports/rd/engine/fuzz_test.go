package engine

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/rd/privacy"
)

// attack is a world in which somebody knows the lives of a and b and forges
// packets between them, as the bytes of a fuzzer say. c is another peer of both.
type attack struct {
	*world
	script  []byte
	a, b, c *testNode
	peers   map[*testNode]map[*testNode]transports.Peer
	// keys are of a's and b's regions.
	keys   map[*testNode][]uint64
	closed map[*Region][]byte // with their bytes at that moment
	past   []wire.RD          // what went between a and b, to be replayed
	posted map[*testNode]map[uint64]int
	sent   []sentMessage // the latest, which may be canceled
	number int
	honest int // messages between c and the others
}

// sentMessage is a message that its owner may cancel.
type sentMessage struct {
	from   *testNode
	to     transports.Peer
	number uint32
}

// byte is the next of the script, and 0 behind it.
func (x *attack) byte() byte {
	if len(x.script) == 0 {
		return 0
	}
	b := x.script[0]
	x.script = x.script[1:]
	return b
}

// value draws a number near a significant one, or any number.
func (x *attack) value(near uint32) uint32 {
	switch kind := x.byte(); kind >> 6 {
	case 0:
		return near + uint32(int32(int8(kind<<2))>>2)
	case 1:
		return near + uint32(int32(int8(x.byte()))*16)
	case 2:
		return near + 1<<(kind&31)
	default:
		return uint32(kind&63)<<26 | uint32(x.byte())<<16 | uint32(x.byte())<<8 | uint32(x.byte())
	}
}

func newAttack(t testing.TB, script []byte, secret *privacy.Secret) *attack {
	w := newWorld(t, 1)
	w.secret = secret
	x := &attack{world: w, script: script, peers: make(map[*testNode]map[*testNode]transports.Peer),
		keys:   make(map[*testNode][]uint64),
		closed: make(map[*Region][]byte), posted: make(map[*testNode]map[uint64]int)}
	for i, at := range []**testNode{&x.a, &x.b, &x.c} {
		*at = w.node(func(c *Config) {
			c.PeerTimeout = time.Second
			if i == 0 {
				c.Life |= 0xFFFFFF00_FFFFFFC0
			}
		})
	}
	for _, n := range w.nodes {
		x.peers[n], x.posted[n] = make(map[*testNode]transports.Peer), make(map[uint64]int)
		for _, m := range w.nodes {
			x.peers[n][m] = n.add(m)
		}
		n.onDone = func(c transports.Completion) { x.posted[n][c.ID]-- }
	}
	for _, n := range []*testNode{x.a, x.b} {
		for i := range 4 {
			r, key := n.region(3000)
			x.keys[n] = append(x.keys[n], key)
			r.Writable = i != 2
			if i == 3 {
				x.close(r)
			}
		}
	}
	w.saw = func(from, to *testNode, b wire.RD) {
		if from != x.c && to != x.c && len(x.past) < 100 {
			x.past = append(x.past, bytes.Clone(b))
		}
	}
	return x
}

func (x *attack) close(r *Region) {
	if x.closed[r] == nil {
		r.Closed.Store(true)
		x.closed[r] = bytes.Clone(r.Memory)
	}
}

// post posts a message whose end is waited for.
func (x *attack) post(from, to *testNode, m Message) bool {
	x.number++
	m.ID = uint64(x.number)
	taken, err := from.Post(from.clock(), x.peers[from][to], &m)
	if taken && err == nil {
		x.posted[from][m.ID]++
		x.sent = append(x.sent, sentMessage{from, x.peers[from][to], m.Number})
	}
	from.drive()
	return taken && err == nil
}

// cancel cancels one of the latest 16 messages, whatever became of it.
func (x *attack) cancel() {
	if len(x.sent) > 0 {
		m := x.sent[len(x.sent)-1-int(x.byte())%min(16, len(x.sent))]
		m.from.cancel(m.to, m.number)
	}
}

// talk posts a message between c and one of the others, which has to come unless
// it is canceled, and not after that.
func (x *attack) talk(from, to *testNode, size int) {
	x.number++
	number := x.number
	local := fill(make([]byte, size), number)
	region, key := to.region(size)
	before, done := to.onReceive, from.onDone
	came, canceled := false, false
	to.onReceive = func(c transports.Completion) {
		if c.Imm == uint32(number)|1<<31 && c.Peer == x.peers[to][from] {
			if came || canceled || !bytes.Equal(region.Memory, local) || c.Bytes != size {
				x.Fatalf("message %d between others came with wrong bytes, twice or after its end", number)
			}
			x.honest--
			came = true
		} else if before != nil {
			before(c)
		}
	}
	from.onDone = func(c transports.Completion) {
		if c.ID == uint64(number+1) && errors.Is(c.Err, errTestCanceled) {
			canceled = true
			x.closed[region] = bytes.Clone(region.Memory) // nothing is written from now on
			if !came {
				x.honest--
			}
		}
		done(c)
	}
	if x.post(from, to, Message{Op: transports.OpWriteImm, Local: local, Key: key,
		Imm: uint32(number) | 1<<31}) {
		x.honest++ // it takes some time to come
	}
}

// forge hands a node a packet that the other one did not send.
func (x *attack) forge() {
	to, from := x.a, x.b
	kind := x.byte()
	if kind&0x80 != 0 {
		to, from = x.b, x.a
	}
	in, out := to.peers[x.peers[to][from]].in[0], to.peers[x.peers[to][from]].out
	next, message := firstPSN(from.life), firstMessage(from.life)
	if in != nil {
		next, message = in.next, in.message
	}
	una, flags := PSN(to.life>>32), x.byte()
	base := wire.RDBase{Flags: flags &^ wire.RDEncrypted, Source: from.config.Port,
		Destination: to.config.Port, Tag: uint32(to.life), Life: from.life, PSN: x.value(uint32(next))}
	outMessage := firstMessage(to.life)
	if out != nil {
		una, outMessage = out.una, out.first
	}
	if flags&7 == 7 { // one thing in the base is wrong
		switch x.byte() % 5 {
		case 0:
			base.Source += x.byte()
		case 1:
			base.Destination++
		case 2:
			base.Tag++
		case 3:
			base.Life ^= 1 << (x.byte() & 63)
		case 4:
			base.Flags |= wire.RDEncrypted
		}
	}
	b := make(wire.RD, 2048)
	switch kind % 8 {
	case 1:
		b = b[:wire.RDSkipLen]
		b.EncodeSkip(base, &wire.RDSkipFields{Count: x.value(1), Message: x.value(message),
			Total: x.value(1000), Imm: x.value(0), Timestamp: x.value(uint32(x.now)), Bytes: x.value(512)})
	case 2:
		base.PSN = x.value(uint32(una))
		words, echoes := make([]uint64, x.byte()%(wire.RDMaxWords+1)),
			make([]wire.RDEcho, x.byte()%(wire.RDMaxEchoes+1))
		for i := range words {
			words[i] = uint64(x.value(0))<<32 | uint64(x.value(0))
		}
		for i := range echoes {
			echoes[i] = wire.RDEcho{Path: uint16(x.value(wire.PortRDPath)), Packets: x.byte(),
				Marked: x.byte()}
		}
		b = b[:wire.RDAckBytes(len(words), len(echoes))]
		b.EncodeAck(base, &wire.RDAckFields{Limit: x.value(base.PSN + Window),
			Timestamp: x.value(uint32(to.clock())), Delay: x.value(0),
			Duplicates: x.value(0), Received: x.value(0), Room: uint16(x.value(8))}, words, echoes)
	case 3:
		base.PSN = x.value(uint32(una))
		b = b[:wire.RDNackLen]
		b.EncodeNack(base, &wire.RDNackFields{Reason: wire.RDReason(x.byte() % 8),
			Path: uint16(x.value(wire.PortRDPath)), Message: x.value(outMessage), Detail: uint64(x.value(0))})
	case 4:
		b = b[:wire.RDProbeLen]
		b.EncodeProbe(base, x.value(uint32(x.now)))
	case 5:
		b = b[:wire.RDRejectLen]
		to64 := to.life
		if x.byte() > 200 {
			to64++
		}
		b.EncodeReject(base, &wire.RDRejectFields{Reason: wire.RDRejection(x.byte() % 6), Least: x.byte() & 3,
			Most: x.byte() & 3, Meant: x.value(uint32(from.life)), To: to64})
	case 6:
		base.PSN = x.value(uint32(una))
		b = b[:wire.RDBaseLen]
		b.EncodeClose(base)
	default:
		size := min(x.value(512), 1800)
		base.Length = uint16(size)
		key := x.keys[to][x.byte()%4]
		if x.byte() > 230 {
			key++
		}
		f := wire.RDDataFields{Key: key, Offset: uint64(x.value(0)), Message: x.value(message),
			Total: x.value(1024), Position: x.value(0), Imm: x.value(0), Timestamp: x.value(uint32(x.now))}
		payload := bytes.Repeat([]byte{0x66}, int(size))
		f.Sum = wire.RDSum(payload)
		if cut := x.byte(); cut > 200 {
			payload = payload[:len(payload)*int(cut-200)/64]
		}
		b.EncodeData(base, &f)
		b = append(b[:wire.RDDataLen], payload...)
	}
	x.inject(to, from, x.seal(to, b))
}

// seal makes a packet look encrypted, where packets are, as somebody would who has
// no key; some are trimmed, some are left as they are.
func (x *attack) seal(to *testNode, b wire.RD) wire.RD {
	how := x.byte()
	if !to.encrypts() || how&3 == 0 {
		return b
	}
	b = append(b, make([]byte, wire.RDSealedLen)...)
	b.EncodeSecurity(&wire.RDSecurity{Readable: x.byte(), Heard: x.byte(), Epoch: uint16(x.byte() & 3),
		Counter: uint64(x.value(0))})
	if how&3 == 1 {
		b = b[:min(len(b), wire.RDDataLen)]
	}
	return b
}

// inject hands a node a packet in the name of another.
func (x *attack) inject(to, from *testNode, b wire.RD) {
	to.Receive(to.clock(), Arrival{Data: bytes.Clone(b), Path: wire.PortRDPath + uint16(x.byte()%8),
		Marked: x.byte() > 200, From: from.addr})
	if err := to.consistent(); err != nil {
		x.Fatalf("after %x: %v: %v", []byte(b), to, err)
	}
	to.drive()
}

// play does what the script says.
func (x *attack) play() {
	for steps := 0; len(x.script) > 0 && steps < 300; steps++ {
		switch step := x.byte(); step % 16 {
		case 0, 1:
			x.runFor(time.Duration(x.byte()) * 4 * time.Microsecond)
		case 2:
			x.runFor(time.Duration(x.byte()) * 500 * time.Microsecond)
		case 3, 4:
			from, to := x.a, x.b
			if step >= 128 {
				from, to = to, from
			}
			m := Message{Op: transports.OpWrite, Local: make([]byte, int(x.byte())*12),
				Key: x.keys[to][x.byte()%4], Droppable: int(step&64) * 4}
			if step&32 != 0 {
				m.Op = transports.OpWriteImm
			}
			x.post(from, to, m)
		case 5:
			if len(x.past) > 0 {
				b := x.past[int(x.byte())%len(x.past)]
				for _, n := range []*testNode{x.a, x.b} {
					if b.Base().Tag == uint32(n.life) {
						x.inject(n, n, b)
					}
				}
			}
		case 6:
			x.a.full = !x.a.full
		case 7:
			for r, before := range x.closed {
				if !bytes.Equal(r.Memory, before) {
					x.Fatalf("a closed region was written to")
				}
			}
			x.close(x.a.regions[x.keys[x.a][x.byte()%4]])
		case 8:
			x.talk(x.c, x.a, int(x.byte())*10)
		case 9:
			x.talk(x.b, x.c, int(x.byte())*10)
		case 10:
			x.cancel()
		default:
			x.forge()
		}
	}
}

// FuzzEngine lets bytes forge packets between two communicating peers. Nothing is written outside
// regions, no state grows, each message ends once, and all messages with a third peer arrive.
func FuzzEngine(f *testing.F) {
	f.Add([]byte{3, 200, 0, 8, 100, 10, 0, 0, 0, 0, 0, 1, 50})
	f.Fuzz(func(t *testing.T, script []byte) {
		x := newAttack(t, script, nil)
		x.talk(x.c, x.a, 2000)
		x.talk(x.a, x.c, 2000)
		x.play()
		x.a.full = false
		x.settle(t, func(n *testNode) bool {
			return len(n.failed) > 0 && (n == x.c || n.failed[x.peers[n][x.c]] != nil)
		})
	})
}

// settle waits for the end of all packets in flight, and checks the invariants under attack. lost
// says that a node lost a peer that no attacker could make it lose.
func (x *attack) settle(t *testing.T, lost func(n *testNode) bool) {
	t.Helper()
	x.most = x.events.Count() + 1_000_000
	x.run(x.now.Add(20 * time.Second))
	x.checkGuards()
	for r, before := range x.closed {
		if !bytes.Equal(r.Memory, before) {
			t.Fatal("a closed region was written to")
		}
	}
	if x.honest != 0 {
		t.Fatalf("%d messages that nobody could stop did not come; %v", x.honest, x.failures())
	}
	for _, n := range x.nodes {
		if err := n.consistent(); err != nil {
			t.Fatalf("%v: %v", n, err)
		}
		if lost(n) {
			t.Fatalf("%v lost a peer that nobody could take from it: %v", n, n.failed)
		}
		for id, open := range x.posted[n] {
			if open != 0 {
				t.Fatalf("%v: message %d is still to complete %d times:%s", n, id, open, n.state())
			}
		}
		if text := n.state(); text != "" || n.Deadline() != clock.Never {
			t.Fatalf("%v is not quiet at %v:%s", n, n.Deadline(), text)
		}
	}
}
