package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"railbed/fabric"
	"railbed/fabric/link"
	"railbed/fabric/softswitch/live"
	"railbed/internal/kernel"
	"railbed/internal/reexec"
	"railbed/internal/rundir"
	"railbed/internal/usage"
	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/nodes/cgroup"
	"railbed/nodes/cni"
	"railbed/nodes/docker"
	"railbed/nodes/vm"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed/nodefault"
)

// Descriptors that the client passes to a supervisor.
const (
	startupFd = 3 // startup channel, a stream socket
	lockFd    = 4 // the run directory's lock
	networkFd = 5 // the host's network namespace, or an unused descriptor
)

// garbageWhileBuilding is GOGC while the testbed is built. Almost all memory that is allocated then
// stays in use, so garbage collection finds little.
const garbageWhileBuilding = 400

// supervisor holds the state of a testbed while it exists.
type supervisor struct {
	start   Start
	plan    *plan.Plan // nil before it is read
	dir     rundir.Dir
	log     *slog.Logger
	startup *startupChannel
	events  *eventLog
	hostPID int
	created time.Time

	namespaces map[string]*kernel.Namespace // by node and switch
	nodes      map[string]nodes.Node
	guests     vm.Runtime
	containers *cni.Table
	management *cni.Management
	attaching  sync.Mutex      // held while a container's port is added or removed
	engine     *docker.Runtime // of nodes that are containers; nil without
	fabric     *fabric.Fabric
	reactions  *reactions      // of routers with daemons; nil without
	taken      map[string]bool // published names that belong to others
	programs   usage.Book      // of the nodes
	groups     []*cgroup.Group // of the plan's nodes
	nodeFaults nodefault.Book
	reporting  sync.Mutex // held while the report for a crash is written
	// recorded is the record in the run directory, a copy in case that is lost.
	recorded rundir.Published

	// adoption is the plan that the testbed has taken over since it came up.
	adoption adoption
	// leftovers holds the errors of objects that could not be taken down.
	leftovers error
	// stop ends the testbed. It may be called from any goroutine.
	stop context.CancelCauseFunc
	// sessions are exec and capture connections. close waits for them after ending has requested
	// their end.
	sessions  errgroup.Group
	ending    context.Context
	insides   insides
	endingNow context.CancelFunc
}

// Reasons for the end of a testbed.
var (
	errClientGone = errors.New("the client disconnected before the testbed was ready")
	errDown       = errors.New("taken down")
	errSignalled  = errors.New("its supervisor was signalled to end")
	errDirRemoved = errors.New(
		"the run directory or its socket was removed, so clients cannot reach the testbed")
)

// Main is the supervisor's main function. It returns when the testbed is gone.
func Main([]string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	unix.CloseOnExec(startupFd)
	unix.CloseOnExec(lockFd)
	unix.CloseOnExec(networkFd)
	if err := reexec.CloseInherited(networkFd + 1); err != nil {
		log.Error("start supervisor", "error", err)
		return verdict.ExitFail
	}
	startup, start, err := openStartup()
	if err != nil {
		log.Error("read start message", "error", err)
		return ExitNotStarted
	}
	ctx, stop := context.WithCancelCause(context.Background())
	s := &supervisor{
		start: start, dir: rundir.Dir{Name: start.Name, Path: start.Dir}, log: log, startup: startup,
		events:     newEventLog(),
		namespaces: make(map[string]*kernel.Namespace),
		nodes:      make(map[string]nodes.Node),
		taken:      make(map[string]bool), stop: stop,
	}
	s.ending, s.endingNow = context.WithCancel(context.Background())
	go s.watchSignals()
	err = s.run(ctx)
	if cause := context.Cause(ctx); cause != nil {
		log.Info("testbed ends", "reason", cause)
	}
	if err != nil {
		log.Error("testbed failed", "error", err)
		startup.failed(err)
	}
	switch {
	case s.leftovers != nil:
		return ExitLeftovers
	case errors.Is(context.Cause(ctx), errDirRemoved):
		return ExitRemoved
	case err != nil:
		return verdict.ExitFail
	}
	return verdict.ExitPass
}

// run builds the testbed, serves it until ctx ends, and takes it down.
func (s *supervisor) run(ctx context.Context) (err error) {
	defer func() {
		s.leftovers = s.close()
		err = errors.Join(err, s.leftovers)
	}()
	if err := s.isolate(); err != nil {
		return err
	}
	if err := s.build(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil // undone on request; a half-built testbed is not a failure
		}
		return err
	}
	s.created = time.Now()
	server, err := s.listen()
	if err != nil {
		return err
	}
	s.events.add("testbed.up", s.plan.Name, fmt.Sprintf("%d nodes, %d switches, %d links",
		len(s.plan.Nodes), len(s.plan.Switches), len(s.plan.Links)))
	go s.watchDir()
	s.startup.ready()
	if len(s.plan.CNINodes()) > 0 {
		s.sessions.Go(s.watchContainers)
	}
	go debug.FreeOSMemory() // memory that building needed and an idle testbed does not
	select {
	case <-ctx.Done():
	case <-s.fabric.SoftEnded():
		s.crash(ctx, "the process of the soft switches ended by itself: "+s.fabric.SoftEnd())
	case <-s.fabric.SoftSilent():
		s.crash(ctx, fmt.Sprintf("the process of the soft switches did not answer for %v: it was stopped, "+
			"or got no processor", live.Silence))
	}
	s.events.add("testbed.down", s.plan.Name, context.Cause(ctx).Error())
	return server.close()
}

