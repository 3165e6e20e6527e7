package pcapng

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// readSize is how many bytes the reader requests from its source at once.
const readSize = 512 << 10

// maxIdleReads is the number of consecutive empty reads after which a source counts as broken, as
// in package bufio.
const maxIdleReads = 100

// Reader reads pcapng or pcap as a stream. Its memory is bounded whatever the input: one block, and
// tables of limited size. It is not safe for concurrent use.
//
// A recording in several files, each a section whose SectionNote has a Part, is one section to readers. The
// files follow each other in the source, or the source is Parted.
type Reader struct {
	src        io.Reader
	buf        []byte
	start, end int   // the unread part of buf
	offset     int64 // of buf[start] in the input
	srcErr     error
	idle       int // consecutive reads that returned no bytes

	bigEndian  bool
	next       func(*Reader) (bool, error) // reads a block; true when packet was set
	packet     Packet
	packets    int // returned so far
	section    Section
	interfaces []Interface
	scales     []scale // of the interfaces
	base       int     // index of the section's first interface
	statistics []Statistics
	// statisticsAt maps an interface to its place in statistics.
	statisticsAt map[int]int
	tableText    int
	classic      int64 // nanoseconds per unit of a pcap record's fraction
	timesOnly    bool
	parts        parts
	err          error // the final error, which every later Next returns
}

// scale converts an interface's timestamps to nanoseconds.
type scale struct {
	perSecond uint64
	offset    int64 // seconds to add
}

// NewReader reads the beginning of a capture: the section header, or the header of a pcap file. Either may be
// compressed by gzip.
func NewReader(src io.Reader) (*Reader, error) {
	r := &Reader{src: src, buf: make([]byte, readSize), statisticsAt: make(map[int]int)}
	r.parts.source, _ = src.(Parted)
	if err := r.decompress(); err != nil {
		return nil, err
	}
	head, err := r.peek(4)
	if err == io.EOF {
		return nil, fmt.Errorf("read capture: file is empty: %w", ErrTruncated)
	}
	if err != nil {
		return nil, fmt.Errorf("read capture: %w", err)
	}
	if binary.LittleEndian.Uint32(head) == blockSection {
		r.next = (*Reader).nextBlock
		if _, err := r.nextBlock(); err != nil {
			return nil, err
		}
		return r, nil
	}
	r.next = (*Reader).nextRecord
	if err := r.readPcapHeader(); err != nil {
		return nil, err
	}
	return r, nil
}

// TimesOnly makes Next skip the options of packets, for callers that need only times and bytes.
func (r *Reader) TimesOnly() { r.timesOnly = true }

// Section returns the text of the section header read last.
func (r *Reader) Section() Section { return r.section }

// Interfaces returns the interfaces described so far, over several sections in order. The reader
// owns the slice and appends to it as it reads packets.
func (r *Reader) Interfaces() []Interface { return r.interfaces }

// Statistics returns the counts read so far, the last of each interface.
func (r *Reader) Statistics() []Statistics { return r.statistics }

// Next returns the next packet, which is valid until the following Next. At a clean end it returns
// io.EOF. The error for an end within a block matches ErrTruncated, and the error for a violation
// of the format matches ErrFormat.
func (r *Reader) Next() (*Packet, error) {
	for r.err == nil {
		found, err := r.next(r)
		if err != nil {
			r.err = err
			break
		}
		if found {
			r.packets++
			r.packet.Number = r.packets
			return &r.packet, nil
		}
	}
	return nil, r.err
}

// peek returns the next n bytes without consuming them. It returns io.EOF if no byte is left, and
// ErrTruncated if fewer than n are left.
func (r *Reader) peek(n int) ([]byte, error) {
	for r.end-r.start < n {
		if r.srcErr != nil {
			switch {
			case r.srcErr != io.EOF && !errors.Is(r.srcErr, io.ErrUnexpectedEOF):
				return nil, r.srcErr
			case r.end == r.start && r.srcErr == io.EOF:
				return nil, io.EOF
			}
			return nil, ErrTruncated
		}
		r.fill(n)
	}
	return r.buf[r.start : r.start+n], nil
}

