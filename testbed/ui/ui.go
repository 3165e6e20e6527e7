// Package ui serves a web page for a running testbed. The page shows the topology, the state of the links and
// the events as they change. It changes links, and lists the packets of recordings as they come.
//
// The server listens on 127.0.0.1 alone. It answers only requests that have the token of the page's URL, or
// the cookie that the server gives in exchange for the token. It refuses requests of other web sites.
//
//	server, err := ui.Listen(tb, 0)
//	if err != nil {
//		return err
//	}
//	fmt.Println(server.URL())
//	return server.Serve(ctx)
package ui

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"

	"railbed/testbed"
)

const (
	// maxPages bounds the open pages, maxCaptures their recordings, and maxConnections both with all
	// other requests. A browser opens at most six connections.
	maxPages       = 16
	maxCaptures    = 4
	maxConnections = 128

	// requestTime is how long a client may take to send a whole request, answerTime how long an answer
	// other than a stream may take. It is longer than a supervisor's time to answer.
	requestTime = 10 * time.Second
	answerTime  = 90 * time.Second
	idleTime    = 2 * time.Minute
	// farewell is how long open pages have to receive the reason of the end.
	farewell = 2 * time.Second
)

// Server serves the page of one testbed. Its methods are safe for concurrent use.
type Server struct {
	testbed  *testbed.Testbed
	listener net.Listener
	// token is the secret in the URL and the cookie. root is the path of the page, which is secret, too.
	// Browsers send a cookie to every port of a host, so only the cookie's path keeps it from programs that
	// serve other ports.
	token, root string

	watch      *watch
	pages      chan struct{} // has an element for each open page
	recordings recordings
	// ending is done when the server ends, which ends the recordings.
	ending  context.Context
	end     context.CancelFunc
	running sync.WaitGroup // requests
}

// Listen opens a port of 127.0.0.1 for the page of a testbed. Port 0 is any free port. Serve closes it.
func Listen(tb *testbed.Testbed, port int) (*Server, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("serve the page of %s: %w", tb.Name(), err)
	}
	s := &Server{
		testbed: tb, listener: netutil.LimitListener(listener, maxConnections),
		token: rand.Text(), root: "/" + rand.Text() + "/",
		watch: newWatch(tb), pages: make(chan struct{}, maxPages),
		recordings: recordings{open: map[int]*testbed.Recording{}},
	}
	s.ending, s.end = context.WithCancel(context.Background())
	return s, nil
}

// URL returns the address of the page with its token. Whoever has it can change the testbed.
func (s *Server) URL() string {
	return "http://" + s.listener.Addr().String() + s.root + "?token=" + s.token
}

// Serve serves the page until ctx ends or the testbed is taken down. It sends each open page the reason,
// ends its recordings and returns nil. If the testbed died or the port failed, it returns an error.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: requestTime, WriteTimeout: answerTime,
		IdleTimeout: idleTime, MaxHeaderBytes: 16 << 10}
	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the page of %s: %w", s.testbed.Name(), err)
		}
		return nil
	})
	group.Go(func() error {
		// Streams end once they have sent the end, so the server can then wait for its connections.
		err := s.watch.run(serving)
		s.end()
		limited, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		if shut := server.Shutdown(limited); shut != nil {
			server.Close()
		}
		return err
	})
	err := group.Wait()
	s.running.Wait()
	return err
}
