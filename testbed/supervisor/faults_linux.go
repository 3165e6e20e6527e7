package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"railbed/fabric/bpf"
	"railbed/fabric/softswitch"
	"railbed/plan"
	"railbed/plan/spec"
)

// serveFault adds or clears faults.
func (s *supervisor) serveFault(w http.ResponseWriter, r *http.Request) {
	var request FaultRequest
	err := readJSON(w, r, &request)
	if err == nil && (request.Add == nil) == (request.Clear == nil) {
		err = errors.New("a fault request wants add or clear")
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, Failure{Error: err.Error()})
		return
	}
	answer := FaultAnswer{Cleared: []softswitch.FaultState{}}
	if err := s.changeFaults(r.Context(), request, &answer); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

func (s *supervisor) changeFaults(ctx context.Context, request FaultRequest, answer *FaultAnswer) error {
	if add := request.Add; add != nil {
		p, _ := s.running()
		if err := p.CheckFault(add); err != nil {
			return fmt.Errorf("add fault: %w", wrongPlace{err})
		}
		if err := s.beginFault(ctx, p, add); err != nil {
			return err
		}
		s.events.add("fault.add", add.Name, add.Where+": "+add.String())
		return nil
	}
	cleared, err := s.endFaults(ctx, *request.Clear)
	for _, f := range cleared {
		what := "packets"
		if f.OfNodes() {
			what = "nodes"
		}
		s.events.add("fault.clear", f.Name, fmt.Sprintf("%d %s matched, %d hit", f.Matched, what, f.Hit))
	}
	answer.Cleared = append(answer.Cleared, cleared...)
	return err
}

// wrongPlace is the error of a fault whose places do not exist, or cannot have it.
type wrongPlace struct{ error }

// Is implements the interface of errors.Is.
func (wrongPlace) Is(target error) bool { return target == ErrNoSuchObject }

// beginFault begins a fault. Faults of packets and of nodes do not share names.
func (s *supervisor) beginFault(ctx context.Context, p *plan.Plan, f *spec.Fault) error {
	if f.OfNodes() {
		if err := s.freeName(ctx, f.Name); err != nil {
			return err
		}
		return s.addNodeFault(ctx, p, *f)
	}
	if s.nodeFaults.Has(f.Name) {
		return fmt.Errorf("add fault %s: %w", f.Name, softswitch.ErrInForce)
	}
	return s.keepLog(f.Name, s.fabric.AddFault(ctx, p, *f))
}

// freeName returns an error if a fault of packets has a name.
func (s *supervisor) freeName(ctx context.Context, name string) error {
	all, err := s.fabric.KernelFaults()
	if _, soft, failed := s.fabric.State(ctx); soft != nil {
		all, err = soft.Faults, failed
	}
	if slices.ContainsFunc(all, func(of softswitch.FaultState) bool { return of.Name == name }) {
		err = fmt.Errorf("add fault %s: %w", name, softswitch.ErrInForce)
	}
	return err
}

// endFaults clears faults by their names, or all without names. If a name is unknown, no fault ends.
func (s *supervisor) endFaults(ctx context.Context, names []string) (cleared []softswitch.FaultState,
	err error) {
	ofPackets := slices.DeleteFunc(slices.Clone(names), s.nodeFaults.Has)
	if len(names) == 0 || len(ofPackets) > 0 {
		if cleared, err = s.fabric.ClearFaults(ofPackets...); err != nil {
			return nil, err
		}
	}
	ofNodes, err := s.nodeFaults.Clear(ctx, names...)
	return append(cleared, ofNodes...), err
}

// keepLog writes the log of the kernel's verifier to the run directory, if the error has one.
func (s *supervisor) keepLog(fault string, err error) error {
	var refused *bpf.VerifierError
	if !errors.As(err, &refused) {
		return err
	}
	path := filepath.Join(s.dir.Path, "fault-"+fault+".verifier.log")
	if failed := os.WriteFile(path, []byte(refused.Log), 0o600); failed != nil {
		return errors.Join(err, failed)
	}
	return fmt.Errorf("%w; its log is %s", err, path)
}
