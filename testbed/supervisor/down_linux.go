package supervisor

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"railbed/internal/peer"
)

// outsideListener closes connections of the testbed's own processes. A program in a node that finds the
// socket, as root of the node may, commands nothing through it. Commands in nodes use insides.
type outsideListener struct {
	net.Listener
	log *slog.Logger
}

// Accept implements net.Listener.
func (l *outsideListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		who, err := peer.Of(conn.(*net.UnixConn))
		if err == nil && who.PID == peer.Outside {
			return conn, nil
		}
		conn.Close()
		l.log.Warn("refused a connection from inside the testbed", "process", who.PID, "error", err)
	}
}

// serveDown answers first, because the connection ends with the testbed. The client detects the end
// by the run directory's lock.
func (s *supervisor) serveDown(w http.ResponseWriter, r *http.Request) {
	var request DownRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request.By == "" {
		request.By = "a client of its socket"
	}
	s.endsBy(fmt.Errorf("%w by %s", errDown, request.By))
	writeJSON(w, http.StatusOK, struct{}{})
	s.stop(fmt.Errorf("%w by %s", errDown, request.By))
}

// endsBy sends the reason of the end to the client that brought the testbed up, if it has not detached. The
// client then has the reason before any process of the testbed ends.
func (s *supervisor) endsBy(reason error) {
	s.startup.send(Startup{Kind: StartupEnding, Text: reason.Error()})
}
