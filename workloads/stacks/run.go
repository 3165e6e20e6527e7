package stacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"railbed/internal/units"
	"railbed/plan"
	"railbed/testbed"
)

// mark is the environment variable that identifies all processes of a run, including processes that
// have created groups or sessions of their own.
const mark = "RAILBED_STACK"

const (
	// errorTail is the number of bytes of a failed program's output that the error includes.
	errorTail = 2048
	// endTimeout bounds the search for processes and their ending.
	endTimeout = 20 * time.Second
)

// run is a running job. Adapters use it from one goroutine, except each.
type run struct {
	Job
	testbed  *testbed.Testbed
	ranks    []plan.Rank // of the job's nodes
	commands map[string]string
	trips    *trips
	account  *account

	ctx     context.Context
	kill    context.CancelCauseFunc
	closers []func()
	serves  atomic.Bool // a program listens, started by serve

	mu   sync.Mutex
	logs map[string]logs
}

type logs struct{ out, err io.Writer }

func newRun(ctx context.Context, tb *testbed.Testbed, job Job, commands map[string]string) *run {
	r := &run{Job: job, testbed: tb, commands: commands, logs: map[string]logs{}, trips: newTrips(job.Nodes),
		account: newAccount()}
	// Which rank waits for which can be seen only while all processes exist.
	r.ctx, r.kill = context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { r.kill(r.stuck(context.Cause(ctx))) })
	r.closers = append(r.closers, func() { stop() })
	for _, rank := range job.Plan.Ranks {
		if slices.ContainsFunc(job.Nodes, func(n *plan.Node) bool { return n.Name == rank.Node }) {
			r.ranks = append(r.ranks, rank)
		}
	}
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		r.watch(r.ctx)
	}()
	r.closers = append(r.closers, func() { <-looked })
	return r
}

// close ends every process of the run, and returns when none is left, because the next run may need
// their ports.
func (r *run) close() error {
	r.kill(nil)
	for _, close := range r.closers {
		close()
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(r.ctx), endTimeout)
	defer done()
	for {
		left, err := r.processes(ctx, "kill -9 $1; echo $1")
		if err != nil || strings.TrimSpace(strings.Join(slices.Collect(maps.Values(left)), "")) == "" {
			return err
		}
	}
}

