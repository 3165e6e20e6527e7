package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"railbed/fabric/bpf"
	"railbed/fabric/softswitch"
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
			return fmt.Errorf("add fault: %w: %w", ErrNoSuchObject, err)
		}
		if err := s.fabric.AddFault(ctx, p, *add); err != nil {
			return s.keepLog(add.Name, err)
		}
		s.events.add("fault.add", add.Name, add.Where+": "+add.String())
		return nil
	}
	cleared, err := s.fabric.ClearFaults(*request.Clear...)
	if err != nil {
		return err
	}
	for _, f := range cleared {
		s.events.add("fault.clear", f.Name, fmt.Sprintf("%d packets matched, %d hit", f.Matched, f.Hit))
	}
	answer.Cleared = append(answer.Cleared, cleared...)
	return nil
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
