package reporting

import (
	"railbed/capture/report"
	"railbed/internal/plural"
)

// notesOf returns sentences for people about what stands out in the run, each after the name of its step.
func notesOf(r *report.Report) (all []string) {
	add := func(name string, notes ...string) {
		for _, note := range notes {
			if note != "" {
				all = append(all, name+": "+note)
			}
		}
	}
	if r.Fidelity != nil {
		all = append(all, fidelityNotes(r.Fidelity)...)
	}
	for i := range r.Workloads {
		w := &r.Workloads[i]
		add(w.Name, append(w.Notes(), w.Lost())...)
	}
	for i := range r.Trainings {
		t := &r.Trainings[i]
		if t.OtherClocks {
			add(t.Name, "ranks have other clocks than this host, so its times are meaningless")
		}
		add(t.Name, append(t.Notes(), t.Lost())...)
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		if m.Slow != nil {
			add(m.Name, m.Slow.String())
		}
		add(m.Name, append([]string{m.Told(), m.Lost()}, m.Notes()...)...)
	}
	for i := range r.Stacks {
		s := &r.Stacks[i]
		if s.Held != nil {
			add(s.Name, s.Held.String())
		}
		if s.Slow != nil {
			add(s.Name, s.Slow.String())
		}
	}
	all = append(all, r.Signals.Notes()...)
	for _, event := range r.Containers {
		all = append(all, "container "+event)
	}
	if r.Routing != nil {
		for _, end := range r.Routing.Ended {
			all = append(all, end.String())
		}
	}
	if r.EventsDropped > 0 {
		all = append(all, plural.Text("%d events of the testbed were not kept; railbed events --follow has "+
			"all", r.EventsDropped))
	}
	return all
}

// fidelityNotes names the nodes whose programs had no processor, and the NICs that went down in their nodes.
func fidelityNotes(f *report.Fidelity) (all []string) {
	for _, down := range f.Downs {
		all = append(all, down.String())
	}
	return all
}