// crash ends a testbed that has no links any more, unless it is ending already. This leaves the
// log, with the switches' last messages, and a report with the reason.
func (s *supervisor) crash(ctx context.Context, reason string) {
	if ctx.Err() != nil {
		return
	}
	s.log.Error(reason)
	if err := s.writeAborted(reason + "; the testbed's log is in supervisor.log"); err != nil {
		s.log.Error("testbed crashed", "error", err)
	}
	os.Exit(verdict.ExitFail)
}

// isolate leaves the host's mount tree and mounts a /proc of the supervisor's PID namespace, so
// that process IDs here and in /proc agree.
func (s *supervisor) isolate() error {
	host, err := os.Readlink("/proc/self")
	if err != nil {
		return fmt.Errorf("read own process id on the host: %w", err)
	}
	if s.hostPID, err = strconv.Atoi(host); err != nil {
		return fmt.Errorf("read own process id on the host: %w", err)
	}
	if err := reexec.LeaveMountTree(); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		""); err != nil {
		return fmt.Errorf("mount /proc of the testbed: %w", err)
	}
	// When memory runs out, the testbed's programs should be killed before the supervisor. Lowering
	// the score needs CAP_SYS_RESOURCE, which is not always available.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-500"), 0); err != nil {
		s.log.Info("supervisor is not protected from the OOM killer", "error", err)
	}
	return nil
}

// build makes everything that the plan names.
func (s *supervisor) build(ctx context.Context) error {
	defer debug.SetGCPercent(debug.SetGCPercent(garbageWhileBuilding))
	calibration, err := link.LoadCalibration(s.start.Calibration)
	if err != nil {
		return err
	}
	if err := s.receivePlan(ctx); err != nil {
		return err
	}
	if err := s.planCgroups(); err != nil {
		return err
	}
	if err := s.openEngine(ctx); err != nil {
		return err
	}
	if err := s.buildFabric(ctx, calibration); err != nil {
		return err
	}
	if err := s.startManagement(ctx); err != nil {
		return err
	}
	if err := s.createNodes(ctx); err != nil {
		return err
	}
	return s.startRouting(ctx)
}

// buildFabric makes the network and at the same time publishes the names. Publishing is work of the
// file system, and much of the network's work waits for one lock.
func (s *supervisor) buildFabric(ctx context.Context, calibration *link.Calibration) error {
	options := fabric.Options{Calibration: calibration, Progress: func(done, total int) {
		s.startup.progress("build fabric", done, total)
	}}
	if s.start.Trace {
		options.Trace = s.startup.trace
	}
	var group errgroup.Group
	group.Go(func() error { return s.publish() })
	var err error
	s.fabric, err = fabric.Build(ctx, s.plan, s.namespaces, options)
	if lost := calibration.NotStored(); lost != nil {
		s.warn(lost.Error() + "; the next testbed will measure again")
	}
	return errors.Join(s.placedSysctl(err), group.Wait())
}

// placedSysctl adds the position in the file to the error of a refused sysctl.
func (s *supervisor) placedSysctl(err error) error {
	var refused *kernel.RefusedSysctlError
	if errors.As(err, &refused) {
		return &placed{err, s.plan.Sysctls[plan.SysctlKey(refused.Path, refused.Value)]}
	}
	return err
}

// receivePlan reads the plan, makes the namespaces meanwhile, and assigns a namespace to each node
// and switch. From then on the end of the client is detected.
func (s *supervisor) receivePlan(ctx context.Context) error {
	var group errgroup.Group
	var made []*kernel.Namespace
	group.Go(func() (err error) {
		made, err = makeNamespaces(ctx, s.start.Namespaces)
		return err
	})
	received, err := s.startup.plan()
	err = errors.Join(err, group.Wait())
	var names []string
	if err == nil {
		names = OwnNamespaces(received)
	}
	if err == nil && len(names) != len(made) {
		err = fmt.Errorf("start message announced %d namespaces, and the plan needs %d", len(made),
			len(names))
	}
	if err != nil {
		for _, namespace := range made {
			err = errors.Join(err, namespace.Close())
		}
		return err
	}
	s.plan = received
	s.containers = cni.NewTable(received)
	for i, name := range names {
		s.namespaces[name] = made[i]
	}
	go s.watchClient()
	return nil
}

