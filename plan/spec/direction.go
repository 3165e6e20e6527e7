package spec

import (
	"cmp"
	"reflect"

	"railbed/internal/units"
)

// Distributions of jitter.
const (
	Uniform     = "uniform"
	Normal      = "normal"
	Exponential = "exponential"
)

// Direction is the behaviour of one direction of a link. The settings from jitter-kind on need soft
// switches.
type Direction struct {
	// Rate is the bit rate at layer 2. Default 1gbit.
	Rate units.Rate `yaml:"rate,omitempty" json:"rate,omitempty"`
	// Delay is the propagation delay. Default none.
	Delay units.Duration `yaml:"delay,omitempty" json:"delay,omitempty"`
	// Jitter varies the delay, by up to this much or as jitter-kind says. Default none.
	Jitter units.Duration `yaml:"jitter,omitempty" json:"jitter,omitempty"`
	// Loss is the share of packets that are lost at random, independently of each other. Default
	// none.
	Loss units.Ratio `yaml:"loss,omitempty" json:"loss,omitzero"`
	// Duplicate is the share of packets that arrive twice. Default none.
	Duplicate units.Ratio `yaml:"duplicate,omitempty" json:"duplicate,omitzero"`
	// Corrupt is the share of packets with a flipped bit. Default none.
	Corrupt units.Ratio `yaml:"corrupt,omitempty" json:"corrupt,omitzero"`
	// Queue is the number of bytes that can wait for the link. Default: the switch's buffer, or the
	// NIC's queue at a node. A NIC and a switch of the kernel queue at most 100ms of bytes by default, and
	// at least 16 full frames.
	Queue units.Bytes `yaml:"queue,omitempty" json:"queue,omitempty"`

	// JitterKind is the distribution of the delay. A packet that would arrive before its
	// predecessor arrives with it, so packets keep their order. Only reorder changes it.
	//
	//   - uniform (default): from delay less jitter to delay plus jitter.
	//   - normal: with the mean delay and the standard deviation jitter. It is cut at three
	//     deviations and at a delay of 0, on both sides alike, so that the mean stays.
	//   - exponential: delay plus a time with the mean jitter. The time is cut at eight times
	//     jitter, which 1 of 2,981 would exceed.
	JitterKind string `yaml:"jitter-kind,omitempty" json:"jitter-kind,omitempty" jsonschema:"enum=uniform,enum=normal,enum=exponential"`
	// GilbertElliott loses packets in bursts, by a model with a good and a bad state. Default none.
	GilbertElliott *GilbertElliott `yaml:"gilbert-elliott,omitempty" json:"gilbert-elliott,omitempty"`
	// DropEvery loses every n-th packet of each flow: n, 2n, 3n. Default 0,
	// none.
	DropEvery int `yaml:"drop-every,omitempty" json:"drop-every,omitempty" jsonschema:"minimum=0" unit:"packets"`
	// DropList loses exactly these packets of each flow. They are counted from 1 in each flow and
	// direction. Default none.
	DropList []int `yaml:"drop-list,omitempty" json:"drop-list,omitempty" unit:"packets"`
	// Reorder is the share of packets that are held back for reorder-by while later packets
	// overtake them. Default none.
	Reorder units.Ratio `yaml:"reorder,omitempty" json:"reorder,omitzero"`
	// ReorderBy is the time for which reordered packets are held back. Default: the time of four
	// full frames at the link's rate, one more than the three that TCP takes for a loss (RFC 5681).
	ReorderBy units.Duration `yaml:"reorder-by,omitempty" json:"reorder-by,omitempty"`
	// Overhead is the number of bytes per frame that take time on the link in addition to the frame
	// from its Ethernet header on. 24B are the preamble (8), the frame check sequence (4) and the
	// gap between packets (12) of IEEE 802.3. Default 0B.
	Overhead units.Bytes `yaml:"overhead,omitempty" json:"overhead,omitempty"`
	// Flap takes the direction down at regular intervals. Default never.
	Flap *Flap `yaml:"flap,omitempty" json:"flap,omitempty"`

	// Zero marks the fields that are zero on purpose.
	Zero Zeros `yaml:"-" json:"zero,omitempty"`
}

