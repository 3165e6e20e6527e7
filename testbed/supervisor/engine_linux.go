package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"golang.org/x/sync/errgroup"

	"railbed/fabric"
	"railbed/internal/kernel"
	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/nodes/docker"
	"railbed/plan"
)

// OwnNamespaces returns the network namespaces of a plan that a supervisor makes: all except the
// namespaces of containers, which bring their own.
func OwnNamespaces(p *plan.Plan) []string {
	var names []string
	for _, name := range fabric.Namespaces(p) {
		if n := p.Node(name); n == nil || n.Container == nil {
			names = append(names, name)
		}
	}
	return names
}

// openEngine makes the containers, in whose namespaces the fabric is built.
func (s *supervisor) openEngine(ctx context.Context) (err error) {
	if !s.plan.HasDocker() {
		return nil
	}
	if s.start.Rootless {
		return &verdict.UnsupportedError{
			Feature: "docker",
			Reason:  "only root can put links into the engine's containers",
			Remedy:  "run railbed as root, or use runtime: netns",
		}
	}
	s.engine, err = docker.New(ctx, docker.Options{
		RunDir: s.dir.Path, Base: s.start.Base, Event: s.events.add, Revive: s.revive,
	})
	if err != nil {
		return err
	}
	// Record the containers before there is anything to sweep.
	if _, err := s.record(rundir.Published{Containers: s.engine.Host()}); err != nil {
		return err
	}
	total := 0
	for _, n := range s.plan.Nodes {
		if n.Container != nil {
			total++
		}
	}
	var lock sync.Mutex // guards the variables below
	done := 0
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range s.plan.Nodes {
		if n.Container == nil {
			continue
		}
		group.Go(func() error {
			namespace, err := s.engine.Open(ctx,
				nodes.Config{Testbed: s.plan.Name, Node: n, Hosts: s.plan.Hosts})
			if err != nil {
				return &placed{err, s.plan.Containers[n.Name]}
			}
			lock.Lock()
			defer lock.Unlock()
			s.namespaces[n.Name] = namespace
			done++
			s.startup.progress("start containers", done, total)
			return nil
		})
	}
	return group.Wait()
}

// revive puts the links of a container's node into the container's new namespace after a restart, and opens
// the soft switches' sockets there. The old links end with the old namespace, and the repair makes new ones.
func (s *supervisor) revive(ctx context.Context, node string, namespace *kernel.Namespace) error {
	s.adoption.converging.Lock()
	defer s.adoption.converging.Unlock()
	if err := s.namespaces[node].Become(namespace); err != nil {
		return err
	}
	_, err := s.fabric.Repair(ctx)
	return errors.Join(err, s.fabric.Reopen(ctx, node),
		s.management.Attach(ctx, node, s.namespaces[node]))
}

// serveNodeLog sends the output of the entry point of a container.
func (s *supervisor) serveNodeLog(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("node")
	node, keeps := s.nodes[name].(interface {
		Log(ctx context.Context, to io.Writer) error
	})
	if !keeps {
		writeError(w, fmt.Errorf("log of %q: %w: want a container, a node with runtime: docker",
			name, ErrNoSuchObject))
		return
	}
	var text bytes.Buffer // at most what the engine keeps
	if err := node.Log(r.Context(), &text); err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(text.Bytes()) // the client may be gone
}
