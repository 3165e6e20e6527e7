package supervisor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"railbed/fabric"
	"railbed/internal/frame"
	"railbed/nodes"
	"railbed/nodes/cni"
	"railbed/plan"
)

// maxBody bounds a request's JSON, in bytes.
const maxBody = 1 << 20

const (
	// requestTime is how long a client may take to send a whole request. idleTime is how long it
	// may keep a connection without a request.
	requestTime = 10 * time.Second
	idleTime    = 2 * time.Minute
)

// farewell is how long a session may continue to send at the testbed's end.
const farewell = time.Second

// server is the control socket.
type server struct {
	http     *http.Server
	listener net.Listener
	served   chan error
	// reported is closed when the report for a crash is written.
	reported chan struct{}
}

// listen opens the control socket in the run directory and serves it.
func (s *supervisor) listen() (*server, error) {
	listener, err := net.Listen("unix", s.dir.Socket())
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	if err := os.Chmod(s.dir.Socket(), 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	sv := &server{
		http:     &http.Server{Handler: s.handler(), ReadHeaderTimeout: requestTime, IdleTimeout: idleTime},
		listener: listener, served: make(chan error, 1), reported: make(chan struct{}),
	}
	go func() { sv.served <- sv.http.Serve(&outsideListener{listener, s.log}) }()
	// The hash of a large plan takes time, and nothing waits for it.
	go func() {
		defer close(sv.reported)
		if err := s.writeAborted(supervisorDied); err != nil {
			s.log.Warn("a crash will leave a short report", "error", err)
		}
	}()
	return sv, nil
}

// close lets running answers finish, so that the client that requested the end receives its answer,
// and then stops. Hijacked connections are sessions and end with their processes.
func (sv *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := sv.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = sv.http.Close()
	}
	<-sv.reported // the run directory is about to be removed
	if served := <-sv.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func (s *supervisor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/version", func(w http.ResponseWriter, _ *http.Request) {
		p, _ := s.running()
		writeJSON(w, http.StatusOK, map[string]string{"protocol": Protocol, "name": p.Name,
			"plan_hash": p.Hash()})
	})
	mux.HandleFunc("GET /v1/plan", s.servePlan)
	mux.HandleFunc("GET /v1/state", s.serveState)
	mux.HandleFunc("POST /v1/verify", s.serveVerify)
	mux.HandleFunc("POST /v1/converge", s.serveConverge)
	mux.HandleFunc("POST /v1/down", s.serveDown)
	mux.HandleFunc("POST /v1/link", change(s.changeLink))
	mux.HandleFunc("POST /v1/fault", s.serveFault)
	mux.HandleFunc("GET /v1/events", s.serveEvents)
	mux.HandleFunc("POST /v1/note", s.serveNote)
	mux.HandleFunc("GET /v1/nodes/{node}/log", s.serveNodeLog)
	mux.HandleFunc("POST /v1/exec", s.session(s.serveExec))
	mux.HandleFunc("POST /v1/capture", s.session(s.serveCapture))
	mux.HandleFunc("GET /v1/containers", s.servePorts)
	mux.HandleFunc("POST /v1/containers/attach", s.session(s.serveAttach))
	mux.HandleFunc("POST /v1/containers/detach", s.serveDetach)
	mux.HandleFunc("POST /v1/containers/collect", s.serveCollect)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics(), promhttp.HandlerOpts{}))
	return sameProtocol(mux)
}

