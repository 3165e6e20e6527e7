package supervisor

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"

	"railbed/internal/peer"
	"railbed/plan/spec"
)

// InsideSocket is the socket on which programs in a node start commands in other nodes, as rsh
// does. It is an abstract socket and therefore belongs to the node's network namespace. It serves
// only exec and the plan of the control protocol.
const InsideSocket = "@railbed"

// insides serves InsideSocket in nodes.
type insides struct {
	mu   sync.Mutex
	http *http.Server
	open map[string]bool // by node
}

// openInside serves a node's programs from its first command on. Nodes whose programs see less than
// the host's programs are not served, because a command in another node sees more.
func (s *supervisor) openInside(node string) error {
	if n := s.plan.Node(node); n == nil || n.Runtime != spec.Netns {
		return nil
	}
	in := &s.insides
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.open[node] || s.ending.Err() != nil {
		return nil
	}
	var listener net.Listener
	err := s.namespaces[node].Do(func() (err error) {
		listener, err = net.Listen("unix", InsideSocket)
		return err
	})
	if err != nil {
		return fmt.Errorf("open railbed rsh in %s: %w", node, err)
	}
	if in.http == nil {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/plan", s.servePlan)
		mux.HandleFunc("POST /v1/exec", s.session(s.serveExec))
		in.open, in.http = map[string]bool{},
			&http.Server{Handler: sameProtocol(mux), ReadHeaderTimeout: requestTime, IdleTimeout: idleTime}
	}
	in.open[node] = true
	go in.http.Serve(ownUser{listener})
	return nil
}

// close closes the listeners. Sessions end with their processes.
func (in *insides) close() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.http == nil {
		return nil
	}
	return in.http.Close()
}

// ownUser closes connections from users other than the supervisor's own, and from processes outside the
// testbed's PID namespace: see peer.OfUsers.
type ownUser struct{ net.Listener }

// Accept implements net.Listener.
func (l ownUser) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if peer.OfUsers(conn.(*net.UnixConn), os.Geteuid()) == nil {
			return conn, nil
		}
		conn.Close()
	}
}
