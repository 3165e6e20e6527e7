package spec

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

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
	// BitErrorRatio is the probability with which each bit of a frame is wrong, independently of
	// the others. A frame with a wrong bit is lost, because its frame check sequence does not match.
	// So long frames are lost more often. The bits of the frame from its Ethernet header on count, and
	// the bits of its overhead. An overhead below 4B, the frame check sequence, counts as 4B. Default
	// none.
	BitErrorRatio units.Ratio `yaml:"bit-error-ratio,omitempty" json:"bit-error-ratio,omitzero"`
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

// PlannedDirection is a Direction in a plan, which has all values. Only links of soft switches have
// the fields from JitterKind on.
type PlannedDirection struct {
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

	// Uniform, Normal, Exponential
	JitterKind     string        `json:"jitter_kind,omitempty"`
	GilbertElliott PlannedBursts `json:"gilbert_elliott,omitzero"`
	// DropEvery drops nothing if it is 0.
	DropEvery uint64 `json:"drop_every,omitempty"`
	// DropList is in ascending order, without repetition.
	DropList      []uint64    `json:"drop_list,omitempty"`
	BitErrorRatio units.Ratio `json:"bit_error_ratio,omitzero"`
	Reorder       units.Ratio `json:"reorder,omitzero"`
	// ReorderBy is set for soft switches even if nothing is reordered, so that a later change of
	// Reorder alone can use it.
	ReorderBy units.Duration `json:"reorder_by,omitzero"`
	Overhead  units.Bytes    `json:"overhead,omitempty"`
	Flap      Flap           `json:"flap,omitzero"`
}

// PlannedBursts is a GilbertElliott in a plan, which has all values.
type PlannedBursts struct {
	Enter    units.Ratio `json:"enter"`
	Leave    units.Ratio `json:"leave"`
	Loss     units.Ratio `json:"loss"`
	LossGood units.Ratio `json:"loss_good,omitzero"`
}

// Settings of a direction that can be zero on purpose. The next free bit is 1 << 15: see Zeros.
const (
	ZeroDelay         Zeros = 1 << 0
	ZeroJitter        Zeros = 1 << 1
	ZeroLoss          Zeros = 1 << 2
	ZeroDuplicate     Zeros = 1 << 3
	ZeroCorrupt       Zeros = 1 << 4
	ZeroDropEvery     Zeros = 1 << 9
	ZeroDropList      Zeros = 1 << 10
	ZeroReorder       Zeros = 1 << 11
	ZeroOverhead      Zeros = 1 << 12
	ZeroBitErrorRatio Zeros = 1 << 14
)

// Bounds of link settings. 1.6 Tbit/s is the fastest port on the market. A minute is far above the
// delay of any path on earth.
const (
	minRate  = units.Rate(1e3)
	maxRate  = units.Rate(1.6e12)
	maxDelay = units.Duration(60e9)
	maxFlap  = units.Duration(24 * 3600e9)
	// maxOverhead is far above the overhead of any tunnel.
	maxOverhead = units.Bytes(256)
	// maxDropList keeps the search in the list short.
	maxDropList = 4096
)

// minBitErrorRatio is far below what any standard asks of a link. The draws distinguish 2^64 numbers, which
// give the loss of a frame to within 0.01 % of its probability from here on.
var minBitErrorRatio = units.Ratio{Num: 1, Den: 1e15}

