// Package testbed is Railbed's Go API. It brings a testbed up from a plan or a file, runs commands
// in its nodes, changes its links, records its packets and takes it down again.
//
// The supervisor of a testbed is the program that brings it up, started again. Such a program must
// therefore call Init first thing in main, or in TestMain of a test:
//
//	func TestMain(m *testing.M) {
//		testbed.Init()
//		os.Exit(m.Run())
//	}
package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"railbed/capture"
	"railbed/fabric/softswitch/live"
	"railbed/internal/peer"
	"railbed/internal/reexec"
	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/nodes/docker"
	"railbed/nodes/netns"
	"railbed/nodes/vm"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed/nodefault"
	"railbed/testbed/supervisor"
)

// ErrRunning is returned by Up if a testbed of the name is up.
var ErrRunning = rundir.ErrRunning

// ErrInUse is wrapped by Reserve if another process has the reservation.
var ErrInUse = rundir.ErrInUse

// ErrNotRunning is returned by Open if there is no such testbed.
var ErrNotRunning = errors.New("no testbed of this name is up")

// UnsupportedError is an error if the host lacks a feature, with the remedy.
type UnsupportedError = verdict.UnsupportedError

// ErrNotFound is wrapped if a node does not have the program.
var ErrNotFound = nodes.ErrNotFound

// ErrNoFolder is wrapped if a node does not have the directory of a command whose DirHas is set.
var ErrNoFolder = nodes.ErrNoFolder

// ErrNoSuchObject is wrapped if a testbed has no node, link or tap with a name.
var ErrNoSuchObject = supervisor.ErrNoSuchObject

// ErrEventsLost is wrapped if a reader of events was too slow.
var ErrEventsLost = errors.New("events are missing")

// ErrNoAnswer is wrapped if a supervisor runs and does not answer in time.
var ErrNoAnswer = errors.New("no answer from the testbed's supervisor")

// Init runs the part of Railbed for which this process was started, if any, and then does not
// return. The given parts are added to the parts of the supervisor and the nodes.
func Init(parts ...reexec.Parts) {
	rundir.UseContainers(docker.Sweep)
	all := reexec.Parts{supervisor.Part: supervisor.Main, netns.Part: netns.Main, docker.Part: docker.Main,
		vm.Part: vm.Main, vm.GuestPart: vm.GuestMain}
	for _, more := range append(parts, capture.Parts(), live.Parts(), nodefault.Parts()) {
		for name, run := range more {
			all[name] = run
		}
	}
	reexec.Run(all)
}

// Load reads and compiles a file. Errors are spec.Problems with positions.
func Load(path string) (*spec.Testbed, *plan.Plan, error) {
	file, err := spec.Load(path)
	if err != nil {
		return nil, nil, err
	}
	compiled, err := plan.Compile(file)
	if err != nil {
		return nil, nil, err
	}
	return file, compiled, nil
}

// Testbed is a running testbed. Its methods are safe for concurrent use.
type Testbed struct {
	dir    rundir.Dir
	owners []int // users who may own the supervisor
	inside bool  // whether this process is in one of its nodes
	http   *http.Client

	planLock sync.Mutex // guards plan
	plan     *plan.Plan

	// Only of a testbed that this process brought up and has not detached from:
	startup *os.File
	exited  chan struct{}    // closed when process has ended
	ended   *os.ProcessState // the state of process, once exited is closed
	mu      sync.Mutex       // guards process
	process *exec.Cmd
	// hungUp is closed when the supervisor has closed the startup channel. ending is closed if the supervisor
	// first said why it ends, in endReason.
	hungUp, ending chan struct{}
	endReason      string
}

// Open connects to a testbed that is up.
func Open(ctx context.Context, name string) (*Testbed, error) {
	dir, err := rundir.Of(name)
	if err != nil {
		return nil, err
	}
	return OpenDir(ctx, dir)
}

// OpenDir opens a testbed by its run directory, which may be in another place than the one where
// Open looks. The testbed must belong to the calling user or to one of owners.
func OpenDir(ctx context.Context, dir rundir.Dir, owners ...int) (*Testbed, error) {
	name := dir.Name
	t := newTestbed(dir)
	t.owners = append(t.owners, owners...)
	if err := dir.CheckPrivate(t.owners...); err != nil {
		return nil, fmt.Errorf("open testbed %s: %w", name, err)
	}
	if !dir.Running() {
		return nil, fmt.Errorf("open testbed %s: %w", name, ErrNotRunning)
	}
	t.plan = &plan.Plan{}
	// A testbed that is starting or ending is running and has no socket.
	deadline := time.Now().Add(openTimeout)
	for {
		err := t.call(ctx, http.MethodGet, "/v1/plan", nil, t.plan)
		switch {
		case err == nil:
			return t, nil
		case !dir.Running():
			return nil, fmt.Errorf("open testbed %s: %w", name, ErrNotRunning)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) ||
			time.Now().After(deadline):
			return nil, fmt.Errorf("open testbed %s: %w", name, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// answerTimeout bounds every call that a supervisor answers at once or after some system calls for
// each link. With 1,024 nodes that takes a second. A caller's context may end the call earlier. It
// is a variable for tests.
var answerTimeout = time.Minute

// openTimeout is how long Open waits for a testbed that is starting or ending.
const openTimeout = 10 * time.Second

func newTestbed(dir rundir.Dir) *Testbed {
	t := &Testbed{dir: dir, owners: []int{os.Geteuid()}}
	t.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return t.dial(ctx) },
		// Calls have a shorter timeout. This timeout is for streams, which start at once.
		ResponseHeaderTimeout: answerTimeout + time.Second,
	}}
	return t
}

