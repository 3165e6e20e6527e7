package worker

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/transports"
	"railbed/workloads/collective"
)

// Channels returns the places of a job's channels: for each rank in turn, as many places as there
// are channels. They use the NICs of the rank's node in turn, starting at the rank's own NIC.
func Channels(p *plan.Plan, ranks []plan.Rank, channels int) []plan.Rank {
	var places []plan.Rank
	for _, r := range ranks {
		var nics []plan.Rank
		own := 0
		for _, nic := range p.Node(r.Node).NICs {
			at := plan.Rank{Node: r.Node, NIC: nic.Name}
			for _, prefix := range nic.Addrs {
				if a := prefix.Addr(); a.Is4() {
					at.Addr4 = a
				} else {
					at.Addr6 = a
				}
			}
			if nic.Name == r.NIC {
				own = len(nics)
			}
			nics = append(nics, at)
		}
		for i := range channels {
			at := nics[(own+i)%len(nics)]
			at.Rank = len(places)
			places = append(places, at)
		}
	}
	return places
}

// channels returns the number of channels per rank, or 0 if the job uses the ranks' own places.
func (j Job) channels() int { return len(j.Channels) / max(len(j.Ranks), 1) }

// checkChannels checks that the job can run in several channels.
func (j Job) checkChannels(problem reporter) {
	n := j.channels()
	if len(j.Channels) == 0 {
		return
	}
	if len(j.Channels) != n*len(j.Ranks) ||
		len(j.ChannelSends) != 0 && len(j.ChannelSends) != len(j.Channels) {
		problem("%d places of channels, with %d links, of %d ranks", len(j.Channels), len(j.ChannelSends),
			len(j.Ranks))
		return
	}
	if !spec.HasChannels(j.Kind, j.Algorithm) || is[SGD](j.Work) || j.offline() || j.arbitrated() ||
		j.RD.MayDrop() {
		problem("%s by %s in %d channels: want one of %v, and no rates but the links'", j.Kind, j.Algorithm,
			n, spec.WithChannels(j.Kind))
	}
	if _, err := j.perChannel().withDefaults(); err != nil {
		problem("in %d channels: %w", n, err)
	}
}

// perChannel returns a job in which each channel of each rank is a rank of its own, at the
// channel's place.
func (j Job) perChannel() Job {
	return Job{
		Name:      j.Name,
		Kind:      AllReduce,
		Work:      Collective{},
		Algorithm: Ring,
		Transport: j.Transport,
		Ranks:     j.Channels,
		Sends:     j.ChannelSends,
		Family:    j.Family,
		BasePort:  j.BasePort,
		Ordinal:   j.Ordinal,
		Dilation:  j.Dilation,
		RD:        j.RD,
		RoCE:      j.RoCE,
		Secret:    j.Secret,
		RoundTrip: j.RoundTrip,
	}
}

// channels returns the channels of the rank's lanes.
func (c *workerConfig) channels() []collective.Channel {
	all := make([]collective.Channel, max(len(c.Channels), 1))
	for i := range all {
		all[i] = collective.Channel{Number: i, Of: len(all)}
	}
	return all
}

// lane is a rank's end of a channel, or its only end.
type lane struct {
	endpoint endpoint
	// peers maps each peer of the endpoint to its rank.
	peers map[transports.Peer]int
	// endpoints maps a rank to its peer.
	endpoints map[int]transports.Peer
}

// open opens the endpoint.
func (l *lane) open(c *workerConfig) error {
	l.peers, l.endpoints = map[transports.Peer]int{}, map[int]transports.Peer{}
	endpoint, err := whenFree(func() (endpoint, error) {
		return open(c, func(p transports.Peer) int { return l.peers[p] })
	})
	if err == nil {
		l.endpoint = endpoint
	}
	return err
}

// throughLanes opens the ends of all channels, does something over them, and closes them.
func (w *rank) throughLanes(do func() error) error {
	if err := w.openLanes(); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return w.finish()
}

// openLanes opens the ends of all channels, or the rank's only end if there are no channels.
func (w *rank) openLanes() error {
	if len(w.config.Channels) == 0 {
		if err := w.lane.open(&w.config); err != nil {
			return err
		}
		if e, can := w.endpoint.(tcpEndpoint); can {
			w.setBusyPoll = e.SetBusyPoll
		}
		w.timer = &waitTimer{endpoint: w.endpoint}
		w.endpoint = w.timer
		w.lanes = []*lane{&w.lane}
		return nil
	}
	w.concurrent = true
	for i := range w.config.Channels {
		l := &lane{}
		if err := l.open(&w.config.Channels[i]); err != nil {
			return fmt.Errorf("channel %d: %w", i, err)
		}
		if !w.counting {
			l.endpoint = &busyEndpoint{l.endpoint, &w.busy}
		}
		w.lanes = append(w.lanes, l)
	}
	return nil
}