// LinkSettings are all settings of a direction, in the order in which texts have them. A setting is a
// field of Direction, a field of PlannedDirection with the same name, and an element here.
var LinkSettings = indexed([]*LinkSetting{
	{Key: "rate", Hint: "1gbit", Flag: "`RATE` of the link, as in 1gbit", By: Shaper, arrivals: same,
		check: func(c *checker, at string, d *Direction) {
			given := d.Rate != 0 || c.Source.Has(at)
			if given && (d.Rate < minRate || d.Rate > maxRate) {
				c.Report(at, fmt.Sprintf("%s is %s", at, d.Rate),
					fmt.Sprintf("want %s to %s", minRate, maxRate))
			}
		}},
	{Key: "queue", Hint: "256KiB", By: Shaper, arrivals: same,
		Flag: "`SIZE` of the drop-tail queue in front of the link, as in 256KiB",
		check: func(c *checker, at string, d *Direction) {
			c.positive(at, uint64(d.Queue), "queue is 0B, which drops every packet",
				"want the bytes that can wait for the link, such as 256KiB")
			c.atMost(at, uint64(d.Queue), 1<<32, d.Queue, "want at most 4GiB")
		}},
	{Key: "delay", Hint: "10us", Off: "0s", Flag: "propagation `DELAY`, as in 10us", By: Netem,
		zero: ZeroDelay, arrivals: same,
		check: func(c *checker, at string, d *Direction) {
			c.atMost(at, uint64(d.Delay), uint64(maxDelay), d.Delay, "want at most 1m0s")
		}},
	{Key: "jitter", Hint: "2us", Off: "0s", By: Netem, zero: ZeroJitter,
		Flag: "`TIME` by which the delay varies either way, as in 2us",
		check: func(c *checker, at string, d *Direction) {
			c.atMost(at, uint64(d.Jitter), uint64(maxDelay), d.Jitter, "want at most 1m0s")
		}},
	{Key: "jitter-kind", Hint: "uniform, normal or exponential", arrivals: same,
		effects: func(d *PlannedDirection) []string {
			if d.Jitter == 0 || d.JitterKind == Uniform {
				return nil
			}
			return []string{"jitter-kind " + d.JitterKind}
		}},
	{Key: "loss", Hint: "0.1%", Off: "0", Flag: "`SHARE` of the packets that is lost, as in 0.1%",
		By: Netem, zero: ZeroLoss, arrivals: fewer},
	{Key: "gilbert-elliott", Hint: "{enter: 1%, leave: 20%}", Off: "false", yaml: true, arrivals: fewer,
		check: func(c *checker, at string, d *Direction) {
			if g := d.GilbertElliott; g != nil && !g.Off {
				c.gilbertElliott(at, g)
			}
		},
		planned: func(d *Direction) any { return d.GilbertElliott.planned() },
		text:    func(d *PlannedDirection) string { return d.GilbertElliott.text() },
		effects: func(d *PlannedDirection) []string {
			g := d.GilbertElliott
			words := []string{
				fmt.Sprintf("gilbert-elliott enter %s leave %s loss %s", g.Enter, g.Leave, g.Loss)}
			if !g.LossGood.IsZero() {
				words = append(words, "loss-good "+g.LossGood.String())
			}
			return words
		}},
	{Key: "drop-every", Hint: "1000", Off: "0", yaml: true, zero: ZeroDropEvery, arrivals: fewer},
	{Key: "drop-list", Hint: "[5, 6]", Off: "[]", yaml: true, zero: ZeroDropList, arrivals: fewer,
		check: func(c *checker, at string, d *Direction) {
			if len(d.DropList) > maxDropList {
				c.Report(at, fmt.Sprintf("a drop-list of %d packets", len(d.DropList)),
					fmt.Sprintf("want at most %d", maxDropList))
			} else {
				c.distinct(at, d.DropList, 1, math.MaxInt32, "packet number")
			}
		},
		planned: func(d *Direction) any {
			var list []uint64
			for _, index := range d.DropList {
				list = append(list, uint64(index))
			}
			slices.Sort(list)
			return slices.Compact(list)
		},
		text: func(d *PlannedDirection) string {
			return strings.ReplaceAll(fmt.Sprint(d.DropList), " ", ", ")
		},
		effects: func(d *PlannedDirection) []string {
			const most = 8
			if more := len(d.DropList) - most; more > 0 {
				return []string{fmt.Sprintf("drop-list %d and %d more", d.DropList[:most], more)}
			}
			return []string{fmt.Sprintf("drop-list %d", d.DropList)}
		}},
	{Key: "bit-error-ratio", Hint: "1e-9", Off: "0", zero: ZeroBitErrorRatio, arrivals: fewer,
		check: func(c *checker, at string, d *Direction) {
			if r := d.BitErrorRatio; !r.IsZero() && r.Float() < minBitErrorRatio.Float() {
				c.Report(at, fmt.Sprintf("bit-error-ratio is %s", r),
					fmt.Sprintf("want at least %s, or 0", minBitErrorRatio))
			}
		}},
	{Key: "duplicate", Hint: "0.1%", Off: "0", By: Netem, zero: ZeroDuplicate,
		Flag: "`SHARE` of the packets that is sent twice, as in 0.1%"},
	{Key: "corrupt", Hint: "0.1%", Off: "0", By: Netem, zero: ZeroCorrupt, arrivals: fewer,
		Flag: "`SHARE` of the packets in which a bit is flipped, as in 0.1%"},
	{Key: "reorder", Hint: "1%", Off: "0", zero: ZeroReorder,
		effects: func(d *PlannedDirection) []string {
			if d.ReorderBy == 0 { // Such settings leave the value to the rate.
				return []string{"reorder " + d.Reorder.String()}
			}
			return []string{fmt.Sprintf("reorder %s by %s", d.Reorder, d.ReorderBy)}
		}},
	{Key: "reorder-by", Hint: "50us", arrivals: same,
		check: func(c *checker, at string, d *Direction) {
			c.positive(at, uint64(d.ReorderBy), "reorder-by is 0, which reorders nothing",
				"want a duration such as 50us, or reorder: 0%")
			c.atMost(at, uint64(d.ReorderBy), uint64(maxDelay), d.ReorderBy, "want at most 1m0s")
		},
		effects: func(*PlannedDirection) []string { return nil }}, // reorder's has it
	{Key: "overhead", Hint: "24B", zero: ZeroOverhead, arrivals: same,
		check: func(c *checker, at string, d *Direction) {
			c.atMost(at, uint64(d.Overhead), uint64(maxOverhead), d.Overhead,
				"want at most "+maxOverhead.String()+"; Ethernet's is 24B")
		}},
	{Key: "flap", Hint: "{every: 1s, for: 10ms}", Off: "false", yaml: true, arrivals: fewer,
		check: func(c *checker, at string, d *Direction) {
			f := d.Flap
			if f == nil || f.Off {
				return
			}
			c.atMost(at+".every", uint64(f.Every), uint64(maxFlap), f.Every,
				"want at most "+maxFlap.String())
			if f.Every != 0 && f.For >= f.Every {
				c.Report(at+".for", fmt.Sprintf("flap.for is %s and flap.every %s", f.For, f.Every),
					"want a shorter flap.for, or a link step with state: down")
			}
		},
		planned: func(d *Direction) any {
			if d.Flap.Off {
				return Flap{}
			}
			return *d.Flap
		},
		text: func(d *PlannedDirection) string {
			return fmt.Sprintf("{every: %s, for: %s}", d.Flap.Every, d.Flap.For)
		},
		effects: func(d *PlannedDirection) []string {
			return []string{fmt.Sprintf("flap every %s for %s", d.Flap.Every, d.Flap.For)}
		}},
})