func (t *Testbed) dial(ctx context.Context) (net.Conn, error) {
	if t.inside {
		return dialInside(ctx)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", t.dir.Socket())
	if err != nil {
		return nil, fmt.Errorf("reach supervisor of %s: %w", t.dir.Name, err)
	}
	server, err := peer.Of(conn.(*net.UnixConn))
	if err == nil && !slices.Contains(t.owners, server.UID) {
		err = fmt.Errorf("%s is served by process %d of user %d; want user %s", t.dir.Socket(), server.PID,
			server.UID, strings.Trim(fmt.Sprint(t.owners), "[]"))
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("reach supervisor of %s: %w", t.dir.Name, err)
	}
	return conn, nil
}

// Reach returns an error if the supervisor accepts no new connection. Calls may use older connections, which
// work also after the socket was removed.
func (t *Testbed) Reach(ctx context.Context) error {
	conn, err := t.dial(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Name returns the testbed's name.
func (t *Testbed) Name() string { return t.dir.Name }

// Reserve reserves a resource of the testbed for this process until the process releases it or
// ends.
func (t *Testbed) Reserve(what string) (release func() error, err error) { return t.dir.Reserve(what) }

// Plan returns the plan from which the testbed was built or, after a change, its current plan.
func (t *Testbed) Plan() *plan.Plan {
	t.planLock.Lock()
	defer t.planLock.Unlock()
	return t.plan
}

// Reload reads the plan again, which another process may have changed by Converge.
func (t *Testbed) Reload(ctx context.Context) error {
	p := &plan.Plan{}
	if err := t.call(ctx, http.MethodGet, "/v1/plan", nil, p); err != nil {
		return err
	}
	t.planLock.Lock()
	defer t.planLock.Unlock()
	t.plan = p
	return nil
}

// LogPath returns the path of the supervisor's log, which exists as long as the testbed.
func (t *Testbed) LogPath() string { return t.dir.Log() }

// Inspect returns the current state, with live counters.
func (t *Testbed) Inspect(ctx context.Context) (*supervisor.State, error) {
	state := &supervisor.State{}
	return state, t.call(ctx, http.MethodGet, "/v1/state?"+supervisor.StacksQuery+"=true", nil, state)
}

// Sample is Inspect without the counters of the nodes' stacks, for those who ask often.
func (t *Testbed) Sample(ctx context.Context) (*supervisor.State, error) {
	state := &supervisor.State{}
	return state, t.call(ctx, http.MethodGet, "/v1/state", nil, state)
}

// Verify reads every setting back from the kernel and compares it with the plan. The error joins
// all differences.
func (t *Testbed) Verify(ctx context.Context) error {
	return t.call(ctx, http.MethodPost, "/v1/verify", nil, nil)
}

// OtherPlanError means that a testbed is up with another plan, and that it cannot change to the
// wanted plan while it runs.
type OtherPlanError struct {
	Name        string
	Differences []string // lines for people
}

// Error implements error.
func (e *OtherPlanError) Error() string {
	return fmt.Sprintf("testbed %s is up with another plan; take it down and bring it up for these "+
		"changes:\n  %s", e.Name, strings.Join(e.Differences, "\n  "))
}

// Converge changes the testbed to match the plan. It undoes changes by ChangeLink, repairs changes
// that others made on the host, and verifies everything. It does not touch settings that match.
// Processes continue to run. The plan may differ from the testbed's plan only in settings of links,
// and then replaces it. For any other plan Converge returns an OtherPlanError and changes nothing.
//
// Differences that could not be repaired are returned as an error together with the result.
// Converge does not use the option Progress.
func (t *Testbed) Converge(ctx context.Context, p *plan.Plan, o Options) (*supervisor.Converged, error) {
	request := supervisor.ConvergeRequest{File: o.File, Trace: o.Trace != nil}
	if running := t.Plan(); p.Hash() != running.Hash() {
		if d := plan.Compare(running, p); !d.Live() {
			return nil, &OtherPlanError{Name: t.dir.Name, Differences: d.Rest}
		}
		request.Plan = p
	}
	converged := &supervisor.Converged{}
	if err := t.call(ctx, http.MethodPost, "/v1/converge", request, converged); err != nil {
		return nil, err
	}
	for _, line := range converged.Commands {
		o.Trace(line)
	}
	if converged.Failure != nil {
		return converged, failureError(*converged.Failure)
	}
	t.planLock.Lock()
	defer t.planLock.Unlock()
	t.plan = p
	return converged, nil
}

// Note adds an event of a run to the testbed's events.
func (t *Testbed) Note(ctx context.Context, note supervisor.NoteRequest) error {
	return t.call(ctx, http.MethodPost, "/v1/note", note, &struct{}{})
}

// Events calls handle for every event so far. With follow it also calls handle for later events
// until ctx or the testbed ends. A reader that falls too far behind gets a last event of kind
// supervisor.EventsLost, and Events returns ErrEventsLost.
func (t *Testbed) Events(ctx context.Context, follow bool, handle func(supervisor.Event) error) error {
	path := "/v1/events"
	if follow {
		path += "?follow=true"
	}
	response, err := t.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	for {
		var event supervisor.Event
		err := decoder.Decode(&event)
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read events of %s: %w", t.dir.Name, err)
		}
		if err := handle(event); err != nil {
			return err
		}
		if event.Kind == supervisor.EventsLost {
			return fmt.Errorf("read events of %s: %w: %s", t.dir.Name, ErrEventsLost, event.Detail)
		}
	}
}

// Down takes the testbed down, whichever process brought it up, and returns when it is gone.
func (t *Testbed) Down(ctx context.Context) error {
	request := supervisor.DownRequest{By: thisCommand()}
	if err := t.call(ctx, http.MethodPost, "/v1/down", request, nil); err != nil && t.dir.Running() {
		return err
	}
	if t.owned() {
		return t.Close()
	}
	if err := t.dir.WaitGone(downTimeout); err != nil {
		return err
	}
	if _, err := os.Stat(t.dir.Log()); err == nil && !t.dir.Running() {
		return fmt.Errorf("take down %s: not everything could be removed; railbed gc tries again; its log "+
			"ends:\n%s", t.dir.Name, logTail(t.dir))
	}
	return nil
}

// thisCommand returns the command line and the number of this process, for people.
func thisCommand() string {
	line := filepath.Base(os.Args[0])
	for _, arg := range os.Args[1:] {
		line += " " + arg
	}
	return fmt.Sprintf("%.200q (process %d)", line, os.Getpid())
}

// owned reports whether this process brought the testbed up and has neither detached from it nor
// closed it.
func (t *Testbed) owned() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.process != nil
}

// call makes one request within answerTimeout and, unless result is nil, decodes the answer into
// it.
func (t *Testbed) call(ctx context.Context, method, path string, body, result any) error {
	ctx, cancel := t.limited(ctx)
	defer cancel()
	err := t.exchange(ctx, method, path, body, result)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrNoAnswer) {
		return cause
	}
	return err
}

