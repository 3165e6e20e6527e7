package medium

import (
	"math/big"

	"railbed/fabric/softswitch/draw"
	"railbed/internal/units"
	"railbed/plan"
)

// bursts is the Gilbert-Elliott chain of one direction (Gilbert 1960, Elliott
// 1963). Each flow has a chain of its own, which starts good and may change its
// state before each of the flow's packets.
//
// The state at a packet is a pure function of the draws of the flow's packets up
// to it: no flow's chain depends on another's packets, or on how many flows
// there are. It is found without walking from the first packet, by going back to
// the last packet whose draw leads to one state whatever was before it (as in
// Propp and Wilson, Exact Sampling with Coupled Markov Chains, 1996). From there
// the chain is walked forward.
type bursts struct {
	enter, leave      draw.Chance
	lossGood, lossBad draw.Chance
	stationary        draw.Chance               // of the bad state
	remembered        [rememberedPairs][2]chain // the one used last first
}

const (
	// epochPackets bounds the walk back, for chains that almost never change:
	// the state at every such packet of a flow is drawn afresh, bad with the
	// chain's stationary probability. Bursts that would be longer than this
	// are cut.
	epochPackets = 1 << 16
	// rememberedPairs is how many pairs of flows' last states are kept to save
	// the walk. It changes no result.
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

// stationary is the share of packets in the bad state, enter/(enter+leave),
// rounded down to 2^-63.
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

// lost reports whether the chain loses a packet: flow is the seed of the flow's
// draws, base the packet's.
func (b *bursts) lost(flow, base, ordinal uint64) bool {
	chance := b.lossGood
	if b.state(flow, ordinal) {
		chance = b.lossBad
	}
	return chance.Happens(of(base, forBurst))
}

// state is the state of a flow's chain at a packet: true is bad.
func (b *bursts) state(flow, ordinal uint64) bool {
	known := b.remember(flow)
	from, bad := ordinal&^(epochPackets-1), false
	for at := ordinal; ; at-- {
		if known.flow == flow && known.ordinal == at {
			from, bad = at, known.bad
			break
		}
		if at == from {
			if at != 0 { // packet 0 is what was before the first
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

// remember is the place for a flow's last state, which may hold another's.
func (b *bursts) remember(flow uint64) *chain {
	pair := &b.remembered[flow%rememberedPairs]
	if pair[0].flow != flow {
		pair[0], pair[1] = pair[1], pair[0]
	}
	return &pair[0]
}

// fromGood and fromBad are the state after a draw. Both are bad for low draws
// and good for high ones, so that most draws lead both to one state.
func (b *bursts) fromGood(drawn uint64) bool { return b.enter.Happens(drawn) }
func (b *bursts) fromBad(drawn uint64) bool  { return !b.leave.Happens(^drawn) }
