package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/http"

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
			return err
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
