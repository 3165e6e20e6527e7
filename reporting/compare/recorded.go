package compare

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"railbed/capture/bundle"
	"railbed/capture/follow"
	"railbed/reporting"
)

// messages are the messages of a workload and protocol in a run's recording.
type messages struct {
	follow.Sum
	// recording is the recording's name, "" if it does not matter.
	recording string
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

// readRecordings reads the recordings of a run, one after the other.
func (s *side) readRecordings(ctx context.Context, opened *bundle.Run, one *run) {
	one.recordings = opened.Captures()
	for _, name := range one.recordings {
		which := "its recording"
		if len(one.recordings) > 1 {
			which += " " + name
		}
		found, warning, err := readMessages(ctx, opened, name)
		switch {
		case err != nil:
			s.notes = append(s.notes,
				fmt.Sprintf("%s %s: %s is not compared: %v", s.name, one.name, which, err))
		case warning != "":
			s.notes = append(s.notes, fmt.Sprintf("%s %s: %s %s", s.name, one.name, which, warning))
		}
		one.messages = append(one.messages, found...)
		if ctx.Err() != nil {
			return
		}
	}
}

// nameRecordings removes the names of recordings if no run has several. Otherwise it notes which runs lack a
// recording.
func nameRecordings(sides [2]*side) {
	var all []string
	several := false
	for _, s := range sides {
		for _, one := range s.runs {
			several = several || len(one.recordings) > 1
			for _, name := range one.recordings {
				if !slices.Contains(all, name) {
					all = append(all, name)
				}
			}
		}
	}
	for _, s := range sides {
		for _, one := range s.runs {
			for i := range one.messages {
				if !several {
					one.messages[i].recording = ""
				}
			}
			for _, name := range all {
				if several && !slices.Contains(one.recordings, name) {
					s.notes = append(s.notes, fmt.Sprintf("%s %s has no recording %s: recordings are "+
						"compared with those of the same name", s.name, one.name, name))
				}
			}
		}
	}
}

// readMessages reads a recording of a run. warning names what the recording lacks.
func readMessages(ctx context.Context, run *bundle.Run, name string) (all []messages, warning string,
	err error) {
	r, err := follow.ReadCapture(ctx, run, name)
	if err != nil {
		return nil, "", err
	}
	warning = strings.Join(r.Lacks(), "; and it ")
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
		m := messages{Sum: sum, recording: name}
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
func (m *messages) title() string { return title(m.recording, m.Workload, m.Protocol) }

func title(recording, workload, protocol string) string {
	text := protocol
	if workload != "" {
		text = workload + ", " + protocol
	}
	if recording != "" {
		text = recording + ": " + text
	}
	return text
}

// recording adds the numbers of a run's recording.
func (g *gathered) recording(all []messages) {
	for i := range all {
		m := &all[i]
		add := func(what, unit string, better reporting.Direction, value float64) {
			g.add(reporting.Number{Quantity: reporting.Quantity{Section: reporting.RecordingSection,
				Of:   m.title(),
				What: what, Unit: unit, Better: better}}, value)
		}
		add("messages", "", reporting.Neither, float64(m.Messages))
		add("unfinished", "", reporting.Less, float64(m.Unfinished))
		add("packets sent again", "", reporting.Less, float64(m.Again))
		add("packets lost", "", reporting.Less, float64(m.Lost))
		for k, q := range m.named {
			add(namedQuantiles[k].name, reporting.Seconds, reporting.Less, q.Seconds())
		}
		if len(m.named) == 0 {
			continue
		}
		add("mean", reporting.Seconds, reporting.Less, m.mean.Seconds())
		for part := range follow.Part(follow.Parts) {
			add(partName(part), reporting.Seconds, reporting.Less, time.Duration(m.Account[part]).Seconds())
		}
	}
}

// Curves are the distributions of the times of messages of a workload and protocol, a curve for each run.
type Curves struct {
	// Recording is the name of the recording, "" if each run has one.
	Recording string `json:"recording,omitempty"`
	Workload  string `json:"workload,omitempty"`
	Protocol  string `json:"protocol"`
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
func (c *Curves) Title() string { return title(c.Recording, c.Workload, c.Protocol) }

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
					return c.Recording == m.recording && c.Workload == m.Workload && c.Protocol == m.Protocol
				})
				if at < 0 {
					at = len(all)
					all = append(all, Curves{Recording: m.recording, Workload: m.Workload,
						Protocol: m.Protocol, Probabilities: probabilities, Base: []Curve{}, New: []Curve{}})
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
