package svg

import "math"

// Axis places values in a picture.
type Axis struct {
	From, To float64 // values
	// Left and Size are positions. On an axis that rises, Left is its foot and Size is negative.
	Left, Size float64
	Scale      Scale
}

// Scale is the scale of an axis.
type Scale int

const (
	Linear Scale = iota
	Log
	// LogOdds is for shares, which are above 0 and below 1. It stretches both ends.
	LogOdds
)

// of returns the value whose distances on the axis are even.
func (s Scale) of(v float64) float64 {
	switch s {
	case Log:
		return math.Log(v)
	case LogOdds:
		return math.Log(v / (1 - v))
	}
	return v
}

// Place returns the position of a value.
func (a Axis) Place(v float64) float64 {
	if a.Scale != Linear {
		v = max(v, a.From)
	}
	from, to := a.Scale.of(a.From), a.Scale.of(a.To)
	if to <= from {
		return a.Left
	}
	return a.Left + (a.Scale.of(v)-from)/(to-from)*a.Size
}

// Tick is a value with its label.
type Tick struct {
	At   float64
	Text string
	Last bool // so far right that the text is placed to its left
}

// Marks returns ticks at some values.
func (a Axis) Marks(text func(float64) string, values ...float64) (ticks []Tick) {
	for _, v := range values {
		at := a.Place(v)
		ticks = append(ticks, Tick{At: at, Text: text(v), Last: at > a.Left+0.93*a.Size})
	}
	return ticks
}

// Ticks returns ticks at round values: 4 to 10 on a linear axis, the powers of ten on a logarithmic one. A
// logarithmic axis of few decades also has ticks at 2 and 5 times these.
func (a Axis) Ticks(text func(float64) string) []Tick {
	if a.Scale == Log {
		return a.Marks(text, decades(a.From, a.To)...)
	}
	var values []float64
	step := Step(a.To - a.From)
	for v := max(a.From, math.Ceil(a.From/step-1e-9)*step); v <= a.To+step*1e-6; v += step {
		values = append(values, v)
	}
	return a.Marks(text, values...)
}

// Step returns 1, 2 or 5 times a power of ten, so that an axis of this length has 4 to 10 ticks.
func Step(length float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(length)))
	for _, factor := range []float64{0.1, 0.2, 0.5} {
		if length/(power*factor) <= 10 {
			return power * factor
		}
	}
	return power
}

// decades returns the round values of a logarithmic axis.
func decades(from, to float64) (values []float64) {
	factors := []float64{1, 2, 5}
	if to > from*300 {
		factors = factors[:1]
	}
	for power := math.Floor(math.Log10(from)); power <= math.Log10(to); power++ {
		for _, factor := range factors {
			if v := factor * math.Pow(10, power); v >= from*(1-1e-9) && v <= to*(1+1e-9) {
				values = append(values, v)
			}
		}
	}
	if len(values) < 2 {
		return []float64{from, to}
	}
	return values
}
