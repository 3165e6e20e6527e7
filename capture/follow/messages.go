package follow

import (
	"cmp"
	"slices"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// streamKey names a sequence of numbered packets: of TCP a flow, of RoCEv2 the requests to a queue pair or
// the answers of READs.
type streamKey struct {
	flow    int
	addrs   evidence.Addresses
	qp      uint32
	answers bool
}

// stream cuts a sequence into messages.
type stream struct {
	began bool
	next  int64 // the position behind the last that was seen
	low   uint32
	bits  int // of a number
	open  bool
	// gaps maps the beginnings of gaps between two packets to their ends. READ requests have PSNs and no
	// part of a message.
	gaps map[int64]int64
	// messages are indices of Recording.Messages, and starts the positions at which they begin.
	messages []int32
	starts   []int64
}

// position returns where in the sequence a number is.
func (s *stream) position(number uint32) int64 {
	if !s.began {
		s.began, s.low = true, number
	}
	shift := 32 - s.bits
	return s.next + int64(int32((number-s.low-uint32(s.next))<<shift)>>shift)
}

// after returns the position of the next packet in the sequence, from a position on.
func (s *stream) after(at int64) int64 {
	if to, gap := s.gaps[at]; gap {
		return to
	}
	return at
}

// psnBits is the size of a PSN of RoCEv2.
const psnBits = 24

// newPacket looks into a packet where it was first seen.
func (f *Follower) newPacket(p *evidence.Packet, packet int32) {
	q := &f.r.Packets[packet]
	q.Flow = f.flow(p)
	if q.Flow < 0 || p.Direction == evidence.In && p.Tap.NIC {
		return // its sending was not seen, so that its message would seem to begin here
	}
	q.dscp, q.answers = p.DSCP, acknowledges(p)
	if q.answers && p.RoCE != nil {
		q.PSN, q.asks = uint32(p.RoCE.BTH.PSN), p.RoCE.AETH.Syndrome == infiniband.NakSequence
	}
	switch {
	case p.RD != nil && p.RD.Type == wire.RDData && p.RD.Clear():
		f.reliable(p, packet)
	case p.RoCE != nil && (p.RoCE.BTH.Opcode.HasPayload()):
		op := p.RoCE.BTH.Opcode
		key := streamKey{addrs: p.Addresses, qp: uint32(p.RoCE.BTH.DestQP), answers: op.Response()}
		q.PSN = uint32(p.RoCE.BTH.PSN)
		m, fresh := f.number(key, packet, psnBits, q.PSN, 1, op.Starts(), op.Ends())
		if m.QP = key.qp; fresh {
			m.Bytes += int64(p.RoCE.Payload)
		}
	case p.Proto == evidence.ProtoTCP && p.Payload > 0 && !p.Fragment:
		q.PSN = p.Seq
		m, fresh := f.number(streamKey{flow: q.Flow + 1}, packet, 32, p.Seq, int64(p.Payload), false, p.PSH)
		if fresh {
			m.Bytes += int64(p.Payload)
		}
	case p.Aggregation != nil && f.exchange(p, packet):
	case p.Proto == evidence.ProtoUDP && p.Payload > 0 && (p.RD == nil || p.RD.Type == wire.RDData) &&
		p.RoCE == nil &&
		!p.Fragment: // a datagram that shows no message is one
		message := f.newMessage(q.Flow, uint64(f.r.Flows[q.Flow].Packets))
		f.join(message, packet, span{0, int64(p.Payload)})
		f.r.Messages[message].Bytes, f.r.Messages[message].bytes.to = int64(p.Payload), int64(p.Payload)
	}
}

// acknowledges reports whether a packet carries an acknowledgement and no data. A CNP is none.
func acknowledges(p *evidence.Packet) bool {
	switch {
	case p.RD != nil:
		return p.RD.Type == wire.RDAck
	case p.RoCE != nil:
		return p.RoCE.BTH.Opcode.Has(infiniband.HasAETH) && !p.RoCE.BTH.Opcode.HasPayload()
	}
	return p.Proto == evidence.ProtoTCP && p.ACK && p.Payload == 0
}

// number adds a packet of a stream to its message. starts is set if a message starts with the packet, and
// ends if a message ends with it. number reports whether the packet is sent for the first time.
func (f *Follower) number(key streamKey, packet int32, bits int, number uint32, length int64, starts,
	ends bool) (m *Message, fresh bool) {
	s := f.streams[key]
	if s == nil {
		s = &stream{bits: bits, gaps: map[int64]int64{}}
		f.streams[key] = s
	}
	q := &f.r.Packets[packet]
	at := s.position(number)
	index := len(s.messages) - 1
	switch {
	case at < s.next && len(s.messages) > 0: // sent again
		if found, exact := slices.BinarySearch(s.starts, at); exact {
			index = found
		} else {
			index = max(found-1, 0)
		}
	case !s.open || starts:
		s.messages = append(s.messages, f.newMessage(q.Flow, uint64(len(s.messages)+1)))
		s.starts = append(s.starts, at)
		index++
		f.r.Messages[s.messages[index]].bytes.from = at
	}
	m = &f.r.Messages[s.messages[index]]
	if fresh = at+length > s.next; fresh {
		if at > s.next {
			s.gaps[s.next] = at
		}
		if s.next = at + length; ends {
			m.bytes.to = s.next
		}
		s.open = !ends
	}
	carried := span{at, at + length}
	f.join(s.messages[index], packet, carried)
	for index++; index < len(s.messages) && s.starts[index] < carried.to; index++ {
		later := &f.r.Messages[s.messages[index]]
		later.Packets = append(later.Packets, packet)
	}
	return m, fresh
}

func (f *Follower) newMessage(flow int, id uint64) int32 {
	f.r.Messages = append(f.r.Messages, Message{ID: id, Flow: flow, Critical: -1})
	return int32(len(f.r.Messages) - 1)
}

// join adds a packet to a message.
func (f *Follower) join(message, packet int32, carried span) {
	q, m := &f.r.Packets[packet], &f.r.Messages[message]
	q.Message, q.bytes = int(message), carried
	q.Position, q.Bytes = carried.from-m.bytes.from, carried.to-carried.from
	m.Packets = append(m.Packets, packet)
}

// space is a sequence space of reliable datagrams.
type space struct {
	messages map[uint32]int32 // by number
	// waiting maps PSNs without an acknowledgement to messages. least is the first PSN that may be there.
	waiting map[uint32]int32
	least   uint32
	began   bool
}

// reliable adds a packet of reliable datagrams to its message.
func (f *Follower) reliable(p *evidence.Packet, packet int32) {
	key, d := p.RDSpace(false), p.RD
	s := f.spaces[key]
	if s == nil {
		s = &space{messages: map[uint32]int32{}, waiting: map[uint32]int32{}}
		f.spaces[key] = s
	}
	message, known := s.messages[d.Data.Message]
	if !known {
		message = f.newMessage(f.r.Packets[packet].Flow, uint64(d.Data.Message))
		s.messages[d.Data.Message] = message
		m := &f.r.Messages[message]
		m.Bytes, m.bytes.to = int64(d.Data.Total), max(int64(d.Data.Total), 1)
	}
	f.r.Packets[packet].PSN = d.PSN
	at := int64(d.Data.Position)
	f.join(message, packet, span{at, at + max(int64(d.Length), 1)})
	f.r.Packets[packet].Bytes = int64(d.Length)
	if d.Flags&wire.RDRepeat == 0 {
		if !s.began {
			s.began, s.least = true, d.PSN
		}
		s.waiting[d.PSN] = message
		f.r.Messages[message].missing++
	}
}

// acknowledge takes an acknowledgement that came to the sender's NIC.
func (f *Follower) acknowledge(p *evidence.Packet) {
	s := f.spaces[p.RDSpace(true)]
	if s == nil || !s.began {
		return
	}
	took := func(psn uint32) {
		if message, waits := s.waiting[psn]; waits {
			delete(s.waiting, psn)
			m := &f.r.Messages[message]
			if m.missing--; m.missing == 0 {
				m.Acknowledged = p.Time
			}
		}
	}
	for ; int32(p.RD.PSN-s.least) > 0; s.least++ {
		took(s.least)
	}
	for n := range uint32(p.RD.Bytes.Ack().Words) * 64 {
		if word, bit := wire.RDAckBit(n + 1); p.RD.Bytes.AckWord(word)&bit != 0 {
			took(p.RD.PSN + n + 1)
		}
	}
}

// numberMessages numbers the messages in the order of their starts.
func (f *Follower) numberMessages() {
	r := f.r
	order := make([]int, len(r.Messages))
	for i := range order {
		order[i] = i
	}
	start := func(m int) int64 { return r.Sent(int(r.Messages[m].Packets[0])) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(start(a), start(b)) })
	sorted, places := make([]Message, len(order)), make([]int, len(order))
	for i, at := range order {
		sorted[i], places[at] = r.Messages[at], i
		sorted[i].Number = i + 1
	}
	r.Messages = sorted
	r.rounds = make([][]int, len(f.rounds)+1)
	for i := range r.Messages {
		if round := r.Messages[i].round; round > 0 {
			r.rounds[round] = append(r.rounds[round], i)
		}
	}
	for i := range r.Packets {
		if p := &r.Packets[i]; p.Message >= 0 {
			p.Message = places[p.Message]
		}
	}
	for i := range r.closed {
		r.closed[i].message = places[r.closed[i].message]
	}
}
