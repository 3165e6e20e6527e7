package verify

// rdPair names a sequence space: the packets from one engine of a life to an engine of another
// life. Data and acknowledgements of the data have the same rdPair.
type rdPair struct {
	addresses           Addresses
	from, to            uint32 // low halves of the lives
	source, destination uint8
}

// pair returns the sequence space of a packet. said is true for acknowledgements and other answers
// of the receiver.
func (p *Packet) pair(said bool) rdPair {
	d := p.RD
	if said {
		return rdPair{p.Addresses.Reversed(), d.Tag, uint32(d.Life), d.Destination, d.Source}
	}
	return rdPair{p.Addresses, uint32(d.Life), d.Tag, d.Source, d.Destination}
}
