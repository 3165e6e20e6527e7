package compare

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"railbed/capture/bundle"
	"railbed/capture/follow"
)

// messages are the messages of a workload and protocol in a run's recording.
type messages struct {
	follow.Sum
	// times are quantiles of the messages that arrived, in the order of probabilities. It is empty if none
	// did.
	times []time.Duration
	// named are the quantiles of namedQuantiles.
	named []time.Duration
	mean  time.Duration
}

// namedQuantiles are the quantiles that are numbers.
var namedQuantiles = []struct {
	name string
	p    float64
}{{"p10", 0.1}, {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"most", 1}}

// probabilities are the points of curves. They are even in log odds, so that both ends have as many points as
// the middle.
var probabilities = func() (all []float64) {
	const points, decades = 121, 3 // of odds, on each side of the median
	for i := range points {
		odds := math.Pow(10, decades*(2*float64(i)/(points-1)-1))
		all = append(all, odds/(1+odds))
	}
	return all
}()

// readMessages reads the recording of a run, if it has one. warning names what the recording lacks.
func readMessages(ctx context.Context, run *bundle.Run) (all []messages, warning string, err error) {
	r, err := follow.ReadRun(ctx, run)
	if errors.Is(err, bundle.ErrNoCapture) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	if r.Lost > 0 {
		warning = fmt.Sprintf("lost %d packets: messages may seem unfinished", r.Lost)
	} else if r.Truncated {
		warning = "is cut off: messages may seem unfinished"
	}
	selected := r.Select(follow.Selection{})
	type kind struct{ workload, protocol string }
	took := map[kind][]time.Duration{}
	for _, i := range selected {
		if m := &r.Messages[i]; m.Placed > 0 {
			f := &r.Flows[m.Flow]
			k := kind{f.Workload, f.Protocol}
			took[k] = append(took[k], r.Own(m.Placed-m.Start))
		}
	}
	for _, sum := range r.Sums(selected) {
		m := messages{Sum: sum}
		times := took[kind{sum.Workload, sum.Protocol}]
		slices.Sort(times)
		if len(times) > 0 {
			for _, p := range probabilities {
				m.times = append(m.times, quantile(times, p))
			}
			for _, q := range namedQuantiles {
				m.named = append(m.named, quantile(times, q.p))
			}
			m.mean = time.Duration(sum.Account.Total() / int64(len(times)))
			for part := range sum.Account {
				m.Account[part] /= int64(len(times))
			}
		}
		all = append(all, m)
	}
	return all, warning, nil
}

// quantile returns a quantile of sorted values by nearest rank.
func quantile(sorted []time.Duration, p float64) time.Duration {
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// title names messages for people.
func (m *messages) title() string { return title(m.Workload, m.Protocol) }

func title(workload, protocol string) string {
	if workload == "" {
		return protocol
	}
	return workload + ", " + protocol
}

// recording adds the numbers of a run's recording.
func (g *gathered) recording(all []messages) {
	for i := range all {
		m := &all[i]
		to := in{g, Recordings, m.title()}
		to.add("messages", "", Neither, float64(m.Messages))
		to.add("unfinished", "", Less, float64(m.Unfinished))
		to.add("packets sent again", "", Less, float64(m.Again))
		to.add("packets lost", "", Less, float64(m.Lost))
		for k, q := range m.named {
			to.add(namedQuantiles[k].name, Seconds, Less, q.Seconds())
		}
		if len(m.named) == 0 {
			continue
		}
		to.add("mean", Seconds, Less, m.mean.Seconds())
		for part := range follow.Part(follow.Parts) {
			to.add(partName(part), Seconds, Less, time.Duration(m.Account[part]).Seconds())
		}
	}
}

// Curves are the distributions of the times of messages of a workload and protocol, a curve for each run.
type Curves struct {
	Workload string `json:"workload,omitempty"`
	Protocol string `json:"protocol"`
	// Probabilities are the same for all curves.
	Probabilities []float64 `json:"probabilities"`
	Base          []Curve   `json:"base"`
	New           []Curve   `json:"new"`
}

// Curve is the distribution of a run.
type Curve struct {
	Run      string `json:"run"`
	Messages int    `json:"messages"`
	// Seconds[i] is the time that the share Probabilities[i] of the messages took at most.
	Seconds []float64 `json:"seconds"`
}

// Title names the messages for people.
func (c *Curves) Title() string { return title(c.Workload, c.Protocol) }

func curves(sides [2]*side) []Curves {
	all := []Curves{}
	for i, s := range sides {
		for _, one := range s.runs {
			for k := range one.messages {
				m := &one.messages[k]
				if len(m.times) == 0 {
					continue
				}
				at := slices.IndexFunc(all, func(c Curves) bool {
					return c.Workload == m.Workload && c.Protocol == m.Protocol
				})
				if at < 0 {
					at = len(all)
					all = append(all, Curves{Workload: m.Workload, Protocol: m.Protocol,
						Probabilities: probabilities,
						Base:          []Curve{}, New: []Curve{}})
				}
				curve := Curve{Run: one.name, Messages: m.Messages}
				for _, t := range m.times {
					curve.Seconds = append(curve.Seconds, t.Seconds())
				}
				into := [2]*[]Curve{&all[at].Base, &all[at].New}[i]
				*into = append(*into, curve)
			}
		}
	}
	return all
}

// meanIn begins the names of the mean times of messages in a part.
const meanIn = "mean in "

func partName(part follow.Part) string { return meanIn + part.String() }
