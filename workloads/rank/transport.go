package rank

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/rd"
	"railbed/transports/rd/path"
	"railbed/transports/rd/privacy"
	"railbed/transports/rd/rate"
	"railbed/transports/rd/rate/arbiter"
	"railbed/transports/tcp"
	"railbed/workloads/collective"
)

// endpoint is a rank's end of a transport.
type endpoint interface {
	transports.Endpoint
	DeviceBound() bool
	// account returns the transport's counters over its whole life. Call it after Close.
	account(ranks map[transports.Peer]int) *Finished
}

// open opens the endpoint of the transport that the job asks for. ranks maps a peer to its rank and
// must know a peer before something is sent to it.
func open(c *Config, ranks func(transports.Peer) int) (endpoint, error) {
	switch c.Transport {
	case TCP:
		e, err := tcp.Open(tcp.Config{
			Addr:        c.Addr,
			Port:        c.Port,
			SourcePorts: c.SourcePorts,
			Device:      c.device(),
			DSCP:        uint8(c.DSCP),
			PeerTimeout: time.Duration(c.PeerTimeout),
		})
		return tcpEndpoint{e}, err
	case RD:
		return openRD(c, ranks)
	case RoCE:
		return openRoCE(c)
	case QUIC:
		return openQUIC(c)
	}
	return nil, fmt.Errorf("unknown transport %q, want %s, %s, %s or %s", c.Transport, TCP, RD, RoCE, QUIC)
}

// Workers whose coordinator was killed exit by themselves, but not at once. portPatience is how
// long the workers of the next run wait for their ports.
const (
	portPatience = 2 * time.Second
	portLook     = 20 * time.Millisecond
)

// WhenFree opens something that needs a port, and retries while another process that is about to
// exit holds the port.
func WhenFree[T any](open func() (T, error)) (opened T, err error) {
	for end := time.Now().Add(portPatience); ; time.Sleep(portLook) {
		if opened, err = open(); !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return opened, err
		}
	}
}

// openRD opens an endpoint with reliable datagrams.
func openRD(c *Config, ranks func(transports.Peer) int) (endpoint, error) {
	config := rd.Config{
		Addr:        c.Addr,
		Slot:        int(c.Port-wire.PortRD) / wire.RDEngines,
		Device:      c.device(),
		Bypass:      c.Bypass,
		DSCP:        uint8(c.DSCP),
		Rate:        uint64(c.Rate),
		Overhead:    c.Overhead,
		PeerTimeout: time.Duration(c.PeerTimeout),
		Clock:       clock.New(c.Dilation),
	}
	if settings := c.RD; settings != nil {
		config.Engines, config.Paths, config.Grain = settings.Engines, settings.Paths, settings.Grain
		if settings.Spray != "" {
			kind, err := path.Parse(settings.Spray)
			if err != nil {
				return nil, fmt.Errorf("open rd endpoint: %w", err)
			}
			config.Choose = kind
		}
		if settings.Encrypt {
			secret, err := privacy.New(c.Secret)
			if err != nil {
				return nil, fmt.Errorf("open rd endpoint: %w", err)
			}
			clear(c.Secret)
			config.Secret, config.Readable = secret, settings.ReadableHeaders
		}
		for _, weight := range settings.Weights {
			config.Weights = append(config.Weights, uint32(weight))
		}
	}
	if c.NIC != "" {
		nic, err := net.InterfaceByName(c.NIC)
		if err != nil {
			return nil, fmt.Errorf("open rd endpoint: %w", err)
		}
		config.MTU = nic.MTU
	}
	planned := &plannedRates{rates: c.Rates, engines: uint64(max(config.Engines, 1))}
	client, err := control(c, &config, ranks, planned)
	if err != nil {
		return nil, err
	}
	e, err := rd.Open(config)
	if client != nil && err == nil {
		client.Start(e.Change)
	}
	return rdEndpoint{e, client, planned}, err
}

// plannedRates are the rates of an endpoint with control: offline.
type plannedRates struct {
	mu      sync.Mutex
	rates   map[int]units.Rate // by rank
	engines uint64             // messages use them in turn, so each gets an equal part of a rate
	fixed   []plannedRate
}

type plannedRate struct {
	*rate.Fixed
	to int // rank
}

func (p *plannedRates) controller(to int) rate.Controller {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &rate.Fixed{Rate: uint64(p.rates[to]) / p.engines}
	p.fixed = append(p.fixed, plannedRate{f, to})
	return f
}

