package evidence

import (
	"math"
	"time"

	"railbed/internal/units"
	"railbed/plan"
)

// A packet may be under way as long as the plan's queues and delays can hold it, and at least for
// lingerPath. A path has at most pathLinks links.
const (
	lingerPath = 50 * time.Millisecond
	lingerMost = 10 * time.Minute
	pathLinks  = 8
)

// Linger returns the longest time of a packet from NIC to NIC, in nanoseconds. This is the time in
// which the slowest link drains the largest buffers on a path, plus the largest delays on it, within
// bounds.
func (c *Capture) Linger() int64 {
	longest := lingerPath
	if p := c.Plan; p != nil {
		slowest, delay := int64(math.MaxInt64), time.Duration(0)
		for _, l := range p.Links {
			for _, d := range []plan.Direction{l.AToB, l.BToA} {
				if d.Rate > 0 {
					slowest = min(slowest, int64(d.Rate))
				}
				delay = max(delay, time.Duration(d.Delay)+time.Duration(d.Jitter))
			}
		}
		if buffered := buffered(p); buffered > 0 && slowest != math.MaxInt64 {
			longest = max(longest, time.Duration(float64(buffered)*8*float64(time.Second)/float64(slowest)))
		}
		longest += pathLinks * delay
	}
	return int64(min(longest, lingerMost)) * int64(c.Dilation)
}

// buffered returns the number of bytes that may leave soft switches before a packet: those in the largest
// buffer of a switch, and in a NIC's queue behind its tap. With flow control all NICs may wait for one link.
func buffered(p *plan.Plan) (bytes units.Bytes) {
	if !p.Soft() {
		return 0
	}
	var nics, queue units.Bytes
	for i := range p.Nodes {
		nics += units.Bytes(len(p.Nodes[i].NICs))
		queue = max(queue, p.Nodes[i].NICQueue)
	}
	waiting := units.Bytes(1) // NICs
	for i := range p.Switches {
		if soft := p.Switches[i].Soft; soft != nil {
			bytes = max(bytes, soft.Buffer)
			if soft.PFC != nil || soft.GFC != nil {
				waiting = max(1, nics-1)
			}
		}
	}
	return bytes + waiting*queue
}

// FullTime returns the time of a packet across a link whose queue is full, in nanoseconds of the
// capture. The time before dilation is at most lingerMost.
func FullTime(d plan.Direction, dilation uint64) int64 {
	full := d.Rate.SerialisationTime(d.Queue) + time.Duration(d.Delay) + time.Duration(d.Jitter)
	return int64(min(full, lingerMost)) * int64(max(dilation, 1))
}
