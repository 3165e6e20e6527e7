package testbed

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"railbed/capture/report"
	"railbed/internal/frame"
	"railbed/internal/reexec"
	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/nodes/cni"
	"railbed/nodes/vm"
	"railbed/plan"
	"railbed/testbed/doctor"
	"railbed/testbed/supervisor"
)

// downTimeout bounds the shutdown of a testbed. 1,024 nodes take well under a second, and longer on
// a machine under load.
const downTimeout = 30 * time.Second

// Options are the options of Up. The zero value is valid.
type Options struct {
	// Progress is called with the progress of the bring-up.
	Progress func(phase string, done, total int)
	// Warn is called with warnings about things that work, but not as well as expected.
	Warn func(text string)
	// Trace is called for each host change, with the equivalent ip or tc line.
	Trace func(line string)
	// File is the path of the plan's file, for people.
	File string
}

// Lack is a feature or a file that a plan requires and the host lacks.
type Lack struct {
	plan.Requirement // the first that names the feature
	Err              *verdict.UnsupportedError
}

// LacksError has all that a host lacks, in the order of the requirements. It matches
// verdict.ErrUnsupported.
type LacksError []Lack

// Error implements error: a line for each feature.
func (e LacksError) Error() string {
	lines := make([]string, len(e))
	for i, l := range e {
		lines[i] = fmt.Sprintf("%s: %s: %v", l.Where, l.Reason, l.Err)
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns an *verdict.UnsupportedError for each feature.
func (e LacksError) Unwrap() []error {
	lacking := make([]error, len(e))
	for i, l := range e {
		lacking[i] = l.Err
	}
	return lacking
}

// Require returns a LacksError if the host lacks features or files. Names of files are relative to the folder
// of file, the scenario file. Up does the same first, with its plan's requirements.
func Require(ctx context.Context, needs []plan.Requirement, file string) error {
	var lacks LacksError
	asked := map[string]bool{}
	for _, need := range needs {
		if need.Inside || asked[need.Feature] {
			continue
		}
		asked[need.Feature] = true
		err := doctor.HasRequired(ctx, file, need.Feature)
		var lacking *verdict.UnsupportedError
		switch {
		case errors.As(err, &lacking):
			lacks = append(lacks, Lack{need, lacking})
		case err != nil:
			return err
		}
	}
	if lacks == nil {
		return nil
	}
	return lacks
}

// Up brings a testbed up. It lives until Close or the end of this process, unless Detach makes it
// independent of the process. If the host lacks features that the plan requires, Up returns a LacksError
// before it makes anything.
func Up(ctx context.Context, p *plan.Plan, o Options) (*Testbed, error) {
	if err := Require(ctx, p.Requires, o.File); err != nil {
		return nil, err
	}
	limit, err := descriptorLimit()
	if err == nil {
		err = checkDescriptors(p, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("bring up %s: %w", p.Name, err)
	}
	dir, lock, err := rundir.Claim(p.Name)
	if err != nil {
		return nil, fmt.Errorf("bring up %s: %w", p.Name, err)
	}
	// From here on the supervisor owns the lock. This process's copy keeps the directory from others until
	// the testbed is up.
	defer lock.Close()
	if passed := rundir.Elsewhere(); passed != "" && o.Warn != nil {
		o.Warn(fmt.Sprintf("run directory %s: %s", dir.Path, passed))
	}
	if err := cni.CheckHost(p, testbedOf); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	t := newTestbed(dir)
	t.plan = p
	if err := t.startSupervisor(lock, p.Management != nil); err != nil {
		return nil, errors.Join(fmt.Errorf("bring up %s: %w", p.Name, err), dir.Remove())
	}
	if err := t.await(ctx, o); err != nil {
		where := ""
		if at := new(placedError); errors.As(err, &at) {
			where = at.where + ": "
		}
		err = errors.Join(fmt.Errorf("%sbring up %s: %w", where, p.Name, err), t.Close())
		if t.ended.ExitCode() == supervisor.ExitNotStarted && dir.Owned(lock.Fd()) {
			err = errors.Join(err, dir.Remove()) // the supervisor did not learn of it
		}
		return nil, err
	}
	t.hungUp, t.ending = make(chan struct{}), make(chan struct{})
	go t.awaitEnd()
	return t, nil
}

// awaitEnd reads the startup channel until the supervisor closes it.
func (t *Testbed) awaitEnd() {
	defer close(t.hungUp)
	reader := frame.NewReader(t.startup)
	for {
		_, payload, err := reader.Read()
		if err != nil {
			return
		}
		var message supervisor.Startup
		if json.Unmarshal(payload, &message) == nil && message.Kind == supervisor.StartupEnding &&
			t.endReason == "" {
			t.endReason = message.Text
			close(t.ending)
		}
	}
}

// Ending returns a channel that is closed when another process has ended a testbed that this process brought
// up. Aborted then returns the reason.
func (t *Testbed) Ending() <-chan struct{} { return t.ending }

// placedError is an error about the setting at a position of the file.
type placedError struct {
	error
	where string // file:line:column
}

func (e *placedError) Unwrap() error { return e.error }

// startSupervisor starts this executable as PID 1 of new namespaces. Every user except root gets a
// user namespace, in which the user is root. beside reports whether there is a management network.
// For it the supervisor gets this process's network namespace.
func (t *Testbed) startSupervisor(lock *os.File, beside bool) error {
	host := os.DevNull
	if beside {
		host = "/proc/self/ns/net"
	}
	network, err := os.Open(host)
	if err != nil {
		return fmt.Errorf("open the host's network: %w", err)
	}
	defer network.Close()
	ours, theirs, err := reexec.SocketPair()
	if err != nil {
		return fmt.Errorf("create startup channel: %w", err)
	}
	t.startup = ours
	defer theirs.Close()
	log, err := os.OpenFile(t.dir.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.startup.Close()
		return fmt.Errorf("create supervisor log: %w", err)
	}
	defer log.Close()
	attributes := &syscall.SysProcAttr{
		Setsid: true,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS,
	}
	if os.Geteuid() != 0 {
		attributes.Cloneflags |= unix.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	t.process = &exec.Cmd{
		Path: reexec.Self, Args: reexec.Argv(supervisor.Part, t.dir.Name), Dir: "/",
		Env:    supervisorEnvironment(),
		Stdout: log, Stderr: log, ExtraFiles: []*os.File{theirs, lock, network}, SysProcAttr: attributes,
	}
	if err := t.process.Start(); err != nil {
		t.startup.Close()
		t.process = nil
		return fmt.Errorf("start supervisor in new namespaces: %w (railbed doctor says what the host allows)",
			err)
	}
	process, exited := t.process, make(chan struct{})
	t.exited = exited
	go func() {
		defer close(exited)
		process.Wait() // the log gives the reason
		t.ended = process.ProcessState
	}()
	return nil
}

// supervisorEnvironment returns the environment of a supervisor: the path of programs, the kernels
// of virtual machines (package vmimage), and the containers' engine.
func supervisorEnvironment() []string {
	environment := []string{"PATH=" + os.Getenv("PATH")}
	if cache, err := os.UserCacheDir(); err == nil {
		environment = append(environment, "XDG_CACHE_HOME="+cache)
	}
	if host, named := os.LookupEnv("DOCKER_HOST"); named {
		environment = append(environment, "DOCKER_HOST="+host)
	}
	// Other folders of the user, which virtual machines must not see.
	var private []string
	for _, name := range []string{
		"HOME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
		"XDG_STATE_HOME",
	} {
		if dir := os.Getenv(name); filepath.IsAbs(dir) {
			private = append(private, dir)
		}
	}
	return append(environment, vm.PrivateEnv+"="+strings.Join(private, string(filepath.ListSeparator)))
}

// pass passes the supervisor's messages during the bring-up to the functions in the options.
func (o *Options) pass(message supervisor.Startup) {
	switch {
	case message.Kind == supervisor.StartupProgress && o.Progress != nil:
		o.Progress(message.Text, message.Done, message.Total)
	case message.Kind == supervisor.StartupTrace && o.Trace != nil:
		o.Trace(message.Text)
	case message.Kind == supervisor.StartupWarning && o.Warn != nil:
		o.Warn(message.Text)
	}
}

// await sends the plan and follows the bring-up to its end.
func (t *Testbed) await(ctx context.Context, o Options) error {
	// The supervisor takes the closed channel as the end of the client.
	hungUp := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(hungUp)
		unix.Shutdown(int(t.startup.Fd()), unix.SHUT_RDWR)
	})
	defer func() {
		if !stop() {
			<-hungUp // the channel must not be closed by others before the Shutdown
		}
	}()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	calibration, err := calibrationFile()
	if err != nil {
		return err
	}
	base, err := filepath.Abs(filepath.Dir(o.File))
	if err != nil {
		return err
	}
	writer := frame.NewWriter(t.startup)
	err = writer.WriteJSON(frame.Message, supervisor.Start{
		Name:       t.plan.Name,
		Namespaces: len(supervisor.OwnNamespaces(t.plan)),
		Dir:        t.dir.Path,
		UID:        os.Getuid(),
		GID:        os.Getgid(),
		Rootless:   os.Geteuid() != 0,
		Trace:      o.Trace != nil, Calibration: calibration, File: o.File, Base: base,
	})
	if err == nil {
		err = writer.WriteJSON(frame.Message, t.plan)
	}
	reader := frame.NewReader(t.startup)
	for err == nil {
		var payload []byte
		if _, payload, err = reader.Read(); err != nil {
			break
		}
		var message supervisor.Startup
		if err = json.Unmarshal(payload, &message); err != nil {
			break
		}
		o.pass(message)
		switch message.Kind {
		case supervisor.StartupEnding:
			return errors.New(message.Text)
		case supervisor.StartupFailed:
			err := failureError(supervisor.Failure{Error: message.Text, Unsupported: message.Unsupported,
				Mistake: message.Mistake})
			if message.Where != "" {
				return &placedError{err, message.Where}
			}
			return err
		case supervisor.StartupReady:
			return nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("supervisor ended without an error message: %w; its log ends:\n%s", err, logTail(t.dir))
}

// calibrationFile returns the file with the host's measured shaper settings.
func calibrationFile() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/railbed/calibration.json", nil
	}
	if cache, err := os.UserCacheDir(); err == nil {
		dir := filepath.Join(cache, "railbed")
		if os.MkdirAll(dir, 0o755) == nil {
			return filepath.Join(dir, "calibration.json"), nil
		}
	}
	// There is no writable home directory, as for daemons. The file is beside the run directories.
	root, err := rundir.Root()
	return filepath.Join(root, ".calibration.json"), err
}

// Detach lets the testbed outlive this process. Afterwards Close no longer takes the testbed down,
// and Down still does.
func (t *Testbed) Detach() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.process == nil {
		return nil
	}
	if err := frame.NewWriter(t.startup).Write(frame.Message, []byte(supervisor.Detach)); err != nil {
		return fmt.Errorf("detach from %s: %w", t.dir.Name, err)
	}
	<-t.hungUp // the supervisor closes its end once it has read the message
	t.process = nil
	return t.startup.Close()
}

// Close takes the testbed down if this process brought it up and has not detached, and returns when
// it is gone. It does nothing to a testbed that was only opened. Close is idempotent.
func (t *Testbed) Close() error {
	t.http.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.process == nil {
		return nil
	}
	process := t.process
	t.process = nil
	t.startup.Close()
	if t.hungUp != nil {
		<-t.hungUp
	}
	select {
	case <-t.exited:
	case <-time.After(downTimeout):
		process.Process.Kill()
		<-t.exited
		return fmt.Errorf("take down %s: it did not end within %v, and was killed; its log ends:\n%s",
			t.dir.Name, downTimeout, logTail(t.dir))
	}
	if process.ProcessState.ExitCode() == supervisor.ExitLeftovers {
		return fmt.Errorf("take down %s: not everything could be removed; railbed gc tries again; its log "+
			"ends:\n%s", t.dir.Name, logTail(t.dir))
	}
	return nil
}

// Kill kills the supervisor of a testbed that this process brought up, and with it the testbed. It
// is for a supervisor that does not answer, which does not end by itself. Close must still be
// called.
func (t *Testbed) Kill() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.process == nil {
		return nil
	}
	return t.process.Process.Kill()
}

