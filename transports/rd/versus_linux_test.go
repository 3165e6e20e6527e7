package rd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"railbed/testkit/privacytest"
	"railbed/testkit/transportstest"
	"railbed/transports"
)

// The ends of comparisons beside quic-go, which say hello alike: the far one
// prints a line for each peer, the near one a line, and each reads the other's. The
// near one then prints what it measured and the CPU time of its process in ns, the
// far one its own CPU time when its input ends.

// versus plays an end of a comparison.
func (o part) versus(in *bufio.Reader, out io.Writer) (err error) {
	var numbers []float64
	switch o.Play {
	case "versus-rd-flood":
		numbers, err = o.flood(in, out)
	case "versus-rd-probe":
		numbers, err = o.probe(in, out)
	case "versus-rd-sink", "versus-rd-pong":
		err = o.sink(in, out)
	case "versus-quic-flood", "versus-quic-probe":
		numbers, err = o.quicNear(in, out)
	case "versus-quic-sink", "versus-quic-pong":
		err = o.quicFar(in, out)
	default:
		err = fmt.Errorf("no end plays %s", o.Play)
	}
	if err != nil {
		return err
	}
	for _, n := range numbers {
		fmt.Fprintf(out, "%f ", n)
	}
	_, err = fmt.Fprintf(out, "%d\n", transportstest.CPUTime().Nanoseconds())
	return err
}

func (o part) config(addr string, number int) Config {
	at := netip.MustParseAddr(addr)
	for range number / slots { // an address has so many endpoints
		at = at.Next()
	}
	c := Config{Addr: at, Slot: -1, MTU: o.MTU, Grain: o.Grain, Paths: o.Paths, Engines: o.Engines,
		Rate: o.Rate}
	if o.Encrypt {
		c.Secret = privacytest.Secret()
	}
	return c
}

// meet opens the near end and returns requests to all peers.
func (o part) meet(in *bufio.Reader, out io.Writer) (*Endpoint, []transports.Request, error) {
	e, err := Open(o.config(o.Near, 0))
	if err != nil {
		return nil, nil, err
	}
	region, err := e.Register(make([]byte, max(o.Size, 1)), transports.RemoteWrite)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(out, "%x %x\n", e.Address(), region.Remote())
	var requests []transports.Request
	for range o.Peers {
		var address, remote []byte
		if _, err := fmt.Fscanf(in, "%x %x\n", &address, &remote); err != nil {
			return nil, nil, err
		}
		peer, err := e.AddPeer(address)
		if err != nil {
			return nil, nil, err
		}
		requests = append(requests, transports.Request{Op: transports.OpWrite, Peer: peer,
			Local: make([]byte, o.Size), Remote: remote})
	}
	return e, requests, nil
}

// flood posts to all peers in turn for a while: the bytes per second that were
// placed.
func (o part) flood(in *bufio.Reader, out io.Writer) ([]float64, error) {
	e, requests, err := o.meet(in, out)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	var done [64]transports.Completion
	start, placed := time.Now(), 0
	for turn := 0; time.Since(start) < o.For; {
		for refused := 0; refused < len(requests); turn++ {
			n, err := e.Post(context.Background(), requests[turn%len(requests):][:1])
			if err != nil {
				return nil, err
			}
			if refused++; n > 0 {
				refused = 0
			}
		}
		if err := e.Wait(context.Background()); err != nil {
			return nil, err
		}
		for _, c := range done[:e.Poll(done[:])] {
			if c.Err != nil {
				return nil, c.Err
			}
			placed += c.Bytes
		}
	}
	return []float64{float64(placed) / time.Since(start).Seconds()}, nil
}

// probe bounces messages: quantiles of the round trips in ns.
func (o part) probe(in *bufio.Reader, out io.Writer) ([]float64, error) {
	e, requests, err := o.meet(in, out)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	requests[0].Op = transports.OpWriteImm
	return quantiles(func() error {
		if _, err := e.Post(context.Background(), requests[:1]); err != nil {
			return err
		}
		return await(e, transports.OpReceive)
	})
}

// quantiles are p50, p99 and p99.9 of how long something takes, in ns, after some
// that do not count.
func quantiles(bounce func() error) ([]float64, error) {
	var all []float64
	for range compareRounds {
		start := time.Now()
		if err := bounce(); err != nil {
			return nil, err
		}
		all = append(all, float64(time.Since(start).Nanoseconds()))
	}
	all = all[len(all)/20:]
	slices.Sort(all)
	return []float64{all[len(all)/2], all[len(all)*99/100], all[len(all)*999/1000]}, nil
}

// sink is the far end: as many endpoints as there are peers, which answer if they
// are to.
func (o part) sink(in *bufio.Reader, out io.Writer) error {
	var all []*Endpoint
	for i := range o.Peers {
		e, err := Open(o.config(o.Far, i))
		if err != nil {
			return err
		}
		defer e.Close()
		region, err := e.Register(make([]byte, max(o.Size, 1)), transports.RemoteWrite)
		if err != nil {
			return err
		}
		all = append(all, e)
		fmt.Fprintf(out, "%x %x\n", e.Address(), region.Remote())
	}
	var address, remote []byte
	if _, err := fmt.Fscanf(in, "%x %x\n", &address, &remote); err != nil {
		return err
	}
	for _, e := range all {
		peer, err := e.AddPeer(address)
		if err != nil {
			return err
		}
		if o.Play == "versus-rd-pong" {
			request := transports.Request{Op: transports.OpWriteImm, Peer: peer, Local: make([]byte, o.Size),
				Remote: remote}
			go func() { _ = answer(e, request) }()
		}
	}
	_, err := io.Copy(io.Discard, in)
	return err
}
