package docker

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/build"
	containerapi "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"railbed/internal/input"
	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/plan/spec"
)

// resolved is an image that the engine has.
type resolved struct {
	once sync.Once
	err  error

	id   string
	made bool // by this runtime, which removes it

	entrypoint, command []string
	env                 map[string]string
	dir, user           string
	health              *containerapi.HealthConfig // nil is no check
}

// resolve makes sure that the engine has a node's image, once for all nodes with the same image.
func (r *Runtime) resolve(ctx context.Context, config nodes.Config) (*resolved, error) {
	settings := config.Node.Container
	key := strings.Join([]string{settings.Image, settings.Pull, settings.Build, settings.BuildNetwork,
		settings.RootFS}, "\x00")
	r.mu.Lock()
	found := r.images[key]
	if found == nil {
		found = &resolved{}
		r.images[key] = found
	}
	r.mu.Unlock()
	found.once.Do(func() { found.err = r.provide(ctx, config, found) })
	return found, found.err
}

func (r *Runtime) provide(ctx context.Context, config nodes.Config, into *resolved) (err error) {
	settings := config.Node.Container
	switch {
	case settings.Build != "":
		into.made = true
		into.id, err = r.build(ctx, config)
	case settings.RootFS != "":
		into.made = true
		into.id, err = r.load(ctx, config)
	default:
		into.id = settings.Image
		err = r.pull(ctx, settings)
	}
	if err != nil {
		return err
	}
	inspected, err := r.client.ImageInspect(ctx, into.id)
	if err != nil {
		return err
	}
	into.env = map[string]string{}
	if c := inspected.Config; c != nil {
		into.entrypoint, into.command, into.dir, into.user = c.Entrypoint, c.Cmd, c.WorkingDir, c.User
		if checks(c.Healthcheck) {
			into.health = c.Healthcheck
		}
		for _, entry := range c.Env {
			if name, value, ok := strings.Cut(entry, "="); ok {
				into.env[name] = value
			}
		}
	}
	return nil
}

// pull makes sure that the engine has an image of a registry, by the file's policy.
func (r *Runtime) pull(ctx context.Context, settings *spec.Container) error {
	_, err := r.client.ImageInspect(ctx, settings.Image)
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	remedy := "make the image (docker build -t, docker load or docker import), or name an image that " +
		"docker images lists"
	if err != nil && settings.Pull == spec.PullNever {
		return noImage(settings.Image, "the engine does not have it, and pull is never; "+remedy)
	}
	if err == nil && settings.Pull != spec.PullAlways {
		return nil
	}
	progress, err := r.client.ImagePull(ctx, settings.Image, image.PullOptions{})
	if err == nil {
		_, err = outcome(progress)
	}
	switch {
	case err == nil:
		return nil
	case notInRegistry(err):
		return noImage(settings.Image, "pull it: "+oneLine(err.Error())+"; "+remedy)
	default:
		return &verdict.UnsupportedError{
			Feature: "image " + settings.Image, Reason: "pull it: " + oneLine(err.Error()), Remedy: remedy,
		}
	}
}

// noImage is the error of an image that exists on no host. The image belongs to the file, so the host lacks
// nothing.
func noImage(image, what string) error {
	return &verdict.MistakeError{Text: fmt.Sprintf("image %s: %s", image, what)}
}

// notInRegistry reports whether a registry answered that it does not have an image. Registries hide that an
// image exists from those who may not pull it: "pull access denied" is then all that they say. All other
// errors are about the way to the registry, its limits, or the architecture of the host, which an image may
// lack.
func notInRegistry(err error) bool {
	text := strings.ToLower(err.Error())
	has := func(answer string) bool { return strings.Contains(text, answer) }
	if has("no matching manifest") || has("no match for platform") {
		return false
	}
	return errdefs.IsNotFound(err) || slices.ContainsFunc([]string{"manifest unknown", "name unknown",
		"repository does not exist", "pull access denied", "requested access to the resource is denied"}, has)
}

