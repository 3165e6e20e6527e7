package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/workloads/traffic"
)

// Ports of traffic steps. They are below the ports of workloads and the ports that the kernel
// chooses.
const (
	sinkPort   = 17000 // plus one for each earlier traffic step
	sourcePort = 20000
	// sourceWay is the distance between the first source ports of two successive steps.
	sourceWay = 997
)

const (
	// headers is the length of the Ethernet, IPv4 and UDP headers in a datagram's frame.
	headers = 14 + 20 + 8
	// settle is how long sinks wait for packets that are under way.
	settle = 200 * time.Millisecond
)

// trafficStep sends datagrams or pause frames from nodes.
type trafficStep struct {
	stepFrame
	spec    *spec.Traffic
	ordinal uint16 // among the traffic steps of the file
}

var _ = makes((*preparation).traffic)

func (p *preparation) traffic(f stepFrame, t *spec.Traffic) step {
	p.traffics++
	return &trafficStep{f, t, p.traffics - 1}
}

func (t *trafficStep) object() string { return t.Name }

// port returns the port of the sinks, and firstPort the first source port of each node.
func (t *trafficStep) port() uint16 { return sinkPort + t.ordinal }

func (t *trafficStep) firstPort() uint16 { return sourcePort + t.ordinal*sourceWay%8000 }

func (t *trafficStep) limit(by clock.Dilation) time.Duration {
	return by.Wait(time.Duration(t.spec.For)) + controlTimeout
}

// do starts the sinks before any source sends. All sources start at once.
func (t *trafficStep) do(ctx context.Context, s *session) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	processes := &trafficProcesses{session: s, index: t.index, name: t.Name, fail: fail,
		closing: make(chan struct{})}
	if err := processes.fill(ctx, t); err != nil {
		return errors.Join(err, processes.close(false))
	}
	err := processes.work(ctx)
	processes.noteHeldUp(s.dilation().Wait(time.Duration(t.spec.For)))
	if err == nil && !clock.Sleep(ctx, s.dilation().Wait(settle)) {
		err = context.Cause(ctx)
	}
	return errors.Join(err, processes.close(err == nil))
}

// dilation returns the testbed's dilation.
func (s *session) dilation() clock.Dilation { return clock.Dilation(s.plan.Dilation) }

// matching returns the nodes that match any of some patterns, in the plan's order.
func matching(p *plan.Plan, patterns []string) (found []*plan.Node) {
	for i := range p.Nodes {
		node := &p.Nodes[i]
		if slices.ContainsFunc(patterns, func(pattern string) bool {
			return spec.Match(pattern, node.Name)
		}) {
			found = append(found, node)
		}
	}
	return found
}

// trafficProcesses is the set of processes of a traffic step.
type trafficProcesses struct {
	session        *session
	index          int
	name           string
	sinks, sources []*trafficProcess
	// fail ends the step with the reason.
	fail context.CancelCauseFunc
	// closing is closed when sinks may end. watchers waits for the goroutines that watch the
	// processes.
	closing  chan struct{}
	watchers sync.WaitGroup
}

// trafficProcess is one process of a traffic step.
type trafficProcess struct {
	cmd   *testbed.Cmd
	kill  context.CancelFunc
	ready chan struct{}
	start *starter
	tail  *tailWriter
	node  string
	part  string // as traffic.Order.Part returns it
	said  *readyWriter
	ended chan struct{} // closed when the process has ended
	err   error         // of Wait; read only after ended is closed
	// unheard counts ticks since the process's last beat. silent is true if the process did not
	// beat for too long.
	unheard atomic.Int32
	silent  atomic.Bool
}

// fill starts a process in each node, the sinks first.
func (c *trafficProcesses) fill(ctx context.Context, step *trafficStep) error {
	t := step.spec
	from, targets := step.between(c.session.plan)
	at := map[string]netip.AddrPort{}
	for _, to := range targets {
		for _, node := range to {
			if _, known := at[node.Name]; known {
				continue
			}
			addr, err := address4(node)
			if err != nil {
				return err
			}
			at[node.Name] = netip.AddrPortFrom(addr, step.port())
			if err := c.launch(ctx, &c.sinks, node,
				traffic.Order{Sink: &traffic.Sink{Addr: at[node.Name]}}); err != nil {
				return err
			}
		}
	}
	for i, node := range from {
		order := traffic.Order{Pauser: c.pauser(t, node)}
		if t.Pause == nil {
			addr, err := address4(node)
			if err != nil {
				return err
			}
			source := &traffic.Source{
				From:    addr,
				Port:    step.firstPort(),
				Flows:   t.Flows,
				Payload: int(t.Size) - headers,
				Frame:   int(t.Size),
				Rate:    units.Rate(c.session.dilation().Real(uint64(t.Rate))),
				For:     c.session.dilation().Wait(time.Duration(t.For)), TOS: t.DSCP << 2,
			}
			if t.ECN {
				source.TOS |= 2 // ECT(0), RFC 3168
			}
			for _, to := range targets[i] {
				source.To = append(source.To, at[to.Name])
			}
			if order.Source = source; len(source.To) == 0 {
				continue
			}
		}
		if err := c.launch(ctx, &c.sources, node, order); err != nil {
			return err
		}
	}
	if len(c.sources) == 0 {
		return fmt.Errorf("traffic %s: no node sends to another", t.Name)
	}
	return nil
}

