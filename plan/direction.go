package plan

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"railbed/internal/units"
	headers "railbed/internal/wire"
	"railbed/plan/spec"
)

// Direction is the behaviour of one direction of a link. Only links of soft switches have the
// fields from JitterKind on. spec.Direction describes them.
type Direction struct {
	// Rate is in bit/s. It counts frames from their Ethernet header on, without the check sequence,
	// and Overhead.
	Rate      units.Rate     `json:"rate"`
	Delay     units.Duration `json:"delay,omitzero"`
	Jitter    units.Duration `json:"jitter,omitzero"`
	Loss      units.Ratio    `json:"loss,omitzero"`
	Duplicate units.Ratio    `json:"duplicate,omitzero"`
	Corrupt   units.Ratio    `json:"corrupt,omitzero"`
	// Queue is the drop-tail queue in front of the link in this direction. At the egress of a soft
	// switch it bounds all priorities together, within the shared buffer. At a node it is the queue
	// of the shaper, before the emulated NIC.
	Queue units.Bytes `json:"queue"`

	// spec.Uniform, spec.Normal, spec.Exponential
	JitterKind     string         `json:"jitter_kind,omitempty"`
	GilbertElliott GilbertElliott `json:"gilbert_elliott,omitzero"`
	// DropEvery drops nothing if it is 0.
	DropEvery uint64 `json:"drop_every,omitempty"`
	// DropList is in ascending order, without repetition.
	DropList []uint64    `json:"drop_list,omitempty"`
	Reorder  units.Ratio `json:"reorder,omitzero"`
	// ReorderBy is set for soft switches even if nothing is reordered, so that a later change of
	// Reorder alone can use it.
	ReorderBy units.Duration `json:"reorder_by,omitzero"`
	Overhead  units.Bytes    `json:"overhead,omitempty"`
	Flap      Flap           `json:"flap,omitzero"`
}

// NeedsNetem reports whether the direction has settings other than rate and queue. Links of soft
// switches need no netem for them.
func (d Direction) NeedsNetem() bool {
	return d.Delay != 0 || d.Jitter != 0 || !d.Loss.IsZero() || !d.Duplicate.IsZero() || !d.Corrupt.IsZero()
}

// Smallest returns the smallest time that the direction distinguishes, in the testbed's time: the delay, or
// the time to send a frame of the MTU if that is less. A direction without a delay and without a rate has
// none, which is 0.
func (d Direction) Smallest(mtu int) time.Duration {
	least := time.Duration(d.Delay)
	if d.Rate > 0 { // computed here: units' division is exact for any size, and slow
		frame := uint64(mtu+headers.EthernetLen) + uint64(d.Overhead)
		send := time.Duration(frame * 8 * uint64(time.Second) / uint64(d.Rate))
		if send > 0 && (least == 0 || send < least) {
			least = send
		}
	}
	return least
}

// Equal reports whether two directions behave the same.
func (d Direction) Equal(other Direction) bool {
	same := slices.Equal(d.DropList, other.DropList)
	d.DropList, other.DropList = nil, nil
	return same && reflect.DeepEqual(d, other)
}

