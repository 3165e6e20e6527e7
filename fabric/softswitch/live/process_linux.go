package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/fabric/softswitch"
	"railbed/internal/frame"
	"railbed/internal/reexec"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
)

// part is the name under which this executable starts itself as a testbed's switches.
const part = "softswitch"

// Parts returns the parts for reexec.Run with which soft switches run in a process of their own.
func Parts() reexec.Parts { return reexec.Parts{part: main} }

// Descriptors of the process.
const (
	controlFd     = 3 // stream of frames: start, plan, then requests and answers
	descriptorsFd = 4 // datagrams, each with a descriptor for the next request
	firstPort     = 5
)

// start is the first message to the process. It has a port for each NIC, or a trunk for all.
type start struct {
	Ends     []plan.End        `json:"ends"`            // NICs, in the engine's order
	Ports    []startPort       `json:"ports,omitempty"` // in this order, too
	Trunk    *port.Description `json:"trunk,omitempty"`
	Joined   []port.TrunkPort  `json:"joined,omitempty"` // connected to the trunk
	Monitors []startMonitor    `json:"monitors,omitempty"`
}

// startPort is a port whose descriptors follow, in order.
type startPort struct {
	Description port.Description `json:"description"`
	Files       int              `json:"files"`
}

// request is a request to the process. Exactly one field is set.
type request struct {
	SetLink     *setLink     `json:"set_link,omitempty"`
	LinkState   *linkState   `json:"link_state,omitempty"`
	AddFault    *addFault    `json:"add_fault,omitempty"`
	ClearFaults *clearFaults `json:"clear_faults,omitempty"`
	State       bool         `json:"state,omitempty"`
	OpenTaps    *openTaps    `json:"open_taps,omitempty"`
	CloseTaps   *int         `json:"close_taps,omitempty"`
	ReplacePort *replacePort `json:"replace_port,omitempty"`
	ForeignGone bool         `json:"foreign_gone,omitempty"`
	Watch       *watch       `json:"watch,omitempty"`
	Measure     *int         `json:"measure,omitempty"` // a node
	Offer       bool         `json:"offer,omitempty"`   // a node's socket was sent before
	Mirror      *plan.End    `json:"mirror,omitempty"`
	Alive       bool         `json:"alive,omitempty"` // only requests an answer
}

type setLink struct {
	Name string         `json:"name"`
	AToB plan.Direction `json:"a_to_b"`
	BToA plan.Direction `json:"b_to_a"`
}

type linkState struct {
	Name string `json:"name"`
	Up   bool   `json:"up"`
}

type addFault struct {
	Fault  spec.Fault `json:"fault"`
	Places []plan.End `json:"places"`
}

// clearFaults ends faults by their names, or all without names.
type clearFaults struct {
	Names []string `json:"names,omitempty"`
}

// answer is the process's answer to a request or to start.
type answer struct {
	Error string `json:"error,omitempty"`
	State *State `json:"state,omitempty"`
	Place int    `json:"place,omitempty"` // of opened taps
	// Faults are those that ClearFaults ended.
	Faults []softswitch.FaultState `json:"faults,omitempty"`
	// Gone is set in the answer to ForeignGone.
	Gone []plan.End `json:"gone,omitempty"`
	// Epoch is set in the answer to start.
	Epoch time.Time `json:"epoch,omitzero"`
}

// Process is the running process of a testbed's soft switches. It is safe for concurrent use.
type Process struct {
	mu      sync.Mutex // one request at a time
	control *os.File
	reader  *frame.Reader
	writer  *frame.Writer
	process *exec.Cmd
	exited  chan struct{}
	silent  chan struct{}
	// descriptors is the socket for descriptors.
	descriptors *os.File
	errors      *bytes.Buffer // its stderr; read once it has exited
	epoch       time.Time
}

// Epoch returns the real time of the switches' time 0.
func (s *Process) Epoch() time.Time { return s.epoch }