// between returns the nodes that send, and for each of them the nodes to which it sends.
func (t *trafficStep) between(p *plan.Plan) (from []*plan.Node, targets [][]*plan.Node) {
	from = matching(p, t.spec.From)
	for i, node := range from {
		candidates := matching(p, t.spec.To)
		if t.spec.Shift > 0 {
			candidates = []*plan.Node{from[(i+t.spec.Shift)%len(from)]}
		}
		targets = append(targets, slices.DeleteFunc(candidates, func(to *plan.Node) bool {
			return to.Name == node.Name
		}))
	}
	return from, targets
}

// sends returns the flows of the step, as its sources send them.
func (t *trafficStep) sends(p *plan.Plan) (flows []verify.Send) {
	if t.spec.Pause != nil {
		return nil
	}
	from, targets := t.between(p)
	for i, node := range from {
		src, err := address4(node)
		for k, to := range targets[i] {
			dst, err2 := address4(to)
			for flow := range t.spec.Flows {
				if err != nil || err2 != nil {
					break // the step failed
				}
				port := t.firstPort() + uint16(flow*len(targets[i])+k)
				flows = append(flows, verify.Send{Step: "traffic " + t.Name,
					Pair: verify.Pair{From: node.Name, To: to.Name},
					FlowAddr: verify.FlowAddr{Src: netip.AddrPortFrom(src, port),
						Dst: netip.AddrPortFrom(dst, t.port())},
					Size: int(t.spec.Size), TOS: uint8(t.spec.DSCP << 2)})
			}
		}
	}
	return flows
}

// pauser returns the order to pause the switch at a node's first NIC, or nil if the step sends
// datagrams. A pause is renewed when half of it has passed.
func (c *trafficProcesses) pauser(t *spec.Traffic, node *plan.Node) *traffic.Pauser {
	if t.Pause == nil {
		return nil
	}
	nic := node.NICs[0]
	rate := 100e9 // as the switch assumes for a line without a rate
	if link := c.session.plan.Link(nic.Link); link != nil {
		d := link.AToB
		if link.A.Node == node.Name {
			d = link.BToA // the switch's direction
		}
		if d.Rate > 0 {
			rate = float64(d.Rate)
		}
	}
	by := c.session.dilation()
	every := by.Wait(time.Duration(float64(t.Pause.Quanta) * 512 / rate * 1e9 / 2))
	return &traffic.Pauser{
		NIC:        nic.Name,
		Priorities: t.Pause.Priorities,
		Quanta:     t.Pause.Quanta,
		Every:      max(every, 100*time.Microsecond),
		For:        by.Wait(time.Duration(t.For)),
	}
}

