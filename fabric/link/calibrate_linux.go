package link

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"railbed/internal/units"
)

// UnreachableError reports that the host cannot shape to a rate.
type UnreachableError struct {
	Rate  units.Rate
	MTU   int
	Best  units.Rate  // the highest measured rate
	Burst units.Bytes // the burst of that rate, the largest allowed
	Taken float64     // the share of the processors' time that went to others meanwhile
}

// Error implements error.
func (e *UnreachableError) Error() string {
	busy := ""
	if e.Taken > quiet {
		busy = fmt.Sprintf(" while other processes took %.0f%% of the CPU time", e.Taken*100)
	}
	return fmt.Sprintf("%s not reachable on this host: best %s with burst %s and MTU %d%s; ask for less or "+
		"use dilation",
		e.Rate, roundRate(e.Best), e.Burst, e.MTU, busy)
}

// roundRate keeps three digits, for display.
func roundRate(r units.Rate) units.Rate {
	scale := units.Rate(1)
	for r/scale >= 1000 {
		scale *= 10
	}
	return r / scale * scale
}

// ethernetHeader is the part of a frame that the MTU does not count.
const ethernetHeader = 14

// frameLength is the longest frame of a link.
func frameLength(mtu int) units.Bytes { return units.Bytes(mtu + ethernetHeader) }

// maxBurstTime limits the burst. With a longer burst a queue of the fabric could empty at once,
// where a real link would take a round trip.
const maxBurstTime = 200 * time.Microsecond

// maxBurst returns the largest burst allowed: max(2 MTU, rate x 200 us).
func maxBurst(rate units.Rate, mtu int) units.Bytes {
	return max(units.Bytes(2*mtu), units.Bytes(float64(rate.BytesPerSecond())*maxBurstTime.Seconds()))
}

// tolerance is the accepted deviation of an achieved rate from the requested one. The search aims
// closer: a burst that just reaches 99 % on an idle host falls short as soon as TCP and a few
// switches keep the CPUs busy.
const (
	tolerance = 0.01
	aim       = 0.003
)

func reached(achieved, asked units.Rate) bool { return within(tolerance, achieved, asked) }

func within(share float64, achieved, asked units.Rate) bool {
	return math.Abs(float64(achieved)/float64(asked)-1) <= share
}

// The search. A token bucket discards tokens that arrive while it is full. So it falls short of its
// rate when the timer that drains the queue is late by more than the duration of the burst. The
// lateness depends on the host, and so does the burst.
//
// Other load on the host can only slow the shaper down: no measurement shows more than the bucket
// let through. So one measurement that falls short proves little about the burst, and several do
// not prove much. The largest burst is tried many times before a rate counts as unreachable. Where
// others kept the processors busy all that time and the rate was nearly reached, the search returns
// the largest burst and the rate that it reached then.
const (
	// votes is how many measurements decide about a burst, by majority.
	votes = 3
	// patience is how long the largest burst may take to reach the rate twice: others, or the
	// hypervisor, may keep the CPUs busy for seconds. On a quiet host it gets chancesIfFar
	// measurements if none reaches the fraction far of the rate.
	patience     = 10 * time.Second
	chancesIfFar = 20
	far          = 0.9
	// quiet is the share of the CPUs' time up to which others do not count as the cause.
	quiet = 0.03
	// pause between measurements grows by this amount each time, up to longestPause: a disturbance may
	// occupy a CPU for tens of milliseconds.
	pause        = 2 * time.Millisecond
	longestPause = 100 * time.Millisecond
	// resolution is the ratio of two bursts at which the search ends.
	resolution = 1.1
	// step is the factor for a burst that fails the last test.
	step = 1.5
	// busyFrame is the time of a frame below which the stack's work per packet matters. The burst
	// is then confirmed with TCP.
	busyFrame = 100 * time.Microsecond
)

