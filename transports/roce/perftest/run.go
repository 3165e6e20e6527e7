package perftest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"railbed/internal/infiniband"
	"railbed/transports/roce"
	"railbed/transports/roce/cm"
	"railbed/transports/roce/queuepair"
)

// Result is the result of a run.
type Result struct {
	Test   string `json:"test"`
	Server bool   `json:"server"`
	// Peer is the address of the other end, and Version the version that it announces.
	Peer       string  `json:"peer"`
	Version    float64 `json:"version"`
	Device     string  `json:"device"`
	MTU        int     `json:"mtu"`
	QueuePairs int     `json:"queue_pairs"`
	// Packets of this end: sent, retransmitted, and received with a wrong ICRC.
	Sent    uint64 `json:"sent"`
	Resent  uint64 `json:"resent"`
	BadICRC uint64 `json:"bad_icrc"`
	// Bandwidth has a row for each size of a bandwidth test, Latency for each size of a latency
	// test.
	Bandwidth []Bandwidth `json:"bandwidth,omitempty"`
	Latency   []Latency   `json:"latency,omitempty"`
}

// run is one run.
type run struct {
	config      *Config
	print       printer
	talk        dialogue
	device      *roce.Device
	name        string         // of the NIC
	pathMTU     int            // of the route to the peer
	mtu         int            // that both ends agreed on
	peer        netip.AddrPort // of rdma_cm
	listener    *roce.Listener // of a server, until it has all queue pairs
	pairs       []*pair
	completions *roce.Completions
	done        [64]roce.Completion
	result      Result
}

// pair is a queue pair with its memory.
type pair struct {
	*roce.QueuePair
	index        int
	mine, theirs Keys
	local        []byte // memory that is sent, or that a READ fills
	shared       []byte // memory that the peer writes or reads, or SENDs to
	region       *roce.Region
	requests     []queuepair.Request // TxDepth equal requests
	sent, done   int
	received     int
}

// Run runs a test with the other end. A server serves one client. It prints the programs' tables.
func Run(ctx context.Context, config Config, out io.Writer) (*Result, error) {
	if err := config.complete(); err != nil {
		return nil, fmt.Errorf("%v: %w: %w", config.Test, ErrConfig, err)
	}
	r := &run{config: &config, completions: new(roce.Completions)}
	r.print = printer{out: out, config: &config}
	err := r.all(ctx)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", config.Test, err)
	}
	return &r.result, nil
}

func (r *run) all(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.meet(ctx); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		r.talk.conn.Close()
		r.device.Close()
	})()
	if r.mtu, err = r.talk.open(min(cmp.Or(r.config.MTU, 4096), r.pathMTU)); err != nil {
		return err
	}
	if err := r.connect(ctx); err != nil {
		return err
	}
	r.result = Result{
		Test:    r.config.Test.String(),
		Server:  !r.talk.client,
		Peer:    r.pairs[0].theirs.GID.String(),
		Version: r.talk.version,
		Device:  r.name,
		MTU:     r.mtu, QueuePairs: r.config.QueuePairs,
	}
	if err := r.measure(ctx); err != nil {
		return err
	}
	r.print.line()
	counters := r.device.Counters()
	r.result.Sent, r.result.Resent, r.result.BadICRC = counters.Sent, counters.Resent, counters.BadICRC
	return r.talk.close()
}

// close closes the dialogue and the device.
func (r *run) close() (err error) {
	if r.talk.conn != nil {
		r.talk.conn.Close()
	}
	if r.device != nil {
		err = r.device.Close()
	}
	return err
}

// connect makes the queue pairs, and exchanges their keys.
func (r *run) connect(ctx context.Context) error {
	c := r.config
	newPair := r.newPair
	if c.CM {
		newPair = func(index int) (*pair, error) { return r.newPairCM(ctx, index) }
		if err := r.rendezvous(); err != nil {
			return err
		}
	}
	for i := range c.QueuePairs {
		p, err := newPair(i)
		if err != nil {
			return err
		}
		r.pairs = append(r.pairs, p)
	}
	if r.listener != nil {
		r.listener.Close()
	}
	if c.CM {
		if err := r.rendezvous(); err != nil {
			return err
		}
	}
	r.print.info(r)
	if c.Test == WriteLat { // these programs exchange keys once more
		if _, err := r.talk.keys(&r.pairs[0].mine); err != nil {
			return err
		}
	}
	for _, p := range r.pairs {
		var err error
		if p.theirs, err = r.talk.keys(&p.mine); err != nil {
			return err
		}
		if c.CM {
			p.theirs.GID = r.peer.Addr()
		} else if err := p.Connect(roce.Place{Addr: p.theirs.GID, QPN: p.theirs.QPN, PSN: p.theirs.PSN,
			Reads: int(p.theirs.Reads)}); err != nil {
			return err
		}
		p.prepare(r)
	}
	if c.Test.send() { // and these exchange them here to say that they are connected
		if _, err := r.talk.keys(&r.pairs[0].mine); err != nil {
			return err
		}
	}
	for _, p := range r.pairs {
		r.print.keys("local", &p.mine)
	}
	for _, p := range r.pairs {
		if _, err := r.talk.keys(&p.mine); err != nil {
			return err
		}
		r.print.keys("remote", &p.theirs)
	}
	if !c.Test.send() {
		if _, err := r.talk.keys(&r.pairs[0].mine); err != nil {
			return err
		}
	}
	return nil
}