// With returns the direction with the settings of the file applied to it.
func (d Direction) With(set spec.Direction) Direction {
	over := set.Over(spec.Direction{
		Rate:       d.Rate,
		Delay:      d.Delay,
		Jitter:     d.Jitter,
		Loss:       d.Loss,
		Duplicate:  d.Duplicate,
		Corrupt:    d.Corrupt,
		Queue:      d.Queue,
		JitterKind: d.JitterKind, Reorder: d.Reorder, ReorderBy: d.ReorderBy, Overhead: d.Overhead,
	})
	made := Direction{
		Rate:           over.Rate,
		Delay:          over.Delay,
		Jitter:         over.Jitter,
		Loss:           over.Loss,
		Duplicate:      over.Duplicate,
		Corrupt:        over.Corrupt,
		Queue:          over.Queue,
		JitterKind:     over.JitterKind,
		GilbertElliott: d.GilbertElliott,
		DropEvery:      d.DropEvery,
		DropList:       d.DropList,
		Reorder:        over.Reorder, ReorderBy: over.ReorderBy, Overhead: over.Overhead, Flap: d.Flap,
	}
	if g := set.GilbertElliott; g != nil {
		made.GilbertElliott = GilbertElliott{}
		if !g.Off {
			made.GilbertElliott = GilbertElliott{Enter: g.Enter, Leave: g.Leave, Loss: g.Loss,
				LossGood: g.LossGood}
			if g.Loss.IsZero() {
				made.GilbertElliott.Loss = units.Ratio{Num: 1, Den: 1}
			}
		}
	}
	if set.DropEvery > 0 || set.Zero&spec.ZeroDropEvery != 0 {
		made.DropEvery = uint64(set.DropEvery)
	}
	if len(set.DropList) > 0 || set.Zero&spec.ZeroDropList != 0 {
		made.DropList = nil
		for _, index := range set.DropList {
			made.DropList = append(made.DropList, uint64(index))
		}
		slices.Sort(made.DropList)
		made.DropList = slices.Compact(made.DropList)
	}
	if f := set.Flap; f != nil {
		made.Flap = Flap{}
		if !f.Off {
			made.Flap = Flap{Every: f.Every, For: f.For}
		}
	}
	return made
}

// Effects returns the settings of the direction other than rate and queue, in the words of files:
// "delay 5us", "loss 0.1%".
func (d Direction) Effects() []string {
	var words []string
	add := func(set bool, format string, values ...any) {
		if set {
			words = append(words, fmt.Sprintf(format, values...))
		}
	}
	add(d.Delay != 0, "delay %s", d.Delay)
	add(d.Jitter != 0, "jitter %s", d.Jitter)
	add(d.Jitter != 0 && d.JitterKind != "" && d.JitterKind != spec.Uniform, "jitter-kind %s", d.JitterKind)
	add(!d.Loss.IsZero(), "loss %s", d.Loss)
	if g := d.GilbertElliott; !g.Enter.IsZero() {
		add(true, "gilbert-elliott enter %s leave %s loss %s", g.Enter, g.Leave, g.Loss)
		add(!g.LossGood.IsZero(), "loss-good %s", g.LossGood)
	}
	add(d.DropEvery != 0, "drop-every %d", d.DropEvery)
	add(len(d.DropList) > 0, "drop-list %s", listed(d.DropList))
	add(!d.Duplicate.IsZero(), "duplicate %s", d.Duplicate)
	add(!d.Corrupt.IsZero(), "corrupt %s", d.Corrupt)
	add(!d.Reorder.IsZero() && d.ReorderBy != 0, "reorder %s by %s", d.Reorder, d.ReorderBy)
	// Such settings leave the value to the rate.
	add(!d.Reorder.IsZero() && d.ReorderBy == 0, "reorder %s", d.Reorder)
	add(d.Overhead != 0, "overhead %s", d.Overhead)
	add(d.Flap.For != 0, "flap every %s for %s", d.Flap.Every, d.Flap.For)
	return words
}

// listed returns the start of a list, for people.
func listed(numbers []uint64) string {
	const most = 8
	if len(numbers) > most {
		return fmt.Sprintf("%d and %d more", numbers[:most], len(numbers)-most)
	}
	return fmt.Sprint(numbers)
}

// SoftOnly returns the keys of the direction's settings that only links of soft switches have.
func (d Direction) SoftOnly() []string {
	var keys []string
	for _, f := range []struct {
		key string
		set bool
	}{
		{"jitter-kind", d.JitterKind != ""}, {"gilbert-elliott", !d.GilbertElliott.Enter.IsZero()},
		{"drop-every", d.DropEvery != 0},
		{"drop-list", len(d.DropList) > 0}, {"reorder", !d.Reorder.IsZero()},
		{"reorder-by", d.ReorderBy != 0},
		{"overhead", d.Overhead != 0}, {"flap", d.Flap.For != 0},
	} {
		if f.set {
			keys = append(keys, f.key)
		}
	}
	return keys
}
