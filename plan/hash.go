package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"slices"
)

// Hash identifies the contents of the plan. It is the SHA-256, in hex, of the plan's JSON without
// the routes of switches, followed by the digest of each switch's routes. The JSON is canonical,
// because the plan has only maps of strings, which encoding/json sorts. The JSON of six million
// routes would take gigabytes.
func (p *Plan) Hash() string {
	q := p.withoutPlaces()
	q.Switches = slices.Clone(q.Switches)
	for i := range q.Switches {
		q.Switches[i].Routes = RouteTable{}
	}
	sum := sha256.New()
	j := newJSONWriter(sum)
	if err := j.plan(q); err != nil {
		// No field of a plan can fail to encode. Only units and netip have custom encoders, and
		// these return no errors.
		panic("hash plan: " + err.Error())
	}
	for i := range p.Switches {
		p.Switches[i].Routes.writeDigest(j.out)
	}
	j.out.Flush()
	return hex.EncodeToString(sum.Sum(nil))
}

// writeDigest writes the routes in a short form. The form is the same for a table of blocks and for
// the list that was decoded from its JSON. Each set of next hops is written where it first occurs
// and is a number afterwards.
func (t RouteTable) writeDigest(out io.Writer) {
	numbers := map[string]uint64{}
	var set []byte // of the route, where it first occurs
	number := func(r *Route) uint64 {
		set = appendSet(set[:0], r)
		number, known := numbers[string(set)]
		if known {
			set = set[:0]
		} else {
			number = uint64(len(numbers))
			numbers[string(set)] = number
		}
		return number
	}
	line := binary.AppendUvarint(nil, uint64(t.Len()))
	for route, number := range withShared(t, number) {
		dst := route.Dst.Addr()
		line = append(line, byte(dst.BitLen()/8))
		line, _ = dst.AppendBinary(line) // AppendBinary returns no error
		line = append(line, byte(route.Dst.Bits()))
		line = append(binary.AppendUvarint(line, number), set...)
		_, _ = out.Write(line)
		line, set = line[:0], set[:0]
	}
	_, _ = out.Write(line)
}

// appendSet appends the values that routes share: table, source and next hops.
func appendSet(text []byte, r *Route) []byte {
	word := func(s string) { text = append(binary.AppendUvarint(text, uint64(len(s))), s...) }
	text = binary.AppendVarint(text, int64(r.Table))
	word(r.Src.String())
	text = binary.AppendUvarint(text, uint64(len(r.NextHops)))
	for _, hop := range r.NextHops {
		word(hop.Via.String())
		word(hop.Dev)
		text = binary.AppendVarint(text, int64(hop.Weight))
	}
	return text
}

// withoutPlaces returns the plan without positions in its file.
func (p *Plan) withoutPlaces() *Plan {
	q := *p
	q.Containers, q.Sysctls, q.Requires = nil, nil, slices.Clone(p.Requires)
	for i := range q.Requires {
		q.Requires[i].Where = ""
	}
	if p.Management != nil {
		m := *p.Management
		m.Where = nil
		q.Management = &m
	}
	return &q
}