// addPeer adds a rank as a peer, unless it is one already.
func (l *lane) addPeer(table []rendezvous, rank int) (transports.Peer, error) {
	if peer, known := l.endpoints[rank]; known {
		return peer, nil
	}
	peer, err := l.endpoint.AddPeer(table[rank].Address)
	if err == nil {
		l.peers[peer], l.endpoints[rank] = rank, peer
	}
	return peer, err
}

// addPeers adds all ranks except this one as peers.
func (l *lane) addPeers(table []rendezvous, own int) (peers []transports.Peer, err error) {
	peers = make([]transports.Peer, len(table))
	for other := range table {
		if other == own {
			continue
		}
		if peers[other], err = l.addPeer(table, other); err != nil {
			return nil, err
		}
	}
	return peers, nil
}

func (l *lane) registerAll(b buffers) (memory collective.Memory[[]byte], err error) {
	if memory.Input, err = l.register(b.input); err != nil {
		return memory, err
	}
	if memory.Output, err = l.register(b.output); err != nil {
		return memory, err
	}
	memory.Work, err = l.register(b.work)
	return memory, err
}

func (l *lane) register(memory []byte) ([]byte, error) {
	if len(memory) == 0 {
		return nil, nil // no rank writes there
	}
	region, err := l.endpoint.Register(memory, transports.RemoteWrite)
	if err != nil {
		return nil, err
	}
	return region.Remote(), nil
}

// meetInLanes exchanges the rendezvous of each lane with the other ranks. The tables that it
// returns are by lane.
func (w *rank) meetInLanes(ctx context.Context, of func(i int, l *lane) (*rendezvous, error)) ([][]rendezvous,
	error) {
	own := &rendezvous{}
	for i, l := range w.lanes {
		end, err := of(i, l)
		if err != nil {
			return nil, err
		}
		end.Address = l.endpoint.Address()
		own.Channels = append(own.Channels, *end)
	}
	if len(w.config.Channels) == 0 {
		own = &own.Channels[0]
	}
	table, err := w.meet(ctx, own)
	if err != nil || len(w.config.Channels) == 0 {
		return [][]rendezvous{table}, err
	}
	tables := make([][]rendezvous, len(w.lanes))
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

// busyEndpoint is the endpoint of a lane. It marks its goroutine idle while the goroutine waits.
type busyEndpoint struct {
	endpoint
	busy *idleness
}

// Wait implements transports.Endpoint.
func (e *busyEndpoint) Wait(ctx context.Context) error {
	e.busy.add(-1)
	defer e.busy.add(1)
	return e.endpoint.Wait(ctx)
}

// atOnce does an operation in all lanes at the same time. The calling goroutine must be marked
// busy. With several lanes, atOnce marks it idle and the goroutine of each lane busy.
func atOnce[T any](ctx context.Context, busy *idleness, lanes []T,
	operate func(T, context.Context) (collective.Traffic, error)) (sum collective.Traffic, err error) {
	if len(lanes) == 1 {
		return operate(lanes[0], ctx)
	}
	group, ctx := errgroup.WithContext(ctx)
	traffic := make([]collective.Traffic, len(lanes))
	busy.add(-1)
	defer busy.add(1)
	for i, l := range lanes {
		busy.add(1)
		group.Go(func() (err error) {
			defer busy.add(-1)
			if traffic[i], err = operate(l, ctx); err != nil {
				return fmt.Errorf("channel %d: %w", i, err)
			}
			return nil
		})
	}
	err = group.Wait()
	for _, t := range traffic {
		addTraffic(&sum, t)
	}
	return sum, err
}

// finish closes the rank's ends and sends the coordinator what each of them did over its whole
// life.
func (w *rank) finish() error {
	var all []workerFinished
	for _, l := range w.lanes {
		if err := l.endpoint.Close(); err != nil {
			return err
		}
		of := l.endpoint.account(l.peers)
		of.DeviceBound = l.endpoint.DeviceBound()
		all = append(all, *of)
	}
	if len(w.config.Channels) == 0 {
		return w.send(message{Finished: &all[0]})
	}
	finished := &workerFinished{DeviceBound: true, Channels: all}
	for _, of := range all {
		addTraffic(&finished.Stream, of.Stream)
		finished.DeviceBound = finished.DeviceBound && of.DeviceBound
	}
	return w.send(message{Finished: finished})
}