// Aborted returns the reason why the supervisor of a testbed that this process brought up ended by
// itself: its last message, or the report that it left. It returns "" if there is neither. It may be called
// once Done or Ending is closed.
func (t *Testbed) Aborted() string {
	select {
	case <-t.ending:
	case <-t.hungUp:
	}
	if t.endReason != "" {
		return "the testbed ended during the run: " + t.endReason
	}
	if t.ended.ExitCode() == supervisor.ExitRemoved {
		return fmt.Sprintf("the testbed's run directory %s, or the socket in it, was removed while it ran",
			t.dir.Path)
	}
	file, err := os.Open(t.dir.Report())
	if errors.Is(err, fs.ErrNotExist) {
		file, err = t.sweptReport()
	}
	if err != nil {
		return ""
	}
	defer file.Close()
	left, err := report.Read(file)
	if err != nil {
		return ""
	}
	return left.Reason
}

// sweptReport opens the report of a testbed whose run directory another command has swept already.
func (t *Testbed) sweptReport() (*os.File, error) {
	all, err := rundir.ListAborted()
	for _, aborted := range slices.Backward(all) {
		if aborted.Name == t.dir.Name {
			return os.Open(aborted.Report())
		}
	}
	return nil, cmp.Or(err, fs.ErrNotExist)
}

// Done returns a channel that is closed when the supervisor of a testbed that this process brought
// up has ended, for any reason. It is nil for other testbeds.
func (t *Testbed) Done() <-chan struct{} { return t.exited }