// Start starts the soft switches of a plan in a process of their own. It consumes the handles, even
// if it fails. If ctx ends before the switches run, the process is killed.
func Start(ctx context.Context, p *plan.Plan, w Ports) (*Process, error) {
	handles := w.Own
	if w.Trunk != nil {
		handles = append(slices.Clip(handles), w.Trunk)
	}
	ours, theirs, err := reexec.SocketPair()
	if err != nil {
		return nil, errors.Join(err, closeHandles(handles))
	}
	defer theirs.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start soft switches: %w", err), ours.Close(),
			closeHandles(handles))
	}
	descriptors, theirDescriptors := os.NewFile(uintptr(pair[0]), "descriptors"),
		os.NewFile(uintptr(pair[1]), "descriptors")
	defer theirDescriptors.Close()
	order, files := w.order()
	files = append([]*os.File{theirs, theirDescriptors}, files...)
	s := &Process{control: ours, reader: frame.NewReader(ours), writer: frame.NewWriter(ours),
		exited: make(chan struct{}), silent: make(chan struct{}), errors: &bytes.Buffer{},
		descriptors: descriptors}
	s.process = &exec.Cmd{
		Path:        reexec.Self,
		Args:        reexec.Argv(part),
		Dir:         "/",
		Env:         os.Environ(),
		ExtraFiles:  files,
		Stderr:      io.MultiWriter(s.errors, os.Stderr),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = s.process.Start()
	// Now only the process has its ends. So their closing shows here as an end of file.
	err = errors.Join(err, closeHandles(handles), theirDescriptors.Close(), theirs.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start soft switches: %w", err), ours.Close(), descriptors.Close())
	}
	go func() {
		defer close(s.exited)
		_ = s.process.Wait() // its output is in errors
	}()
	kept := context.AfterFunc(ctx, func() { _ = s.process.Process.Kill() }) // it may have ended
	defer kept()
	if err = s.writer.WriteJSON(frame.Message, order); err == nil {
		err = s.writer.WriteJSON(frame.Message, p)
	}
	if err == nil && w.Monitors > 0 {
		err = w.Monitor(func(node int, file *os.File) error { return sendNumbered(descriptors, node, file) })
	}
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		return nil, errors.Join(fmt.Errorf("start soft switches: %w", err), s.Close())
	}
	started, answerErr := s.answer()
	if answerErr != nil { // its error is more informative
		return nil, errors.Join(fmt.Errorf("start soft switches: %w", answerErr), err, s.Close())
	}
	s.epoch = started.Epoch
	go s.watch()
	return s, nil
}

