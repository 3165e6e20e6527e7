package rank

import (
	"os"
	"time"

	"railbed/transports"
	"railbed/transports/quic"
	"railbed/workloads/collective"
)

// openQUIC opens an endpoint with QUIC connections.
func openQUIC(c *Config) (endpoint, error) {
	// quic-go warns on standard error where an ordinary user's sockets have small buffers.
	if err := os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true"); err != nil {
		return nil, err
	}
	e, err := quic.Open(quic.Config{
		Addr:        c.Addr,
		Port:        c.Port,
		Device:      c.device(),
		PeerTimeout: time.Duration(c.PeerTimeout),
	})
	if err != nil {
		return nil, err
	}
	return quicEndpoint{e}, nil
}

type quicEndpoint struct{ *quic.Endpoint }

// account implements endpoint. It counts the payload, each byte once. All packets of a rank have the
// rank's address and port, so there are no flows to list.
func (e quicEndpoint) account(map[transports.Peer]int) *Finished {
	counters := e.Counters()
	return &Finished{Stream: collective.Traffic{Sent: counters.Sent, Received: counters.Received}}
}
