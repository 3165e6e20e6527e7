package compare

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/reporting"
)

// Fact is a property of runs whose value is a word, such as a version or the verdict of a check.
type Fact struct {
	// Of is the subject, such as "check drops switches tail", "" for the whole run.
	Of   string `json:"of,omitempty"`
	What string `json:"what"`
	// Base and New are the words of the runs, most frequent first. A side without the fact has none.
	Base []Word `json:"base"`
	New  []Word `json:"new"`
}

// Word is a value of a fact and its number of runs.
type Word struct {
	Word string `json:"word"`
	Runs int    `json:"runs"`
}

// Same reports whether all runs of both sides have the same word.
func (f *Fact) Same() bool {
	return len(f.Base) == 1 && len(f.New) == 1 && f.Base[0].Word == f.New[0].Word
}

// subject identifies a fact.
type subject struct{ of, what string }

// facts collects facts of all runs. A fact that some runs of a side lack has the word "" there.
func facts(sides [2]*side, of func(r *report.Report, add func(of, what string, word any))) []Fact {
	all := []Fact{}
	at := map[subject]int{}
	for i, s := range sides {
		for _, one := range s.runs {
			times := map[subject]int{} // in this run
			of(one.report, func(of, what string, word any) {
				n := subject{of, what}
				times[n]++
				if times[n] > 1 {
					n.what += fmt.Sprintf(" (%d)", times[n])
				}
				place, known := at[n]
				if !known {
					place = len(all)
					at[n] = place
					all = append(all, Fact{Of: n.of, What: n.what})
				}
				words := [2]*[]Word{&all[place].Base, &all[place].New}[i]
				count(words, fmt.Sprint(word))
			})
		}
	}
	for i := range all {
		for k, words := range [2]*[]Word{&all[i].Base, &all[i].New} {
			lacking := len(sides[k].runs)
			for _, w := range *words {
				lacking -= w.Runs
			}
			if lacking > 0 {
				*words = append(*words, Word{"", lacking})
			}
			slices.SortStableFunc(*words, func(a, b Word) int { return b.Runs - a.Runs })
		}
	}
	return all
}

func count(words *[]Word, word string) {
	i := slices.IndexFunc(*words, func(w Word) bool { return w.Word == word })
	if i < 0 {
		*words = append(*words, Word{Word: word, Runs: 1})
		return
	}
	(*words)[i].Runs++
}

// inputs adds what was run, and where.
func inputs(r *report.Report, add func(of, what string, word any)) {
	add("", "file", r.File)
	add("", "name", r.Name)
	add("", "railbed", r.Versions.Railbed)
	add("", "Go", r.Versions.Go)
	add("", "host", r.Host.Name)
	add("", "kernel", r.Host.Kernel)
	add("", "architecture", r.Host.Arch)
	add("", "CPUs", r.Host.CPUs)
	add("", "memory", strconv.FormatUint(r.Host.Memory>>20, 10)+" MiB")
	add("", "rootless", r.Host.Rootless)
	add("", "seed", r.Seed)
	add("", "dilation", r.Dilation)
	add("", "topology", r.Testbed.Topology)
	add("", "cluster", reporting.Sizes(r.Testbed))
	for _, s := range r.Steps {
		add("step "+s.Name, "", "there")
	}
	inputsOfSteps(r, add)
	for _, c := range r.Checks {
		for _, v := range c.Values {
			if v.Want != "" {
				add("check "+c.Name, "wanted "+v.Name, v.Want)
			}
		}
	}
	for _, c := range r.Captures {
		add("capture "+c.File, "at", strings.Join(c.At, ", "))
		add("capture "+c.File, "filter", c.Filter)
	}
}

// inputsOfSteps adds the settings of steps that a report has.
func inputsOfSteps(r *report.Report, add func(of, what string, word any)) {
	for i := range r.Workloads {
		w := &r.Workloads[i]
		of := "workload " + w.Name
		add(of, "kind", w.Kind)
		add(of, "algorithm", strings.TrimSpace(w.Algorithm+" "+w.File))
		add(of, "transport", w.Transport)
		add(of, "ranks", w.Ranks)
		add(of, "bytes", w.Bytes)
		add(of, "type", w.Type)
		add(of, "redop", w.RedOp)
		add(of, "warm-ups", w.Warmup)
		add(of, "iterations", w.Iterations)
		for _, row := range w.Rows {
			add(of, fmt.Sprintf("algorithm, %d B", row.Size), row.Algorithm)
		}
		if m := w.Mixture; m != nil {
			add(of, "experts", plural.Text("%d, %d tokens of %d values at each rank, each to %d %s",
				m.Experts, m.Tokens, m.Hidden, m.TopK, m.Skew))
		}
	}
	for _, t := range r.Trainings {
		of := "training " + t.Name
		add(of, "transport", t.Transport)
		add(of, "ranks", t.Ranks)
		add(of, "warm-ups", t.Warmup)
		add(of, "iterations", len(t.Iterations))
	}
	for _, m := range r.Messages {
		of := "messages " + m.Name
		add(of, "transport", m.Transport)
		add(of, "of", m.What)
		add(of, "bytes", m.Bytes)
		add(of, "objective", Text(m.SLO, reporting.Seconds))
		if s := m.Serving; s != nil {
			add(of, "ranks that prefill and decode", fmt.Sprintf("%d and %d", s.Prefill, s.Decode))
			add(of, "objectives of tokens",
				Text(s.SLO, reporting.Seconds)+" and "+Text(s.TokenSLO, reporting.Seconds))
		}
	}
	for _, s := range r.Stacks {
		of := "stack " + s.Name
		add(of, "kind", s.Kind)
		add(of, "version", s.Version)
		add(of, "test", s.Test)
		add(of, "ranks", s.Ranks)
	}
}

// verdicts adds the results that are words.
func verdicts(r *report.Report, add func(of, what string, word any)) {
	add("", "verdict", r.Verdict)
	if r.Fidelity != nil {
		add("", "fidelity", r.Fidelity.Verdict)
	}
	for _, s := range r.Steps {
		add("step "+s.Name, "", s.State)
	}
	for _, c := range r.Checks {
		add("check "+c.Name, "", c.Verdict)
	}
	for _, c := range r.Captures {
		add("capture "+c.File, "complete", c.Complete)
	}
	straggler := func(of string, s *report.Straggler) {
		if s != nil {
			add(of, "straggler", fmt.Sprintf("rank %d on %s", s.Rank, s.Node))
		}
	}
	for _, w := range r.Workloads {
		straggler("workload "+w.Name, w.Straggler)
	}
	for _, t := range r.Trainings {
		straggler("training "+t.Name, t.Straggler)
	}
	for _, m := range r.Messages {
		straggler("messages "+m.Name, m.Straggler)
		if s := m.Slow; s != nil {
			add("messages "+m.Name, "slow rank", fmt.Sprintf("rank %d on %s", s.Rank, s.Node))
		}
	}
	for _, s := range r.Stacks {
		if far := s.Slow; far != nil {
			add("stack "+s.Name, "slow rank", fmt.Sprintf("rank %d on %s", far.Rank, far.Node))
		}
		if held := s.Held; held != nil {
			add("stack "+s.Name, "rank that was held up", fmt.Sprintf("rank %d on %s", held.Rank, held.Node))
		}
	}
}