func (s *Process) answer() (answer, error) {
	var a answer
	_, payload, err := s.reader.Read()
	if err != nil {
		return a, fmt.Errorf("the soft switches' process ended: %w", err)
	}
	if err := json.Unmarshal(payload, &a); err != nil {
		return a, fmt.Errorf("read answer of the soft switches: %w", err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// ask makes one request.
func (s *Process) ask(r request) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.askLocked(r)
}

func (s *Process) askLocked(r request) (answer, error) {
	if err := s.writer.WriteJSON(frame.Message, r); err != nil {
		return answer{}, fmt.Errorf("ask soft switches: %w", err)
	}
	return s.answer()
}

// SetLink changes a link's settings for frames sent from now on.
func (s *Process) SetLink(name string, aToB, bToA plan.Direction) error {
	_, err := s.ask(request{SetLink: &setLink{name, aToB, bToA}})
	return err
}

// SetLinkState takes a link down or up.
func (s *Process) SetLinkState(name string, up bool) error {
	_, err := s.ask(request{LinkState: &linkState{name, up}})
	return err
}

// AddFault begins a fault at the ports that send the packets.
func (s *Process) AddFault(f spec.Fault, places []plan.End) error {
	_, err := s.ask(request{AddFault: &addFault{f, places}})
	return err
}

// ClearFaults ends faults by their names, or all without names, and returns what they did.
func (s *Process) ClearFaults(names ...string) ([]softswitch.FaultState, error) {
	a, err := s.ask(request{ClearFaults: &clearFaults{names}})
	return a.Faults, err
}

// State reads all counters.
func (s *Process) State() (*State, error) {
	a, err := s.ask(request{State: true})
	if err == nil && a.State == nil {
		err = errors.New("ask soft switches: the answer has no state")
	}
	return a.State, err
}

// Exited is closed when the process has ended. It ends by itself only after a failure.
func (s *Process) Exited() <-chan struct{} { return s.exited }

// Ended describes how the process ended. It must be called after Exited is closed.
func (s *Process) Ended() string { return s.process.ProcessState.String() }

const (
	// Silence is the longest time that the process may take to answer, and silenceLooks is the
	// number of checks in that time. The checks are counted instead of the time: a supervisor that
	// was itself delayed must not report the process as silent.
	Silence      = 10 * time.Second
	silenceLooks = 50
)

// Silent is closed when the process is alive but has not answered for Silence: a signal has stopped
// it, or it gets no CPU time.
func (s *Process) Silent() <-chan struct{} { return s.silent }

// watch keeps checking that the process answers, until it has ended.
func (s *Process) watch() {
	ticker := time.NewTicker(Silence / silenceLooks)
	defer ticker.Stop()
	answered := make(chan error, 1)
	for looks, asking := 0, false; ; {
		select {
		case <-s.exited:
			return
		case err := <-answered:
			if err != nil {
				return // it has ended, or is about to
			}
			looks, asking = 0, false
		case <-ticker.C:
			if looks++; looks > silenceLooks {
				close(s.silent)
				return
			}
			if !asking && looks >= silenceLooks/silenceQuestions {
				asking = true
				go func() {
					_, err := s.ask(request{Alive: true})
					answered <- err
				}()
			}
		}
	}
}

// silenceQuestions is the number of requests to the process within Silence.
const silenceQuestions = 10

// endPatience is how long the process may take to end after its control stream is closed.
const endPatience = 2 * time.Second

// Close ends the process and returns when it is gone. A second Close does
// nothing.
func (s *Process) Close() error {
	err := s.control.Close() // the process ends with its control stream
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	err = errors.Join(err, s.descriptors.Close())
	select {
	case <-s.exited:
	case <-time.After(endPatience):
		err = errors.Join(err, fmt.Errorf("end soft switches: the process did not end within %v, and was "+
			"killed", endPatience), s.process.Process.Kill())
		<-s.exited
	}
	return err
}

// main is the main function of the process.
func main([]string) int {
	control := os.NewFile(controlFd, "control")
	raisePriority()
	unix.CloseOnExec(controlFd)
	unix.CloseOnExec(descriptorsFd)
	reader, writer := frame.NewReader(control), frame.NewWriter(control)
	l, err := begin(reader)
	if err != nil {
		_ = writer.WriteJSON(frame.Message, answer{Error: err.Error()}) // there is no other receiver
		return verdict.ExitFail
	}
	// The packet memory is most of the heap and holds no pointers. More frequent collections would
	// only take time from the frames.
	debug.SetGCPercent(400)
	stop := false
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.run(&stop)
	}()
	if writer.WriteJSON(frame.Message, answer{Epoch: l.clock.Epoch()}) == nil {
		l.serve(reader, writer)
	}
	l.do(func() { stop = true })
	<-ended
	_ = l.close() // the rest ends with the process
	return verdict.ExitPass
}

// begin reads the start message and makes the loop.
func begin(reader *frame.Reader) (*loop, error) {
	var order start
	if err := readJSON(reader, &order); err != nil {
		return nil, fmt.Errorf("read start message: %w", err)
	}
	last := firstPort // descriptor
	for _, given := range order.Ports {
		last += given.Files
	}
	if order.Trunk != nil {
		last++
	}
	// This comes before any other thread exists, which would have to close its descriptors of
	// ports.
	taken, err := startMonitorThreads(order.Monitors, descriptorsFd, firstPort, last)
	if err != nil {
		return nil, err
	}
	p := &plan.Plan{}
	if err := readJSON(reader, p); err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	fd := firstPort
	inherit := func(d port.Description, files int) *port.Handle {
		handle := &port.Handle{Description: d}
		for range files {
			unix.CloseOnExec(fd)
			handle.Files = append(handle.Files, os.NewFile(uintptr(fd), d.Name))
			fd++
		}
		return handle
	}
	var ports []port.Port
	for _, given := range order.Ports {
		one, err := inherit(given.Description, given.Files).Port()
		if err != nil {
			return nil, err
		}
		ports = append(ports, one)
	}
	var joined *port.Trunk
	if order.Trunk != nil {
		if joined, err = inherit(*order.Trunk, 1).Trunk(order.Joined); err != nil {
			return nil, err
		}
	}
	l, err := newLoop(p, order.Ends, ports, joined)
	if err != nil {
		return nil, err
	}
	if err := taken.taken(); err != nil {
		return nil, err
	}
	if len(order.Monitors) > 0 {
		l.watchArrivals(order.Ends, taken)
	}
	return l, nil
}

func readJSON(reader *frame.Reader, v any) error {
	_, payload, err := reader.Read()
	if err != nil {
		return err
	}
	return json.Unmarshal(payload, v)
}

// serve answers requests until the stream ends.
func (l *loop) serve(reader *frame.Reader, writer *frame.Writer) {
	for {
		var r request
		if err := readJSON(reader, &r); err != nil {
			return
		}
		a := answer{}
		var err error
		switch {
		case r.SetLink != nil:
			l.do(func() { err = l.engine.SetLink(r.SetLink.Name, r.SetLink.AToB, r.SetLink.BToA) })
		case r.LinkState != nil:
			l.do(func() { err = l.engine.SetLinkState(r.LinkState.Name, r.LinkState.Up) })
		case r.AddFault != nil:
			l.do(func() {
				if err = l.engine.AddFault(r.AddFault.Fault, r.AddFault.Places); err == nil {
					l.taps.named()
				}
			})
		case r.ClearFaults != nil:
			l.do(func() { a.Faults, err = l.engine.ClearFaults(r.ClearFaults.Names...) })
		case r.Alive:
			l.do(func() {}) // the answer comes from the thread that moves frames
		case r.State:
			a.State, err = l.state()
		case r.OpenTaps != nil:
			var file *os.File
			if file, err = receiveFile(descriptorsFd); err == nil {
				a.Place, err = l.taps.start(r.OpenTaps, file)
			}
		case r.ReplacePort != nil:
			err = l.replace(r.ReplacePort)
		case r.Watch != nil:
			err = l.watchForeign(r.Watch)
		case r.Measure != nil:
			err = l.arrived.monitorThreads.replace(*r.Measure)
		case r.Offer:
			err = l.offer()
		case r.Mirror != nil:
			err = l.openMirror(*r.Mirror)
		case r.ForeignGone:
			a.Gone = l.foreignGone()
		case r.CloseTaps != nil:
			l.do(func() { err = l.taps.remove(*r.CloseTaps) })
		default:
			err = errors.New("the request is empty")
		}
		if err != nil {
			a.Error = err.Error()
		}
		if writer.WriteJSON(frame.Message, a) != nil {
			return
		}
	}
}
