package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"railbed/nodes"
	"railbed/plan/spec"
)

// Kinds of events.
const (
	Stopping   = "container.stopping" // as requested from outside
	Died       = "container.died"
	Ended      = "container.ended" // of its entry point, with another code than 0
	Completed  = "container.completed"
	Restarted  = "container.restart"
	EngineLost = "engine.lost"
)

// Pauses between restarts double from the first to the last.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// tell reports an event, unless the node is being closed.
func (c *container) tell(kind, detail string) {
	if c.life.Err() == nil && c.runtime.options.Event != nil {
		c.runtime.options.Event(kind, c.config.Node.Name, detail)
	}
}

// restarts reports whether the file's policy restarts a container or entry point that ended so.
func (c *container) restarts(failed bool) bool {
	policy := c.config.Node.Container.Restart
	return policy == spec.RestartAlways || policy == spec.RestartOnFailure && failed
}

// pause waits before a restart. It returns false if the node is closed.
func (c *container) pause() (proceed bool) {
	c.mu.Lock()
	if time.Since(c.paused) > c.lastPause+lastPause {
		c.lastPause = 0 // it ran for a while
	}
	pause := max(c.lastPause, firstPause)
	c.lastPause, c.paused = min(2*pause, lastPause), time.Now()
	c.mu.Unlock()
	select {
	case <-c.life.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// lost is called when the container has ended.
func (c *container) lost() {
	if c.life.Err() != nil {
		return
	}
	how, failed := c.inspected()
	c.tell(Died, how)
	if !c.restarts(failed) {
		return
	}
	for c.pause() {
		runs, err := c.revive()
		switch {
		case err == nil:
			c.tell(Restarted, "the container runs again, with its links")
		case runs:
			c.tell(Died, "the container runs again, but: "+err.Error())
		default:
			c.tell(Died, "start it again: "+err.Error())
			continue
		}
		return
	}
}

// inspected returns how the container ended.
func (c *container) inspected() (how string, failed bool) {
	ctx, cancel := context.WithTimeout(c.life, answerTime)
	defer cancel()
	for deadline := time.Now().Add(answerTime); ; {
		state, err := c.runtime.client.ContainerInspect(ctx, c.id)
		switch {
		case err != nil:
			return "the container ended, and its engine does not say how: " + oneLine(err.Error()), true
		case state.State == nil || state.State.Running && time.Now().Before(deadline):
			time.Sleep(10 * time.Millisecond) // the engine has not noticed yet
			continue
		}
		how = fmt.Sprintf("the container exited with %d", state.State.ExitCode)
		if state.State.OOMKilled {
			how += ", out of memory"
		}
		return how, state.State.ExitCode != 0
	}
}

// revive starts the container again and moves its links into its new namespace. runs is true if the
// container runs, even if a later step failed. Later steps have limits of their own.
func (c *container) revive() (runs bool, err error) {
	ctx, cancel := context.WithTimeout(c.life, removeTime)
	defer cancel()
	listener, err := c.listen()
	if err != nil {
		return false, err
	}
	defer listener.Close()
	namespace, err := c.run(ctx, listener)
	if err != nil {
		return false, err
	}
	if err := errors.Join(c.runtime.options.Revive(ctx, c.config.Node.Name, namespace),
		namespace.Close()); err != nil {
		return true, err
	}
	return true, c.begin(c.life)
}

// watchEntrypoint restarts the entry point, as often as the file's restart policy allows.
func (c *container) watchEntrypoint(p *process) {
	exit, _ := p.Wait()
	c.mu.Lock()
	here := c.channel != nil && c.gone == p.gone
	c.mu.Unlock()
	if !here {
		return // it ended with the container
	}
	kind, failed := Completed, exit != nodes.Exit{}
	if failed {
		kind = Ended
	}
	c.tell(kind, fmt.Sprintf("the entry point exited with %d", exit.Code))
	if !c.restarts(failed) || !c.pause() {
		return
	}
	if err := c.startEntrypoint(c.life); err != nil {
		c.tell(Ended, "start the entry point again: "+err.Error())
		return
	}
	c.tell(Restarted, "the entry point runs again")
}

// watchEngine reports that the engine went away. A run that needs only its existing containers goes
// on.
func (r *Runtime) watchEngine(ctx context.Context) {
	heard, lost := r.client.Events(ctx,
		events.ListOptions{Filters: filters.NewArgs(filters.Arg("label", LabelRunDir+"="+r.options.RunDir))})
	for {
		select {
		case <-heard: // containers report their events themselves
		case err := <-lost:
			if ctx.Err() == nil && r.options.Event != nil {
				r.options.Event(EngineLost, r.Host(), oneLine(fmt.Sprintf("the engine went away: %v", err)))
			}
			return
		}
	}
}