// keepTo changes the rates.
func (p *plannedRates) keepTo(e *rd.Endpoint, rates map[int]units.Rate) {
	e.Change(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rates = rates
		for _, f := range p.fixed {
			f.Rate = uint64(rates[f.to]) / p.engines
		}
	})
}

// missSlots is for how many slots a grant is valid. A sender that is late by less than that sends
// in the slots of others. A receiver's queue then grows by up to this many slots of each late
// sender. With one slot, two busy cores missed too many slots
// (docs/explanation/notes/rates.md).
const missSlots = 2

// leastMiss is the minimum time, in real time, for which a grant is valid. A host with shared cores
// would miss most slots that are shorter.
const leastMiss = time.Millisecond

// leastTarget is the minimum delay that reactive control aims at: the time that a host with shared
// cores takes to run a waiting process.
const leastTarget = 250 * time.Microsecond

// control sets the congestion control that limits the endpoint below its NIC's rate. The caller
// must start the client, if it is not nil.
func control(c *Config, config *rd.Config, ranks func(transports.Peer) int,
	planned *plannedRates) (client *arbiter.Client, err error) {
	if c.RD == nil || c.RD.Control == "" {
		return nil, nil
	}
	kind, err := rate.Parse(c.RD.Control)
	if err != nil {
		return nil, fmt.Errorf("open rd endpoint: %w", err)
	}
	engines := uint64(max(config.Engines, 1))
	reactive := rate.NSCCOptions{Rate: max(config.Rate/engines, 1), RoundTrip: c.RoundTrip,
		LeastTarget: leastTarget, Packet: max(config.MTU, 1500)}
	switch kind {
	case rate.KindNSCC:
		config.Control = func(int, transports.Peer) rate.Controller { return rate.NewNSCC(reactive) }
	case rate.KindLearned:
		policy := rate.Trained()
		config.Control = func(int, transports.Peer) rate.Controller {
			return rate.NewLearned(policy, reactive)
		}
	case rate.KindOffline:
		config.Control = func(_ int, to transports.Peer) rate.Controller {
			return planned.controller(ranks(to))
		}
	case rate.KindArbiter:
		if client, err = arbiter.Dial(c.Addr, c.Arbiter, arbiter.ClientOptions{
			Host:   c.Rank,
			Hosts:  c.Ranks,
			Clock:  config.Clock,
			Miss:   clock.Dilation(c.Dilation).Passed(max(missSlots*c.SlotTime, leastMiss)),
			Secret: config.Secret,
		}); err != nil {
			return nil, fmt.Errorf("open rd endpoint: %w", err)
		}
		config.Control = func(_ int, to transports.Peer) rate.Controller {
			return client.Controller(ranks(to))
		}
	case rate.KindLine:
	default:
		return nil, fmt.Errorf("open rd endpoint: unknown control %v", kind)
	}
	return client, nil
}

type tcpEndpoint struct{ *tcp.Endpoint }

func (e tcpEndpoint) account(ranks map[transports.Peer]int) *Finished {
	counters := e.Counters()
	finished := &Finished{Stream: collective.Traffic{Sent: counters.StreamSent,
		Received: counters.StreamReceived}}
	for _, flow := range e.Flows() {
		finished.Flows = append(finished.Flows, Flow{
			PeerRank: ranks[flow.Peer], Connecting: flow.Connecting, Local: flow.Local, Remote: flow.Remote,
		})
	}
	return finished
}

type rdEndpoint struct {
	*rd.Endpoint
	client  *arbiter.Client // nil without an arbiter
	planned *plannedRates
}

// Close implements transports.Endpoint.
func (e rdEndpoint) Close() error {
	err := e.Endpoint.Close()
	if e.client != nil {
		e.client.Close() // the closed endpoint requests no more slots
	}
	return err
}

// account implements endpoint. It counts the payload, each byte once. rd packets carry their ranks,
// so there are no flows to list.
func (e rdEndpoint) account(map[transports.Peer]int) *Finished {
	counters := e.Counters()
	finished := &Finished{
		Stream:  collective.Traffic{Sent: counters.SentBytes, Received: counters.ReceivedBytes},
		Engines: e.Engines(),
		Life:    e.Life(),
	}
	if counters.Repeated > 0 {
		finished.Repeats = &counters.Repeats
	}
	if p := &counters.Pace; p.Packets > 0 {
		finished.Pace = &Pace{Packets: p.Packets, P50: p.Quantile(500), P99: p.Quantile(990), Most: p.Most}
	}
	return finished
}
