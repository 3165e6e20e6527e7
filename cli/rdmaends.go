package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"railbed/internal/verdict"
	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/transports/roce/perftest"
)

// The patience with the two ends of a test.
const (
	// rdmaStart is how long a server may take until it listens.
	rdmaStart = 20 * time.Second
	// rdmaGrace is how long an end may take to end after the other end has ended, or after a signal.
	rdmaGrace = 10 * time.Second
	// rdmaReason is how long an end may take to report its error after the other end has failed.
	rdmaReason = 2 * time.Second
)

// rdmaTest is a test between two nodes, whose ends this command starts.
type rdmaTest struct {
	server, client *rdmaEnd
	ended          chan *rdmaEnd
	kill           context.CancelFunc
}

// rdmaEnd is one end of a test.
type rdmaEnd struct {
	name    string // as in "server in h1"
	command *testbed.Cmd
	stderr  bytes.Buffer
	err     error
	running bool
	stopped bool // by this command
}

// newRdmaEnds returns a test between a client and a server, each a node or NODE:NIC. words are the flags
// of both. The output is the client's.
func (a *app) newRdmaEnds(tb *testbed.Testbed, c perftest.Config, words []string, client, server string,
) (*rdmaTest, error) {
	p := tb.Plan()
	// Both ends wait for the other's last words after an interrupt.
	ctx, kill := context.WithCancel(context.Background())
	r := &rdmaTest{ended: make(chan *rdmaEnd, 2), kill: kill}
	end := func(role, name string) (*rdmaEnd, error) {
		node, nic, err := p.NodeOrNIC(name)
		if err != nil {
			return nil, usage("%s %q: %w", role, name, err)
		}
		args := append([]string{"rdma", c.Test.String()}, words...)
		switch {
		case nic != nil && c.NIC != "":
			return nil, usage("%s %s and --ib-dev %s: want one of them", role, name, c.NIC)
		case nic != nil:
			args = append(args, "--ib-dev="+nic.Name)
		}
		e := &rdmaEnd{name: role + " in " + node.Name}
		e.command = tb.Node(node.Name).Command(ctx, supervisor.Command, args...)
		e.command.Stdout, e.command.Stderr = io.Discard, &e.stderr
		return e, nil
	}
	var err, serverErr error
	r.client, err = end("client", client)
	r.server, serverErr = end("server", server)
	if err = cmp.Or(err, serverErr); err != nil {
		return nil, err
	}
	if of, at, _ := strings.Cut(client, ":"); of == strings.Split(server, ":")[0] {
		return nil, usage("client and server are both in node %s%s: want two nodes", of, at)
	}
	address, err := p.AddrOf(server, false)
	if err != nil {
		return nil, usage("%w", err)
	}
	r.client.command.Args = append(r.client.command.Args, "--output="+a.output, address.String())
	r.client.command.Stdout = a.stdout
	return r, nil
}

// run runs the test until both ends have ended. The end of ctx ends them.
func (r *rdmaTest) run(ctx context.Context) error {
	defer r.kill()
	listens := make(chan struct{})
	r.server.command.Stdout = &watcher{what: []byte(perftest.Waiting), seen: func() { close(listens) }}
	if err := r.start(r.server); err != nil {
		return err
	}
	var problem error // of this command
	interrupted, patience := ctx.Done(), time.NewTimer(rdmaStart)
	defer patience.Stop()
	for r.server.running || r.client.running {
		select {
		case <-listens:
			listens = nil
			patience.Stop()
			if problem = r.start(r.client); problem != nil {
				r.stop()
				patience.Reset(rdmaGrace)
			}
		case e := <-r.ended:
			e.running = false
			listens = nil // no client for a server that has ended
			if e.err != nil && !e.stopped {
				patience.Reset(rdmaReason)
			} else {
				patience.Reset(rdmaGrace)
			}
		case <-interrupted:
			interrupted, listens = nil, nil
			problem = &exitError{Code: 128 + int(syscall.SIGINT)}
			r.stop()
			patience.Reset(rdmaGrace)
		case <-patience.C:
			listens = nil
			if r.stop() {
				patience.Reset(rdmaGrace)
			} else {
				r.kill()
			}
		}
	}
	return cmp.Or(problem, r.failure())
}

// start starts an end. Its end is sent to ended.
func (r *rdmaTest) start(e *rdmaEnd) error {
	if err := e.command.Start(); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	e.running = true
	go func() {
		e.err = e.command.Wait()
		r.ended <- e
	}()
	return nil
}

// stop asks the ends that run to end. It returns false if it has asked all of them before.
func (r *rdmaTest) stop() (asked bool) {
	for _, e := range []*rdmaEnd{r.server, r.client} {
		if e.running && !e.stopped {
			e.stopped, asked = true, true
			_ = e.command.Signal(syscall.SIGTERM) // it may have ended
		}
	}
	return asked
}

// failure returns the errors of the ends that ended by themselves, else those that had to be stopped. If an
// end refused the options, so does the command.
func (r *rdmaTest) failure() error {
	var errs, slow []error
	code := verdict.ExitFail
	for _, e := range []*rdmaEnd{r.server, r.client} {
		var exit *testbed.ExitError
		switch {
		case e.stopped:
			slow = append(slow, fmt.Errorf("%s: it did not end by itself", e.name))
		case errors.As(e.err, &exit) && e.stderr.Len() > 0:
			text := strings.TrimPrefix(strings.TrimSpace(e.stderr.String()), "railbed: ")
			errs = append(errs, fmt.Errorf("%s: %s", e.name, text))
			code = max(code, exit.Code)
		case e.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", e.name, e.err))
		}
	}
	if len(errs) == 0 {
		errs = slow
	}
	if len(errs) == 0 {
		return nil
	}
	return &exitError{Code: code, Err: errors.Join(errs...)}
}

// watcher calls seen when a text has been written for the first time. It keeps nothing.
type watcher struct {
	what, last []byte
	seen       func()
}

// Write implements io.Writer.
func (w *watcher) Write(p []byte) (int, error) {
	if w.seen != nil {
		if w.last = append(w.last, p...); bytes.Contains(w.last, w.what) {
			w.seen()
			w.seen, w.last = nil, nil
		}
	}
	return len(p), nil
}

// rdmaBetween runs a test between two nodes of a testbed.
func (a *app) rdmaBetween(cmd *cobra.Command, c perftest.Config, name, client, server string) error {
	tb, err := openTestbed(cmd.Context(), name)
	if err != nil {
		return err
	}
	var words []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "testbed", "output", "trace":
		default:
			words = append(words, "--"+f.Name+"="+f.Value.String())
		}
	})
	test, err := a.newRdmaEnds(tb, c, words, client, server)
	if err != nil {
		return err
	}
	return test.run(cmd.Context())
}
