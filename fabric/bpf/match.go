package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf/asm"

	"railbed/capture/display"
)

// matcher generates the code that applies a filter to a packet whose headers a parser has found.
type matcher struct {
	*parser
	left, right int16 // places of values, of 16 bits each
}

// Names of the fields that are computed from a header.
const (
	fieldEtherType   = "eth.type"
	fieldFrameLength = "frame.len"
	fieldTCPLength   = "tcp.len"
)

// Registers of the matcher. A value has one or two registers, the high one first.
const (
	high = asm.R7
	low  = asm.R8
	seen = asm.R9 // 1 if there was a value
)

// supported returns the headers that a filter reads. It reports a part of the filter that programs cannot
// express, as a *display.Error.
func supported(f *display.Filter) (map[display.Header]bool, error) {
	needs := map[display.Header]bool{}
	var walk func(e *display.Expr) error
	walk = func(e *display.Expr) error {
		for _, part := range e.Parts {
			if err := walk(part); err != nil {
				return err
			}
		}
		for _, o := range []*display.Operand{e.Left, e.Right} {
			if o == nil {
				continue
			}
			if err := operand(e, o); err != nil {
				err.Filter, err.Column = f.String(), e.Column
				return err
			}
			for _, at := range o.Places {
				needs[at.Header] = true
			}
		}
		if e.Right != nil && e.Left.Kind != e.Right.Kind && e.Left.Kind > display.Seconds {
			return &display.Error{Filter: f.String(), Column: e.Column, Want: "two fields of the same kind",
				What: fmt.Sprintf("%s, which is %s, compared with %s, which is %s, at a kernel link or "+
					"switch", e.Left.Name, e.Left.Kind, e.Right.Name, e.Right.Kind)}
		}
		return nil
	}
	if f.Root() == nil {
		return needs, nil
	}
	return needs, walk(f.Root())
}

// operand returns what a program cannot do with a field, or nil.
func operand(e *display.Expr, o *display.Operand) *display.Error {
	refuse := func(format string, args ...any) *display.Error {
		return &display.Error{What: fmt.Sprintf(format, args...) + " at a kernel link or switch",
			Want: "a comparison of another field, or soft switches (kind: soft)"}
	}
	switch {
	case e.Op == display.Contains:
		return refuse("contains for %s is not possible", o.Name)
	case o.Slice != nil:
		return refuse("a slice of %s is not possible", o.Name)
	}
	for _, at := range o.Places {
		computed := at.Length == 0 && o.Kind != display.Protocol
		switch {
		case at.Header == display.VLANHeader:
			return refuse("%s is not readable: the kernel takes VLAN tags off the packets", o.Name)
		case at.Header == display.GFCHeader || at.Header == display.TelemetryHeader:
			return refuse("%s is not readable: only soft switches send such headers", o.Name)
		case computed && o.Name != fieldEtherType && o.Name != fieldTCPLength && o.Name != fieldFrameLength:
			return refuse("%s is not readable", o.Name)
		case e.Op != display.Exists && o.Kind == display.Protocol:
			return refuse("a comparison of the bytes of %s is not possible", o.Name)
		}
	}
	return nil
}

// expression generates the test of a part of a filter, which jumps to one of two labels.
func (m *matcher) expression(e *display.Expr, yes, no string) {
	switch e.Op {
	case display.And, display.Or:
		between := m.label("part")
		if e.Op == display.And {
			m.expression(e.Parts[0], between, no)
		} else {
			m.expression(e.Parts[0], yes, between)
		}
		m.place(between)
		m.expression(e.Parts[1], yes, no)
	case display.Not:
		m.expression(e.Parts[0], no, yes)
	case display.Exists:
		m.each(e.Left, func() { m.jump(yes) })
		m.jump(no)
	case display.In:
		m.each(e.Left, func() {
			for _, r := range e.Ranges {
				if m.same(&r[0], &r[1], yes) {
					continue
				}
				outside, above := m.label("outside"), m.label("above")
				m.compare(&r[0], outside, above, above)
				m.place(above)
				m.compare(&r[1], yes, yes, outside)
				m.place(outside)
			}
		})
		m.jump(no)
	case display.Compare:
		m.comparison(e, yes, no)
	}
}

// comparison generates the comparison of a field with a literal or with another field.
func (m *matcher) comparison(e *display.Expr, yes, no string) {
	m.add(asm.Mov.Imm(seen, 0))
	judge := func(against func(below, equal, above string)) {
		m.add(asm.Mov.Imm(seen, 1))
		other := m.label("other")
		target := func(of display.Orders) string {
			switch holds := e.Orders&of != 0; {
			case holds == e.All:
				return other // this value does not decide
			case holds:
				return yes
			}
			return no
		}
		against(target(display.Less), target(display.Equal), target(display.Greater))
		m.place(other)
	}
	if e.Right == nil {
		m.each(e.Left, func() {
			judge(func(below, equal, above string) { m.compare(&e.Ranges[0][0], below, equal, above) })
		})
	} else {
		m.each(e.Left, func() {
			m.add(asm.StoreMem(asm.RFP, m.left, high, asm.DWord),
				asm.StoreMem(asm.RFP, m.right, low, asm.DWord))
			m.each(e.Right, func() {
				judge(func(below, equal, above string) {
					m.add(asm.LoadMem(asm.R4, asm.RFP, m.left, asm.DWord),
						asm.LoadMem(asm.R5, asm.RFP, m.right, asm.DWord),
						asm.Mov.Reg(asm.R2, high), asm.Mov.Reg(asm.R3, low))
					m.order(below, equal, above)
				})
			})
		})
	}
	if e.All {
		m.add(asm.JNE.Imm(seen, 0, yes))
	}
	m.jump(no)
}

