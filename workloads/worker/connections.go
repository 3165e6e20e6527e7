package worker

import (
	"errors"
	"net/netip"

	"railbed/internal/wire"
	"railbed/plan"
	"railbed/workloads/collective"
)

// Connection is the stream of data from one end of a job to another. The ends are the ranks or, if the job
// has channels, the channels of ranks.
type Connection struct {
	From, To plan.Rank
	Src, Dst netip.AddrPort
	// Protocol is the IP protocol, if the ports are known before the run. Otherwise it and the ports are 0:
	// rd sends from many ports, and roce from a port for each queue pair.
	Protocol uint8
}

// ErrSwitchAdds is the error of a job whose ranks send to switches.
var ErrSwitchAdds = errors.New("its ranks send to the switches that add up, and not to each other")

// Connections returns what the job's ranks will send to each other, by sender and receiver. Over tcp it has
// the first source port of a rank. A rank takes another one only if the first is in use.
func (j Job) Connections() (all []Connection, err error) {
	wanted, err := j.Wanted()
	if err != nil {
		return nil, err
	}
	if wanted.Switch > 0 {
		return nil, ErrSwitchAdds
	}
	if j, err = j.withDefaults(); err != nil {
		return nil, err
	}
	if len(j.Channels) > 0 {
		j = j.perChannel()
	}
	for from, row := range wanted.To {
		for to, amount := range row {
			if amount == (collective.Amount{}) {
				continue
			}
			c := Connection{From: j.Ranks[from], To: j.Ranks[to]}
			src, dst := uint16(0), uint16(0)
			switch sender, receiver := j.config(from), j.config(to); j.Transport {
			case TCP:
				c.Protocol, src, dst = wire.ProtocolTCP, sender.SourcePorts[0], receiver.Port
			case QUIC:
				c.Protocol, src, dst = wire.ProtocolUDP, sender.Port, receiver.Port
			}
			c.Src, c.Dst = netip.AddrPortFrom(j.addr(c.From), src), netip.AddrPortFrom(j.addr(c.To), dst)
			all = append(all, c)
		}
	}
	return all, nil
}
