package runner

import (
	"math"
	"testing"

	"railbed/testkit/hosttest"
)

// TestTrials: each NIC of a ring sends at its link's rate. The pairs of an all-to-all over one spine share
// the links between the leaves. The pairs below a leaf carry as many bytes in the same time. Links of
// 10 Mbit/s do not limit the trial.
func TestTrials(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	hosttest.Long(t)
	o := options(t, `
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 1, hosts-per-leaf: 2}
  switch: {kind: soft}
  links: {default: {rate: 10mbit}}
steps:
  - capture: {at: [nics], file: run.pcapng}
  - workload: {name: ring, kind: all-reduce, transport: rd, size: 256KiB}
  - workload: {name: all, kind: all-to-all, ranks: [0, 1, 2, 3], sizes: {from: 1KiB, to: 64KiB, factor: 64}}
  - workload: {name: barrier, kind: barrier}
checks:
  - packets: {lossless: {}}
`)
	trials, err := Trials(t.Context(), o)
	if err != nil || len(trials) != 2 {
		t.Fatal(trials, err)
	}
	// Of the all-to-all, eight pairs share two links of 10 Mbit/s, and four pairs below the leaves carry the
	// same bytes. An operation takes as long as the eight. So 12 pairs have 2.5 Mbit/s each.
	for i, want := range []float64{40e6, 12 * 2.5e6} {
		got := trials[i]
		if math.Abs(got.Asked-want) > 100 || got.Carried <= 0 || got.CPUs <= 0 || got.CPUs > 1 {
			t.Errorf("%+v, want %v bit/s at the rates of the links, and some carried", got, want)
		}
	}
	if o.Plan.Links[0].AToB.Rate != 10e6 || len(o.File.Steps) != 4 || o.File.Steps[2].Workload.Sizes == nil {
		t.Error("the trials changed the file")
	}
}

func TestAdviceOfTrials(t *testing.T) {
	for _, c := range []struct {
		asked, carried float64
		keepsUp        bool
		rates          float64
		dilation       uint64
	}{
		{1e9, 10e9, true, 6, 1},
		{6e9, 10e9, true, 1, 2},
		{12e9, 10e9, false, 0.5, 3},
		{10e9, 10e9, false, 0.6, 2},
	} {
		trial := Trial{Asked: c.asked, Carried: c.carried}
		rates, dilation := trial.Advice()
		if trial.KeepsUp() != c.keepsUp || math.Abs(rates-c.rates) > 1e-9 || dilation != c.dilation {
			t.Errorf("%v of %v: %v, %v, %d", c.asked, c.carried, trial.KeepsUp(), rates, dilation)
		}
	}
}
