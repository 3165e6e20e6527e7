package medium

import (
	"fmt"
	"math"
	"testing"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/feed"
	"railbed/internal/units"
	"railbed/plan"
)

// frameLoss is 1-(1-p)^bits.
func frameLoss(p float64, bits int) float64 { return -math.Expm1(float64(bits) * math.Log1p(-p)) }

// TestBitErrors compares the lost frames of two lengths with the closed formula. On a line without overhead,
// the frame check sequence of 4 bytes counts.
func TestBitErrors(t *testing.T) {
	for _, c := range []struct {
		ratio    units.Ratio
		overhead units.Bytes
		bytes    int
		bits     int
	}{
		{ratio(1, 1e5), 0, 60, 64 * 8},
		{ratio(1, 1e5), 0, 4214, 4218 * 8},
		{ratio(1, 1e5), 24, 60, 84 * 8},
		{ratio(1, 1e5), 24, 4214, 4238 * 8},
		{ratio(1, 100), 1, 60, 64 * 8},
		{ratio(1, 2), 0, 60, 64 * 8},
		{ratio(1, 1), 0, 60, 64 * 8},
	} {
		m := New(plan.Direction{Rate: 1e9, Overhead: c.overhead, BitErrorRatio: c.ratio}, 5)
		const n = 200_000
		lost := 0
		for i := range n {
			one := &packet.Packet{Data: make([]byte, c.bytes), Flow: uint64(i % 3), Ordinal: uint64(i/3 + 1)}
			switch got := m.Send(clock.Time(i), one).Reason; got {
			case feed.BitError:
				lost++
			case Arrives:
			default:
				t.Fatalf("a frame is lost for the reason %s", got)
			}
		}
		near(t, fmt.Sprintf("%s, %d bytes and %s", c.ratio, c.bytes, c.overhead), lost, n,
			frameLoss(c.ratio.Float(), c.bits))
	}
}

// TestBitErrorChance compares the chances with the formula where no run could count the frames.
func TestBitErrorChance(t *testing.T) {
	for _, p := range []units.Ratio{ratio(1, 1e15), ratio(1, 1e12), ratio(25, 1e11), ratio(1, 1e6),
		ratio(1, 3000)} {
		for _, bytes := range []int{60, 1514, 9014, 65549} {
			e := newBitErrors(plan.Direction{BitErrorRatio: p, Overhead: 24})
			low, high := uint64(0), uint64(math.MaxUint64) // the lowest draw that does not hit
			for low < high {
				if middle := low + (high-low)/2; e.lost(middle, bytes) {
					low = middle + 1
				} else {
					high = middle
				}
			}
			got, want := math.Ldexp(float64(low), -64), frameLoss(p.Float(), (bytes+24)*8)
			if math.Abs(got-want) > want*1e-4 {
				t.Errorf("%s, %d bytes: %g, want %g", p, bytes, got, want)
			}
		}
	}
}

// TestBitErrorsDrawApart: bit errors lose packets, and the others meet what they meet without bit errors.
func TestBitErrorsDrawApart(t *testing.T) {
	if forEpoch != 9 || forBitError != 10 {
		t.Errorf("the purposes have the numbers %d and %d: a change of them changes every run", forEpoch,
			forBitError)
	}
	noisy := everything
	noisy.BitErrorRatio = ratio(1, 1e5)
	without, with := New(everything, 7), New(noisy, 7)
	const n = 20_000
	lost, arriving := 0, 0
	for i := range n {
		now := clock.Time(i) * 1e6
		want, got := send(without, now, 42, uint64(i+1)), send(with, now, 42, uint64(i+1))
		if want.reason == Arrives {
			arriving++
		}
		switch {
		case got == want:
		case got.reason == feed.BitError && want.reason == Arrives:
			lost++
		default:
			t.Fatalf("packet %d: %+v, without bit errors %+v", i+1, got, want)
		}
	}
	near(t, "lost of those that arrive", lost, arriving, frameLoss(1e-5, 1004*8))
}
