package nodefault

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// skew makes the wall clocks of virtual machines wrong. In the end a clock shows the time that it would show
// without the fault.
type skew struct {
	counted
	acting
	began map[string]int64 // by node: CLOCK_MONOTONIC_RAW of the guest, in ns
}

func (k *skew) begin(ctx context.Context, node string) (_ uint64, err error) {
	k.began[node], err = k.change(ctx, node, *k.fault.Clock, 0)
	return 1, err
}

func (k *skew) end(ctx context.Context, node string) error {
	_, err := k.change(ctx, node, spec.FaultClock{Jump: -k.fault.Clock.Jump, Drift: -k.fault.Clock.Drift},
		k.began[node])
	return err
}

func (k *skew) change(ctx context.Context, node string, by spec.FaultClock, since int64) (int64, error) {
	at, err := k.within(ctx, node, clockPart, strconv.FormatInt(int64(by.Jump), 10),
		strconv.FormatInt(int64(by.Drift), 10), strconv.FormatInt(since, 10))
	if err != nil {
		return 0, fmt.Errorf("set the clock of %s: %w", node, err)
	}
	return at, nil
}

// clockPart is the name of the part of the executable that changes the clock of a virtual machine.
const clockPart = "clock"

// clockMain is the main function of the part. Its arguments are the PID namespace of the caller, which is "",
// a jump in ns, a drift in ppb, and a time of CLOCK_MONOTONIC_RAW in ns. If that time is not 0, the opposite
// drift has lasted since then, and the jump also takes back what it has added up to. The part prints the
// present time of CLOCK_MONOTONIC_RAW.
func clockMain(args []string) int {
	now, err := changeClock(args)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(now)
	return 0
}

func changeClock(args []string) (now int64, err error) {
	var numbers [3]int64
	if len(args) != 1+len(numbers) {
		return 0, fmt.Errorf("%d arguments, want a PID namespace, a jump, a drift and a time", len(args))
	}
	for i, arg := range args[1:] {
		if numbers[i], err = strconv.ParseInt(arg, 10, 64); err != nil {
			return 0, err
		}
	}
	jump, drift, since := time.Duration(numbers[0]), units.Drift(numbers[1]), numbers[2]
	if err := inNode(args[0]); err != nil {
		return 0, err
	}
	if drift != 0 {
		if err := addDrift(drift); err != nil {
			return 0, err
		}
	}
	var raw unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &raw); err != nil {
		return 0, err
	}
	now = raw.Nano()
	if since != 0 {
		jump += driftOver(drift, time.Duration(now-since))
	}
	if jump == 0 {
		return now, nil
	}
	// Timex has a time of seconds and, with ADJ_NANO, nanoseconds from 0.
	change := unix.Timex{Modes: unix.ADJ_SETOFFSET | unix.ADJ_NANO}
	change.Time.Sec, change.Time.Usec = int64(jump/time.Second), int64(jump%time.Second)
	if change.Time.Usec < 0 {
		change.Time.Sec, change.Time.Usec = change.Time.Sec-1, change.Time.Usec+int64(time.Second)
	}
	if _, err := unix.Adjtimex(&change); err != nil {
		return 0, fmt.Errorf("add %v to the time: %w", jump, err)
	}
	return now, nil
}

// driftOver returns what a drift adds up to. Both are whole numbers below 2^63, whose product may not be.
func driftOver(drift units.Drift, over time.Duration) time.Duration {
	const billion = 1_000_000_000
	whole, rest := int64(over)/billion, int64(over)%billion
	return time.Duration(whole*int64(drift) + rest*int64(drift)/billion)
}

// addDrift adds to the clock's drift. The kernel takes it in two parts: adjtimex(2) has a tick, 10,000 us of
// each 10 ms, and a frequency in ppm / 2^16.
func addDrift(drift units.Drift) error {
	var now unix.Timex
	if _, err := unix.Adjtimex(&now); err != nil {
		return fmt.Errorf("read the drift: %w", err)
	}
	want := driftOf(&now) + drift
	if want > spec.MaxDrift || want < -spec.MaxDrift {
		return fmt.Errorf("the drifts add up to %s, want at most %s", want, spec.MaxDrift)
	}
	change := timexOf(want)
	if _, err := unix.Adjtimex(&change); err != nil {
		return fmt.Errorf("set the drift to %s: %w", want, err)
	}
	var set unix.Timex
	if _, err := unix.Adjtimex(&set); err != nil {
		return fmt.Errorf("read the drift back: %w", err)
	}
	if got := driftOf(&set); got != want {
		return fmt.Errorf("set the drift to %s: kernel has %s", want, got)
	}
	return nil
}

const (
	tick     = 10_000       // us
	tickStep = 100_000      // ppb for 1 us of a tick
	freqStep = 65536. / 1e3 // units of freq for 1 ppb
)

// driftOf returns the drift of a clock, rounded to 1 ppb.
func driftOf(t *unix.Timex) units.Drift {
	return units.Drift((t.Tick-tick)*tickStep) + units.Drift(math.Round(float64(t.Freq)/freqStep))
}

// timexOf returns the change that gives a clock a drift.
func timexOf(drift units.Drift) unix.Timex {
	whole := math.Round(float64(drift) / tickStep)
	return unix.Timex{Modes: unix.ADJ_TICK | unix.ADJ_FREQUENCY, Tick: tick + int64(whole),
		Freq: int64(math.Round((float64(drift) - whole*tickStep) * freqStep))}
}