// build builds an image from a folder with a Dockerfile.
func (r *Runtime) build(ctx context.Context, config nodes.Config) (string, error) {
	folder := r.path(config.Node.Container.Build)
	network := cmp.Or(config.Node.Container.BuildNetwork, spec.BuildWithout)
	wrong := func(err error) error { // the folder belongs to the file, so that the host lacks nothing
		text := fmt.Sprintf("build %s: %s; run docker build %s to see the whole output", folder,
			oneLine(err.Error()), folder)
		if ctx.Err() == nil && !engineAway(err) && wrongDockerfile(err, network) {
			return &verdict.MistakeError{Text: text}
		}
		return errors.New(text)
	}
	if _, err := os.Stat(filepath.Join(folder, "Dockerfile")); err != nil {
		return "", &verdict.MistakeError{Text: fmt.Sprintf("build %s: %v; want a folder with a Dockerfile",
			folder, err)}
	}
	files, err := contextOf(folder)
	if err != nil {
		return "", &verdict.MistakeError{Text: wrong(err).Error()}
	}
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(archive(writer, files)) }()
	defer reader.Close()
	built, err := r.client.ImageBuild(ctx, reader, build.ImageBuildOptions{
		Remove: true, ForceRemove: true, Labels: r.imageLabels(config), NetworkMode: network,
	})
	if err != nil {
		return "", wrong(err)
	}
	id, err := outcome(built.Body)
	if err == nil && id == "" {
		err = errors.New("the engine returned no image")
	}
	if err != nil && network == spec.BuildWithout &&
		strings.Contains(err.Error(), "returned a non-zero code") {
		err = fmt.Errorf("%w (RUN has no network here, unless the file says build-network: default or host)",
			err)
	}
	if err != nil {
		return "", wrong(err)
	}
	return id, nil
}

// wrongDockerfile reports whether an error of a build is about the Dockerfile or its folder. Such errors are
// wrong syntax, a missing file, a base image that its registry does not have, and a command that failed. A
// command that has a network may also fail because of the network. Full disks and registries that do not
// answer are not mistakes of the file.
func wrongDockerfile(err error, network string) bool {
	text := strings.ToLower(err.Error())
	has := func(answer string) bool { return strings.Contains(text, answer) }
	return !has("no space left") && (notInRegistry(err) || errdefs.IsInvalidArgument(err) ||
		has("dockerfile parse error") || has("unknown instruction") || has("copy failed") ||
		has("add failed") || network == spec.BuildWithout && has("returned a non-zero code"))
}

// load makes an image from an archive of a root file system.
func (r *Runtime) load(ctx context.Context, config nodes.Config) (string, error) {
	path := r.path(config.Node.Container.RootFS)
	wrong := func(err error) error {
		if strings.Contains(err.Error(), "no space left") || ctx.Err() != nil || engineAway(err) {
			return fmt.Errorf("load rootfs %s: %w", path, err)
		}
		// The archive belongs to the file, so that the host lacks nothing.
		return &verdict.MistakeError{Text: fmt.Sprintf("rootfs %s: %s; want a tar archive of a root file "+
			"system, as docker export writes it", path, oneLine(err.Error()))}
	}
	file, err := input.Open(path)
	if err != nil {
		return "", wrong(err)
	}
	defer file.Close()
	var changes []string
	for name, value := range r.imageLabels(config) {
		changes = append(changes, fmt.Sprintf("LABEL %s=%q", name, value))
	}
	progress, err := r.client.ImageImport(ctx,
		image.ImportSource{Source: bufio.NewReader(file), SourceName: "-"}, "",
		image.ImportOptions{Changes: changes})
	if err != nil {
		return "", wrong(err)
	}
	id, err := outcome(progress)
	if err != nil {
		return "", wrong(err)
	}
	return id, nil
}

// errCut is wrapped by outcome if the progress report is not whole.
var errCut = errors.New("the engine's report is not whole")

// engineAway reports whether an engine ended or went away before it answered.
func engineAway(err error) bool {
	return errors.Is(err, errCut) || errdefs.IsUnavailable(err) || client.IsErrConnectionFailed(err)
}

// outcome reads an engine's progress report and returns the image's id, or the reported error.
func outcome(progress io.ReadCloser) (id string, err error) {
	defer progress.Close()
	decoder := json.NewDecoder(progress)
	for {
		var line struct {
			Status string
			Error  string
			Aux    struct{ ID string }
		}
		if err := decoder.Decode(&line); errors.Is(err, io.EOF) {
			return id, nil
		} else if err != nil {
			return "", fmt.Errorf("%w: %w", errCut, err)
		}
		switch {
		case line.Error != "":
			return "", errors.New(line.Error)
		case line.Aux.ID != "":
			id = line.Aux.ID
		case strings.HasPrefix(line.Status, "sha256:"):
			id = line.Status
		}
	}
}

// removeImage removes an image that was made for nodes.
func (r *Runtime) removeImage(of *resolved) error {
	if !of.made || of.id == "" {
		return nil
	}
	err := r.insist(func(ctx context.Context) error {
		_, err := r.client.ImageRemove(ctx, of.id, image.RemoveOptions{Force: true, PruneChildren: true})
		return err
	})
	if err != nil {
		return fmt.Errorf("remove image %s: %w", of.id, err)
	}
	return nil
}
