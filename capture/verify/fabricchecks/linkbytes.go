package fabricchecks

import (
	"slices"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

// linkBytes judges the bytes of frames, from their Ethernet header on, that were sent into each direction
// of links. Frames count where they are sent. If that port was not recorded, frames count where they
// arrive.
type linkBytes struct {
	selector
	link, way string
	bound     *spec.Bound
	offenders *evidence.Offenders

	directions []linkDirection
	at         map[int]int // from a tap at which frames count to the direction's index and 1
	taps       int
}

// linkDirection is a direction of a link, and what it carried.
type linkDirection struct {
	name          string
	from, to      string // ports
	bytes, frames uint64
}

var _ = evidence.Register(evidence.Kind{Key: "link-bytes",
	Example: `{link: "leaf*--spine*", is: "<= 40MB"}`, Timed: evidence.Never,
	Conditions: conditions.Conditions{Examine: linkBytesConditions},
	Make:       evidence.OfSelected(NewLinkBytes)})

// linkBytesConditions checks that an end of each link is captured.
func linkBytesConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	k := p.LinkBytes
	pattern, _ := spec.LinkTarget(k.Link)
	for i := range l.Plan.Links {
		if link := &l.Plan.Links[i]; spec.Match(pattern, link.Name) {
			ends := l.Which(func(p *conditions.Port) bool { return p.End() == link.A || p.End() == link.B })
			if !slices.ContainsFunc(ends, func(p *conditions.Port) bool { return p.Captured }) {
				l.Seen(path, ends, false)
				return
			}
		}
	}
}

// NewLinkBytes makes the check for the packets of a workload, or for all packets if it is nil.
func NewLinkBytes(k *spec.LinkBytesCheck, w *evidence.Workload) evidence.Check {
	l := &linkBytes{selector: selector{selection: selection{Workload: w}},
		bound: evidence.Bound(k.Is, spec.BytesBound), at: map[int]int{}}
	l.link, l.way = spec.LinkTarget(k.Link)
	return l
}

// Begin implements Check.
func (k *linkBytes) Begin(c *evidence.Capture) {
	k.selector.Begin(c)
	k.offenders = c.NewOffenders()
	if c.Plan == nil {
		return
	}
	name := func(e plan.End) string { return e.Node + ":" + e.Port }
	for i := range c.Plan.Links {
		l := &c.Plan.Links[i]
		if !spec.Match(k.link, l.Name) {
			continue
		}
		for _, d := range []struct {
			way      string
			from, to plan.End
		}{{plan.AToB, l.A, l.B}, {plan.BToA, l.B, l.A}} {
			if k.way == "" || k.way == d.way {
				k.directions = append(k.directions, linkDirection{name: l.Name + " " + d.way,
					from: name(d.from), to: name(d.to)})
			}
		}
	}
}

// counted returns the tap at which the frames of a direction count, or nil.
func (k *linkBytes) counted(d *linkDirection) *evidence.Tap {
	if tap := k.capture.TapNamed(d.from); tap != nil {
		return tap
	}
	return k.capture.TapNamed(d.to)
}

// Packet implements Check.
func (k *linkBytes) Packet(p *evidence.Packet) {
	if k.taps != len(k.capture.Taps) {
		k.taps = len(k.capture.Taps)
		clear(k.at)
		for i := range k.directions {
			if tap := k.counted(&k.directions[i]); tap != nil {
				k.at[tap.Index<<1|way(tap.Name == k.directions[i].from)] = i + 1
			}
		}
	}
	i := k.at[p.Tap.Index<<1|way(p.Direction == evidence.Out)]
	if i == 0 || p.Drop != "" || p.Direction == evidence.Unknown || !k.of(p) {
		return
	}
	d := &k.directions[i-1]
	d.bytes += uint64(p.Length)
	d.frames++
	if k.bound.Upper() && !k.bound.Holds(float64(d.bytes)) {
		k.offenders.Add(p)
	}
}

func way(out bool) int {
	if out {
		return 1
	}
	return 0
}

// Result implements Check.
func (k *linkBytes) Result() evidence.Result {
	r := evidence.Result{Name: "link-bytes " + k.link, Offenders: k.offenders, Measured: map[string]float64{}}
	var f evidence.Finding
	need := evidence.Need{AnyOrder: true}
	var all, most uint64
	for i := range k.directions {
		d := &k.directions[i]
		shown := units.Bytes(d.bytes).String()
		if k.bound.Op == "==" && k.bound.Limit != 0 {
			f.HoldEither(d.name, k.bound, float64(d.bytes), shown)
		} else {
			f.Hold(d.name, k.bound, float64(d.bytes), shown)
		}
		all, most = all+d.bytes, max(most, d.bytes)
		r.Measured["bytes."+d.name] = float64(d.bytes)
		if tap := k.counted(d); tap != nil {
			need.Ports = append(need.Ports, tap.Name)
		} else {
			need.Ports = append(need.Ports, d.from)
		}
	}
	f.Rests = true // a direction of which the capture shows nothing may have carried frames
	switch {
	case k.capture.Plan == nil:
		f.Unclear = append(f.Unclear, "without a plan the links are not known")
	case k.capture.Packets == 0:
		f.Unclear = append(f.Unclear, "the capture has no packets")
	}
	r.Summary = plural.Text("links carried %s, at most %s in a direction (%d directions)", units.Bytes(all),
		units.Bytes(most), len(k.directions))
	r.Details = k.offenders.Lines()
	f.Shorten()
	k.capture.Conclude(&r, need, f)
	return r
}
