package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"railbed/fabric/kernel"
	"railbed/nodes"
	"railbed/nodes/frr"
	"railbed/nodes/netns"
	"railbed/testbed/plan"
)

// convergence bounds the wait until the routers have all routes, and convergencePoll
// is how often they are asked.
const (
	convergence     = 60 * time.Second
	convergencePoll = 50 * time.Millisecond
)

// startRouting starts the daemons of routers, each router's in a node of its own
// over the router's network, and waits until they have found the plan's routes.
func (s *supervisor) startRouting(ctx context.Context) error {
	var routers []*frr.Router
	var names []string
	for i := range s.plan.Switches {
		sw := &s.plan.Switches[i]
		if sw.Routing == nil {
			continue
		}
		node, err := netns.Runtime{}.Create(ctx, nodes.Config{
			Testbed: s.plan.Name, Node: plan.Node{Name: sw.Name, MachineID: sw.Routing.MachineID}, Hosts: s.plan.Hosts, Namespace: s.namespaces[sw.Name],
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
	return s.awaitRoutes(ctx, ended)
}

// watchRouter tells of a daemon that ends before the testbed does.
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
			default: // bring-up is long over, or fails by another end
			}
		}
	}
}

// watchRoutes notes when a router's routes change, as long as the testbed lasts.
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
					s.log.Error("changes of routes are no longer seen", "router", name, "error", err)
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
	began := time.Now()
	tick := time.NewTicker(convergencePoll)
	defer tick.Stop()
	most := 0
	for {
		count, first, err := s.fabric.Unlearned(ctx)
		if err != nil {
			return err
		}
		if count == 0 {
			took := time.Since(began).Round(time.Millisecond)
			s.log.Info("routers have all routes", "took", took)
			s.events.add("routing.converged", "", took.String())
			s.reactions.converged(took)
			return nil
		}
		most = max(most, count)
		s.startup.progress("routers find routes", most-count, most)
		if time.Since(began) > convergence {
			return fmt.Errorf("wait for routers: after %s %d routes are missing: %s", convergence, count, first)
		}
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("wait for routers"), context.Cause(ctx))
		case err := <-ended:
			return fmt.Errorf("wait for routers: %w", err)
		case <-tick.C:
		}
	}
}
