package link

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"railbed/fabric/units"
)

// UnreachableError says that the host cannot shape to a rate.
type UnreachableError struct {
	Rate  units.Rate
	MTU   int
	Best  units.Rate  // the highest rate that was reached
	Burst units.Bytes // with this burst, the largest allowed
}

// Error implements error.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%s not reachable on this host: best %s with burst %s and MTU %d; ask for less or use dilation",
		e.Rate, roundRate(e.Best), e.Burst, e.MTU)
}

// roundRate keeps three digits, for reading.
func roundRate(r units.Rate) units.Rate {
	scale := units.Rate(1)
	for r/scale >= 1000 {
		scale *= 10
	}
	return r / scale * scale
}

// ethernetHeader is the part of a frame that an MTU does not count.
const ethernetHeader = 14

// frameLength is the longest frame of a link.
func frameLength(mtu int) units.Bytes { return units.Bytes(mtu + ethernetHeader) }

// maxBurstTime bounds the burst: a longer one would let a queue of the fabric
// empty at once what a real link spreads over a round trip.
const maxBurstTime = 200 * time.Microsecond

// maxBurst is the largest burst allowed: max(2 MTU, rate x 200 us).
func maxBurst(rate units.Rate, mtu int) units.Bytes {
	return max(units.Bytes(2*mtu), units.Bytes(float64(rate.BytesPerSecond())*maxBurstTime.Seconds()))
}

// tolerance is how far an achieved rate may be from the asked one.
const tolerance = 0.01

func reached(achieved, asked units.Rate) bool {
	return math.Abs(float64(achieved)/float64(asked)-1) <= tolerance
}

// The search. A token bucket loses what arrives while it is full, so it falls
// short of its rate when the timer that drains the queue is late by more than
// the burst lasts. How late depends on the host, and so does the burst.
const (
	// votes is how many measurements decide about a burst, by majority.
	votes = 3
	// patience is how often the largest burst is tried again before a rate
	// counts as unreachable. Another tenant of the host can take a CPU away
	// for tens of milliseconds, several times in a row.
	patience = 5
	// resolution is the factor between bursts at which the search ends.
	resolution = 1.1
	// step is by how much a burst grows that does not pass the last test.
	step = 1.25
)

// measureBurst finds the smallest burst that reaches the rate.
func measureBurst(ctx context.Context, rate units.Rate, mtu int) (Entry, error) {
	rig, err := newRig(rate, mtu)
	if err != nil {
		return Entry{}, fmt.Errorf("calibrate %s at MTU %d: %w", rate, mtu, err)
	}
	entry, err := search(ctx, rate, mtu, rig.measure)
	if err = errors.Join(err, rig.close()); err != nil {
		var unreachable *UnreachableError
		if errors.As(err, &unreachable) {
			return Entry{}, err
		}
		return Entry{}, fmt.Errorf("calibrate %s at MTU %d: %w", rate, mtu, err)
	}
	entry.Measured = time.Now().UTC().Truncate(time.Second)
	return entry, nil
}

// measurement measures the rate that a burst achieves once.
type measurement func(ctx context.Context, burst units.Bytes) (units.Rate, error)

// search is the search alone, for any measurement.
func search(ctx context.Context, rate units.Rate, mtu int, measure measurement) (Entry, error) {
	least, most := frameLength(mtu), max(maxBurst(rate, mtu), frameLength(mtu))
	var best units.Rate
	for attempt := 0; ; attempt++ {
		passed, achieved, err := vote(ctx, rate, most, measure)
		if err != nil {
			return Entry{}, err
		}
		if passed {
			break
		}
		if best = max(best, achieved); attempt == patience || attempt > 0 && best < rate/2 {
			return Entry{}, &UnreachableError{Rate: rate, MTU: mtu, Best: best, Burst: most}
		}
	}
	low, high := least, most // high passes; whether least does is not known yet
	for float64(high)/float64(low) > resolution {
		middle := units.Bytes(math.Sqrt(float64(low) * float64(high)))
		passed, _, err := vote(ctx, rate, middle, measure)
		if err != nil {
			return Entry{}, err
		}
		if passed {
			high = middle
		} else {
			low = middle
		}
	}
	for burst := high; ; burst = min(units.Bytes(float64(burst)*step), most) {
		achieved, err := median(ctx, burst, measure)
		if err != nil {
			return Entry{}, err
		}
		if reached(achieved, rate) {
			return Entry{Rate: rate, MTU: mtu, Burst: burst, Achieved: achieved}, nil
		}
		if best = max(best, achieved); burst == most {
			return Entry{}, &UnreachableError{Rate: rate, MTU: mtu, Best: best, Burst: most}
		}
	}
}

// vote measures until one side has the majority. Achieved is the best seen.
func vote(ctx context.Context, rate units.Rate, burst units.Bytes, measure measurement) (passed bool, achieved units.Rate, err error) {
	for yes, no := 0, 0; yes <= votes/2 && no <= votes/2; {
		got, err := measure(ctx, burst)
		if err != nil {
			return false, 0, err
		}
		achieved = max(achieved, got)
		if reached(got, rate) {
			yes++
		} else {
			no++
		}
		passed = yes > votes/2
	}
	return passed, achieved, nil
}

func median(ctx context.Context, burst units.Bytes, measure measurement) (units.Rate, error) {
	rates := make([]units.Rate, votes)
	for i := range rates {
		var err error
		if rates[i], err = measure(ctx, burst); err != nil {
			return 0, err
		}
	}
	slices.Sort(rates)
	return rates[votes/2], nil
}
