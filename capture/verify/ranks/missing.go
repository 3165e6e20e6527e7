package ranks

import (
	"slices"

	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
)

// placedBytes counts the payload from one engine to another.
type placedBytes struct {
	left     uint64 // bytes that left the sender, each once
	received uint64 // of these, by the receiver's latest acknowledgement
	rank     int    // index of the receiver; -1 before its first acknowledgement
}

// pair returns the counts of a sequence space.
func (b *bytesPerRank) pair(key evidence.RDSpace) *placedBytes {
	s := b.placed[key]
	if s == nil {
		s = &placedBytes{rank: -1}
		b.placed[key] = s
	}
	return s
}

// acknowledge takes the count of received bytes from a rank's acknowledgement.
func (b *bytesPerRank) acknowledge(p *evidence.Packet, rank int) {
	if len(b.placed) >= maxRDSequences {
		b.full = true
		return
	}
	s := b.pair(p.RDSpace(true))
	s.rank = rank
	if more := int32(p.RD.Bytes.Ack().Received - uint32(s.received)); more > 0 { // counts modulo 2^32
		s.received += uint64(more)
	}
}

// unreadable reports whether a rank sent packets that could not be read.
func (b *bytesPerRank) unreadable() bool {
	return slices.ContainsFunc(b.unread, func(n uint64) bool { return n > 0 })
}

// judgeMissing compares the bytes that a rank states as never received with the packets.
func (b *bytesPerRank) judgeMissing(f *evidence.Finding, i int) {
	rank := &b.roles.Workload.Ranks[i]
	if rank.Missing == nil {
		return
	}
	var left, received uint64
	for _, s := range b.placed {
		if s.rank == i {
			left, received = left+s.left, received+s.received
		}
	}
	if left == received+*rank.Missing {
		return
	}
	line := plural.Text("%s: %d bytes left for it and it acknowledged %d, so %d never came; it reported %d",
		b.roles.Name(i), left, received, int64(left)-int64(received), *rank.Missing)
	if b.full || b.unreadable() || left == 0 {
		f.Unclear = append(f.Unclear, line)
	} else {
		f.Absent = append(f.Absent, line)
	}
}
