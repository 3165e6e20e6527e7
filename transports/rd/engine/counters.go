package engine

// Counters counts an engine's events.
type Counters struct {
	Sent, SentBytes     uint64 // data packets for the first time, and their payload
	Repeated            uint64 // data packets sent again
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

// Add adds the counts of another engine.
func (c *Counters) Add(o *Counters) {
	c.Sent += o.Sent
	c.SentBytes += o.SentBytes
	c.Repeated += o.Repeated
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
