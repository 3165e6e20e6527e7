package worker

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"railbed/testbed/plan"
	"railbed/testbed/spec"
	"railbed/transports"
	"railbed/workloads/collective"
	"railbed/workloads/collective/schedule"
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
	if len(j.Channels) != n*len(j.Ranks) || len(j.ChannelSends) != 0 && len(j.ChannelSends) != len(j.Channels) {
		problem("%d places of channels, with %d links, of %d ranks", len(j.Channels), len(j.ChannelSends), len(j.Ranks))
		return
	}
	if !spec.HasChannels(j.Kind, j.Algorithm) || j.SGD != nil || j.offline() || j.arbitrated() || j.RD != nil && !j.RD.Droppable.IsZero() {
		problem("%s by %s in %d channels: want %s by %v, and no rates but the links'", j.Kind, j.Algorithm, n, AllReduce, schedule.Algorithms(schedule.AllReduce))
	}
	if _, err := j.perChannel().withDefaults(); err != nil {
		problem("in %d channels: %w", n, err)
	}
}

// perChannel is the job of which each channel of each rank is a rank: what differs between
// channels is where they are.
func (j Job) perChannel() Job {
	j.Ranks, j.Sends, j.Channels, j.ChannelSends = j.Channels, j.ChannelSends, nil, nil
	return j
}

// lane is a channel's end at a rank.
type lane struct {
	endpoint  endpoint
	peers     map[transports.Peer]int
	endpoints map[int]transports.Peer
}

// channelled is a part in several channels, each of which does the operation for a part of
// the buffer.
type channelled struct {
	buffers
	runners []*collective.Runner
	pattern *collective.Pattern
}

// channelled meets the other ranks and does operations in channels.
func (w *rank) channelled(ctx context.Context) (err error) {
	c := &w.config
	lanes := make([]lane, len(c.Channels))
	defer func() {
		for _, l := range lanes {
			if l.endpoint != nil {
				err = errors.Join(err, l.endpoint.Close())
			}
		}
	}()
	shapes, err := c.channelShapes()
	if err != nil {
		return err
	}
	most := shape{}
	work := make([]int, len(lanes))
	for _, s := range shapes {
		for i := range s {
			work[i] = max(work[i], s[i].work)
		}
	}
	for _, size := range c.Sizes {
		most.input, most.output = max(most.input, int(size)), max(most.output, int(size))
	}
	whole := allocate([]shape{most})
	own, memory := &rendezvous{}, make([]buffers, len(lanes))
	for i := range lanes {
		l := &lanes[i]
		if l.endpoint, err = open(&c.Channels[i], func(p transports.Peer) int { return l.peers[p] }); err != nil {
			return err
		}
		memory[i] = buffers{input: whole.input, output: whole.output, work: make([]byte, work[i])}
		channel := &rank{endpoint: l.endpoint}
		handles, err := channel.registerAll(memory[i])
		if err != nil {
			return err
		}
		own.Operations, own.Addresses = append(own.Operations, handles), append(own.Addresses, l.endpoint.Address())
	}
	table, err := w.meet(ctx, own)
	if err != nil {
		return err
	}
	var p *channelled
	size := -1
	for _, r := range c.rounds() {
		if r.size != size {
			size = r.size
			if p, err = w.joinChannels(table, lanes, memory, shapes[size], int(c.Sizes[size])); err != nil {
				return err
			}
		}
		if err := w.round(ctx, p, p.output, &r); err != nil {
			return err
		}
	}
	if err := w.end(ctx); err != nil {
		return err
	}
	return w.finishChannels(lanes)
}

// finishChannels closes the ends and reports what each of them did over its whole life.
func (w *rank) finishChannels(lanes []lane) error {
	finished := &workerFinished{DeviceBound: true}
	for i := range lanes {
		if err := lanes[i].endpoint.Close(); err != nil {
			return err
		}
		of := lanes[i].endpoint.account(lanes[i].peers)
		addTraffic(&finished.Stream, of.Stream)
		finished.DeviceBound = finished.DeviceBound && lanes[i].endpoint.DeviceBound()
		finished.Channels = append(finished.Channels, *of)
	}
	return w.send(message{Finished: finished})
}

// channelShapes are the programs of each size and channel.
func (c *workerConfig) channelShapes() ([][]shape, error) {
	var shapes [][]shape
	for _, size := range c.Sizes {
		var s []shape
		for i := range c.Channels {
			from, to := collective.Part(int(size)/c.Type.Size(), len(c.Channels), i)
			one, err := c.programShape(to - from)
			if err != nil {
				return nil, err
			}
			s = append(s, one)
		}
		shapes = append(shapes, s)
	}
	return shapes, nil
}

// joinChannels makes this rank's part in operations of a size.
func (w *rank) joinChannels(table []rendezvous, lanes []lane, memory []buffers, shapes []shape, size int) (*channelled, error) {
	c := &w.config
	p := &channelled{buffers: memory[0].view(shape{input: size, output: size})}
	for i := range lanes {
		l, program := &lanes[i], shapes[i].program
		if l.peers == nil {
			l.peers, l.endpoints = map[transports.Peer]int{}, map[int]transports.Peer{}
		}
		from, to := collective.Part(size/c.Type.Size(), len(lanes), i)
		from, to = from*c.Type.Size(), to*c.Type.Size()
		config := collective.RunnerConfig{
			Endpoint: l.endpoint, Program: program, Rank: c.Rank, Peers: make([]transports.Peer, c.Ranks), Handles: make([]collective.Memory[[]byte], c.Ranks),
			Memory: collective.Memory[[]byte]{Input: p.input[from:to], Output: p.output[from:to], Work: memory[i].work[:shapes[i].work]},
			Base:   uint64(from),
		}
		for _, other := range program.Partners(c.Rank) {
			if len(table[other].Addresses) != len(lanes) || len(table[other].Operations) != len(lanes) {
				return nil, fmt.Errorf("rank %d has %d channels, want %d", other, len(table[other].Addresses), len(lanes))
			}
			peer, known := l.endpoints[other]
			if !known {
				var err error
				if peer, err = l.endpoint.AddPeer(table[other].Addresses[i]); err != nil {
					return nil, err
				}
				l.peers[peer], l.endpoints[other] = other, peer
			}
			config.Peers[other], config.Handles[other] = peer, table[other].Operations[i]
		}
		runner, err := collective.NewRunner(config)
		if err != nil {
			return nil, err
		}
		p.runners = append(p.runners, runner)
	}
	var err error
	p.pattern, err = collective.NewPattern(collective.PatternConfig{Rank: c.Rank, Ranks: c.Ranks, Type: c.Type, Op: c.Op})
	return p, err
}

// fill implements part.
func (p *channelled) fill(id operationID) {
	to := p.input
	if id.Mode == collective.InPlace {
		to = p.output
	}
	p.pattern.Fill(to, id.Index, 0)
}

// operate implements part: channels run at the same time.
func (p *channelled) operate(ctx context.Context, id operationID) (sum collective.Traffic, err error) {
	group, ctx := errgroup.WithContext(ctx)
	traffic := make([]collective.Traffic, len(p.runners))
	for i, runner := range p.runners {
		group.Go(func() (err error) {
			if traffic[i], err = runner.Run(ctx, id.Mode); err != nil {
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

// lost implements part.
func (p *channelled) lost() []collective.Loss { return nil }

// check implements part: over the whole buffer, so that what one channel did for another is
// wrong.
func (p *channelled) check(id operationID, _ []collective.Loss) (wrong, short uint64) {
	return p.pattern.Wrong(p.output, id.Index, 0), 0
}
