package worker

import (
	"fmt"
	"net"
	"time"

	"railbed/fabric/clock"
	"railbed/transports"
	"railbed/transports/rd"
	"railbed/transports/rd/path"
	"railbed/transports/rd/privacy"
	"railbed/transports/tcp"
	"railbed/transports/wire"
	"railbed/workloads/collective"
)

// endpoint is a rank's end of a transport.
type endpoint interface {
	transports.Endpoint
	DeviceBound() bool
	// account is what the transport counted over its life, after Close.
	account(ranks map[transports.Peer]int) *workerFinished
}

// open makes the endpoint of the transport that the job asks for.
func open(c *workerConfig) (endpoint, error) {
	switch c.Transport {
	case TCP:
		e, err := tcp.Open(tcp.Config{
			Addr: c.Addr, Port: c.Port, SourcePorts: c.SourcePorts, Device: c.NIC, PeerTimeout: time.Duration(c.PeerTimeout),
		})
		return tcpEndpoint{e}, err
	case RD:
		return openRD(c)
	}
	return nil, fmt.Errorf("a transport %q is not something this worker has", c.Transport)
}

// openRD is open for reliable datagrams.
func openRD(c *workerConfig) (endpoint, error) {
	config := rd.Config{
		Addr: c.Addr, Slot: int(c.Port-wire.PortRD) / wire.RDEngines, Device: c.NIC, Rate: uint64(c.Rate), Overhead: c.Overhead, PeerTimeout: time.Duration(c.PeerTimeout),
		Clock: clock.New(c.Dilation),
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
	e, err := rd.Open(config)
	return rdEndpoint{e}, err
}

type tcpEndpoint struct{ *tcp.Endpoint }

func (e tcpEndpoint) account(ranks map[transports.Peer]int) *workerFinished {
	counters := e.Counters()
	finished := &workerFinished{Stream: collective.Traffic{Sent: counters.StreamSent, Received: counters.StreamReceived}}
	for _, flow := range e.Flows() {
		finished.Flows = append(finished.Flows, Flow{
			PeerRank: ranks[flow.Peer], Connecting: flow.Connecting, Local: flow.Local, Remote: flow.Remote,
		})
	}
	return finished
}

type rdEndpoint struct{ *rd.Endpoint }

// account implements endpoint: of rd the payload counts, each byte once. Its
// packets tell ranks apart by themselves, so there are no flows to name.
func (e rdEndpoint) account(map[transports.Peer]int) *workerFinished {
	counters := e.Counters()
	return &workerFinished{
		Stream: collective.Traffic{Sent: counters.SentBytes, Received: counters.ReceivedBytes}, Engines: e.Engines(),
	}
}