func (r *Reader) fill(n int) {
	if r.start > 0 && (r.start+n > len(r.buf) || r.start == r.end) {
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	}
	if n > len(r.buf) {
		// The buffer grows no faster than the input delivers bytes, so that a length field alone
		// causes no large allocation.
		grown := make([]byte, min(n, 2*len(r.buf)))
		r.end = copy(grown, r.buf[r.start:r.end])
		r.start, r.buf = 0, grown
		if r.end == len(r.buf) {
			return
		}
	}
	if r.end == len(r.buf) {
		return
	}
	count, err := r.src.Read(r.buf[r.end:])
	r.end += count
	if r.srcErr = err; count > 0 {
		r.idle = 0
	} else if r.idle++; r.idle > maxIdleReads && err == nil {
		r.srcErr = io.ErrNoProgress
	}
}

func (r *Reader) consume(n int) {
	r.start += n
	r.offset += int64(n)
}

func (r *Reader) bad(what string, values ...any) error {
	return fmt.Errorf("read capture at byte %d: %s: %w", r.offset, fmt.Sprintf(what, values...), ErrFormat)
}

// need is peek within a block that has begun, where an end of file is a truncation.
func (r *Reader) need(n int) ([]byte, error) {
	data, err := r.peek(n)
	if err == io.EOF {
		err = ErrTruncated
	}
	if err != nil {
		return nil, fmt.Errorf("read capture at byte %d: %w", r.offset, err)
	}
	return data, nil
}

func (r *Reader) u16(b []byte) uint16 {
	if r.bigEndian {
		return binary.BigEndian.Uint16(b)
	}
	return binary.LittleEndian.Uint16(b)
}

func (r *Reader) u32(b []byte) uint32 {
	if r.bigEndian {
		return binary.BigEndian.Uint32(b)
	}
	return binary.LittleEndian.Uint32(b)
}

func (r *Reader) u64(b []byte) uint64 {
	if r.bigEndian {
		return binary.BigEndian.Uint64(b)
	}
	return binary.LittleEndian.Uint64(b)
}

// nextBlock reads one pcapng block and reports whether it held a packet.
func (r *Reader) nextBlock() (bool, error) {
	if _, err := r.peek(1); err == io.EOF {
		return false, r.nextPart()
	}
	head, err := r.need(endianFixedLen)
	if err != nil {
		return false, err
	}
	blockType := r.u32(head)
	if blockType == blockSection { // its bytes read the same in both byte orders
		switch {
		case binary.BigEndian.Uint32(head[8:]) == byteOrderMagic:
			r.bigEndian = true
		case binary.LittleEndian.Uint32(head[8:]) == byteOrderMagic:
			r.bigEndian = false
		default:
			return false, r.bad("byte order %x, want 1a2b3c4d or 4d3c2b1a", head[8:12])
		}
	}
	length := r.u32(head[4:])
	if length < endianFixedLen || length%4 != 0 || length > maxBlock {
		return false, r.bad("block type %d of %d bytes, want a multiple of 4 up to %d", blockType, length,
			maxBlock)
	}
	block, err := r.need(int(length))
	if err != nil {
		return false, err
	}
	if trailer := r.u32(block[length-4:]); trailer != length {
		return false, r.bad("block type %d begins with length %d and ends with %d, want the same", blockType,
			length, trailer)
	}
	found, err := r.block(blockType, block[8:length-4])
	if err != nil {
		return false, err
	}
	r.consume(int(length))
	return found, nil
}

func (r *Reader) block(blockType uint32, body []byte) (bool, error) {
	switch blockType {
	case blockEnhanced:
		return true, r.enhanced(body)
	case blockSection:
		return false, r.sectionHeader(body)
	case blockInterface:
		return false, r.interfaceBlock(body)
	case blockStatistics:
		return false, r.statisticsBlock(body)
	case blockSimple:
		return true, r.simple(body)
	case blockOldPacket:
		return true, r.oldPacket(body)
	}
	return false, nil // an unknown block type, which the standard says to skip
}

