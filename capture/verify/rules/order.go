package rules

import (
	"fmt"

	"railbed/capture/display"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
)

// order judges whether the values of a field never decrease at a port. Values wrap at the width of the
// field: a value is before another if the way back to it is shorter (RFC 1982).
type order struct {
	*rule
	field *display.Field
	keys  table[newest]

	compared, inOrder uint64
}

// newest is the greatest value of a key so far.
type newest struct {
	value uint64
	known bool
}

func newOrder(k *rule, f *display.Field) *order {
	if k.keyer.per == "" {
		k.keyer.per = "flow"
	}
	k.keyer.ported, k.need.AnyOrder = true, false
	return &order{rule: k, field: f, keys: newTable[newest](&k.keyer)}
}

func (o *order) take(p *evidence.Packet) {
	value, has, unseen := o.field.Number(p.Display())
	if o.doubts.Add(p, unseen) || !has {
		return
	}
	last := o.keys.of(p)
	switch {
	case last == nil:
		return
	case !last.known:
		last.value, last.known = value, true
		return
	}
	o.compared++
	if before(value, last.value, o.field.Bits()) {
		o.offenders.Add(p)
		return
	}
	o.inOrder++
	last.value = value
}

// before reports whether a number of some bits is before another.
func before(value, other uint64, bits int) bool {
	if bits >= 64 {
		return value < other
	}
	behind := (other - value) & (1<<bits - 1)
	return behind != 0 && behind < 1<<(bits-1)
}

func (o *order) conclude(f *evidence.Finding) string {
	f.Rests = true
	if n := o.offenders.Count; n > 0 {
		line := plural.Text("%d packets have a smaller %s than an earlier packet", n, o.field.Name)
		if o.capture.Unordered > 0 { // the order in the capture may not be that at the port
			f.Absent = append(f.Absent, line)
		} else {
			f.Wrong = append(f.Wrong, line)
		}
	}
	if o.selected > 0 && o.compared == 0 {
		f.Unclear = append(f.Unclear, fmt.Sprintf("no two packets of a %s at a port have %s", o.keyer.per,
			o.field.Name))
	}
	return plural.Text("%s does not decrease in %d of %d packets that follow another, in %s at ports",
		o.field.Name, o.inOrder, o.compared, plural.Count(len(o.keys.keys), o.keyer.per+"s"))
}
