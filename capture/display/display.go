// Package display compiles filters in the language of Wireshark's display filters (wireshark-filter(4)) and
// applies them to packets of captures. It has the fields of the protocols that cross a fabric, under
// Wireshark's names. Reliable datagrams and telemetry have the names of this project's dissector. Records of
// switches have names that begin with "railbed".
//
//	ip.src == 10.0.0.1 && udp.dstport in {4791, 18515..18530}
//	infiniband.bth.opcode == 17 || !(rd.type == 3)
//	railbed.verdict == "drop" && railbed.depth > 64000
//	eth.src[0:3] == 02:00:00 && frame contains "GET"
//
// A field alone matches a packet that has it. A comparison matches if some value of the field fulfils it: a
// packet has several values of ip.addr, and of every field of a header that an ICMP message quotes. The
// operators != and === match if all values fulfil them, and !== or ~= if some value differs. A packet without
// the field fulfils no comparison.
//
// A record may not show all values of a packet: it is cut off, encrypted, or a field was not recorded. Judge
// reports whether such values could change the result (Unseen).
//
// Left out are functions, layers (#), the operators matches and bitwise &, arithmetic, and names of hosts.
package display

import (
	"fmt"
	"slices"
	"strings"

	"railbed/capture/pcapng"
	"railbed/transports/rd/privacy"
)

// Filter is a compiled filter. It is safe for concurrent use.
type Filter struct {
	text   string
	root   *Expr // nil matches every packet
	fields []*Field
}

// predicate reports whether a packet fulfils a part of a filter, and whether that is sure.
type predicate func(*Packet) truth

// Error is an error at a position of a filter.
type Error struct {
	Filter string
	Column int // of the first byte, from 1
	What   string
	Want   string // the correct form, or ""
}

// Error implements error.
func (e *Error) Error() string {
	text := fmt.Sprintf("column %d: %s", e.Column, e.What)
	if e.Want != "" {
		text += "; want " + e.Want
	}
	return text
}

// Compile compiles a filter. An empty filter matches every packet. An error is an *Error.
func Compile(text string) (*Filter, error) {
	p := &parser{text: text}
	if err := p.lex(); err != nil {
		return nil, err
	}
	if p.peek().kind == tokenEnd {
		return &Filter{text: text}, nil
	}
	root, err := p.or()
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != tokenEnd {
		return nil, p.wrong(t, fmt.Sprintf("%q after the end of the filter", t.text), "&& or || before it")
	}
	return &Filter{text, root, p.fields}, nil
}

// CompileBytes compiles a filter for packets that are not recorded. It may only read fields of the packet's
// own bytes, and their number (frame.len).
func CompileBytes(text string) (*Filter, error) {
	f, err := Compile(text)
	if err != nil {
		return nil, err
	}
	for _, field := range f.fields {
		group, _, _ := strings.Cut(field.Name, ".")
		own := []string{"frame", "frame.len", "railbed.message"}
		if field.Analyses() ||
			slices.Contains([]string{"frame", "railbed", "run"}, group) && !slices.Contains(own, field.Name) {
			return nil, &Error{Filter: text, Column: strings.Index(text, field.Name) + 1,
				What: fmt.Sprintf("%s is known of recorded packets only", field.Name),
				Want: "a field of the packet's own bytes, such as ip.src or rd.psn"}
		}
	}
	return f, nil
}

// Match reports whether a packet fulfils the filter by the values that its record shows.
func (f *Filter) Match(p *Packet) bool { return f.root == nil || f.root.match(p)&fulfilled != 0 }

// Root returns the whole filter as an expression, or nil if it matches every packet.
func (f *Filter) Root() *Expr { return f.root }

// Judge reports whether a packet fulfils the filter by the values that its record shows, and why other values
// of the packet could change that. Without such reasons the result is sure.
func (f *Filter) Judge(p *Packet) (match bool, unseen Unseen) {
	if f.root == nil {
		return true, 0
	}
	t := f.root.match(p)
	return t&fulfilled != 0, t.unseen()
}

// Fields returns the fields that the filter reads, in the order in which it names them.
func (f *Filter) Fields() []*Field { return f.fields }

// String returns the filter as it was written.
func (f *Filter) String() string { return f.text }

// Uses reports whether the filter has a field of one of the names.
func (f *Filter) Uses(names ...string) bool {
	return slices.ContainsFunc(f.fields, func(of *Field) bool { return slices.Contains(names, of.Name) })
}

// Implies reports whether the filter matches only packets that have a field.
func (f *Filter) Implies(name string) bool { return f.root != nil && f.root.implies(name) }

// Context holds a run's knowledge of a packet. The fields run.message and run.rank have it.
type Context struct {
	// Message is the number of the packet's message in the run, 0 for none.
	Message int
	// Start is the time at which the message started, in nanoseconds since 1970.
	Start int64
	// Rank is the rank that sent the packet, nil if unknown.
	Rank *int
}

// Decoder finds the headers of the packets of a capture. It is not safe for concurrent use.
type Decoder struct {
	// Context returns what is known of a packet besides its bytes, by the number of its record. It may be
	// nil.
	Context func(number int) Context
	// Keys decrypt reliable datagrams. They may be nil.
	Keys *privacy.KeyLog

	source pcapng.Source
	packet Packet
	first  int64 // time of the first packet
}

// NewDecoder makes a decoder of the packets of a source.
func NewDecoder(source pcapng.Source) *Decoder { return &Decoder{source: source} }

// Analyse makes the fields below tcp.analysis known. Call it before Next.
func (d *Decoder) Analyse() { d.packet.Analyse() }

// Next reads a packet, which is valid until the following Next. Its errors are the source's.
func (d *Decoder) Next() (*Packet, error) {
	raw, err := d.source.Next()
	if err != nil {
		return nil, err
	}
	p := &d.packet
	p.Keys = d.Keys
	if raw.Number == 1 {
		d.first = raw.Time
	}
	p.Set(raw, &d.source.Interfaces()[raw.Interface], raw.Number, d.first)
	if d.Context != nil {
		p.context = d.Context(raw.Number)
	}
	return p, nil
}
