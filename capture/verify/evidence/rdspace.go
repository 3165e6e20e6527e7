package evidence

// RDSpace names a sequence space: the packets from one engine of a life to an engine of another
// life. Data and acknowledgements of the data have the same RDSpace.
type RDSpace struct {
	addresses           Addresses
	from, to            uint32 // low halves of the lives
	source, destination uint8
}

// RDSpace returns the sequence space of a packet. said is true for acknowledgements and other answers
// of the receiver.
func (p *Packet) RDSpace(said bool) RDSpace {
	d := p.RD
	if said {
		return RDSpace{p.Addresses.Reversed(), d.Tag, uint32(d.Life), d.Destination, d.Source}
	}
	return RDSpace{p.Addresses, uint32(d.Life), d.Tag, d.Source, d.Destination}
}