// measureBurst finds the smallest burst that reaches the rate.
func measureBurst(ctx context.Context, rate units.Rate, mtu int) (Entry, error) {
	rig, err := newRig(rate, mtu)
	if err != nil {
		return Entry{}, fmt.Errorf("calibrate %s at MTU %d: %w", rate, mtu, err)
	}
	entry, err := search(ctx, rate, mtu, rig.measure, takenByOthers)
	if err == nil && rate.SerialisationTime(frameLength(mtu)) < busyFrame {
		if err = rig.talk(); err == nil {
			entry, err = confirm(ctx, entry, rig.measure)
		}
	}
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

// measurement measures once the rate that a burst achieves.
type measurement func(ctx context.Context, burst units.Bytes) (units.Rate, error)

// load starts to measure the share of the CPUs' time that others take, and returns a function that reads it.
type load func() (share func() float64)

// search is the search itself, for any measurement and any load.
func search(ctx context.Context, rate units.Rate, mtu int, measure measurement, others load) (Entry, error) {
	least, most := frameLength(mtu), max(maxBurst(rate, mtu), frameLength(mtu))
	if _, err := persist(ctx, rate, mtu, most, measure, others); err != nil {
		return Entry{}, err
	}
	low, high := least, most // high passes; whether least passes is not known yet
	for float64(high)/float64(low) > resolution {
		middle := units.Bytes(math.Sqrt(float64(low) * float64(high)))
		achieved, err := median(ctx, rate, middle, measure)
		if err != nil {
			return Entry{}, err
		}
		if within(aim, achieved, rate) {
			high = middle
		} else {
			low = middle
		}
	}
	for burst := high; burst < most; burst = units.Bytes(float64(burst) * step) {
		achieved, err := median(ctx, rate, burst, measure)
		if err != nil {
			return Entry{}, err
		}
		if within(aim, achieved, rate) {
			return Entry{Rate: rate, MTU: mtu, Burst: burst, Achieved: achieved}, nil
		}
	}
	achieved, err := persist(ctx, rate, mtu, most, measure, others)
	return Entry{Rate: rate, MTU: mtu, Burst: most, Achieved: achieved}, err
}

// confirm starts from the burst for a filled queue and checks whether TCP reaches the rate with it.
// TCP keeps the CPUs busy with its own work, so the shaper's timer is later. At 1 Gbit/s and MTU
// 1,500 on two cores TCP needs two or three times the burst. If the CPUs are too slow, TCP does not
// reach the rate with any burst. The result is then the smallest burst that is almost as good as
// the best one.
func confirm(ctx context.Context, entry Entry, measure measurement) (Entry, error) {
	most := max(maxBurst(entry.Rate, entry.MTU), entry.Burst)
	type trial struct {
		burst    units.Bytes
		achieved units.Rate
	}
	var trials []trial
	var best units.Rate
	for burst := entry.Burst; ; burst = min(units.Bytes(float64(burst)*step), most) {
		var achieved units.Rate // the best of several: a disturbance can only lower the rate
		for range votes {
			got, err := measure(ctx, burst)
			if err != nil {
				return entry, err
			}
			if achieved = max(achieved, got); reached(got, entry.Rate) {
				entry.Burst, entry.Achieved = burst, got
				return entry, nil
			}
		}
		trials = append(trials, trial{burst, achieved})
		if best = max(best, achieved); burst == most {
			break
		}
	}
	for _, t := range trials {
		if within(tolerance, t.achieved, best) {
			entry.Burst = t.burst // Achieved remains the rate of the filled queue
			break
		}
	}
	return entry, nil
}

// persist measures the largest burst until it has reached the rate twice.
func persist(ctx context.Context, rate units.Rate, mtu int, burst units.Bytes, measure measurement,
	others load) (units.Rate, error) {
	var best, first units.Rate
	taken := others()
	for chance, start := 0, time.Now(); time.Since(start) < patience; chance++ {
		achieved, err := measure(ctx, burst)
		if err != nil {
			return 0, err
		}
		if best = max(best, achieved); reached(achieved, rate) {
			if first > 0 {
				return min(first, achieved), nil
			}
			first = achieved
		}
		if chance+1 >= chancesIfFar && float64(best) < far*float64(rate) && taken() <= quiet {
			break
		}
		if err := sleep(ctx, min(time.Duration(chance)*pause, longestPause)); err != nil {
			return 0, err
		}
	}
	share := taken()
	if share > quiet && float64(best) >= far*float64(rate) {
		return best, nil
	}
	return 0, &UnreachableError{Rate: rate, MTU: mtu, Best: best, Burst: burst, Taken: share}
}

// median measures several times, and stops as soon as two of three agree.
func median(ctx context.Context, rate units.Rate, burst units.Bytes, measure measurement) (units.Rate,
	error) {
	var rates []units.Rate
	for range votes {
		achieved, err := measure(ctx, burst)
		if err != nil {
			return 0, err
		}
		rates = append(rates, achieved)
		if len(rates) == votes-1 && within(aim, rates[0], rate) == within(aim, rates[1], rate) {
			break
		}
	}
	slices.Sort(rates)
	return rates[(len(rates)-1)/2], nil
}