// planned returns the model with all values.
func (g *GilbertElliott) planned() PlannedBursts {
	if g.Off {
		return PlannedBursts{}
	}
	made := PlannedBursts{g.Enter, g.Leave, g.Loss, g.LossGood}
	if g.Loss.IsZero() {
		made.Loss = units.Ratio{Num: 1, Den: 1}
	}
	return made
}

func (b PlannedBursts) text() string {
	text := fmt.Sprintf("{enter: %s, leave: %s, loss: %s", b.Enter, b.Leave, b.Loss)
	if !b.LossGood.IsZero() {
		text += fmt.Sprintf(", loss-good: %s", b.LossGood)
	}
	return text + "}"
}

func (c *checker) gilbertElliott(at string, g *GilbertElliott) {
	c.positive(at+".enter", g.Enter.Num, "enter is 0, so no burst begins",
		"want a share such as 1%, or gilbert-elliott: false")
	c.positive(at+".leave", g.Leave.Num, "leave is 0, so the first burst never ends",
		"want a share such as 20%")
	c.positive(at+".loss", g.Loss.Num, "loss is 0, so bursts lose nothing",
		"want a share such as 50%, or remove the key for 100%")
	if loss := cmp.Or(g.Loss, units.Ratio{Num: 1, Den: 1}); g.LossGood.Float() > loss.Float() {
		c.Report(at+".loss-good", fmt.Sprintf("loss-good is %s and loss %s", g.LossGood, loss),
			"want the good state to lose less than the bad one")
	}
}