// address4 returns a node's IPv4 address.
func address4(node *plan.Node) (netip.Addr, error) {
	for _, prefix := range node.Loopbacks {
		if prefix.Addr().Is4() {
			return prefix.Addr(), nil
		}
	}
	for _, nic := range node.NICs {
		for _, prefix := range nic.Addrs {
			if prefix.Addr().Is4() {
				return prefix.Addr(), nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("node %s has no IPv4 address", node.Name)
}

// launch starts a process and waits until it is ready.
func (c *trafficProcesses) launch(ctx context.Context, list *[]*trafficProcess, node *plan.Node,
	order traffic.Order) error {
	arg, err := order.Arg()
	if err != nil {
		return err
	}
	name := c.name
	if order.Sink != nil {
		name += "-sink"
	}
	logs, err := c.session.openLogs(c.index, node.Name, name)
	if err != nil {
		return err
	}
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	h := &trafficProcess{
		cmd:   c.session.testbed.Node(node.Name).Part(life, traffic.Part, arg),
		kill:  kill,
		part:  order.Part(),
		ready: make(chan struct{}),
		start: newStarter(),
		tail:  &tailWriter{limit: errorTail},
		node:  node.Name,
		ended: make(chan struct{}),
	}
	h.said = &readyWriter{file: logs.out, ready: h.ready, all: tailWriter{limit: errorTail}}
	h.cmd.Stdin, h.cmd.Stdout, h.cmd.Stderr = h.start, h.said, teeWriter{logs.err, h.tail}
	beats := h.cmd.Channel()
	*list = append(*list, h)
	if err := h.cmd.Start(); err != nil {
		close(h.ended)
		return fmt.Errorf("start traffic in %s: %w", node.Name, err)
	}
	c.watch(h, beats)
	select {
	case <-h.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.ended:
		if text := h.tail.String(); text != "" {
			return errors.New(text)
		}
		return fmt.Errorf("traffic in %s ended before it began: %w", node.Name, h.err)
	}
}

// silenceParts is how many times within the session's silence each process is checked for a beat.
const silenceParts = 10

// watch records the end of a process. It fails the step if a sink ends before close, or if a
// process has not beaten for the session's silence. It counts ticks and not time, so that a railbed
// that is itself held up blames no process.
func (c *trafficProcesses) watch(h *trafficProcess, beats io.Reader) {
	c.watchers.Go(func() {
		h.err = h.cmd.Wait()
		close(h.ended)
		select {
		case <-c.closing:
			return
		default:
		}
		switch {
		case h.part == traffic.SinkPart:
			c.fail(fmt.Errorf("the sink in %s ended while it was needed: %w", h.node, h.end()))
		case h.err != nil:
			c.fail(h.end())
		}
	})
	c.watchers.Go(func() {
		buffer := make([]byte, 64)
		for {
			if _, err := beats.Read(buffer); err != nil {
				return
			}
			h.unheard.Store(0)
		}
	})
	c.watchers.Go(func() {
		ticker := time.NewTicker(c.session.silence / silenceParts)
		defer ticker.Stop()
		for {
			select {
			case <-h.ended:
				return
			case <-ticker.C:
			}
			if h.unheard.Add(1) > silenceParts {
				h.silent.Store(true)
				c.fail(h.end())
				h.kill()
				return
			}
		}
	})
}

// end returns how a process ended, or that it is silent. It returns nil if the process ended as it
// should. Unless the process is silent, call end only after the process has ended.
func (h *trafficProcess) end() error {
	if h.silent.Load() {
		return fmt.Errorf("the %s in %s does not answer: its process is stopped, or gets no processor",
			h.part, h.node)
	}
	switch text := h.tail.String(); {
	case h.err != nil && text != "":
		return fmt.Errorf("%w: %s", h.err, text)
	case h.err == nil && h.part == traffic.SinkPart:
		return errors.New("exit code 0")
	}
	return h.err
}

// work starts the sources and waits until they have ended.
func (c *trafficProcesses) work(ctx context.Context) error {
	for _, h := range c.sources {
		h.start.release()
	}
	for _, h := range c.sources {
		select {
		case <-h.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return context.Cause(ctx)
}

// close ends the remaining processes and closes the logs. After a step that succeeded, sinks must
// exit without an error: a sink that does not was missing when it was needed.
func (c *trafficProcesses) close(well bool) error {
	var errs []error
	close(c.closing)
	for _, h := range slices.Concat(c.sources, c.sinks) {
		h.start.release()
		_ = h.cmd.Signal(syscall.SIGTERM) // the process may have ended, or never begun
		if !well {
			time.AfterFunc(endGrace, h.kill)
		}
	}
	c.watchers.Wait()
	for _, h := range slices.Concat(c.sources, c.sinks) {
		if well && h.err != nil {
			errs = append(errs, fmt.Errorf("the %s in %s did not last until the end of the step: %w", h.part,
				h.node, h.end()))
		}
		h.kill()
	}
	return errors.Join(errs...)
}

// noteHeldUp records the share of their time for which the host held sources up.
func (c *trafficProcesses) noteHeldUp(of time.Duration) {
	for _, h := range c.sources {
		held, known := traffic.HeldUp(h.said.all.String())
		if !known || held == 0 || of <= 0 {
			continue
		}
		c.session.mu.Lock()
		c.session.heldUp = append(c.session.heldUp,
			report.HeldUp{Traffic: c.name, Node: h.node,
				Share: min(1, float64(held)/float64(of)), For: of.Seconds()})
		c.session.mu.Unlock()
	}
}

// starter is the standard input of a process. It has one line after release is called.
type starter struct {
	once sync.Once
	open chan struct{}
	read bool
}

func newStarter() *starter { return &starter{open: make(chan struct{})} }

func (s *starter) release() { s.once.Do(func() { close(s.open) }) }

// Read implements io.Reader.
func (s *starter) Read(p []byte) (int, error) {
	<-s.open
	if s.read {
		return 0, errRunEnded
	}
	s.read = true
	return copy(p, "\n"), nil
}

// readyWriter keeps the output of a process and closes ready when the process is ready.
type readyWriter struct {
	file  interface{ Write([]byte) (int, error) }
	ready chan struct{}
	said  bool
	all   tailWriter
}

// Write implements io.Writer.
func (w *readyWriter) Write(p []byte) (int, error) {
	if !w.said && bytes.HasPrefix(p, []byte(traffic.Ready)) {
		w.said = true
		close(w.ready)
	}
	_, _ = w.all.Write(p) // a tailWriter accepts everything
	return w.file.Write(p)
}