// rendezvous makes both ends wait for each other before there are queue pairs.
func (r *run) rendezvous() error {
	_, err := r.talk.keys(new(Keys))
	return err
}

// newPairCM makes a queue pair and lets rdma_cm connect it.
func (r *run) newPairCM(ctx context.Context, index int) (*pair, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if r.talk.client {
		return r.dialPair(ctx, index)
	}
	for {
		one, err := r.listener.Accept(ctx)
		if err != nil {
			return nil, err
		}
		if one.From.Addr() != r.peer.Addr() {
			one.Reject()
			continue
		}
		p, err := r.newPair(index)
		if err != nil {
			return nil, err
		}
		return p, one.Grant(ctx, p.QueuePair, nil)
	}
}

// dialPair retries for some time: the programs say that they are ready a little before they listen.
func (r *run) dialPair(ctx context.Context, index int) (*pair, error) {
	for {
		p, err := r.newPair(index)
		if err != nil {
			return nil, err
		}
		var rejected *cm.RejectError
		if _, err = p.Dial(ctx, r.peer, nil); !errors.As(err, &rejected) ||
			rejected.Reason != infiniband.RejectServiceID {
			return p, err
		}
		p.region.Close()
		p.Close()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// newPair makes a queue pair with memory.
func (r *run) newPair(index int) (*pair, error) {
	c := r.config
	size := c.Size
	if c.All {
		size = maxSize
	}
	q, err := r.device.NewQueuePair(queuepair.Config{
		MTU: r.mtu, Timeout: infiniband.AckTimeout(uint8(c.QPTimeout)), Reads: c.Reads, RemoteReads: c.Reads,
	}, r.completions)
	if err != nil {
		return nil, err
	}
	p := &pair{QueuePair: q, index: index, local: make([]byte, size),
		shared: make([]byte, max(size, r.talk.cycle))}
	mine, theirs := p.local, p.shared
	if c.Test == ReadBW {
		mine, theirs = theirs, mine
	}
	clear(theirs)
	if !c.Test.Latency() && c.Test != AtomicBW {
		fill(mine, r.talk.client, index)
	}
	if p.region, err = r.device.Register(p.shared,
		queuepair.RemoteWrite|queuepair.RemoteRead|queuepair.RemoteAtomic); err != nil {
		return nil, err
	}
	place := q.Local()
	p.mine = Keys{Reads: uint16(c.Reads), QPN: place.QPN, PSN: place.PSN, RKey: p.region.RKey,
		VAddr: p.region.Base, GID: place.Addr}
	return p, nil
}

// fill writes the data that one end sends by one of its queue pairs. Nearby places differ, and so
// do queue pairs and ends.
func fill(b []byte, client bool, index int) {
	x := uint32(index)*2 + 1
	if client {
		x++
	}
	x *= 0x9E3779B1
	for i := range b {
		v := (uint32(i) ^ x) * 0x85EBCA6B
		b[i] = byte(v >> 24)
	}
}

// verify checks that memory has the other end's data.
func (r *run) verify(p *pair, got []byte) error {
	want := make([]byte, len(got))
	fill(want, !r.talk.client, p.index)
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("queue pair %d: %w: byte %d of %d is %#02x, want %#02x", p.index, errData, i,
				len(got), got[i], want[i])
		}
	}
	return nil
}

// verifyAll verifies all queue pairs that received data of a size.
func (r *run) verifyAll(size int) error {
	c := r.config
	came := r.talk.client == (c.Test == ReadBW) || c.Bidirectional
	if !c.Verify || c.Test.Latency() || c.Test == AtomicBW || !came {
		return nil
	}
	for _, p := range r.pairs {
		if c.Test == ReadBW {
			if err := r.verify(p, p.local[:size]); err != nil {
				return err
			}
			continue
		}
		var got []byte
		p.region.Look(func(memory []byte) { got = bytes.Clone(memory[:size]) })
		if err := r.verify(p, got); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the requests of a queue pair.
func (p *pair) prepare(r *run) {
	one := queuepair.Request{ID: uint64(p.index), Local: [][]byte{p.local}, Address: p.theirs.VAddr,
		RKey: p.theirs.RKey}
	switch r.config.Test {
	case SendBW, SendLat:
		one.Op = queuepair.Send
	case ReadBW:
		one.Op = queuepair.Read
	case AtomicBW:
		one.Op, one.Local, one.Operand = queuepair.FetchAdd, nil, 1
		if r.config.CompareSwap {
			one.Op = queuepair.CompareSwap
		}
	default:
		one.Op = queuepair.Write
	}
	p.requests = make([]queuepair.Request, r.config.TxDepth)
	for i := range p.requests {
		p.requests[i] = one
	}
}

// resize sets the size of the requests, and resets the counts.
func (p *pair) resize(size int) {
	p.sent, p.done, p.received = 0, 0, 0
	if p.requests[0].Local == nil {
		return
	}
	local := [][]byte{p.local[:size]}
	for i := range p.requests {
		p.requests[i].Local = local
	}
}

// now is the time in nanoseconds since began.
func now() int64 { return int64(time.Since(began)) }

var began = time.Now()
