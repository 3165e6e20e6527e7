package supervisor

import (
	"fmt"
	"net/http"
	"slices"

	"railbed/plan"
)

// serveSlow changes the limit of a node's processor time.
func (s *supervisor) serveSlow(w http.ResponseWriter, r *http.Request) {
	var request SlowRequest
	if err := readJSON(w, r, &request); err != nil {
		writeJSON(w, http.StatusBadRequest, Failure{Error: err.Error()})
		return
	}
	if err := s.slow(request); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, struct{}{})
}

func (s *supervisor) slow(request SlowRequest) error {
	p, _ := s.running()
	at := slices.IndexFunc(p.Nodes, func(n plan.Node) bool { return n.Name == request.Node })
	if at < 0 {
		return fmt.Errorf("slow node %q: %w", request.Node, ErrNoSuchObject)
	}
	if err := s.groups[at].SetCPU(request.CPU); err != nil {
		return fmt.Errorf("slow node %s: %w", request.Node, err)
	}
	what := "as the file says"
	if request.CPU > 0 {
		what = fmt.Sprintf("%g CPUs", request.CPU)
	}
	s.events.add("node.slow", request.Node, what)
	return nil
}