// makeNamespaces makes network namespaces, all or none. The kernel sets them up in parallel, so it
// uses as many threads as there are cores.
func makeNamespaces(ctx context.Context, count int) ([]*kernel.Namespace, error) {
	made := make([]*kernel.Namespace, count)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for i := range made {
		group.Go(func() (err error) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			made[i], err = kernel.NewNamespace()
			return err
		})
	}
	err := group.Wait()
	if err == nil {
		return made, nil
	}
	for _, namespace := range made {
		if namespace != nil {
			err = errors.Join(err, namespace.Close())
		}
	}
	return nil, err
}

// publish records the objects that the testbed makes outside its run directory. It also makes the
// namespaces known to ip-netns(8) as TESTBED-NODE. The names are links to descriptors of this
// process, which dangle once it is dead.
func (s *supervisor) publish() error {
	record := rundir.Published{Containers: s.engine.Host()}
	for _, group := range s.groups {
		for _, dir := range group.Dirs() {
			if !slices.Contains(record.Cgroups, dir) {
				record.Cgroups = append(record.Cgroups, dir)
			}
		}
	}
	for name, namespace := range s.namespaces {
		if s.start.Rootless {
			break // only root can write /run/netns
		}
		if !s.hasStack(name) {
			continue
		}
		record.Links = append(record.Links, rundir.Link{
			Path: s.publishedPath(name), Target: s.namespacePath(namespace),
		})
	}
	taken, err := s.record(record)
	for _, path := range taken {
		s.taken[path] = true
		s.log.Warn("name for ip-netns is taken and stays as it is", "path", path)
	}
	return err
}

// record records the objects that the testbed makes outside its run directory, and makes its links.
func (s *supervisor) record(record rundir.Published) (taken []string, err error) {
	taken, err = s.dir.Publish(record)
	if err == nil {
		s.recorded, err = s.dir.Published()
	}
	return taken, err
}

// watchDir ends the testbed when its run directory or the socket in it is removed, because no
// command could then reach the testbed or take it down.
func (s *supervisor) watchDir() {
	ticker := time.NewTicker(dirLook)
	defer ticker.Stop()
	for {
		select {
		case <-s.ending.Done():
			return
		case <-ticker.C:
		}
		_, err := os.Lstat(s.dir.Socket())
		if !s.dir.Owned(lockFd) || errors.Is(err, fs.ErrNotExist) {
			s.stop(errDirRemoved)
			return
		}
	}
}

// dirLook is the interval at which the supervisor checks its run directory.
const dirLook = time.Second

// hasStack reports whether a namespace has a network stack of interest. The namespaces for the soft
// switches, and for a container whose namespace is elsewhere, only have interfaces that pass frames
// on.
func (s *supervisor) hasStack(name string) bool {
	n := s.plan.Node(name)
	return name != fabric.SoftSide && (n == nil || n.Runtime != spec.CNI)
}

func (s *supervisor) publishedPath(name string) string {
	return filepath.Join(rundir.NamesDir, s.plan.Name+"-"+name)
}

func (s *supervisor) namespacePath(namespace *kernel.Namespace) string {
	return fmt.Sprintf("/proc/%d/fd/%d", s.hostPID, namespace.Fd())
}

// close takes the testbed down. Processes end before the network that they use, and links before
// the namespaces that hold them, so the kernel frees the namespaces in one batch. Published names
// go last. close is called once.
func (s *supervisor) close() error {
	s.endingNow()
	failures := s.insides.close()
	group := errgroup.Group{}
	for _, node := range s.nodes {
		group.Go(node.Close)
	}
	failures = errors.Join(failures, group.Wait(), s.guests.Close(), s.engine.Close())
	failures = errors.Join(failures, s.sessions.Wait(), s.management.Close())
	if s.fabric != nil {
		failures = errors.Join(failures, s.fabric.Close())
	}
	for _, namespace := range s.namespaces {
		failures = errors.Join(failures, namespace.Close())
	}
	if failures != nil {
		return failures // the directory stays, with the record and the log
	}
	if !s.dir.Owned(lockFd) {
		return s.dir.RemoveLost(s.recorded)
	}
	return s.dir.RemoveRecorded(s.recorded)
}

// watchClient ends the testbed if the client disconnects without Detach.
func (s *supervisor) watchClient() {
	message, err := s.startup.receive()
	switch {
	case err == nil && message == Detach:
		s.startup.close()
	case err == nil:
		s.stop(fmt.Errorf("client sent %q on the startup channel, want %q", message, Detach))
	case errors.Is(err, io.EOF):
		s.stop(errClientGone)
	default:
		s.stop(fmt.Errorf("%w: %w", errClientGone, err))
	}
}

func (s *supervisor) watchSignals() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	// These signals are handled and dropped. An ignored signal would stay ignored in every program
	// that is started from here, and a handled signal is reset.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE)
	reason := fmt.Errorf("%w: %v", errSignalled, <-signals)
	s.endsBy(reason)
	s.stop(reason)
}