// GilbertElliott is a loss model with a good and a bad state. The link starts in the good state and
// may change its state before each packet. Sources: Gilbert, Capacity of a Burst-Noise Channel,
// Bell System Technical Journal 39(5), 1960; Elliott, Estimates of Error Rates for Codes on
// Burst-Noise Channels, 42(5), 1963.
type GilbertElliott struct {
	// Enter is the probability per packet that the good state turns bad.
	Enter units.Ratio `yaml:"enter" json:"enter"`
	// Leave is the probability per packet that the bad state turns good. A burst has 1/leave
	// packets in the mean.
	Leave units.Ratio `yaml:"leave" json:"leave"`
	// Loss is the share of packets that are lost in the bad state. Default
	// 100%.
	Loss units.Ratio `yaml:"loss,omitempty" json:"loss,omitzero"`
	// LossGood is the share of packets that are lost in the good state. Default
	// none.
	LossGood units.Ratio `yaml:"loss-good,omitempty" json:"loss-good,omitzero"`

	// Off is true for "gilbert-elliott: false".
	Off bool `yaml:"-" json:"off,omitempty"`
}

// Flap takes a direction down at regular intervals. Packets sent in that time are lost. The first
// time is one interval after the setting was made.
type Flap struct {
	// Every is the time from the start of one outage to the start of the next.
	Every units.Duration `yaml:"every" json:"every"`
	// For is the duration of an outage.
	For units.Duration `yaml:"for" json:"for"`

	// Off is true for "flap: false".
	Off bool `yaml:"-" json:"off,omitempty"`
}

// Over returns d with each field that d does not set taken from base.
func (d Direction) Over(base Direction) Direction {
	z := d.Zero
	return Direction{
		Rate:           cmp.Or(d.Rate, base.Rate),
		Delay:          over(d.Delay, base.Delay, z&ZeroDelay != 0),
		Jitter:         over(d.Jitter, base.Jitter, z&ZeroJitter != 0),
		Loss:           over(d.Loss, base.Loss, z&ZeroLoss != 0),
		Duplicate:      over(d.Duplicate, base.Duplicate, z&ZeroDuplicate != 0),
		Corrupt:        over(d.Corrupt, base.Corrupt, z&ZeroCorrupt != 0),
		Queue:          cmp.Or(d.Queue, base.Queue),
		JitterKind:     cmp.Or(d.JitterKind, base.JitterKind),
		GilbertElliott: cmp.Or(d.GilbertElliott, base.GilbertElliott),
		DropEvery:      over(d.DropEvery, base.DropEvery, z&ZeroDropEvery != 0),
		DropList:       overList(d.DropList, base.DropList, z&ZeroDropList != 0),
		Reorder:        over(d.Reorder, base.Reorder, z&ZeroReorder != 0),
		ReorderBy:      cmp.Or(d.ReorderBy, base.ReorderBy),
		Overhead:       over(d.Overhead, base.Overhead, z&ZeroOverhead != 0),
		Flap:           cmp.Or(d.Flap, base.Flap),
		Zero:           z,
	}
}

// ParseDirection parses settings as they are written in files, such as "{loss: 1%, drop-list: [5,
// 6]}". Errors are Problems and call the text by the given name. ParseDirection fills in no
// defaults.
func ParseDirection(name, text string) (Direction, error) {
	return parse(name, text, "set", func(c *checker, set *Direction) { c.direction("set", *set) })
}

// parse parses a value as it is written in files, at the place of a path, and checks it.
func parse[T any](name, text, at string, check func(c *checker, value *T)) (value T, err error) {
	root, err := ParseTree(name, []byte(text))
	if err != nil {
		return value, err
	}
	d := newDecoder(&Source{File: name, values: map[string]mark{at: markOf(root, root)}})
	d.decode(root, reflect.ValueOf(&value).Elem(), target{path: at})
	c := &checker{t: &Testbed{Source: d.source}, wrong: d.wrong, holders: map[string]bool{}}
	c.constraints(reflect.ValueOf(&value).Elem(), at)
	check(c, &value)
	return value, append(d.problems, c.problems...).Err()
}
