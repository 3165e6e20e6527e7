package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"railbed/testbed/spec"
)

// Drops judges how many packets the selected ports recorded as dropped. Each is a
// packet in the capture, with the port's reason; whether packets vanish without
// one is for Conservation and Lossless.
type Drops struct {
	selector
	reason string
	count  *spec.Bound

	passed, dropped, others uint64
	where                   map[dropPlace]uint64
}

// dropPlace is where and why a packet was dropped.
type dropPlace struct {
	tap    int
	reason string
}

// NewDrops makes the check. An empty reason is any.
func NewDrops(s Selection, reason string, count *spec.Bound) *Drops {
	return &Drops{selector: selector{Selection: s}, reason: reason, count: count, where: map[dropPlace]uint64{}}
}

// Begin implements Check.
func (k *Drops) Begin(c *Capture) { k.begin(c) }

// Packet implements Check.
func (k *Drops) Packet(p *Packet) {
	if !k.at(p.Tap) || !k.flow(p.Flow) || p.control() {
		return
	}
	switch {
	case p.Drop == "":
		k.passed++
		return
	case k.reason != "" && p.Drop != k.reason:
		k.others++
	default:
		k.dropped++
	}
	if len(k.where) < maxDetails*10 {
		k.where[dropPlace{p.Tap.Index, p.Drop}]++
	}
}

// Result implements Check.
func (k *Drops) Result() Result {
	r := Result{Name: k.titled("drops"), Measured: map[string]float64{"dropped": float64(k.dropped), "other-reasons": float64(k.others), "passed": float64(k.passed)}}
	if k.reason != "" {
		r.Name += " " + k.reason
	}
	taps := k.chosen()
	wrong, unclear := judgeBound("packets dropped", k.count, float64(k.dropped), fmt.Sprint(k.dropped), k.capture.lossy(taps))
	if k.passed+k.dropped+k.others == 0 {
		wrong, unclear = nil, []string{"no packet came there"}
	}
	places := slices.SortedFunc(maps.Keys(k.where), func(a, b dropPlace) int {
		return cmp.Or(cmp.Compare(k.where[b], k.where[a]), cmp.Compare(a.tap, b.tap), cmp.Compare(a.reason, b.reason))
	})
	for _, at := range places {
		r.Details = append(r.Details, fmt.Sprintf("%s dropped %d: %s", k.capture.Taps[at.tap].Name, k.where[at], at.reason))
	}
	why := "for any reason"
	if k.reason != "" {
		why = fmt.Sprintf("for reason %s, %d for others", k.reason, k.others)
	}
	r.Summary = fmt.Sprintf("%d packets were dropped %s", k.dropped, why)
	k.capture.conclude(&r, taps, wrong, unclear)
	return r
}
