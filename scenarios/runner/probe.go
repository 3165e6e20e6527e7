package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed/probe"
)

// probeStep sends telemetry probes.
type probeStep struct {
	stepFrame
	spec *spec.Probe
}

var _ = makes(func(_ *preparation, f stepFrame, a *spec.Probe) step { return &probeStep{f, a} })

func (p *probeStep) object() string { return p.Name }

// flows implements flowing.
func (p *probeStep) flows(of *plan.Plan) ([]Flow, error) { return between(of, p.spec.From, p.spec.To) }

func (p *probeStep) do(ctx context.Context, s *session) error {
	from, to := p.spec.Nodes()
	ctx, done := s.withPatience(ctx, []string{from, to})
	defer done()
	found, err := probe.Run(ctx, s.testbed, probe.Options{
		From:     p.spec.From,
		To:       p.spec.To,
		Count:    p.spec.Count,
		Interval: time.Duration(p.spec.Interval),
		Flows:    p.spec.Flows,
		DSCP:     p.spec.DSCP,
		IPv6:     p.spec.Family == "6",
	})
	if err != nil {
		return err
	}
	name := "probes/" + p.Name + ".json"
	err = s.results.replace(name, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(found)
	})
	if err != nil {
		return lost(err)
	}
	s.logged(p.index, name)
	return judgeProbes(p.spec, found)
}

// judgeProbes returns an error if the telemetry breaks bounds.
func judgeProbes(p *spec.Probe, found *probe.Report) error {
	var broken []string
	arrived := p.Arrived
	if arrived == "" {
		arrived = fmt.Sprintf(">= %d", p.Count)
	}
	queue := worstQueue(found)
	for _, b := range []struct {
		text  string
		kind  spec.BoundKind
		value int
		found string
	}{
		{arrived, spec.CountBound, found.Arrived,
			plural.Text("%d of %d probes arrived", found.Arrived, found.Sent)},
		{p.Paths, spec.CountBound, len(found.Paths), plural.Text("probes took %d paths", len(found.Paths))},
		{p.Queue, spec.BytesBound, queue, fmt.Sprintf("the longest queue was %s", units.Bytes(queue))},
	} {
		bound, err := spec.ParseBound(b.text, b.kind)
		if b.text != "" && err == nil && !bound.Holds(float64(b.value)) {
			broken = append(broken, fmt.Sprintf("%s, want %s", b.found, bound))
		}
	}
	if len(broken) > 0 {
		return errors.New(strings.Join(broken, "; "))
	}
	return nil
}

// worstQueue returns the longest queue in bytes that a probe left behind.
func worstQueue(found *probe.Report) int {
	worst := 0
	for i := range found.Paths {
		for n := range found.Paths[i].Hops {
			worst = max(worst, int(found.Paths[i].Summary(n).WorstQueue))
		}
	}
	return worst
}
