package spec

import (
	"cmp"
	"fmt"

	"railbed/internal/printable"
	"railbed/internal/strictyaml"
	"railbed/internal/units"
)

// KindSGD trains a small network by gradient descent. It is not a collective but uses one.
const KindSGD = "sgd"

// SGD is data-parallel stochastic gradient descent. Each rank has a replica of a small network and
// its own images for training. In each iteration of the workload the ranks exchange gradients. All
// replicas must have the same bits after each iteration.
type SGD struct {
	// Hidden lists the widths of the network's layers between its 77 inputs and its 10 outputs.
	// Default [64].
	Hidden []int `yaml:"hidden,omitempty" json:"hidden,omitempty" unit:"neurons"`
	// Batch is the number of images that a rank uses in an iteration. Default 16.
	Batch int `yaml:"batch,omitempty" json:"batch,omitempty" jsonschema:"minimum=1,maximum=4096" unit:"images"`
	// Rate is the learning rate. Default 0.1.
	Rate units.Factor `yaml:"rate,omitempty" json:"rate,omitzero" unit:"none"`
	// Momentum is the share of a step that the next step adds to its own. Default none.
	Momentum units.Ratio `yaml:"momentum,omitempty" json:"momentum,omitzero"`
	// Exchange is the form in which ranks exchange gradients.
	//
	//   - whole (default): whole gradients, in an all-reduce.
	//   - encrypted: an all-reduce of values that only ranks can decrypt.
	//   - top-k: the largest elements of gradients, in an all-gather.
	//   - quantised: elements of a few bits, in an all-gather.
	//
	// With top-k and quantised, the part that is left out is added to the next gradient.
	Exchange string `yaml:"exchange,omitempty" json:"exchange,omitempty" jsonschema:"enum=whole,enum=encrypted,enum=top-k,enum=quantised"`
	// Keep is the share of elements that top-k sends. Default 1%.
	Keep units.Ratio `yaml:"keep,omitempty" json:"keep,omitzero"`
	// Bits is the number of bits of an element of quantised: 2, 4 or 8 (default).
	Bits string `yaml:"bits,omitempty" json:"bits,omitempty" scalar:"any" jsonschema:"enum=2,enum=4,enum=8"`
}

// Exchanges of SGD.
const (
	ExchangeWhole     = "whole"
	ExchangeEncrypted = "encrypted"
	ExchangeTopK      = "top-k"
	ExchangeQuantised = "quantised"
)

// Exchanges lists all exchanges.
var Exchanges = []string{ExchangeWhole, ExchangeEncrypted, ExchangeTopK, ExchangeQuantised}

const (
	defaultSGDIterations = 100
	mostLayers           = 8
	mostWidth            = 4096
)

// Collective returns the collective of the exchange.
func (s *SGD) Collective() string {
	if s != nil && (s.Exchange == ExchangeTopK || s.Exchange == ExchangeQuantised) {
		return AllGather
	}
	return AllReduce
}

func (s *SGD) setDefaults() {
	if s.Hidden == nil {
		s.Hidden = []int{64}
	}
	s.Batch = cmp.Or(s.Batch, 16)
	s.Rate = cmp.Or(s.Rate, units.Factor{Num: 1, Den: 10})
	s.Exchange = cmp.Or(s.Exchange, ExchangeWhole)
	if s.Exchange == ExchangeTopK {
		s.Keep = cmp.Or(s.Keep, units.Ratio{Num: 1, Den: 100})
	}
	if s.Exchange == ExchangeQuantised {
		s.Bits = cmp.Or(s.Bits, "8")
	}
}

// sgd checks conditions on a training that struct tags cannot express.
func (c *checker) sgd(at string, w *Workload) {
	workload := strictyaml.ParentPath(at)
	for key, why := range map[string]string{
		"warmup": "a warm-up of " + KindSGD + ", which learns from the first iteration on",
		"type":   "a type of " + KindSGD + ", which follows from the exchange",
		"op":     "an op of " + KindSGD + ", which is a sum",
	} {
		if place := strictyaml.FieldPath(workload, key); w.Kind == KindSGD && c.Source.Has(place) {
			c.ReportKey(place, why, "remove it")
		}
	}
	if w.SGD == nil {
		return
	}
	if w.Kind != KindSGD {
		c.ReportKey(at, "sgd configures a training, and the kind is "+printable.Clip(w.Kind),
			"want kind: "+KindSGD+", or remove it")
		return
	}
	s := w.SGD
	if len(s.Hidden) > mostLayers {
		c.Report(at+".hidden", fmt.Sprintf("%d layers", len(s.Hidden)),
			fmt.Sprintf("want at most %d", mostLayers))
	}
	for i, width := range s.Hidden {
		if width < 1 || width > mostWidth {
			c.Report(fmt.Sprintf("%s.hidden[%d]", at, i), fmt.Sprintf("layer width %d", width),
				fmt.Sprintf("want 1 to %d", mostWidth))
		}
	}
	if s.Momentum.Float() >= 1 {
		c.Report(at+".momentum", "momentum is "+s.Momentum.String(), "want less than 100%")
	}
	for key, of := range map[string]string{"keep": ExchangeTopK, "bits": ExchangeQuantised} {
		if c.Source.Has(at+"."+key) && s.Exchange != of {
			c.ReportKey(at+"."+key, key+" of exchange: "+cmp.Or(printable.Clip(s.Exchange), ExchangeWhole),
				"remove it, or take exchange: "+of)
		}
	}
	if w.MayDrop() && s.Exchange != "" && s.Exchange != ExchangeWhole {
		c.ReportKey(strictyaml.FieldPath(workload, "rd.droppable"),
			"droppable partial sums of exchange: "+printable.Clip(s.Exchange),
			"remove it, or take exchange: "+ExchangeWhole)
	}
}
