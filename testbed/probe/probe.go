// Package probe sends telemetry probes between two nodes of a testbed. It reads the telemetry that
// the soft switches wrote into them: the ports on the path, the queue lengths, and the departure
// time at each switch.
//
// Sender and receiver use ordinary UDP sockets in the nodes, in processes of this executable
// (Parts).
package probe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"railbed/plan"
	"railbed/testbed"
)

// Limits of Options.
const (
	maxCount = 1_000_000
	maxFlows = 64
)

// Options are the parameters of the probes.
type Options struct {
	// From and To are nodes, or their NICs as NODE:NIC. Probes leave by the NIC of From, and have the
	// address of the NIC of To as their destination.
	From, To string
	Count    int           // number of probes; default 10
	Interval time.Duration // between two probes, in the testbed's time; default 10ms
	// Flows is the number of source ports that are used in turn, so that probes spread over paths
	// as flows do. Default 1.
	Flows int
	DSCP  int  // 0 to 63
	IPv6  bool // default IPv4
}

func (o *Options) check() error {
	if o.Count == 0 {
		o.Count = 10
	}
	if o.Interval == 0 {
		o.Interval = 10 * time.Millisecond
	}
	if o.Flows == 0 {
		o.Flows = 1
	}
	switch {
	case o.Count < 1 || o.Count > maxCount:
		return fmt.Errorf("%d probes: want 1 to %d", o.Count, maxCount)
	case o.Interval < 0 || o.Interval > time.Minute:
		return fmt.Errorf("an interval of %v: want at most 1m", o.Interval)
	case o.Flows < 1 || o.Flows > maxFlows:
		return fmt.Errorf("%d flows: want 1 to %d", o.Flows, maxFlows)
	case o.DSCP < 0 || o.DSCP > 63:
		return fmt.Errorf("DSCP %d: want 0 to 63", o.DSCP)
	}
	return nil
}

// ErrOptions is wrapped if Options are invalid, or do not fit this testbed.
var ErrOptions = errors.New("probe")

const (
	startTimeout = 10 * time.Second
	// patience is the time to wait for the last probes, in the testbed's time.
	patience = time.Second
)

// Run sends probes and returns their telemetry. Probes may be lost, and the loss of all of them is
// not an error. A testbed whose switches write no telemetry is an error.
func Run(ctx context.Context, tb *testbed.Testbed, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	p := tb.Plan()
	order, err := newOrder(p, &o)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	r := newReport(p, &o)
	arrived, receiver, err := receive(ctx, tb, node(o.To), order.To)
	if err != nil {
		return nil, err
	}
	virtual := time.Duration(p.Dilation)
	text, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	sent := make(chan error, 1)
	go func() { sent <- output(tb.Node(node(o.From)).Part(ctx, part, "send", string(text)), io.Discard) }()
	last := time.NewTimer(time.Hour)
	defer last.Stop()
	for sent != nil || r.Arrived < o.Count {
		select {
		case one, more := <-arrived:
			if !more {
				return nil, receiver.failure("the receiver ended")
			}
			r.add(one)
		case err := <-sent:
			if err != nil {
				return nil, fmt.Errorf("send probes from %s: %w", o.From, err)
			}
			sent = nil
			last.Reset(patience * virtual)
		case <-last.C:
			return r.finish(), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return r.finish(), nil
}

// node returns the node of a name of Options.
func node(name string) string {
	name, _, _ = strings.Cut(name, ":")
	return name
}

// newOrder returns the order for the sender. It returns an error if no switch would write into probes.
func newOrder(p *plan.Plan, o *Options) (*sendOrder, error) {
	from, err := p.AddrOf(o.From, o.IPv6)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	to, err := p.AddrOf(o.To, o.IPv6)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if node(o.From) == node(o.To) {
		return nil, fmt.Errorf("%w: probes from %s to itself pass no switch: name another node", ErrOptions,
			node(o.From))
	}
	writes := slices.ContainsFunc(p.Switches, func(s plan.Switch) bool { return s.Soft != nil && s.Soft.INT })
	if !writes {
		return nil, fmt.Errorf("%w: no switch of testbed %s writes telemetry; add int: true to "+
			"fabric.switch, with kind: soft", ErrOptions, p.Name)
	}
	order := &sendOrder{From: from, To: netip.AddrPortFrom(to, port), Count: o.Count,
		Interval: o.Interval * time.Duration(p.Dilation), Flows: o.Flows, DSCP: o.DSCP}
	if node(o.From) == o.From { // the kernel chooses, as for every program
		order.From = netip.IPv4Unspecified()
		if o.IPv6 {
			order.From = netip.IPv6Unspecified()
		}
	}
	return order, nil
}

// process is a part that runs in a node.
type process struct {
	stderr strings.Builder
	ended  error
}

func (p *process) failure(what string) error {
	if text := strings.TrimSpace(p.stderr.String()); text != "" {
		return errors.New(text)
	}
	return fmt.Errorf("%s: %w", what, p.ended)
}

// receive starts the receiver and waits until it is ready.
func receive(ctx context.Context, tb *testbed.Testbed, node string, at netip.AddrPort) (<-chan arrival,
	*process, error) {
	order, err := json.Marshal(receiveOrder{At: at})
	if err != nil {
		return nil, nil, err
	}
	p := &process{}
	cmd := tb.Node(node).Part(ctx, part, "receive", string(order))
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, &p.stderr
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("receive probes at %s: %w", node, err)
	}
	go func() {
		p.ended = cmd.Wait()
		write.CloseWithError(io.EOF)
	}()
	arrived := make(chan arrival)
	go func() {
		defer close(arrived)
		defer read.Close() // no more lines are read
		for lines := bufio.NewScanner(read); lines.Scan(); {
			var one arrival
			if json.Unmarshal(lines.Bytes(), &one) != nil {
				return
			}
			select {
			case arrived <- one:
			case <-ctx.Done():
				return
			}
		}
	}()
	select {
	case _, ready := <-arrived: // the empty Arrival
		if !ready {
			return nil, nil, fmt.Errorf("receive probes at %s: %w", node, p.failure("the receiver ended"))
		}
		return arrived, p, nil
	case <-time.After(startTimeout):
		return nil, nil, fmt.Errorf("receive probes at %s: not ready after %v", node, startTimeout)
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// output runs a command. Its stderr becomes the error.
func output(cmd *testbed.Cmd, stdout io.Writer) error {
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	err := cmd.Start()
	if err == nil {
		err = cmd.Wait()
	}
	if text := strings.TrimSpace(stderr.String()); err != nil && text != "" {
		return errors.New(text)
	}
	return err
}
