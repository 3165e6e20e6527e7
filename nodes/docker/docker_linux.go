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

// Labels of the runtime's containers in an engine, and of its images. A container gets the labels
// of its image, so the two sets differ.
const (
	LabelTestbed      = "io.railbed.testbed"
	LabelNode         = "io.railbed.node"
	LabelBoot         = "io.railbed.boot"
	LabelRunDir       = "io.railbed.run-dir"
	LabelImageTestbed = "io.railbed.image.testbed"
	LabelImageRunDir  = "io.railbed.image.run-dir"
)

// atOnce is how many requests to make or remove a container are sent to the engine at the same
// time. With two for each core the engine is never idle, and no request waits for long.
var atOnce = 2 * runtime.NumCPU()

// Options configure a Runtime.
type Options struct {
	// RunDir is the testbed's run directory, with which its containers are labelled.
	RunDir string
	// Base is the folder to which paths of the file are relative.
	Base string
	// Event is called for events of containers that the testbed did not cause. It may be nil.
	Event func(kind, subject, detail string)
	// Revive moves a node's links into the namespace of its restarted container. It is required if
	// nodes may restart. The namespace stays the caller's.
	Revive func(ctx context.Context, node string, namespace *kernel.Namespace) error
}

// Runtime makes nodes that are containers. It is safe for concurrent use.
type Runtime struct {
	options Options
	client  *client.Client
	turns   chan struct{}
	boot    string
	// program is mounted into containers to run as their first process.
	program program

	ended   context.CancelFunc
	watched chan struct{} // closed when the engine is no longer watched

	mu     sync.Mutex // guards the fields below
	away   time.Time  // when the engine was first found away, at the end
	opened map[string]*container
	images map[string]*resolved // by the file's settings of the image
}

// New connects to the engine that DOCKER_HOST names, or to Docker's own. If the engine does not
// answer, or not to this user, the error is a *verdict.UnsupportedError.
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

// answerTime bounds requests that an engine answers at once.
const answerTime = 10 * time.Second

func unsupported(err error) error {
	return &verdict.UnsupportedError{
		Feature: "docker", Reason: err.Error(),
		Remedy: "start the engine (apt-get install docker.io), be root or in the group docker, or name its " +
			"socket with DOCKER_HOST=unix:///PATH",
	}
}

// Open makes a node's container and starts it, up to its first process. It returns the container's
// network namespace, which the caller must close. Create then makes the node.
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

// Create implements nodes.Runtime, for a node that Open has opened. When Create returns, the entry
// point runs and its health check has passed.
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

// Close removes containers that were opened but did not become nodes, and images that were made for
// nodes. Nodes stay.
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
	// Remains of requests that ended early. The run directory's own sweep does not wait for an
	// engine that restarts.
	errs = append(errs, r.insist(func(context.Context) error {
		_, err := Sweep(r.Host(), r.options.RunDir, removeTime, false)
		return err
	}))
	return errors.Join(append(errs, r.client.Close())...)
}

// labels mark the testbed's containers.
func (r *Runtime) labels(config nodes.Config) map[string]string {
	return map[string]string{
		LabelTestbed: config.Testbed,
		LabelNode:    config.Node.Name,
		LabelBoot:    r.boot,
		LabelRunDir:  r.options.RunDir,
	}
}

// imageLabels mark the testbed's images.
func (r *Runtime) imageLabels(config nodes.Config) map[string]string {
	return map[string]string{LabelImageTestbed: config.Testbed, LabelImageRunDir: r.options.RunDir}
}

// path returns a path of the file as a path on the host.
func (r *Runtime) path(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(r.options.Base, name)
}

// returnTime is how long removals, all together, wait for an engine that restarts.
const returnTime = 10 * time.Second

// refusals is how often an engine may refuse a removal: Podman does so until it notices that a
// container has stopped.
const refusals = 5

// insist calls do, and repeats it while the engine is away or refuses.
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
