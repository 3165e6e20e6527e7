package pcapng

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// flushAt is how many bytes the writer gathers before it flushes by itself.
const flushAt = 256 << 10

// Writer writes one section of little-endian pcapng with nanosecond timestamps. It gathers blocks
// and passes whole blocks to the underlying writer, when it has flushAt bytes and on Flush. It is
// not safe for concurrent use.
type Writer struct {
	w          io.Writer
	buf        []byte
	interfaces int
	flushed    int64
	err        error // of the first failed write; every later call returns it
}

// NewWriter starts a section.
func NewWriter(w io.Writer, s Section) (*Writer, error) {
	p := &Writer{w: w, buf: make([]byte, 0, flushAt+64<<10)}
	start := p.begin(blockSection)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, byteOrderMagic)
	p.buf = binary.LittleEndian.AppendUint16(p.buf, 1) // major
	p.buf = binary.LittleEndian.AppendUint16(p.buf, 0) // minor
	p.buf = binary.LittleEndian.AppendUint64(p.buf, sectionUnknown)
	options := len(p.buf)
	p.texts(optComment, s.Comments...)
	p.texts(shbHardware, s.Hardware)
	p.texts(shbOS, s.OS)
	p.texts(shbApplication, s.Application)
	return p, p.end(start, options)
}

// AddInterface writes an interface block and returns its index, which Packet.Interface refers to.
func (p *Writer) AddInterface(i Interface) (int, error) {
	start := p.begin(blockInterface)
	p.buf = binary.LittleEndian.AppendUint16(p.buf, i.LinkType)
	p.buf = binary.LittleEndian.AppendUint16(p.buf, 0) // reserved
	p.buf = binary.LittleEndian.AppendUint32(p.buf, i.SnapLen)
	options := len(p.buf)
	p.texts(optComment, i.Comments...)
	p.texts(ifName, i.Name)
	p.texts(ifDescription, i.Description)
	if i.HasMAC {
		p.option(ifMAC, i.MAC[:])
	}
	if i.Speed != 0 {
		p.option64(ifSpeed, i.Speed)
	}
	p.option(ifTsResol, []byte{9}) // 10^-9 s
	if i.Filter != "" {
		// A leading 0 means that the filter is a libpcap expression.
		p.option(ifFilter, append([]byte{0}, i.Filter...))
	}
	p.texts(ifOS, i.OS)
	p.texts(ifHardware, i.Hardware)
	if err := p.end(start, options); err != nil {
		return 0, err
	}
	p.interfaces++
	return p.interfaces - 1, nil
}

// WritePacket writes an enhanced packet block. HasTime need not be set.
func (p *Writer) WritePacket(k *Packet) error {
	if k.Interface < 0 || k.Interface >= p.interfaces {
		return fmt.Errorf("write packet: interface %d, want less than %d, the number added",
			k.Interface, p.interfaces)
	}
	start := p.begin(blockEnhanced)
	high, low := splitTime(k.Time)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, uint32(k.Interface))
	p.buf = binary.LittleEndian.AppendUint32(p.buf, high)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, low)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, uint32(len(k.Data)))
	p.buf = binary.LittleEndian.AppendUint32(p.buf, uint32(max(k.Length, len(k.Data))))
	p.buf = append(p.buf, k.Data...)
	p.pad(len(k.Data))
	options := len(p.buf)
	for _, c := range k.Comments {
		p.option(optComment, c)
	}
	if k.Has&HasFlags != 0 {
		p.option32(epbFlags, uint32(k.Flags))
	}
	if k.Has&HasDropCount != 0 {
		p.option64(epbDropCount, k.DropCount)
	}
	if k.Has&HasID != 0 {
		p.option64(epbPacketID, k.ID)
	}
	if k.Has&HasQueue != 0 {
		p.option32(epbQueue, k.Queue)
	}
	return p.end(start, options)
}

// WriteStatistics writes an interface's counts.
func (p *Writer) WriteStatistics(s Statistics) error {
	if s.Interface < 0 || s.Interface >= p.interfaces {
		return fmt.Errorf("write statistics: interface %d, want less than %d, the number added",
			s.Interface, p.interfaces)
	}
	start := p.begin(blockStatistics)
	high, low := splitTime(s.Time)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, uint32(s.Interface))
	p.buf = binary.LittleEndian.AppendUint32(p.buf, high)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, low)
	options := len(p.buf)
	p.texts(optComment, s.Comments...)
	p.stamp(s.Has&HasStart, isbStart, s.Start)
	p.stamp(s.Has&HasEnd, isbEnd, s.End)
	for _, count := range []struct {
		has   Fields
		code  uint16
		value uint64
	}{
		{HasReceived, isbReceived, s.Received},
		{HasDropped, isbDropped, s.Dropped},
		{HasAccepted, isbFilterAccept, s.Accepted},
		{HasOSDropped, isbOSDrop, s.OSDropped},
		{HasDelivered, isbDelivered, s.Delivered},
	} {
		if s.Has&count.has != 0 {
			p.option64(count.code, count.value)
		}
	}
	return p.end(start, options)
}

// Flush passes everything written so far to the underlying writer. It returns that writer's error
// unchanged.
func (p *Writer) Flush() error {
	if p.err != nil || len(p.buf) == 0 {
		return p.err
	}
	if _, err := p.w.Write(p.buf); err != nil {
		p.err = err
	}
	p.flushed += int64(len(p.buf))
	p.buf = p.buf[:0]
	return p.err
}

// Written returns the number of bytes of the capture, including those not yet flushed.
func (p *Writer) Written() int64 { return p.flushed + int64(len(p.buf)) }

func (p *Writer) begin(blockType uint32) int {
	start := len(p.buf)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, blockType)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, 0) // length, set by end
	return start
}

// end closes the block that began at start and whose options began at options.
func (p *Writer) end(start, options int) error {
	if len(p.buf) > options {
		p.buf = append(p.buf, 0, 0, 0, 0) // opt_endofopt
	}
	length := uint32(len(p.buf) - start + 4)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, length)
	binary.LittleEndian.PutUint32(p.buf[start+4:], length)
	if p.err == nil && len(p.buf) >= flushAt {
		return p.Flush()
	}
	return p.err
}

func (p *Writer) pad(length int) {
	const zeros = "\x00\x00\x00"
	p.buf = append(p.buf, zeros[:-length&3]...)
}

func (p *Writer) header(code uint16, length int) {
	p.buf = binary.LittleEndian.AppendUint16(p.buf, code)
	p.buf = binary.LittleEndian.AppendUint16(p.buf, uint16(length))
}

// option writes an option's value, cut to the format's maximum of 65,535 bytes.
func (p *Writer) option(code uint16, value []byte) {
	value = value[:min(len(value), math.MaxUint16)]
	p.header(code, len(value))
	p.buf = append(p.buf, value...)
	p.pad(len(value))
}

func (p *Writer) option32(code uint16, value uint32) {
	p.header(code, 4)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, value)
}

func (p *Writer) option64(code uint16, value uint64) {
	p.header(code, 8)
	p.buf = binary.LittleEndian.AppendUint64(p.buf, value)
}

// stamp writes a time as its high and then its low half, as in packet blocks.
func (p *Writer) stamp(has Fields, code uint16, ns int64) {
	if has == 0 {
		return
	}
	high, low := splitTime(ns)
	p.header(code, 8)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, high)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, low)
}

func (p *Writer) texts(code uint16, values ...string) {
	for _, value := range values {
		if value != "" {
			p.option(code, []byte(value))
		}
	}
}
