package engine

// Counters counts an engine's events.
type Counters struct {
	Sent, SentBytes     uint64 // data packets for the first time, and their payload
	Repeated            uint64 // data packets sent again
	Repeats             Repeats
	Skipped             uint64 // PSNs given up by a skip
	Probes, Acks, Nacks uint64 // sent
	Received            uint64 // data packets placed
	ReceivedBytes       uint64
	Duplicates          uint64 // data packets that had arrived before
	Trimmed             uint64 // data packets of which only the header arrived
	Corrupt             uint64 // packets with a wrong check or sum
	Refused             uint64 // packets that point outside their region, or to none.
	Hostile             uint64 // packets that contradict earlier packets
	Foreign             uint64 // packets of unknown peers, lives or versions
	Marked              uint64 // data packets with congestion experienced
	Pace                Pace   // of paced data packets.
	Unprotected         uint64 // packets wrongly in the clear, or encrypted
	Forged              uint64 // encrypted packets with a wrong tag.
	Replayed            uint64 // encrypted packets that arrived before, or are too old
	Stale               uint64 // encrypted packets of an epoch not accepted
	Hints               uint64 // trimmed headers of encrypted packets that were reported
}

// Repeats counts the data packets that were sent again, by the event that caused it. Their sum without
// Needless is Counters.Repeated.
type Repeats struct {
	Bytes   uint64 `json:"bytes"`   // Of their payload.
	Trimmed uint64 `json:"trimmed"` // The peer received only the header.
	Late    uint64 `json:"late"`    // Packets sent later have arrived.
	Probed  uint64 `json:"probed"`  // The answer to a probe of a silent peer did not contain them.
	Refused uint64 `json:"refused"` // The peer had no room, or had not added this endpoint yet.
	// Needless is the number of packets of which the peer had an earlier transmission, as the peer
	// reports. The network had delayed or reordered them. It includes duplicates of the network.
	Needless uint64 `json:"needless"`
}

// Add adds the counts of another engine.
func (r *Repeats) Add(o *Repeats) {
	r.Bytes += o.Bytes
	r.Trimmed += o.Trimmed
	r.Late += o.Late
	r.Probed += o.Probed
	r.Refused += o.Refused
	r.Needless += o.Needless
}

// reason is the event for which a packet is sent again.
type reason uint8

const (
	byArrivals reason = iota
	byTrimming
	byProbe
	byRefusal
)

// count counts a packet with so many bytes of payload.
func (r *Repeats) count(why reason, bytes uint16) {
	r.Bytes += uint64(bytes)
	switch why {
	case byArrivals:
		r.Late++
	case byTrimming:
		r.Trimmed++
	case byProbe:
		r.Probed++
	case byRefusal:
		r.Refused++
	}
}

// Add adds the counts of another engine.
func (c *Counters) Add(o *Counters) {
	c.Sent += o.Sent
	c.SentBytes += o.SentBytes
	c.Repeated += o.Repeated
	c.Repeats.Add(&o.Repeats)
	c.Skipped += o.Skipped
	c.Probes += o.Probes
	c.Acks += o.Acks
	c.Nacks += o.Nacks
	c.Received += o.Received
	c.ReceivedBytes += o.ReceivedBytes
	c.Duplicates += o.Duplicates
	c.Trimmed += o.Trimmed
	c.Corrupt += o.Corrupt
	c.Refused += o.Refused
	c.Hostile += o.Hostile
	c.Foreign += o.Foreign
	c.Marked += o.Marked
	c.Pace.Add(&o.Pace)
	c.Unprotected += o.Unprotected
	c.Forged += o.Forged
	c.Replayed += o.Replayed
	c.Stale += o.Stale
	c.Hints += o.Hints
}
