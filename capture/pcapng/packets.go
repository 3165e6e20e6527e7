package pcapng

import "io"

// Fixed parts of the packet blocks, in bytes.
const (
	enhancedLen  = 20
	oldPacketLen = 20
	simpleLen    = 4

	oldPacketFlags = 2
	// oldDropUnknown in a packet block's 16-bit drop count means that the count is not known.
	oldDropUnknown = 0xFFFF
)

// set fills the reader's packet with the fields that all packet blocks share, and returns the bytes
// after the packet's data. The caller sets Time, for which it applies the interface's scale.
func (r *Reader) set(number int, captured, length uint32, rest []byte) ([]byte, error) {
	if uint64(captured) > uint64(len(rest)) {
		return nil, r.bad("packet of %d captured bytes in a block with room for %d", captured, len(rest))
	}
	comments := r.packet.Comments[:0]
	r.packet = Packet{Interface: number, Data: rest[:captured:captured], Length: int(max(length, captured)),
		Comments: comments}
	padded := (int(captured) + 3) &^ 3
	return rest[min(padded, len(rest)):], nil
}

func (r *Reader) enhanced(body []byte) error {
	if len(body) < enhancedLen {
		return r.bad("packet block of %d bytes, want at least %d", len(body), enhancedLen)
	}
	number, err := r.index(r.u32(body))
	if err != nil {
		return err
	}
	options, err := r.set(number, r.u32(body[12:]), r.u32(body[16:]), body[enhancedLen:])
	if err != nil {
		return err
	}
	r.packet.Has = HasTime
	if r.packet.Time, err = r.stamp(r.u32(body[4:]), r.u32(body[8:]), r.scales[number]); err != nil {
		return err
	}
	if r.timesOnly {
		return nil
	}
	return r.packetOptions(options)
}

// packetOptions does the work of options without a callback, because it runs once per packet.
func (r *Reader) packetOptions(data []byte) error {
	p := &r.packet
	for len(data) >= 4 {
		code, length := r.u16(data), int(r.u16(data[2:]))
		if code == optEnd {
			return nil
		}
		padded := (length + 3) &^ 3
		if padded > len(data)-4 {
			return r.bad("option %d of %d bytes passes the end of its packet block", code, length)
		}
		value := data[4 : 4+length]
		data = data[4+padded:]
		switch {
		case code == optComment:
			if len(p.Comments) == maxPacketNotes {
				return r.bad("packet with more than %d comments", maxPacketNotes)
			}
			p.Comments = append(p.Comments, value)
		case code == epbFlags && length == 4:
			p.Flags, p.Has = Flags(r.u32(value)), p.Has|HasFlags
		case code == epbPacketID && length == 8:
			p.ID, p.Has = r.u64(value), p.Has|HasID
		case code == epbDropCount && length == 8:
			p.DropCount, p.Has = r.u64(value), p.Has|HasDropCount
		case code == epbQueue && length == 4:
			p.Queue, p.Has = r.u32(value), p.Has|HasQueue
		}
	}
	return nil
}

// simple reads a simple packet block, which has no time and always belongs to interface 0.
func (r *Reader) simple(body []byte) error {
	if len(body) < simpleLen {
		return r.bad("simple packet block of %d bytes, want at least %d", len(body), simpleLen)
	}
	number, err := r.index(0)
	if err != nil {
		return err
	}
	length := r.u32(body)
	captured := length
	if snap := r.interfaces[number].SnapLen; snap != 0 {
		captured = min(captured, snap)
	}
	_, err = r.set(number, captured, length, body[simpleLen:])
	return err
}

// oldPacket reads the obsolete packet block (type 2), which older tools wrote.
func (r *Reader) oldPacket(body []byte) error {
	if len(body) < oldPacketLen {
		return r.bad("old packet block of %d bytes, want at least %d", len(body), oldPacketLen)
	}
	number, err := r.index(uint32(r.u16(body)))
	if err != nil {
		return err
	}
	options, err := r.set(number, r.u32(body[12:]), r.u32(body[16:]), body[oldPacketLen:])
	if err != nil {
		return err
	}
	p := &r.packet
	p.Has = HasTime
	if drops := r.u16(body[2:]); drops != oldDropUnknown {
		p.DropCount, p.Has = uint64(drops), p.Has|HasDropCount
	}
	if p.Time, err = r.stamp(r.u32(body[4:]), r.u32(body[8:]), r.scales[number]); err != nil {
		return err
	}
	return r.options(options, func(code uint16, value []byte) error {
		switch {
		case code == optComment && len(p.Comments) < maxPacketNotes:
			p.Comments = append(p.Comments, value)
		case code == oldPacketFlags && len(value) == 4:
			p.Flags, p.Has = Flags(r.u32(value)), p.Has|HasFlags
		}
		return nil
	})
}

// pcap: a 24-byte header, then records (draft-ietf-opsawg-pcap).
const (
	pcapHeaderLen  = 24
	pcapRecordLen  = 16
	pcapMicros     = 0xA1B2C3D4
	pcapNanos      = 0xA1B23C4D
	linkTypeMask   = 0xFFFF // above it: FCS length and reserved bits
	nanosPerSecond = 1e9
)

func (r *Reader) readPcapHeader() error {
	head, err := r.need(4)
	if err != nil {
		return err
	}
	if r.classic = r.pcapUnit(head); r.classic == 0 {
		r.bigEndian = true
		r.classic = r.pcapUnit(head)
	}
	if r.classic == 0 {
		return r.bad("begins with %x, which is neither pcapng nor pcap", head[:4])
	}
	if head, err = r.need(pcapHeaderLen); err != nil {
		return err
	}
	if major := r.u16(head[4:]); major != 2 {
		return r.bad("pcap version %d.%d, want 2", major, r.u16(head[6:]))
	}
	linkType := r.u32(head[20:])
	i := Interface{SnapLen: r.u32(head[16:]), LinkType: uint16(linkType & linkTypeMask)}
	r.consume(pcapHeaderLen)
	return r.addInterface(i, scale{perSecond: 1e9})
}

// pcapUnit returns the nanoseconds per unit that the magic number stands for in the reader's byte
// order, or 0.
func (r *Reader) pcapUnit(head []byte) int64 {
	switch r.u32(head) {
	case pcapMicros:
		return 1000
	case pcapNanos:
		return 1
	}
	return 0
}

// nextRecord reads one pcap record.
func (r *Reader) nextRecord() (bool, error) {
	if _, err := r.peek(1); err == io.EOF {
		return false, io.EOF
	}
	head, err := r.need(pcapRecordLen)
	if err != nil {
		return false, err
	}
	seconds, fraction := r.u32(head), int64(r.u32(head[4:]))*r.classic
	captured, length := r.u32(head[8:]), r.u32(head[12:])
	if captured > maxBlock {
		return false, r.bad("record of %d bytes, want at most %d", captured, maxBlock)
	}
	if fraction >= nanosPerSecond {
		return false, r.bad("record with a fraction of %d ns, want less than a second", fraction)
	}
	record, err := r.need(pcapRecordLen + int(captured))
	if err != nil {
		return false, err
	}
	if _, err := r.set(0, captured, length, record[pcapRecordLen:]); err != nil {
		return false, err
	}
	r.packet.Has = HasTime
	r.packet.Time = int64(seconds)*1e9 + fraction
	r.consume(pcapRecordLen + int(captured))
	return true, nil
}
