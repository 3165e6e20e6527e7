package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	containerapi "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"railbed/testbed/rundir"
)

// Host is the engine's address; that of nil is "".
func (r *Runtime) Host() string {
	if r == nil {
		return ""
	}
	return r.client.DaemonHost()
}

// Sweep removes the containers and images in an engine that carry the mark of a run
// directory, and returns what they are called; with dryRun it only tells. It is for
// directories whose testbed is dead.
func Sweep(host, runDir string, dryRun bool) (removed []string, err error) {
	engine, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
	defer cancel()
	marked := filters.NewArgs(filters.Arg("label", LabelRunDir+"="+runDir), filters.Arg("label", LabelTestbed))
	containers, err := engine.ContainerList(ctx, containerapi.ListOptions{All: true, Filters: marked})
	if client.IsErrConnectionFailed(err) {
		return nil, fmt.Errorf("list containers of %s: %w", host, rundir.ErrEngineAway)
	}
	if err != nil {
		return nil, fmt.Errorf("list containers of %s: %w", host, err)
	}
	var errs []error
	for _, c := range containers {
		if !ours(c) {
			continue
		}
		if !dryRun {
			err := engine.ContainerRemove(ctx, c.ID, containerapi.RemoveOptions{Force: true, RemoveVolumes: true})
			if err = ignoreMissing(err); err != nil {
				errs = append(errs, fmt.Errorf("remove container %s: %w", strings.Join(c.Names, " "), err))
				continue
			}
		}
		removed = append(removed, "container "+strings.TrimPrefix(strings.Join(c.Names, " "), "/"))
	}
	marked = filters.NewArgs(filters.Arg("label", LabelImageRunDir+"="+runDir), filters.Arg("label", LabelImageTestbed))
	images, err := engine.ImageList(ctx, image.ListOptions{Filters: marked})
	if err != nil {
		return removed, errors.Join(append(errs, fmt.Errorf("list images of %s: %w", host, err))...)
	}
	for _, i := range images {
		if !dryRun {
			_, err := engine.ImageRemove(ctx, i.ID, image.RemoveOptions{Force: true, PruneChildren: true})
			if errdefs.IsConflict(err) {
				continue // somebody's container runs it, after which it is gc's
			}
			if err = ignoreMissing(err); err != nil {
				errs = append(errs, fmt.Errorf("remove image %s: %w", i.ID, err))
				continue
			}
		}
		removed = append(removed, "image "+i.ID)
	}
	return removed, errors.Join(errs...)
}

// Marked are the run directories that containers and images in an engine are marked
// with, and the names of their testbeds: of the one that DOCKER_HOST names, or
// Docker's own, whose address host is. An engine that is not there has none, and testbeds
// of which a container runs are left out: they live, if elsewhere.
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
			continue // committed of a container, by a user
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

// ours says whether a container has the name that its labels give, and not only labels:
// these come along into images that users commit, and from there into containers.
func ours(c containerapi.Summary) bool {
	return slices.Contains(c.Names, "/"+containerName(c.Labels[LabelTestbed], c.Labels[LabelNode]))
}

// sweepTime bounds the removal of what one testbed left.
const sweepTime = 6 * removeTime