// options calls fn for each option up to opt_endofopt. The end option may be missing: older
// versions of the standard allow it, and such files are common.
func (r *Reader) options(data []byte, fn func(code uint16, value []byte) error) error {
	for len(data) >= 4 {
		code, length := r.u16(data), int(r.u16(data[2:]))
		if code == optEnd {
			return nil
		}
		padded := (length + 3) &^ 3
		if padded > len(data)-4 {
			return r.bad("option %d of %d bytes passes the end of its block", code, length)
		}
		if err := fn(code, data[4:4+length]); err != nil {
			return err
		}
		data = data[4+padded:]
	}
	return nil
}

// text returns an option's text and counts it against maxTableText.
func (r *Reader) text(value []byte) (string, error) {
	r.tableText += len(value)
	if r.tableText > maxTableText {
		return "", r.bad("more than %d bytes of names and comments", maxTableText)
	}
	return string(value), nil
}

func (r *Reader) sectionHeader(body []byte) error {
	if len(body) < 16 {
		return r.bad("section header of %d bytes, want at least 16", len(body))
	}
	if major, minor := r.u16(body[4:]), r.u16(body[6:]); major != 1 || minor != 0 && minor != 2 {
		return r.bad("section version %d.%d", major, minor)
	}
	r.section = Section{}
	before := r.tableText
	err := r.options(body[16:], func(code uint16, value []byte) error {
		text, err := r.text(value)
		switch code {
		case optComment:
			r.section.Comments = append(r.section.Comments, text)
		case shbHardware:
			r.section.Hardware = text
		case shbOS:
			r.section.OS = text
		case shbApplication:
			r.section.Application = text
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.startPart(before)
}

func (r *Reader) addInterface(i Interface, s scale) error {
	if len(r.interfaces) >= maxInterfaces {
		return r.bad("more than %d interfaces", maxInterfaces)
	}
	r.interfaces = append(r.interfaces, i)
	r.scales = append(r.scales, s)
	return nil
}

func (r *Reader) interfaceBlock(body []byte) error {
	if len(body) < 8 {
		return r.bad("interface block of %d bytes, want at least 8", len(body))
	}
	i := Interface{LinkType: r.u16(body), SnapLen: r.u32(body[4:])}
	s := scale{perSecond: 1e6} // the default without if_tsresol
	before := r.tableText
	err := r.options(body[8:], func(code uint16, value []byte) error {
		return r.interfaceOption(&i, &s, code, value)
	})
	if err != nil {
		return err
	}
	known, err := r.known(i, s)
	if known || err != nil {
		r.tableText = before
		return err
	}
	return r.addInterface(i, s)
}

func (r *Reader) interfaceOption(i *Interface, s *scale, code uint16, value []byte) (err error) {
	switch code {
	case optComment:
		var comment string
		comment, err = r.text(value)
		i.Comments = append(i.Comments, comment)
	case ifName:
		i.Name, err = r.text(value)
	case ifDescription:
		i.Description, err = r.text(value)
	case ifHardware:
		i.Hardware, err = r.text(value)
	case ifOS:
		i.OS, err = r.text(value)
	case ifFilter:
		if len(value) > 0 && value[0] == 0 { // 0: a libpcap expression
			i.Filter, err = r.text(value[1:])
		}
	case ifMAC:
		i.HasMAC = copy(i.MAC[:], value) == len(i.MAC)
	case ifSpeed:
		if len(value) == 8 {
			i.Speed = r.u64(value)
		}
	case ifTsResol:
		if len(value) != 1 {
			return r.bad("time resolution of %d bytes, want 1", len(value))
		}
		s.perSecond, err = r.resolution(value[0])
	case ifTsOffset:
		if len(value) != 8 {
			return r.bad("time offset of %d bytes, want 8", len(value))
		}
		s.offset = int64(r.u64(value))
	}
	return err
}

// resolution decodes if_tsresol: a negative power of 10, or of 2 if the top bit is set.
func (r *Reader) resolution(code byte) (uint64, error) {
	exponent := int(code & 0x7f)
	if code&0x80 != 0 {
		if exponent > 63 {
			return 0, r.bad("time resolution 2^-%d s, want 2^-63 s or coarser", exponent)
		}
		return 1 << exponent, nil
	}
	if exponent > 19 {
		return 0, r.bad("time resolution 10^-%d s, want 10^-19 s or coarser", exponent)
	}
	perSecond := uint64(1)
	for range exponent {
		perSecond *= 10
	}
	return perSecond, nil
}

// stamp converts a timestamp of an interface into nanoseconds since 1970.
func (r *Reader) stamp(high, low uint32, s scale) (int64, error) {
	units := uint64(high)<<32 | uint64(low)
	if s.perSecond == 1e9 && s.offset == 0 && units <= math.MaxInt64 {
		return int64(units), nil
	}
	seconds, fraction := units/s.perSecond, units%s.perSecond
	over, nanos := bits.Mul64(fraction, 1e9)
	nanos, _ = bits.Div64(over, nanos, s.perSecond) // over < perSecond, as fraction < perSecond
	const most = math.MaxInt64/1_000_000_000 - 1
	if seconds > most || s.offset > most || s.offset < -most {
		return 0, r.bad("time %d/%d s + %d s is past the year 2262", units, s.perSecond, s.offset)
	}
	total := int64(seconds) + s.offset
	if total > most || total < -most {
		return 0, r.bad("time %d/%d s + %d s is past the year 2262", units, s.perSecond, s.offset)
	}
	return total*1e9 + int64(nanos), nil
}

// index returns the global index of an interface of the current section.
func (r *Reader) index(number uint32) (int, error) {
	if uint64(number) >= uint64(len(r.interfaces)-r.base) {
		return 0, r.bad("interface %d has no description before its packets", number)
	}
	return r.base + int(number), nil
}

func (r *Reader) statisticsBlock(body []byte) error {
	if len(body) < 12 {
		return r.bad("statistics block of %d bytes, want at least 12", len(body))
	}
	number, err := r.index(r.u32(body))
	if err != nil {
		return err
	}
	s := Statistics{Interface: number}
	if s.Time, err = r.stamp(r.u32(body[4:]), r.u32(body[8:]), r.scales[number]); err != nil {
		return err
	}
	before := r.tableText
	err = r.options(body[12:], func(code uint16, value []byte) error {
		return r.statisticsOption(&s, code, value)
	})
	if err != nil {
		return err
	}
	if r.addStatistics(s) {
		r.tableText = before
	}
	return nil
}

func (r *Reader) statisticsOption(s *Statistics, code uint16, value []byte) (err error) {
	if code == optComment {
		var comment string
		comment, err = r.text(value)
		s.Comments = append(s.Comments, comment)
		return err
	}
	if len(value) != 8 {
		return nil
	}
	switch code {
	case isbStart:
		s.Has |= HasStart
		s.Start, err = r.stamp(r.u32(value), r.u32(value[4:]), r.scales[s.Interface])
	case isbEnd:
		s.Has |= HasEnd
		s.End, err = r.stamp(r.u32(value), r.u32(value[4:]), r.scales[s.Interface])
	case isbReceived:
		s.Has |= HasReceived
		s.Received = r.u64(value)
	case isbDropped:
		s.Has |= HasDropped
		s.Dropped = r.u64(value)
	case isbFilterAccept:
		s.Has |= HasAccepted
		s.Accepted = r.u64(value)
	case isbOSDrop:
		s.Has |= HasOSDropped
		s.OSDropped = r.u64(value)
	case isbDelivered:
		s.Has |= HasDelivered
		s.Delivered = r.u64(value)
	}
	return err
}
