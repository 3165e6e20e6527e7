package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"

	"railbed/internal/peer"
	"railbed/internal/rundir"
	"railbed/plan"
	"railbed/testbed/supervisor"
)

// ErrOutside is wrapped if a process is not in a node, or is in a node from which no commands in
// other nodes can be started.
var ErrOutside = errors.New("not in a node")

// Inside returns the testbed in one of whose nodes this process runs. Only commands in nodes are
// available.
func Inside() *Testbed {
	t := newTestbed(rundir.Dir{Name: "this node"})
	t.inside, t.plan = true, &plan.Plan{}
	return t
}

// OpenInside does as Inside and also reads the testbed's plan.
func OpenInside(ctx context.Context) (*Testbed, error) {
	t := Inside()
	return t, t.call(ctx, http.MethodGet, "/v1/plan", nil, t.plan)
}

func dialInside(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", supervisor.InsideSocket)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w of a testbed: start the program with railbed exec or shell; containers "+
			"and virtual machines start no commands in other nodes", ErrOutside)
	}
	if err != nil {
		return nil, err
	}
	if err := bySupervisor(conn.(*net.UnixConn)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// bySupervisor returns an error if a server is not the supervisor. The supervisor is outside the
// PID namespace of its nodes, and programs in nodes are inside. A program that took the name of the
// socket must not receive the commands.
func bySupervisor(conn *net.UnixConn) error {
	server, err := peer.Of(conn)
	if err != nil {
		return err
	}
	if server.PID != peer.Outside || server.UID != os.Geteuid() {
		return fmt.Errorf("%w that the testbed serves: the server of %s is process %d of user %d; want "+
			"the supervisor, outside the node, of user %d",
			ErrOutside, supervisor.InsideSocket, server.PID, server.UID, os.Geteuid())
	}
	return nil
}
