package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	containerapi "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"railbed/internal/rundir"
)

// Host returns the engine's address. For a nil Runtime it is "".
func (r *Runtime) Host() string {
	if r == nil {
		return ""
	}
	return r.client.DaemonHost()
}

// Sweep removes the containers and images in an engine that are labelled with a run directory, and
// returns their names. With dryRun it only reports them. wait bounds each request; after an engine
// exceeded it, no more requests are sent. Sweep is for directories whose testbed is dead.
func Sweep(host, runDir string, wait time.Duration, dryRun bool) (removed []string, err error) {
	engine, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	s := sweeping{engine: engine, wait: wait, dryRun: dryRun}
	marked := filters.NewArgs(filters.Arg("label", LabelRunDir+"="+runDir),
		filters.Arg("label", LabelTestbed))
	var containers []containerapi.Summary
	err = s.ask("list containers", func(ctx context.Context) (err error) {
		containers, err = engine.ContainerList(ctx, containerapi.ListOptions{All: true, Filters: marked})
		return err
	})
	for _, c := range containers {
		if ours(c) {
			name := strings.TrimPrefix(strings.Join(c.Names, " "), "/")
			err = errors.Join(err, s.remove("container "+name, func(ctx context.Context) error {
				return removeContainer(ctx, engine, c.ID)
			}))
		}
	}
	marked = filters.NewArgs(filters.Arg("label", LabelImageRunDir+"="+runDir),
		filters.Arg("label", LabelImageTestbed))
	var images []image.Summary
	err = errors.Join(err, s.ask("list images", func(ctx context.Context) (err error) {
		images, err = engine.ImageList(ctx, image.ListOptions{Filters: marked})
		return err
	}))
	for _, i := range images {
		imageErr := s.remove("image "+i.ID, func(ctx context.Context) error {
			_, err := engine.ImageRemove(ctx, i.ID, image.RemoveOptions{Force: true, PruneChildren: true})
			return err
		})
		if !errdefs.IsConflict(imageErr) { // another container runs it; after that, gc removes it
			err = errors.Join(err, imageErr)
		}
	}
	return s.removed, err
}

// removeContainer removes a container. If a removal is in progress, the engine refuses another one,
// and removeContainer waits.
func removeContainer(ctx context.Context, engine *client.Client, id string) error {
	for {
		err := engine.ContainerRemove(ctx, id, containerapi.RemoveOptions{Force: true, RemoveVolumes: true})
		if !errdefs.IsConflict(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(healthTick):
		}
	}
}

// sweeping is a sweep in progress.
type sweeping struct {
	engine  *client.Client
	wait    time.Duration
	dryRun  bool
	away    bool
	removed []string
}

// ask sends a request to the engine, unless the engine is away.
func (s *sweeping) ask(what string, do func(context.Context) error) error {
	if s.away {
		return nil // this was reported before
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.wait)
	defer cancel()
	err := do(ctx)
	if err == nil {
		return nil
	}
	if client.IsErrConnectionFailed(err) || ctx.Err() != nil {
		s.away = true
		err = rundir.ErrEngineAway
	}
	return fmt.Errorf("%s of %s: %w", what, s.engine.DaemonHost(), err)
}

// remove removes an object, and records it.
func (s *sweeping) remove(what string, do func(context.Context) error) error {
	if !s.dryRun {
		if err := ignoreMissing(s.ask("remove "+what, do)); err != nil {
			return err
		}
	}
	if !s.away {
		s.removed = append(s.removed, what)
	}
	return nil
}

// Marked returns the run directories with which containers and images in an engine are labelled,
// and the names of their testbeds. The engine is the engine of DOCKER_HOST, or Docker's own; host
// is its address. If there is no engine, the result is empty. Testbeds with a running container are
// left out: they are alive, perhaps elsewhere.
func Marked() (host string, testbeds map[string]string, err error) {
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return "", nil, err
	}
	defer engine.Close()
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	marked := filters.NewArgs(filters.Arg("label", LabelRunDir), filters.Arg("label", LabelTestbed))
	containers, err := engine.ContainerList(ctx, containerapi.ListOptions{All: true, Filters: marked})
	if client.IsErrConnectionFailed(err) {
		return "", nil, nil
	}
	if ctx.Err() != nil {
		err = rundir.ErrEngineAway // the engine exists, and hangs
	}
	if err != nil {
		return "", nil, fmt.Errorf("list containers of %s: %w", engine.DaemonHost(), err)
	}
	testbeds = map[string]string{}
	for _, c := range containers {
		if !ours(c) {
			continue
		}
		testbeds[c.Labels[LabelRunDir]] = c.Labels[LabelTestbed]
	}
	marked = filters.NewArgs(filters.Arg("label", LabelImageRunDir), filters.Arg("label", LabelImageTestbed))
	images, err := engine.ImageList(ctx, image.ListOptions{Filters: marked})
	for _, i := range images {
		if i.Labels[LabelImageRunDir] == "" {
			continue // committed from a container, by a user
		}
		testbeds[i.Labels[LabelImageRunDir]] = i.Labels[LabelImageTestbed]
	}
	for _, c := range containers {
		if c.State == containerapi.StateRunning {
			delete(testbeds, c.Labels[LabelRunDir])
		}
	}
	return engine.DaemonHost(), testbeds, err
}

// ours reports whether a container has the name that its labels imply. Labels alone are no
// evidence: a user's commit copies them into an image, and from there into containers.
func ours(c containerapi.Summary) bool {
	return slices.Contains(c.Names, "/"+containerName(c.Labels[LabelTestbed], c.Labels[LabelNode]))
}
