package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"railbed/fabric"
	"railbed/internal/rundir"
	"railbed/plan"
)

// adoption is the plan that the testbed has taken over since it came up. It differs from the first
// plan only in settings of links.
type adoption struct {
	converging sync.Mutex
	adopted    atomic.Pointer[adopted]
}

type adopted struct {
	plan *plan.Plan
	file string
}

// running returns the testbed's current plan and the file that it comes from.
func (s *supervisor) running() (p *plan.Plan, file string) {
	if a := s.adoption.adopted.Load(); a != nil {
		return a.plan, a.file
	}
	return s.plan, s.start.File
}

// maxPlan bounds a plan's JSON in a request, in bytes. 4,096 nodes of eight NICs have about 100
// MiB.
const maxPlan = 256 << 20

// serveConverge changes the testbed to match its plan, or another plan that differs only in
// settings of links.
func (s *supervisor) serveConverge(w http.ResponseWriter, r *http.Request) {
	var request ConvergeRequest
	err := json.NewDecoder(io.LimitReader(r.Body, maxPlan)).Decode(&request)
	if err != nil && !errors.Is(err, io.EOF) { // an empty request means the current plan
		writeJSON(w, http.StatusBadRequest, Failure{Error: fmt.Sprintf("read request: %v", err)})
		return
	}
	// Once begun it is completed, because half of a repair is of no use.
	converged, err := s.converge(context.WithoutCancel(r.Context()), request)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, converged)
}

// converge returns an error if it changed nothing. Its result has the errors of failed repairs.
func (s *supervisor) converge(ctx context.Context, request ConvergeRequest) (*Converged, error) {
	s.adoption.converging.Lock()
	defer s.adoption.converging.Unlock()
	running, file := s.running()
	want := request.Plan
	if want == nil {
		want = running
	} else if d := plan.Compare(running, want); !d.Live() {
		return nil, fmt.Errorf("converge testbed %s: the plan has changes that need a new bring-up: %s",
			running.Name,
			strings.Join(d.Rest, "; "))
	}
	result := &Converged{}
	var trace func(string)
	if request.Trace {
		trace = func(line string) { result.Commands = append(result.Commands, line) }
	}
	changed, repaired, err := s.fabric.Converge(ctx, want, trace)
	if err != nil && changed == nil {
		return nil, err
	}
	names, namesErr := s.republish()
	result.Changed, result.Repaired = changed, append(repaired, names...)
	for _, change := range changed {
		kind := "link.up"
		if strings.Contains(change.Where, " ") { // Where names a direction
			kind = "link.set"
		}
		s.events.add(kind, change.Where, change.What)
	}
	for _, repair := range result.Repaired {
		s.events.add("testbed.repair", repair.Where, repair.What)
	}
	if err = errors.Join(err, namesErr); err != nil {
		failure := failureOf(err)
		result.Failure = &failure
		return result, nil
	}
	if request.File != "" {
		file = request.File
	}
	s.adoption.adopted.Store(&adopted{want, file})
	if hash := want.Hash(); request.Plan != nil && hash != running.Hash() {
		s.events.add("testbed.plan", want.Name, hash)
	}
	return result, s.writeAborted(supervisorDied)
}

// links returns the testbed's names for ip-netns(8).
func (s *supervisor) links() []rundir.Link {
	var links []rundir.Link
	if s.start.Rootless { // only root can write /run/netns
		return nil
	}
	add := func(name string) {
		path := s.publishedPath(name)
		if s.namespaces[name] != nil && s.hasStack(name) && !s.taken[path] {
			// Soft switches have no namespace.
			links = append(links, rundir.Link{Path: path, Target: s.namespacePath(s.namespaces[name])})
		}
	}
	for _, n := range s.plan.Nodes {
		add(n.Name)
	}
	for _, sw := range s.plan.Switches {
		add(sw.Name)
	}
	return links
}

// republish restores missing names.
func (s *supervisor) republish() ([]fabric.Repair, error) {
	made, err := s.dir.Republish(s.links())
	var repairs []fabric.Repair
	for _, link := range made {
		repairs = append(repairs, fabric.Repair{Where: link.Path,
			What: "publish " + link.Path + ": it was missing"})
	}
	return repairs, err
}

// serveVerify reads everything back and compares it with the plan.
func (s *supervisor) serveVerify(w http.ResponseWriter, r *http.Request) {
	err := s.fabric.Verify(r.Context())
	for _, link := range rundir.CheckLinks(s.links()) {
		err = errors.Join(err, fmt.Errorf("publish %s: the link is missing, or another file has its name",
			link.Path))
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, struct{}{})
}
