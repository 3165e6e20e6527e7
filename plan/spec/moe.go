package spec

import (
	"cmp"
	"fmt"

	"railbed/internal/printable"
	"railbed/internal/strictyaml"
	"railbed/internal/units"
)

// KindMoE is the exchange of a mixture of experts. It is not a collective but two all-to-alls with
// unequal parts.
const KindMoE = "moe"

// TokenBlock is the number of values of a token that share a scale.
const TokenBlock = 128

// MoE is a mixture of experts that are spread evenly over ranks. In an iteration each rank sends
// its tokens to the experts that a gate chose for them (dispatch). The experts send their results
// back, where they are weighted and added up (combine).
//
// As in DeepEP's low-latency kernels a token goes to each of its experts separately. It is sent as
// FP8 (E4M3) with a float32 scale for each 128 values and 16 bytes that identify it, and comes back
// as bfloat16. Computed rates (rd with control: offline) follow from the gate's choices for
// dispatch, and from the same choices in reverse for combine.
type MoE struct {
	// Experts is the number of experts, a multiple of the ranks.
	Experts int `yaml:"experts" json:"experts" jsonschema:"minimum=1,maximum=1024" unit:"experts"`
	// Tokens is the number of tokens of each rank. Default 128.
	Tokens int `yaml:"tokens,omitempty" json:"tokens,omitempty" jsonschema:"minimum=1,maximum=16384" unit:"tokens"`
	// Hidden is the number of values of a token, a multiple of 128. Default 7168.
	Hidden int `yaml:"hidden,omitempty" json:"hidden,omitempty" jsonschema:"minimum=128,maximum=32768" unit:"values"`
	// TopK is the number of experts to which a token goes. Default 8, or all if there are fewer.
	TopK int `yaml:"top-k,omitempty" json:"top-k,omitempty" jsonschema:"minimum=1,maximum=64" unit:"experts"`
	// Skew makes some experts popular. The gate chooses the k-th most popular expert in proportion
	// to 1/k^skew (Zipf). The seed decides the order of popularity. Default: all experts are
	// equally popular.
	Skew units.Factor `yaml:"skew,omitempty" json:"skew,omitzero" unit:"none"`
}

func (m *MoE) setDefaults() {
	m.Tokens = cmp.Or(m.Tokens, 128)
	m.Hidden = cmp.Or(m.Hidden, 7168)
	m.TopK = cmp.Or(m.TopK, min(8, m.Experts))
}

// moe checks conditions on a mixture of experts that struct tags cannot express.
func (c *checker) moe(at string, w *Workload) {
	workload := strictyaml.ParentPath(at)
	for key, why := range map[string]string{"type": "a type", "op": "an op", "file": "a file"} {
		if place := strictyaml.FieldPath(workload, key); w.Kind == KindMoE && c.Source.Has(place) {
			c.ReportKey(place, why+" of "+KindMoE+", whose tokens are FP8 and bfloat16", "remove it")
		}
	}
	switch {
	case w.MoE == nil && w.Kind == KindMoE:
		c.Report(strictyaml.FieldPath(workload, "kind"), "kind: "+KindMoE+" without moe",
			"add moe: {experts: 16}")
		return
	case w.MoE == nil:
		return
	case w.Kind != KindMoE:
		c.ReportKey(at, "moe is a mixture of experts, and the kind is "+printable.Clip(w.Kind),
			"want kind: "+KindMoE+", or remove it")
		return
	}
	m := *w.MoE
	m.setDefaults()
	if m.Hidden%TokenBlock != 0 {
		c.Report(at+".hidden", fmt.Sprintf("hidden is %d", m.Hidden),
			fmt.Sprintf("want a multiple of %d", TokenBlock))
	}
	if m.TopK > m.Experts && m.Experts > 0 {
		c.Report(at+".top-k", fmt.Sprintf("top-k is %d and experts %d", m.TopK, m.Experts),
			fmt.Sprintf("want at most %d", m.Experts))
	}
	if m.Skew.Float() > 4 {
		c.Report(at+".skew", "skew is "+m.Skew.String(), "want at most 4")
	}
}
