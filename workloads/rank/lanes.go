package rank

import (
	"context"
	"fmt"
	"os"
	"slices"

	"railbed/internal/units"
	"railbed/transports"
	"railbed/transports/rd/engine"
	"railbed/workloads/collective"
)

// Lane is a rank's end of a channel, or its only end if the job has no channels.
type Lane struct {
	endpoint endpoint // measures how long its user waits
	bare     endpoint // does not
	process  *Process
	// peers maps each peer of the endpoint to its rank.
	peers map[transports.Peer]int
	// endpoints maps a rank to its peer.
	endpoints map[int]transports.Peer
}

// openLane opens the endpoint of a lane.
func (p *Process) openLane(c *Config) (*Lane, error) {
	l := &Lane{process: p, peers: map[transports.Peer]int{}, endpoints: map[int]transports.Peer{}}
	var err error
	l.bare, err = WhenFree(func() (endpoint, error) {
		return open(c, func(peer transports.Peer) int { return l.peers[peer] })
	})
	if err != nil {
		return nil, err
	}
	p.lanes = append(p.lanes, l)
	return l, nil
}

// openLanes opens the ends of all channels, or the rank's only end if there are no channels.
func (p *Process) openLanes() error {
	if len(p.Config.Channels) == 0 {
		l, err := p.openLane(&p.Config)
		if err != nil {
			return err
		}
		if e, can := l.bare.(tcpEndpoint); can {
			p.setBusyPoll = e.SetBusyPoll
		}
		p.timer = &waitTimer{endpoint: l.bare}
		l.endpoint = p.timer
		return nil
	}
	p.concurrent = true
	for i := range p.Config.Channels {
		l, err := p.openLane(&p.Config.Channels[i])
		if err != nil {
			return fmt.Errorf("channel %d: %w", i, err)
		}
		l.endpoint = &busyEndpoint{l.bare, &p.busy}
	}
	return nil
}

// ThroughLanes opens the ends of all channels, or the rank's only end if there are no channels. It calls
// do, closes the ends, and reports to the coordinator what each of them did over its whole life.
func (p *Process) ThroughLanes(do func() error) error {
	if err := p.openLanes(); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return p.finish()
}

// Lanes returns the rank's lanes, which ThroughLanes has opened. There is one for each channel, or one
// if there are no channels.
func (p *Process) Lanes() []*Lane { return p.lanes }

// Endpoint returns the endpoint of the lane. Its Wait adds to the rank's waiting time.
func (l *Lane) Endpoint() transports.Endpoint { return l.endpoint }

// AddPeer adds a rank as a peer, unless it is one already. table is the lane's, from Meet.
func (l *Lane) AddPeer(table []Rendezvous, rank int) (transports.Peer, error) {
	if peer, known := l.endpoints[rank]; known {
		return peer, nil
	}
	peer, err := l.endpoint.AddPeer(table[rank].Address)
	if err == nil {
		l.peers[peer], l.endpoints[rank] = rank, peer
	}
	return peer, err
}

// AddPeers adds all ranks except this one as peers, and returns the peers by rank.
func (l *Lane) AddPeers(table []Rendezvous) (peers []transports.Peer, err error) {
	peers = make([]transports.Peer, len(table))
	for other := range table {
		if other == l.process.Config.Rank {
			continue
		}
		if peers[other], err = l.AddPeer(table, other); err != nil {
			return nil, err
		}
	}
	return peers, nil
}

// Register lets other ranks write to memory, and returns the handles for a Rendezvous.
func (l *Lane) Register(memory collective.Memory[[]byte]) (handles collective.Memory[[]byte], err error) {
	if handles.Input, err = l.register(memory.Input); err != nil {
		return handles, err
	}
	if handles.Output, err = l.register(memory.Output); err != nil {
		return handles, err
	}
	handles.Work, err = l.register(memory.Work)
	return handles, err
}

func (l *Lane) register(memory []byte) ([]byte, error) {
	if len(memory) == 0 {
		return nil, nil // no rank writes there
	}
	region, err := l.endpoint.Register(memory, transports.RemoteWrite)
	if err != nil {
		return nil, err
	}
	return region.Remote(), nil
}

// Meet exchanges the rendezvous of each lane with the other ranks. of returns the memory handles of the
// i-th lane: Meet adds the address. The tables that Meet returns are by lane and rank. Without lanes Meet
// only waits for the other ranks.
func (p *Process) Meet(ctx context.Context, of func(i int, l *Lane) (*Rendezvous, error)) ([][]Rendezvous,
	error) {
	own := &Rendezvous{}
	for i, l := range p.lanes {
		end, err := of(i, l)
		if err != nil {
			return nil, err
		}
		end.Address = l.endpoint.Address()
		own.Channels = append(own.Channels, *end)
	}
	if len(p.Config.Channels) == 0 && len(p.lanes) > 0 {
		own = &own.Channels[0]
	}
	table, err := p.meet(ctx, own)
	if err != nil || len(p.Config.Channels) == 0 {
		return [][]Rendezvous{table}, err
	}
	tables := make([][]Rendezvous, len(p.lanes))
	for rank, r := range table {
		if len(r.Channels) != len(tables) {
			return nil, fmt.Errorf("rank %d has %d channels, want %d", rank, len(r.Channels), len(tables))
		}
		for i := range tables {
			tables[i] = append(tables[i], r.Channels[i])
		}
	}
	return tables, nil
}

// meet sends this rank's rendezvous to the coordinator and returns the table of all ranks'
// rendezvous.
func (p *Process) meet(ctx context.Context, own *Rendezvous) ([]Rendezvous, error) {
	own.PID = os.Getpid()
	if err := p.Send(Message{Ready: own}); err != nil {
		return nil, err
	}
	m, err := p.next(ctx)
	if err != nil {
		return nil, err
	}
	if len(m.Table) != p.Config.Ranks {
		return nil, fmt.Errorf("the coordinator's table has %d ranks, want %d", len(m.Table), p.Config.Ranks)
	}
	return m.Table, nil
}

// KeepTo changes the planned rates, by rank, of the rank's endpoint. It does nothing unless the job uses
// planned rates without channels.
func (p *Process) KeepTo(rates map[int]units.Rate) {
	if e, is := p.timer.endpoint.(rdEndpoint); is {
		e.planned.keepTo(e.Endpoint, rates)
	}
}

// finish closes the rank's ends and sends the coordinator what each of them did over its whole
// life.
func (p *Process) finish() error {
	var all []Finished
	for _, l := range p.lanes {
		if err := l.endpoint.Close(); err != nil {
			return err
		}
		of := l.endpoint.account(l.peers)
		of.DeviceBound = l.endpoint.DeviceBound()
		all = append(all, *of)
	}
	if len(p.Config.Channels) == 0 {
		return p.Send(Message{Finished: &all[0]})
	}
	finished := &Finished{Channels: all,
		DeviceBound: !slices.ContainsFunc(all, func(of Finished) bool { return !of.DeviceBound })}
	for _, of := range all {
		finished.Stream.Add(of.Stream)
		if of.Repeats != nil {
			if finished.Repeats == nil {
				finished.Repeats = &engine.Repeats{}
			}
			finished.Repeats.Add(of.Repeats)
		}
	}
	return p.Send(Message{Finished: finished})
}
