// Package docker runs nodes as containers of a Docker engine, or of an engine with the same API.
//
// # How a container becomes a node
//
// A container is made with network mode none. Its first process is this program, mounted into the
// container read-only. A Unix socket of the testbed is mounted into the container as well. Over
// that socket the first process passes the container's network namespace to the supervisor, which
// builds the fabric in it as in any other. Then the first process starts the image's entry point
// and every command of the testbed. A command gets the supervisor's own descriptors, and the
// container's root, namespaces, limits and rights. The supervisor cannot start a process inside the
// container itself: a process can enter a PID namespace only from one of that namespace's
// ancestors.
//
// # How a container ends
//
// The socket also bounds the container's life. When the supervisor is gone, however it ended, the
// first process ends, and the kernel kills the others. A stopped container with labels remains,
// which Sweep removes.
package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"railbed/internal/kernel"
	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/nodes"
)

// Labels of containers that the runtime makes in an engine, and of images. Whoever makes
// a container of an image gives it the image's labels, so these are not the same.
const (
	LabelTestbed      = "io.railbed.testbed"
	LabelNode         = "io.railbed.node"
	LabelBoot         = "io.railbed.boot"
	LabelRunDir       = "io.railbed.run-dir"
	LabelImageTestbed = "io.railbed.image.testbed"
	LabelImageRunDir  = "io.railbed.image.run-dir"
)

// atOnce is how many containers the engine is asked to make or remove at the same
// time: with two for each core it is never idle, and no request waits for long.
var atOnce = 2 * runtime.NumCPU()

// Options are how to make containers.
type Options struct {
	// RunDir is the testbed's run directory, which marks its containers.
	RunDir string
	// Base is the folder that paths of the file are relative to.
	Base string
	// Event is told of what happens to containers by itself; nil tells nobody.
	Event func(kind, subject, detail string)
	// Revive puts a node's links into the namespace of its container that runs again;
	// it is needed where nodes are to be restarted. The namespace stays the caller's.
	Revive func(ctx context.Context, node string, namespace *kernel.Namespace) error
}

// Runtime makes nodes that are containers. It is safe for concurrent use.
type Runtime struct {
	options Options
	client  *client.Client
	turns   chan struct{}
	boot    string
	// program is what is mounted into containers to run as their first process.
	program program

	ended   context.CancelFunc
	watched chan struct{} // closed when the engine is watched no more

	mu     sync.Mutex // guards what follows
	away   time.Time  // when the engine was first found away, at the end
	opened map[string]*container
	images map[string]*resolved // by what the file says of them
}

// New connects to the engine that DOCKER_HOST names, or Docker's own. One that does not answer, or
// not to this user, is a *verdict.UnsupportedError.
func New(ctx context.Context, o Options) (*Runtime, error) {
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, unsupported(err)
	}
	if host := engine.DaemonHost(); !strings.HasPrefix(host, "unix://") {
		err := fmt.Errorf("DOCKER_HOST is %s, and containers must be on this host: want unix:///PATH", host)
		return nil, errors.Join(unsupported(err), engine.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, err := engine.Ping(ctx); err != nil {
		return nil, errors.Join(unsupported(err), engine.Close())
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		options: o, client: engine, turns: make(chan struct{}, atOnce), boot: string(boot[:len(boot)-1]),
		watched: make(chan struct{}), opened: map[string]*container{}, images: map[string]*resolved{},
	}
	if r.program, err = ownProgram(); err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	life, ended := context.WithCancel(context.Background())
	r.ended = ended
	go func() {
		defer close(r.watched)
		r.watchEngine(life)
	}()
	return r, nil
}

// answerTime bounds what an engine answers at once.
const answerTime = 10 * time.Second

func unsupported(err error) error {
	return &verdict.UnsupportedError{
		Feature: "docker", Reason: err.Error(),
		Remedy: "start the engine (apt-get install docker.io), be root or in the group docker, or name its " +
			"socket with DOCKER_HOST=unix:///PATH",
	}
}

// Open makes a node's container and starts it, up to its first process, and returns
// its network namespace, which is the caller's. Create makes it the node.
func (r *Runtime) Open(ctx context.Context, config nodes.Config) (*kernel.Namespace, error) {
	c := &container{runtime: r, config: config, waiting: map[uint64]chan answer{}}
	c.life, c.die = context.WithCancel(context.Background())
	r.turns <- struct{}{}
	namespace, err := c.open(ctx)
	<-r.turns
	if err != nil {
		return nil, fmt.Errorf("open container of %s: %w", config.Node.Name, errors.Join(err, c.Close()))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened[config.Node.Name] = c
	return namespace, nil
}

// Create implements nodes.Runtime, for a node that Open has opened. Its entry point
// runs when Create returns, and its health check has passed.
func (r *Runtime) Create(ctx context.Context, config nodes.Config) (nodes.Node, error) {
	r.mu.Lock()
	c := r.opened[config.Node.Name]
	delete(r.opened, config.Node.Name)
	r.mu.Unlock()
	if c == nil {
		return nil, fmt.Errorf("create %s: its container is not open", config.Node.Name)
	}
	c.config = config
	if err := c.begin(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close removes containers that were opened and are no nodes yet, and images that
// were made for nodes. Nodes stay.
func (r *Runtime) Close() error {
	if r == nil {
		return nil
	}
	r.ended()
	<-r.watched
	r.mu.Lock()
	opened, images := r.opened, r.images
	r.opened, r.images = map[string]*container{}, map[string]*resolved{}
	r.mu.Unlock()
	var errs []error
	for _, c := range opened {
		errs = append(errs, c.Close())
	}
	for _, image := range images {
		errs = append(errs, r.removeImage(image))
	}
	// What was being made when a request ended early. The run directory's own sweep does
	// not wait for an engine that restarts.
	errs = append(errs, r.insist(func(context.Context) error {
		_, err := Sweep(r.Host(), r.options.RunDir, removeTime, false)
		return err
	}))
	return errors.Join(append(errs, r.client.Close())...)
}

// labels mark what belongs to the testbed.
func (r *Runtime) labels(config nodes.Config) map[string]string {
	return map[string]string{
		LabelTestbed: config.Testbed,
		LabelNode:    config.Node.Name,
		LabelBoot:    r.boot,
		LabelRunDir:  r.options.RunDir,
	}
}

// imageLabels mark an image that belongs to it.
func (r *Runtime) imageLabels(config nodes.Config) map[string]string {
	return map[string]string{LabelImageTestbed: config.Testbed, LabelImageRunDir: r.options.RunDir}
}

// path is one of the file's, on the host.
func (r *Runtime) path(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(r.options.Base, name)
}

// returnTime is how long an engine that restarts may take until it removes what is to
// be removed, all of it together.
const returnTime = 10 * time.Second

// refusals is how often an engine may refuse what is to be removed: Podman does while
// it learns that a container has stopped.
const refusals = 5

// insist does what needs the engine, again while it is away, or refuses.
func (r *Runtime) insist(do func(ctx context.Context) error) error {
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(context.Background(), removeTime)
		err := ignoreMissing(do(ctx))
		cancel()
		if !client.IsErrConnectionFailed(err) && !errors.Is(err, rundir.ErrEngineAway) {
			if err == nil || tries >= refusals {
				return err
			}
			time.Sleep(returnTime / 50)
			continue
		}
		r.mu.Lock()
		if r.away.IsZero() {
			r.away = time.Now()
		}
		late := time.Since(r.away) > returnTime
		r.mu.Unlock()
		if late {
			return err
		}
		time.Sleep(returnTime / 50)
	}
}

func ignoreMissing(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
