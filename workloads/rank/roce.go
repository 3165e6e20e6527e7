package rank

import (
	"errors"
	"fmt"
	"net"
	"time"

	"railbed/internal/clock"
	"railbed/plan/spec"
	"railbed/transports"
	"railbed/transports/roce"
	"railbed/transports/roce/dcqcn"
	"railbed/workloads/collective"
)

// openRoCE opens an endpoint with RoCEv2 reliable connections.
func openRoCE(c *Config) (endpoint, error) {
	config := roce.Config{Addr: c.Addr, Device: c.device(), PeerTimeout: time.Duration(c.PeerTimeout),
		Clock: clock.New(c.Dilation), Block: c.Block, DSCP: uint8(c.DSCP), Bypass: c.Bypass}
	if c.NIC != "" {
		nic, err := net.InterfaceByName(c.NIC)
		if err != nil {
			return nil, fmt.Errorf("open roce endpoint: %w", err)
		}
		config.MTU = nic.MTU
	}
	if settings := c.RoCE; settings != nil {
		config.Timeout = time.Duration(settings.Timeout)
		switch settings.Repeat {
		case spec.RoCESelective:
			config.Selective = true
		case "", spec.RoCEGoBackN:
		default:
			return nil, fmt.Errorf("open roce endpoint: unknown repeat %q, want %s or %s",
				settings.Repeat, spec.RoCEGoBackN, spec.RoCESelective)
		}
		switch settings.Congestion {
		case spec.RoCEDCQCN:
			if c.Rate == 0 {
				return nil, fmt.Errorf("open roce endpoint: %s needs the rate of rank %d's link",
					spec.RoCEDCQCN, c.Rank)
			}
			params := dcqcn.Scaled(uint64(c.Rate))
			config.Congestion, config.Overhead = &params, c.Overhead
		case "", spec.RoCENone:
		default:
			return nil, fmt.Errorf("open roce endpoint: unknown congestion %q, want %s or %s",
				settings.Congestion, spec.RoCENone, spec.RoCEDCQCN)
		}
	}
	e, err := roce.Open(config)
	if err != nil {
		return nil, err
	}
	loss, err := e.AcceptLoss()
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return roceEndpoint{e, loss}, nil
}

type roceEndpoint struct {
	*roce.Endpoint
	loss net.Listener // for faults
}

// Close implements transports.Endpoint.
func (e roceEndpoint) Close() error {
	err := e.loss.Close()
	if errors.Is(err, net.ErrClosed) { // Close is idempotent
		err = nil
	}
	return errors.Join(err, e.Endpoint.Close())
}

// account implements endpoint. As for rd, it counts the payload, each byte once. Packets carry the
// number of their destination queue pair.
func (e roceEndpoint) account(ranks map[transports.Peer]int) *Finished {
	c := e.Counters()
	first, count := e.QueuePairs()
	peers := map[uint32]int{}
	for number, peer := range e.Connected() {
		if of, known := ranks[peer]; known {
			peers[uint32(number)] = of
		}
	}
	return &Finished{
		Stream: collective.Traffic{Sent: c.SentBytes, Received: c.ReceivedBytes},
		QueuePairs: &QueuePairs{
			First:    uint32(first),
			Count:    count,
			Peers:    peers,
			PathMTU:  e.PathMTU(),
			Packets:  c.Sent,
			Resent:   c.Resent,
			Naks:     c.Naks,
			RNRNaks:  c.RNRNaks,
			Timeouts: c.Timeouts,
			CNPs:     c.CNPsSent,
			Slowed:   c.CNPsReceived,
			BadICRC:  c.BadICRC,
			Overruns: c.Overruns,
		},
	}
}
