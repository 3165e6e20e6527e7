package medium

import (
	"math/big"

	"railbed/fabric/softswitch/draw"
	"railbed/internal/units"
	"railbed/plan"
)

// bursts is the Gilbert-Elliott chain of one direction (Gilbert 1960, Elliott 1963). Each flow has
// a chain of its own, which starts in the good state and may change its state before each of the
// flow's packets.
//
// The state at a packet is a pure function of the draws of the flow's packets up to it. So a flow's
// chain does not depend on other flows' packets, or on the number of flows. The state is found
// without walking from the first packet. The search goes back to the last packet whose draw leads
// to the same state from both states, and walks the chain forward from there. This follows Propp
// and Wilson, Exact Sampling with Coupled Markov Chains, 1996.
type bursts struct {
	enter, leave      draw.Chance
	lossGood, lossBad draw.Chance
	stationary        draw.Chance               // probability of the bad state
	remembered        [rememberedPairs][2]chain // the most recently used one first
}

const (
	// epochPackets limits the walk back, for chains that almost never change. At every such packet
	// of a flow the state is drawn anew, bad with the chain's stationary probability. This cuts
	// longer bursts.
	epochPackets = 1 << 16
	// rememberedPairs is the number of cached pairs of flows' last states, which shorten the walk.
	// The cache changes no result.
	rememberedPairs = 512
)

// chain is the state of a flow's chain at one packet.
type chain struct {
	flow, ordinal uint64
	bad           bool
}

func newBursts(g plan.GilbertElliott) *bursts {
	if g.Enter.IsZero() && g.LossGood.IsZero() {
		return nil
	}
	return &bursts{
		enter: draw.NewChance(g.Enter), leave: draw.NewChance(g.Leave),
		lossGood: draw.NewChance(g.LossGood), lossBad: draw.NewChance(g.Loss),
		stationary: stationary(g),
	}
}

// stationary returns the share of packets in the bad state, enter/(enter+leave), rounded down to
// 2^-63.
func stationary(g plan.GilbertElliott) draw.Chance {
	if g.Enter.IsZero() {
		return draw.Chance{}
	}
	enter, leave := rational(g.Enter), rational(g.Leave)
	share := new(big.Rat).Quo(enter, leave.Add(leave, enter))
	scaled := new(big.Int).Lsh(share.Num(), 63)
	return draw.NewChance(units.Ratio{Num: scaled.Quo(scaled, share.Denom()).Uint64(), Den: 1 << 63})
}

func rational(r units.Ratio) *big.Rat {
	if r.IsZero() {
		return new(big.Rat)
	}
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(r.Num), new(big.Int).SetUint64(r.Den))
}

// lost reports whether the chain loses a packet. Flow is the seed of the flow's draws, base the
// packet's.
func (b *bursts) lost(flow, base, ordinal uint64) bool {
	chance := b.lossGood
	if b.state(flow, ordinal) {
		chance = b.lossBad
	}
	return chance.Happens(of(base, forBurst))
}

// state returns the state of a flow's chain at a packet: true is bad.
func (b *bursts) state(flow, ordinal uint64) bool {
	known := b.remember(flow)
	from, bad := ordinal&^(epochPackets-1), false
	for at := ordinal; ; at-- {
		if known.flow == flow && known.ordinal == at {
			from, bad = at, known.bad
			break
		}
		if at == from {
			if at != 0 { // packet 0 stands for the state before the first
				bad = b.stationary.Happens(of(draw.Nth(flow, at), forEpoch))
			}
			break
		}
		if drawn := of(draw.Nth(flow, at), forState); b.fromGood(drawn) == b.fromBad(drawn) {
			from, bad = at, b.fromGood(drawn)
			break
		}
	}
	for at := from + 1; at <= ordinal; at++ {
		drawn := of(draw.Nth(flow, at), forState)
		if bad {
			bad = b.fromBad(drawn)
		} else {
			bad = b.fromGood(drawn)
		}
	}
	*known = chain{flow, ordinal, bad}
	return bad
}

// remember returns the cache entry for a flow's last state, which may hold another flow's.
func (b *bursts) remember(flow uint64) *chain {
	pair := &b.remembered[flow%rememberedPairs]
	if pair[0].flow != flow {
		pair[0], pair[1] = pair[1], pair[0]
	}
	return &pair[0]
}

// fromGood and fromBad return the state after a draw. Both return bad for low draws and good for
// high ones, so that most draws lead from both to the same state.
func (b *bursts) fromGood(drawn uint64) bool { return b.enter.Happens(drawn) }
func (b *bursts) fromBad(drawn uint64) bool  { return !b.leave.Happens(^drawn) }