// order compares R4 and R5 with R2 and R3.
func (m *matcher) order(below, equal, above string) {
	m.add(
		asm.JLT.Reg(asm.R4, asm.R2, below), asm.JGT.Reg(asm.R4, asm.R2, above),
		asm.JLT.Reg(asm.R5, asm.R3, below), asm.JGT.Reg(asm.R5, asm.R3, above),
	)
	m.jump(equal)
}

// compare compares the value with a literal. Only the bits of the literal's prefix count.
func (m *matcher) compare(l *display.Literal, below, equal, above string) {
	value, mask := [2]uint64{0, l.Number()}, [2]uint64{^uint64(0), ^uint64(0)}
	if b := l.Bytes(); b != nil {
		value = words(b)
		if prefix := l.Prefix(); prefix >= 0 {
			whole := bytes.Repeat([]byte{0xFF}, len(b))
			for bit := prefix; bit < 8*len(b); bit++ {
				whole[bit/8] &^= 0x80 >> (bit % 8)
			}
			mask = words(whole)
		}
	}
	m.add(
		number(asm.R2, value[0]&mask[0]), number(asm.R3, value[1]&mask[1]),
		number(asm.R0, mask[0]), number(asm.R1, mask[1]),
		asm.Mov.Reg(asm.R4, high), asm.And.Reg(asm.R4, asm.R0),
		asm.Mov.Reg(asm.R5, low), asm.And.Reg(asm.R5, asm.R1),
	)
	m.order(below, equal, above)
}

// same generates a shorter comparison if a range is one whole number or address.
func (m *matcher) same(from, to *display.Literal, yes string) bool {
	if from.Prefix() >= 0 || to.Prefix() >= 0 || from.Number() != to.Number() ||
		!bytes.Equal(from.Bytes(), to.Bytes()) {
		return false
	}
	value := [2]uint64{0, from.Number()}
	if b := from.Bytes(); b != nil {
		value = words(b)
	}
	differs := m.label("differs")
	m.add(number(asm.R3, value[1]))
	if len(from.Bytes()) > 8 {
		m.add(number(asm.R2, value[0]), asm.JNE.Reg(high, asm.R2, differs))
	}
	m.add(asm.JEq.Reg(low, asm.R3, yes))
	m.place(differs)
	return true
}

// words returns up to 16 bytes as a number of 128 bits.
func words(b []byte) [2]uint64 {
	var wide [16]byte
	copy(wide[16-len(b):], b)
	return [2]uint64{binary.BigEndian.Uint64(wide[:]), binary.BigEndian.Uint64(wide[8:])}
}

// each generates a part for each place that the field can have, which runs if the packet has the field there.
// The field's value is then in high and low.
func (m *matcher) each(o *display.Operand, part func()) {
	for i := range o.Places {
		place := &o.Places[i]
		for _, slot := range m.slots[place.Header] {
			other := m.label("value")
			m.add(
				asm.LoadMem(high, asm.RFP, slot, asm.Word),
				asm.LoadMem(low, asm.RFP, slot+4, asm.Word),
				asm.JEq.Imm(low, 0, other), // no such header
			)
			m.value(o, place, other)
			part()
			m.place(other)
		}
	}
}

// value replaces the offset of a header and the end of its payload by the field's value.
func (m *matcher) value(o *display.Operand, at *display.Place, missing string) {
	switch {
	case o.Name == fieldEtherType:
		m.load(high, 12, 2, missing)
		m.add(asm.JLT.Imm(asm.R0, 1536, missing), // a length (IEEE 802.3, 3.2.6)
			asm.Mov.Imm(high, 0), asm.Mov.Reg(low, asm.R0))
		return
	case o.Name == fieldFrameLength:
		m.add(asm.Mov.Imm(high, 0))
		return
	case o.Name == fieldTCPLength:
		m.load(high, 12, 1, missing)
		m.add(asm.RSh.Imm(asm.R0, 4), asm.LSh.Imm(asm.R0, 2), asm.Add.Reg(asm.R0, high),
			asm.JGT.Reg(asm.R0, low, missing), asm.Sub.Reg(low, asm.R0), asm.Mov.Imm(high, 0))
		return
	case at.Length == 0: // the header itself
		return
	}
	m.atMost(high, at.At+at.Length, low, missing)
	if at.Length > 8 {
		m.load(high, at.At+at.Length-8, 8, missing)
		m.add(asm.Mov.Reg(low, asm.R0))
		m.load(high, at.At, at.Length-8, missing)
		m.add(asm.Mov.Reg(high, asm.R0))
		return
	}
	m.load(high, at.At, at.Length, missing)
	m.add(asm.Mov.Imm(high, 0), asm.Mov.Reg(low, asm.R0))
	if at.Mask != 0 {
		m.add(number(asm.R1, at.Mask), asm.And.Reg(low, asm.R1),
			asm.RSh.Imm(low, int32(bits.TrailingZeros64(at.Mask))))
	}
	if at.Unit > 1 {
		m.add(asm.Mul.Imm(low, int32(at.Unit)))
	}
}
