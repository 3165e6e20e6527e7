package worker

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
)

// Channels returns the places of a job's channels: for each rank in turn, as many places as there
// are channels. They use the NICs of the rank's node in turn, starting at the rank's own NIC, or the rails
// where a rank has two NICs.
func Channels(p *plan.Plan, ranks []plan.Rank, channels int) []plan.Rank {
	var places []plan.Rank
	for _, r := range ranks {
		nics := placesAt(p.Node(r.Node), r.SecondNIC != "")
		own := slices.IndexFunc(nics, func(at plan.Rank) bool { return at.NIC == r.NIC })
		for i := range channels {
			at := nics[(own+i)%len(nics)]
			at.Rank = len(places)
			places = append(places, at)
		}
	}
	return places
}

// placesAt returns the places that a node has for ranks: its rails, or its NICs.
func placesAt(n *plan.Node, rails bool) (places []plan.Rank) {
	if rails {
		for _, rail := range n.Rails {
			places = append(places, plan.Rank{Node: n.Name, NIC: rail.NICs[0], SecondNIC: rail.NICs[1],
				Addr4: rail.Addr4, Addr6: rail.Addr6})
		}
		return places
	}
	for _, nic := range n.NICs {
		at := plan.Rank{Node: n.Name, NIC: nic.Name}
		for _, prefix := range nic.Addrs {
			if a := prefix.Addr(); a.Is4() {
				at.Addr4 = a
			} else {
				at.Addr6 = a
			}
		}
		places = append(places, at)
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
		problem("%d places of channels with %d links for %d ranks: want the same number of places for "+
			"each rank, and either no links or one for each place", len(j.Channels), len(j.ChannelSends),
			len(j.Ranks))
		return
	}
	if len(spec.WithChannels(j.Kind)) == 0 {
		problem("%s by %s cannot use several channels: want 1", j.Kind, j.Algorithm)
	} else if !spec.HasChannels(j.Kind, j.Algorithm) || is[SGD](j.Work) || j.offline() || j.arbitrated() ||
		j.RD.MayDrop() {
		problem("%s by %s in %d channels: want one of %v, without computed rates or droppable bytes", j.Kind,
			j.Algorithm, n, spec.WithChannels(j.Kind))
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
		Kind:      spec.AllReduce,
		Work:      Collective{},
		Algorithm: schedule.Ring,
		Transport: j.Transport,
		Ranks:     j.Channels,
		Sends:     j.ChannelSends,
		Family:    j.Family,
		DSCP:      j.DSCP,
		BasePort:  j.BasePort,
		Ordinal:   j.Ordinal,
		Dilation:  j.Dilation,
		RD:        j.RD,
		RoCE:      j.RoCE,
		Secret:    j.Secret,
		RoundTrip: j.RoundTrip,
	}
}

// channelsOf returns the channels of the rank's lanes.
func channelsOf(c *rank.Config) []collective.Channel {
	all := make([]collective.Channel, max(len(c.Channels), 1))
	for i := range all {
		all[i] = collective.Channel{Number: i, Of: len(all)}
	}
	return all
}

// channelName returns the name of the i-th of a rank's channels, or "" if there is only one.
func channelName(w *rank.Process, i int) string { return rank.Numbered("channel", i, len(w.Lanes())) }

// atOnce does an operation in all lanes at the same time. The calling goroutine must be marked
// busy. With several lanes, atOnce marks it idle and the goroutine of each lane busy.
func atOnce[T any](ctx context.Context, busy *rank.Idleness, lanes []T,
	operate func(T, context.Context) (collective.Traffic, error)) (sum collective.Traffic, err error) {
	if len(lanes) == 1 {
		return operate(lanes[0], ctx)
	}
	group, ctx := errgroup.WithContext(ctx)
	traffic := make([]collective.Traffic, len(lanes))
	busy.Add(-1)
	defer busy.Add(1)
	for i, l := range lanes {
		busy.Add(1)
		group.Go(func() (err error) {
			defer busy.Add(-1)
			if traffic[i], err = operate(l, ctx); err != nil {
				return fmt.Errorf("channel %d: %w", i, err)
			}
			return nil
		})
	}
	err = group.Wait()
	for _, t := range traffic {
		sum.Add(t)
	}
	return sum, err
}