// command returns a program of the run in a node, with its logs. A tool is given by its first name.
func (r *run) command(ctx context.Context, node string, args ...string) (*testbed.Cmd, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, open := r.logs[node]
	if !open {
		var err error
		if l.out, l.err, err = r.Log(node); err != nil {
			return nil, err
		}
		r.logs[node] = l
	}
	args = slices.Clone(args)
	if name, known := r.commands[args[0]]; known {
		args[0] = name
	}
	cmd := r.testbed.Node(node).Command(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Dir = r.env(), r.Dir
	cmd.Stdout, cmd.Stderr = l.out, l.err
	return cmd, nil
}

func (r *run) env() []string { return []string{mark + "=" + r.Step.Name} }

// output runs a program to its end and returns its output.
func (r *run) output(node string, args ...string) ([]byte, error) {
	return r.outputUntil(&lastWord{}, node, args...)
}

// outputUntil is like output, but ends a program that is still running some time after its last
// word. That is not a failure.
func (r *run) outputUntil(last *lastWord, node string, args ...string) ([]byte, error) {
	ctx, end := context.WithCancelCause(r.ctx)
	defer end(nil)
	cmd, err := r.command(ctx, node, args...)
	if err != nil {
		return nil, err
	}
	var said tail
	last.end = func() { end(errLastWord) }
	cmd.Stdout, cmd.Stderr = io.MultiWriter(cmd.Stdout, last), io.MultiWriter(cmd.Stderr, &said)
	if last.aside != nil {
		last.aside.to, cmd.Stderr = cmd.Stderr, last.aside
	}
	if err = cmd.Run(); err != nil && r.serves.Load() && context.Cause(ctx) != errLastWord {
		select { // the end of its server is reported a moment later
		case <-r.ctx.Done():
		case <-time.After(serverGrace):
		}
	}
	if last.aside != nil {
		last.aside.flush()
	}
	switch {
	case r.ctx.Err() != nil:
		return nil, context.Cause(r.ctx)
	case context.Cause(ctx) == errLastWord:
		return last.printed.Bytes(), nil
	}
	if last.cut {
		err = errors.Join(err, fmt.Errorf("%s in %s printed more than the limit of %d bytes", args[0],
			node, mostPrinted))
	}
	return last.printed.Bytes(), failure(err, slices.Concat(last.printed.Bytes(), said.kept))
}

// serverGrace is the maximum time between the failure of a client and the report that its server
// has ended.
const serverGrace = 500 * time.Millisecond

// errLastWord is the cause for ending a program that had printed its last word.
var errLastWord = errors.New("the program had printed its last line")

// lastWord collects a program's output, and ends the program some time after its last word.
type lastWord struct {
	printed bytes.Buffer
	word    []byte
	grace   time.Duration // 0 for no limit
	end     func()
	timed   bool
	aside   *aside // filter for standard error, if not nil
	cut     bool   // the output exceeded mostPrinted
}

// mostPrinted bounds the table that a program prints, in bytes.
const mostPrinted = 16 << 20

// tail keeps the end of the written data, as much as errors show.
type tail struct{ kept []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - errorTail; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}

// Write implements io.Writer.
func (l *lastWord) Write(p []byte) (int, error) {
	if l.cut = l.cut || l.printed.Len()+len(p) > mostPrinted; !l.cut {
		l.printed.Write(p)
	}
	if l.grace > 0 && !l.timed && bytes.HasSuffix(l.printed.Bytes(), l.word) {
		l.timed = true
		time.AfterFunc(l.grace, l.end)
	}
	return len(p), nil
}

// failure returns the error of an ended program, with the end of its output.
func failure(err error, said []byte) error {
	var exit *testbed.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	exit.Stderr = said[max(0, len(said)-errorTail):]
	return exit
}

// put writes a file in a node's own /tmp, which ends with the testbed. Every program in the node
// can write there. So put creates a new file (set -C is O_EXCL) and never writes through a link
// that a program of the node has created.
func (r *run) put(node, path string, content []byte) error {
	cmd, err := r.command(r.ctx, node, "sh", "-c", `rm -f "$1" && set -C && cat > "$1" && chmod 755 "$1"`,
		"put", path)
	if err != nil {
		return err
	}
	cmd.Stdin = bytes.NewReader(content)
	return cmd.Run()
}

// serve starts a program that runs until the end of the run, and waits until it listens on a TCP
// port. If the server ends by itself before then, serve returns an error. If a signal ends it
// later, the run ends, because clients may wait for the server for ever.
func (r *run) serve(node string, port int, args ...string) error {
	// The server does not end with r.ctx: close ends it and waits for that. Some programs overwrite
	// their environment, and mark with it, so that processes does not find them.
	cmd, err := r.command(context.WithoutCancel(r.ctx), node, args...)
	if err != nil {
		return err
	}
	var said tail
	cmd.Stdout, cmd.Stderr = io.MultiWriter(cmd.Stdout, &said), io.MultiWriter(cmd.Stderr, &said)
	if err := cmd.Start(); err != nil {
		return failure(err, nil)
	}
	r.closers = append(r.closers, func() {
		_ = cmd.Kill() // it may have ended
		_ = cmd.Wait()
	})
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	// Local address and port are in hexadecimal, and state 0A is LISTEN.
	wait, err := r.command(ctx, node, "sh", "-c",
		fmt.Sprintf("until grep -q ':%04X .* 0A ' /proc/net/tcp /proc/net/tcp6 2>/dev/null; do sleep 0.02; "+
			"done", port))
	if err != nil {
		return err
	}
	listening := make(chan error, 1)
	go func() { listening <- wait.Run() }()
	select {
	case err := <-listening:
		if r.ctx.Err() != nil {
			return fmt.Errorf("%s in %s does not listen on TCP port %d: %w", args[0], node, port,
				context.Cause(r.ctx))
		}
		r.serves.Store(true)
		go func() {
			var exit *testbed.ExitError
			if err := <-ended; errors.As(err, &exit) && exit.Signal != 0 {
				r.kill(fmt.Errorf("a server ended: %w", exit))
			}
		}()
		return err
	case err := <-ended:
		cancel()
		<-listening
		return fmt.Errorf("%s in %s ended before it listened: %w", args[0], node, failure(err, said.kept))
	}
}

// each calls do for several nodes concurrently. The first failure ends the run.
func (r *run) each(nodes []*plan.Node, do func(i int, node string) error) error {
	var all sync.WaitGroup
	errs := make([]error, len(nodes))
	for i, node := range nodes {
		all.Go(func() {
			if errs[i] = do(i, node.Name); errs[i] != nil {
				r.kill(errs[i])
			}
		})
	}
	all.Wait()
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	return errors.Join(errs...)
}

// pairs runs a server in the first node for each of the other nodes. When all servers listen, it
// runs a client in each of the other nodes at the same time. Each pair has a port of its own, from
// base on. It returns the clients' outputs.
func (r *run) pairs(base int, server, client func(port string) []string) ([]string, error) {
	clients := r.Nodes[1:]
	for i := range clients {
		if err := r.serve(r.Nodes[0].Name, base+i, server(fmt.Sprint(base+i))...); err != nil {
			return nil, err
		}
	}
	printed := make([]string, len(clients))
	err := r.each(clients, func(i int, node string) error {
		output, err := r.output(node, client(fmt.Sprint(base+i))...)
		printed[i] = string(output)
		return err
	})
	return printed, err
}

// pairName returns the name of a client's pair in rows.
func (r *run) pairName(client int) string {
	return r.Nodes[client+1].Name + " > " + r.Nodes[0].Name
}

// sends returns the least number of bytes that nodes send, in the order of the ranks. All bytes of
// a node count for its first rank, whose NIC they leave by.
func (r *run) sends(of func(node int) units.Bytes) []units.Bytes {
	all := make([]units.Bytes, len(r.ranks))
	for n, node := range r.Nodes {
		if i := slices.IndexFunc(r.ranks, func(rank plan.Rank) bool {
			return rank.Node == node.Name
		}); i >= 0 {
			all[i] = of(n)
		}
	}
	return all
}

// processes runs a shell in each node that executes do for each process of the run, with the
// process's number in $1. It returns the output by node.
func (r *run) processes(ctx context.Context, do string) (map[string]string, error) {
	script := fmt.Sprintf(`do_to() { %s
}
for p in $(grep -lsz '^%s=%s$' /proc/[0-9]*/environ); do
	p=${p%%/environ}
	do_to ${p#/proc/}
done 2>/dev/null; true`, do, mark, r.Step.Name)
	printed := map[string]string{}
	var errs []error
	for _, node := range r.Nodes {
		output, err := r.testbed.Node(node.Name).Command(ctx, "sh", "-c", script).Output()
		printed[node.Name] = string(output)
		errs = append(errs, err)
	}
	return printed, errors.Join(errs...)
}

// stuck adds to the reason for ending a run the ranks that the run was waiting for.
func (r *run) stuck(reason error) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(r.ctx), endTimeout)
	defer done()
	states, err := r.processes(ctx, lookScript)
	if err != nil {
		return reason
	}
	text := waitedFor(r.ranks, states)
	if text == "" {
		text = r.stopped(ctx)
	}
	r.readKernels(ctx)
	text = strings.TrimPrefix(text+r.slowText()+r.heldText(), "; ")
	if text != "" {
		return fmt.Errorf("%w: %s", reason, text)
	}
	return reason
}

// stopped names programs of the nodes that a signal has stopped. For a server that overwrites its
// environment this is the only indication.
func (r *run) stopped(ctx context.Context) string {
	var words []string
	for _, node := range r.Nodes {
		output, _ := r.testbed.Node(node.Name).Command(ctx, "sh", "-c",
			`sed -n 's/^[0-9]* (\(.*\)) T .*/\1/p' /proc/[0-9]*/stat 2>/dev/null; true`).Output()
		for name := range strings.Lines(string(output)) {
			words = append(words, fmt.Sprintf("%s (%s) is stopped", strings.TrimSpace(name), node.Name))
		}
	}
	return strings.Join(words, "; ")
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
