package evidence

import (
	"slices"

	"railbed/capture/verify/conditions"
	"railbed/plan/spec"
)

// Kind is a kind of packet check that a file can ask for. The file of each check registers its kind.
type Kind struct {
	Key string // in files
	// Example is the text that a file writes after the key.
	Example string
	// Timed reports whether the finding depends on the times of packets. If the emulation did not
	// keep up, such a finding is no proof. Elements, bytes, order and conservation do not depend on
	// times. Nil means always.
	Timed func(*spec.PacketsCheck) bool
	// Conditions are the needs of the check: of the file and of the plan.
	Conditions conditions.Conditions
	// Make makes the check. The syntax of its keys was checked when the file was read.
	Make Make
}

// Sources provide the data that checks need in addition to packets and plan.
type Sources struct {
	// Traffic returns the packets of a workload. The name is the check's argument, and is empty
	// for the only workload.
	Traffic func(workload string) (Workload, error)
	// Crossing returns the traffic that a run of a stack had to send.
	Crossing func(stack string) (Crossing, error)
	// Numbers returns the numbers of a workload for formulas.
	Numbers func(workload string) (map[string]float64, error)
	// Active returns the times in which a step or a fault was active. If it never was, it returns the
	// reason. Nil means that no times are known.
	Active func(name string) (active []Active, never string, err error)
}

// Selected returns the workload whose packets a check is about. Nil means all packets.
func (s Sources) Selected(p *spec.PacketsCheck) (*Workload, error) {
	if p.Work() == "" {
		return nil, nil
	}
	w, err := s.Traffic(p.Work())
	return &w, err
}

// Never is Kind.Timed of a check whose finding depends on no times.
func Never(*spec.PacketsCheck) bool { return false }

// Make makes a check.
type Make = func(*spec.PacketsCheck, Sources) (Check, error)

// Of returns the Make of a check that its keys describe.
func Of[K any](make func(keys K) Check) Make {
	return func(p *spec.PacketsCheck, _ Sources) (Check, error) { return make(p.Keys().(K)), nil }
}

// OfSelected returns the Make of a check of the packets of the workload that its keys name, or of all.
func OfSelected[K any](make func(keys K, w *Workload) Check) Make {
	return func(p *spec.PacketsCheck, s Sources) (Check, error) {
		w, err := s.Selected(p)
		return make(p.Keys().(K), w), err
	}
}

// OfWorkload returns the Make of a check that judges a workload and has no other keys.
func OfWorkload(make func(Workload) Check) Make {
	return func(p *spec.PacketsCheck, s Sources) (Check, error) {
		w, err := s.Traffic(p.Work())
		return make(w), err
	}
}

var kinds []Kind

// Register adds a kind of check, and returns it. The file of the check calls it when the program starts.
func Register(k Kind) Kind {
	kinds = append(kinds, k)
	return k
}

// Kinds returns all kinds of checks, in the order of spec.PacketChecks.
func Kinds() []Kind {
	order := spec.PacketChecks()
	all := slices.Clone(kinds)
	slices.SortFunc(all, func(a, b Kind) int {
		return slices.Index(order, a.Key) - slices.Index(order, b.Key)
	})
	return all
}