// limited returns a context that ends after answerTimeout, with an error that says so.
func (t *Testbed) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, answerTimeout,
		fmt.Errorf("%w: %s, within %v; its log is %s", ErrNoAnswer, t.dir.Name, answerTimeout, t.dir.Log()))
}

func (t *Testbed) exchange(ctx context.Context, method, path string, body, result any) error {
	response, err := t.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if result == nil {
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	if err := json.NewDecoder(response.Body).Decode(result); err != nil {
		return fmt.Errorf("read answer of %s's supervisor: %w", t.dir.Name, err)
	}
	return nil
}

func (t *Testbed) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	request, err := newRequest(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	response, err := t.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask supervisor of %s: %w", t.dir.Name, err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, readFailure(response)
	}
	return response, nil
}

func newRequest(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://railbed"+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set(supervisor.ProtocolHeader, supervisor.Protocol)
	return request, nil
}

func readFailure(response *http.Response) error {
	var failure supervisor.Failure
	if err := json.NewDecoder(response.Body).Decode(&failure); err != nil || failure.Error == "" {
		return fmt.Errorf("supervisor answered %s", response.Status)
	}
	return failureError(failure)
}

// InvokingUser returns the owner of files that a command makes. Under sudo this is the user who
// called sudo, otherwise the current user, for which it returns -1, as chown expects.
func InvokingUser() (uid, gid int) {
	uid, uidErr := strconv.Atoi(os.Getenv("SUDO_UID"))
	gid, gidErr := strconv.Atoi(os.Getenv("SUDO_GID"))
	if os.Geteuid() != 0 || uidErr != nil || gidErr != nil {
		return -1, -1
	}
	return uid, gid
}

// Testbeds returns the names of the calling user's testbeds that are up.
func Testbeds() ([]string, error) {
	dirs, err := rundir.List()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, dir := range dirs {
		if dir.Running() {
			names = append(names, dir.Name)
		}
	}
	return names, nil
}

// logTail returns the end of a supervisor's log, for errors that the supervisor could not send.
func logTail(dir rundir.Dir) string {
	const lines = 5
	text, err := os.ReadFile(dir.Log())
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