// sameProtocol refuses clients with another version of the control protocol.
func sameProtocol(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(ProtocolHeader, Protocol)
		asked := r.Header.Get(ProtocolHeader)
		if strings.HasPrefix(r.URL.Path, "/v1/") && asked != Protocol {
			writeJSON(w, http.StatusUpgradeRequired, Failure{Error: fmt.Sprintf(
				"client speaks protocol %q, the testbed's supervisor %q; use the railbed that brought it up",
				asked, Protocol)})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may be gone. Then the error cannot be reported.
	_ = json.NewEncoder(w).Encode(v)
}

func writeError(w http.ResponseWriter, err error) {
	failure := failureOf(err)
	status := http.StatusInternalServerError
	switch {
	case failure.Unsupported != nil:
		status = http.StatusNotImplemented
	case failure.NotFound, failure.NoFolder, failure.NoSuchObject:
		status = http.StatusNotFound
	}
	writeJSON(w, status, failure)
}

func failureOf(err error) Failure {
	failure := Failure{
		Error:        err.Error(),
		NotFound:     errors.Is(err, nodes.ErrNotFound),
		NoFolder:     errors.Is(err, nodes.ErrNoFolder),
		NoSuchObject: errors.Is(err, ErrNoSuchObject),
		NoPort:       errors.Is(err, cni.ErrNoPort),
		Taken:        errors.Is(err, cni.ErrTaken),
		Twice:        errors.Is(err, cni.ErrTwice),
	}
	errors.As(err, &failure.Unsupported)
	errors.As(err, &failure.Mistake)
	return failure
}

// ErrNoSuchObject is wrapped if a node, link or tap does not exist.
var ErrNoSuchObject = errors.New("no such object in the testbed")

// readJSON reads the body of a request, which must arrive within requestTime.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	conn := http.NewResponseController(w)
	if err := conn.SetReadDeadline(time.Now().Add(requestTime)); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	defer conn.SetReadDeadline(time.Time{})
	decoder := json.NewDecoder(io.LimitReader(r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	return nil
}

func (s *supervisor) servePlan(w http.ResponseWriter, _ *http.Request) {
	p, _ := s.running()
	writeJSON(w, http.StatusOK, p)
}

func (s *supervisor) serveState(w http.ResponseWriter, r *http.Request) {
	state, err := s.state(r.Context(), r.URL.Query().Get(StacksQuery) != "")
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, state)
}

func (s *supervisor) state(ctx context.Context, stacks bool) (*State, error) {
	p, file := s.running()
	links, soft, err := s.fabric.State(ctx)
	if err != nil {
		return nil, err
	}
	state := &State{
		Name: p.Name, File: file, PlanHash: p.Hash(), PID: s.hostPID, Rootless: s.start.Rootless,
		Created:  s.created,
		Links:    links,
		Soft:     soft,
		Nodes:    []NodeState{},
		Switches: []SwitchState{},
		Guests:   p.Guests(),
		CNI:      s.containers.Shown(),
		RDMA:     p.RDMADevices(),
		Routing:  s.reactions.now(),

		Followers: s.events.followers(),
	}
	for _, n := range p.Nodes {
		processes, err := s.nodes[n.Name].Processes()
		if err != nil {
			return nil, err
		}
		entry := NodeState{Name: n.Name, Runtime: n.Runtime, Processes: processes,
			NICPath: n.NICPath(), Ranks: rankNumbers(p.Ranks, n.Name)}
		for _, address := range n.Loopbacks {
			entry.Addresses = append(entry.Addresses, address.Addr().String())
		}
		for _, nic := range n.NICs {
			for _, address := range nic.Addrs {
				entry.NICs = append(entry.NICs, nic.Name+" "+address.String())
			}
		}
		entry.Namespace, entry.NamespacePath = s.published(n.Name)
		state.Nodes = append(state.Nodes, entry)
	}
	if err := s.countNodes(ctx, p, state.Nodes, stacks); err != nil {
		return nil, err
	}
	if state.Backlog, err = fabric.BacklogDrops(); err != nil {
		return nil, err
	}
	if state.Faults, err = s.fabric.KernelFaults(); err != nil {
		return nil, err
	}
	if state.NodeFaults, err = s.nodeFaults.States(); err != nil {
		return nil, err
	}
	for _, sw := range p.Switches {
		entry := SwitchState{Name: sw.Name, Kind: sw.Kind, Role: sw.Role, Ports: len(sw.Ports)}
		entry.Namespace, entry.NamespacePath = s.published(sw.Name)
		state.Switches = append(state.Switches, entry)
	}
	if stacks {
		return state, s.countRouters(ctx, p, state.Switches)
	}
	return state, nil
}

// published returns the name for ip-netns(8), or "" if there is none, and the path of the namespace
// on the host. Soft switches and containers have neither.
func (s *supervisor) published(name string) (namespace, path string) {
	if s.namespaces[name] == nil || !s.hasStack(name) {
		return "", ""
	}
	if !s.start.Rootless && !s.taken[s.publishedPath(name)] {
		namespace = s.plan.Name + "-" + name
	}
	return namespace, s.namespacePath(s.namespaces[name])
}

// change serves requests for a change that has no result.
func change[T any](do func(context.Context, T) error) http.HandlerFunc {
	return answered(func(ctx context.Context, request T) (struct{}, error) {
		return struct{}{}, do(ctx, request)
	})
}

// answered serves requests with a result.
func answered[T, R any](do func(context.Context, T) (R, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request T
		if err := readJSON(w, r, &request); err != nil {
			writeJSON(w, http.StatusBadRequest, Failure{Error: err.Error()})
			return
		}
		result, err := do(r.Context(), request)
		if err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, result)
	}
}

// serveNote adds an event of a client.
func (s *supervisor) serveNote(w http.ResponseWriter, r *http.Request) {
	var note NoteRequest
	err := readJSON(w, r, &note)
	if kinds := []string{StepBegin, StepEnd, CheckVerdict}; err == nil && !slices.Contains(kinds, note.Kind) {
		err = fmt.Errorf("event %q: want %s", note.Kind, strings.Join(kinds, " or "))
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, Failure{Error: err.Error()})
		return
	}
	s.events.add(note.Kind, note.Subject, note.Detail)
	writeJSON(w, http.StatusOK, struct{}{})
}

