package queue

import (
	"math"
	"math/bits"
	"time"

	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

// marker decides which packets are marked with Congestion Experienced. Only packets of ECN-capable
// transports are marked (RFC 3168). Others stay unchanged, and the marker drops none.
type marker struct {
	red, sharp Mask
	seed       uint64
	kmin, kmax int64
	// The share at length x is slope*(x-kmin)/scale.
	slope, scale uint64

	target, persistentTarget, interval time.Duration
	queues                             [Priorities]sharpState
}

// newMarker prepares the marking of a port; c may be nil.
func newMarker(c *plan.ECN, seed uint64) marker {
	if c == nil {
		return marker{}
	}
	k := marker{
		seed: seed, kmin: int64(c.KMin), kmax: int64(c.KMax),
		target:           time.Duration(c.Target),
		persistentTarget: time.Duration(c.PersistentTarget),
		interval:         time.Duration(c.Interval),
	}
	if c.Kind == spec.ECNSharp {
		k.sharp = MaskOf(c.Priorities...)
		return k
	}
	k.red = MaskOf(c.Priorities...)
	k.slope, k.scale = c.PMax.Num, max(c.PMax.Den, 1)
	// The product of the divisors must fit into 64 bits. Halving only loses digits beyond the 20th.
	for span := uint64(max(k.kmax-k.kmin, 1)); ; k.slope, k.scale = k.slope/2, k.scale/2 {
		if high, low := bits.Mul64(k.scale, span); high == 0 {
			k.scale = low
			return k
		}
	}
}

// early is RED on the queue length that the packet finds, as in switches for DCTCP and DCQCN. Up to
// kmin it marks nothing. From there the probability rises linearly to pmax at kmax; above kmax it
// marks every packet. Source: Zhu et al., Congestion Control for Large-Scale RDMA Deployments,
// SIGCOMM 2015, figure 5.
func (k *marker) early(one *packet.Packet, depth int64) bool {
	if depth <= k.kmin {
		return false
	}
	if depth <= k.kmax {
		// draw/2^64 < slope*(depth-kmin)/scale, exactly.
		high, low := bits.Mul64(k.slope, uint64(depth-k.kmin))
		if high == 0 && low < k.scale {
			if draw, _ := bits.Mul64(k.draw(one), k.scale); draw >= low {
				return false
			}
		}
	}
	return MarkCE(one)
}

// draw returns a number that depends only on the port's seed, the flow and the packet's ordinal in
// it.
func (k *marker) draw(one *packet.Packet) uint64 {
	return draw.Nth(draw.Pair(k.seed, one.Flow), one.Ordinal)
}

// MarkCE sets CE in a packet of an ECN-capable transport. It reports whether it did;
// it returns false if CE was already set.
func MarkCE(one *packet.Packet) bool {
	h := &one.Headers
	if h.ECN != wire.ECT0 && h.ECN != wire.ECT1 {
		return false
	}
	switch {
	case h.Has(wire.IsIPv4):
		wire.IPv4(one.Data[h.L3:]).RewriteECN(wire.CE)
	case h.Has(wire.IsIPv6):
		wire.IPv6(one.Data[h.L3:]).SetECN(wire.CE)
	default:
		return false
	}
	h.ECN = wire.CE
	return true
}

// sharpState is one queue's state of ECN#.
type sharpState struct {
	above   bool       // packets have waited for at least PersistentTarget since the time since
	since   clock.Time // see above
	marking bool
	next    clock.Time // when the next packet is marked
	count   uint32     // consecutive marks
}

// persistent is ECN# (Zhang, Bai and Chen, Enabling ECN for Datacenter Networks with RTT
// Variations, CoNEXT 2019, algorithm 1, and the authors' simulator). It marks a packet that waited
// longer than ins_target. It also marks single packets when all have waited for pst_target during
// pst_interval: a first one, and the n+1-th pst_interval/sqrt(n) after the n-th.
func (k *marker) persistent(q uint8, now clock.Time, one *packet.Packet) bool {
	waited := now.Sub(one.Queued)
	if k.due(&k.queues[q], now, waited) || waited > k.target {
		return MarkCE(one)
	}
	return false
}

// due decides the marks for a standing queue.
func (k *marker) due(s *sharpState, now clock.Time, waited time.Duration) bool {
	if waited < k.persistentTarget {
		s.above, s.marking = false, false
		return false
	}
	if !s.above {
		s.above, s.since = true, now
		s.marking = false
		return false
	}
	if now.Sub(s.since) <= k.interval {
		s.marking = false
		return false
	}
	switch {
	case !s.marking:
		s.marking, s.count = true, 1
		s.next = now.Add(k.interval)
		return true
	case now >= s.next:
		s.count++
		s.next = now.Add(time.Duration(float64(k.interval) / math.Sqrt(float64(s.count))))
		return true
	}
	return false
}
