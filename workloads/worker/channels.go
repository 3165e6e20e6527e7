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

// Channels are the places of a job's channels: for each rank in turn, so many, on the NICs of
// its node in turn, from its own one on.
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

// channels is how many the job has of its own places; 0 is none.
func (j Job) channels() int { return len(j.Channels) / max(len(j.Ranks), 1) }

// checkChannels looks at what can be done in several.
func (j Job) checkChannels(problem func(format string, args ...any)) {
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
	if !spec.HasChannels(j.Kind, j.Algorithm) || j.SGD != nil || j.offline() || j.arbitrated() ||
		j.RD.MayDrop() {
		problem("%s by %s in %d channels: want one of %v, and no rates but the links'", j.Kind, j.Algorithm,
			n, spec.WithChannels(j.Kind))
	}
	if _, err := j.perChannel().withDefaults(); err != nil {
		problem("in %d channels: %w", n, err)
	}
}

// perChannel is a job of which each channel of each rank is a rank: its ends are where those
// of the channels are.
func (j Job) perChannel() Job {
	return Job{
		Name:      j.Name,
		Kind:      AllReduce,
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

// channels are those of a rank's lanes.
func (c *workerConfig) channels() []collective.Channel {
	all := make([]collective.Channel, max(len(c.Channels), 1))
	for i := range all {
		all[i] = collective.Channel{Number: i, Of: len(all)}
	}
	return all
}

// lane is a rank's end of a channel, or of all there is.
type lane struct {
	endpoint endpoint
	// peers holds the rank of each peer of the endpoint.
	peers map[transports.Peer]int
	// endpoints are the peers by rank.
	endpoints map[int]transports.Peer
}

// open makes the endpoint.
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

// openLanes opens the ends of all channels, or the one where there are none.
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
	for i := range w.config.Channels {
		l := &lane{}
		if err := l.open(&w.config.Channels[i]); err != nil {
			return fmt.Errorf("channel %d: %w", i, err)
		}
		if w.config.Kind != MoE { // whose exchanges share it, and wait for their parts
			l.endpoint = &busyEndpoint{l.endpoint, &w.busy}
		}
		w.lanes = append(w.lanes, l)
	}
	return nil
}

// addPeer makes another rank a peer, unless it is one.
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

// addPeers makes all but the own rank peers.
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
		return nil, nil // nothing will be written there
	}
	region, err := l.endpoint.Register(memory, transports.RemoteWrite)
	if err != nil {
		return nil, err
	}
	return region.Remote(), nil
}

// meetInLanes meets the other ranks with what each lane has for them; the tables are by lane.
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

// busyEndpoint is that of a lane: who waits for it does not work meanwhile.
type busyEndpoint struct {
	endpoint
	busy *work
}

// Wait implements transports.Endpoint.
func (e *busyEndpoint) Wait(ctx context.Context) error {
	e.busy.add(-1)
	defer e.busy.add(1)
	return e.endpoint.Wait(ctx)
}

// atOnce does an operation in all lanes at the same time. Its caller is at work, and lanes are
// instead of it.
func atOnce[T any](ctx context.Context, busy *work, lanes []T,
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

// finish closes the ends and reports what each of them did over its whole life.
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