func (s *supervisor) changeLink(ctx context.Context, request LinkRequest) error {
	name, direction, found := strings.Cut(request.Where, " ")
	side := fabric.Both
	switch {
	case found && direction == plan.AToB:
		side = fabric.AToB
	case found && direction == plan.BToA:
		side = fabric.BToA
	case found:
		return fmt.Errorf("link %q: %w: direction %q, want a-to-b or b-to-a", name, ErrNoSuchObject,
			direction)
	}
	link := s.plan.Link(name)
	if link == nil {
		return fmt.Errorf("link %q: %w; railbed link show lists them", name, ErrNoSuchObject)
	}
	switch {
	case request.Set != nil && request.State == "":
		back := cmp.Or(request.Back, request.Set)
		set := func() error { return s.fabric.SetLink(ctx, name, side, *request.Set) }
		if side == fabric.Both {
			set = func() error { return s.fabric.SetDirections(ctx, name, *request.Set, *back) }
		} else if back != request.Set {
			return fmt.Errorf("change link %s: back needs both directions, remove back or direction %s",
				name, direction)
		}
		for _, d := range []*plan.Direction{request.Set, back} {
			if err := d.Check(link.MTU); err != nil {
				return err
			}
		}
		s.reactions.begin(request.Where+" set", time.Now())
		if err := set(); err != nil {
			return err
		}
		if side != fabric.BToA {
			s.events.add("link.set", name+" a-to-b", plan.SettingsOf(*request.Set))
		}
		if side != fabric.AToB {
			s.events.add("link.set", name+" b-to-a", plan.SettingsOf(*back))
		}
	case request.Set == nil && (request.State == "up" || request.State == "down"):
		set := s.fabric.SetLinkState
		if side != fabric.Both {
			set = func(ctx context.Context, name string, up bool) error {
				return s.fabric.SetDirectionState(ctx, name, side, up)
			}
		}
		s.reactions.begin(request.Where+" "+request.State, time.Now())
		if err := set(ctx, name, request.State == "up"); err != nil {
			return err
		}
		s.events.add("link."+request.State, request.Where, "")
	default:
		return errors.New("change link: want either a state, up or down, or settings")
	}
	return nil
}

// serveEvents streams events as JSON lines until the client disconnects or falls behind. In the
// second case it sends a last event that says so.
func (s *supervisor) serveEvents(w http.ResponseWriter, r *http.Request) {
	past, future := s.events.subscribe()
	defer s.events.unsubscribe(future)
	w.Header().Set("Content-Type", "application/x-ndjson")
	encoder := json.NewEncoder(w)
	for _, event := range past {
		if encoder.Encode(event) != nil {
			return
		}
	}
	flusher := http.NewResponseController(w)
	if r.URL.Query().Get("follow") != "true" {
		return
	}
	for {
		if flusher.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case event := <-future.events:
			if encoder.Encode(event) != nil || event.Kind == "testbed.down" {
				return
			}
			if gap, lost := s.events.gap(future); lost {
				_ = encoder.Encode(gap) // the last event, whether or not the client receives it
				return
			}
		}
	}
}

// session upgrades a request to a connection of frames and serves it. The supervisor waits for
// sessions before it removes the fabric.
func (s *supervisor) session(serve func(*frameConn)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != Upgrade {
			writeJSON(w, http.StatusBadRequest, Failure{Error: "want an upgrade to " + Upgrade})
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			writeError(w, fmt.Errorf("take over connection: %w", err))
			return
		}
		_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
			"%s\r\n%s: %s\r\n\r\n",
			Upgrade, ProtocolHeader, Protocol)
		if err != nil {
			conn.Close()
			return
		}
		s.sessions.Go(func() error {
			defer conn.Close()
			// At the testbed's end no more frames are read from the client, and it has a moment to
			// receive the remaining frames.
			stop := context.AfterFunc(s.ending, func() {
				conn.SetReadDeadline(time.Now())
				conn.SetWriteDeadline(time.Now().Add(farewell))
			})
			defer stop()
			serve(&frameConn{Reader: frame.NewReader(buffered), Writer: frame.NewWriter(conn), conn: conn,
				ending: s.ending})
			return nil
		})
	}
}

// frameConn is a connection that was upgraded from HTTP.
type frameConn struct {
	*frame.Reader
	*frame.Writer
	conn net.Conn
	// ending is done when the testbed ends. Reading has then ended.
	ending context.Context
}

// request reads the first frame into v. The frame must arrive within requestTime.
func (c *frameConn) request(v any) error {
	c.setReadDeadline(time.Now().Add(requestTime))
	_, payload, err := c.Read()
	c.setReadDeadline(time.Time{})
	if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	if err := json.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	return nil
}

// setReadDeadline sets the deadline of reads. At the testbed's end it is now, as session sets it.
func (c *frameConn) setReadDeadline(at time.Time) {
	c.conn.SetReadDeadline(at)
	if c.ending.Err() != nil {
		c.conn.SetReadDeadline(time.Now())
	}
}

func (c *frameConn) fail(err error) { _ = c.WriteJSON(frame.Failure, failureOf(err)) }

// rankNumbers returns the ranks of a node, in the plan's order.
func rankNumbers(ranks []plan.Rank, node string) []int {
	var numbers []int
	for _, r := range ranks {
		if r.Node == node {
			numbers = append(numbers, r.Rank)
		}
	}
	return numbers
}
