package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"railbed/internal/kernel"
	"railbed/nodes"
	"railbed/nodes/frr"
	"railbed/nodes/netns"
	"railbed/plan"
)

// convergence bounds the wait until the routers have all routes. convergencePoll is the interval at
// which they are queried.
const (
	convergence     = 60 * time.Second
	convergencePoll = 50 * time.Millisecond
)

// startRouting starts the daemons of routers, each router's in a node of its own over the router's
// network. It waits until they have found the plan's routes and their BFD sessions detect failures
// as fast as the plan requires.
func (s *supervisor) startRouting(ctx context.Context) error {
	var routers []*frr.Router
	var names []string
	for i := range s.plan.Switches {
		sw := &s.plan.Switches[i]
		if sw.Routing == nil {
			continue
		}
		node, err := netns.Runtime{}.Create(ctx, nodes.Config{
			Testbed:   s.plan.Name,
			Node:      plan.Node{Name: sw.Name, MachineID: sw.Routing.MachineID},
			Hosts:     s.plan.Hosts,
			Namespace: s.namespaces[sw.Name],
		})
		if err != nil {
			return fmt.Errorf("create node of router %s: %w", sw.Name, err)
		}
		s.nodes[sw.Name] = node
		routers, names = append(routers, nil), append(names, sw.Name)
	}
	if len(routers) == 0 {
		return nil
	}
	starting, ctx2 := errgroup.WithContext(ctx)
	n := 0
	for i := range s.plan.Switches {
		sw := &s.plan.Switches[i]
		if sw.Routing == nil {
			continue
		}
		at := n
		n++
		starting.Go(func() (err error) {
			routers[at], err = frr.Start(ctx2, s.nodes[sw.Name], sw)
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		return err
	}
	s.reactions = &reactions{}
	ended := make(chan error, 3*len(routers))
	for i, name := range names {
		go s.watchRouter(name, routers[i], ended)
		if err := s.watchRoutes(name); err != nil {
			return err
		}
	}
	if err := s.awaitRoutes(ctx, ended); err != nil {
		return err
	}
	return s.awaitSessions(ctx, routers, ended)
}

// watchRouter reports a daemon that ends before the testbed does.
func (s *supervisor) watchRouter(name string, r *frr.Router, ended chan<- error) {
	for {
		select {
		case <-s.ending.Done():
			return
		case end := <-r.Ended():
			if s.ending.Err() != nil {
				return
			}
			s.reactions.begin(end.Daemon+" of "+name+" ended", end.At)
			how := end.How()
			err := fmt.Errorf("%s of %s has ended: %s", end.Daemon, name, how)
			s.log.Error("a routing daemon ended", "error", err)
			s.events.add("routing.end", name, err.Error())
			s.reactions.ended(DaemonEnd{Switch: name, Daemon: end.Daemon, At: end.At, How: how})
			select {
			case ended <- err:
			default: // the bring-up has ended, or fails because of another daemon
			}
		}
	}
}

// watchRoutes records changes of a router's routes until the testbed ends.
func (s *supervisor) watchRoutes(name string) error {
	watch, err := kernel.WatchRoutes(s.namespaces[name])
	if err != nil {
		return fmt.Errorf("router %s: %w", name, err)
	}
	context.AfterFunc(s.ending, func() { watch.Close() })
	go func() {
		for {
			changes, err := watch.Next()
			if err != nil {
				if s.ending.Err() == nil {
					s.log.Error("route changes are no longer recorded", "router", name, "error", err)
				}
				return
			}
			s.reactions.changed(name, changes, time.Now())
		}
	}()
	return nil
}

// awaitRoutes waits until the routers have the plan's routes.
func (s *supervisor) awaitRoutes(ctx context.Context, ended <-chan error) error {
	most := 0
	took, err := s.awaitRouters(ctx, ended, func() (int, string, error) {
		count, first, err := s.fabric.Unlearned(ctx)
		most = max(most, count)
		s.startup.progress("routers find routes", most-count, most)
		return count, "routes are missing: " + first, err
	})
	if err != nil {
		return err
	}
	s.log.Info("routers have all routes", "took", took)
	s.events.add("routing.converged", "", took.String())
	s.reactions.converged(took)
	return nil
}

// awaitSessions waits until every BFD session of the routers is up and as fast as the plan
// requires. Before that, only BGP's hold time detects a link that fails.
func (s *supervisor) awaitSessions(ctx context.Context, routers []*frr.Router, ended <-chan error) error {
	_, err := s.awaitRouters(ctx, ended, func() (int, string, error) {
		slow := make([]int, len(routers))
		asking, ctx := errgroup.WithContext(ctx)
		for i, r := range routers {
			asking.Go(func() (err error) {
				slow[i], err = r.SlowSessions(ctx)
				return err
			})
		}
		err, sum, last := asking.Wait(), 0, ""
		for i, n := range slow {
			if sum += n; n > 0 {
				last = routers[i].Name()
			}
		}
		return sum, "BFD sessions are not up at the file's interval, some of " + last, err
	})
	return err
}

// awaitRouters polls until nothing is missing, and returns how long that took. missing returns the
// number of missing things, and words that follow the number.
func (s *supervisor) awaitRouters(ctx context.Context, ended <-chan error,
	missing func() (int, string, error)) (time.Duration, error) {
	began := time.Now()
	tick := time.NewTicker(convergencePoll)
	defer tick.Stop()
	for {
		count, words, err := missing()
		switch {
		case err != nil:
			return 0, fmt.Errorf("wait for routers: %w", err)
		case count == 0:
			return time.Since(began).Round(time.Millisecond), nil
		case time.Since(began) > convergence:
			return 0, fmt.Errorf("wait for routers: after %s %d %s", convergence, count, words)
		}
		select {
		case <-ctx.Done():
			return 0, errors.Join(errors.New("wait for routers"), context.Cause(ctx))
		case err := <-ended:
			return 0, fmt.Errorf("wait for routers: %w", err)
		case <-tick.C:
		}
	}
}
