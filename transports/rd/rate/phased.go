package rate

import (
	"time"

	"railbed/internal/clock"
)

// Phased keeps to rates that a plan gives to one pair in phases, which take turns by
// the clock: so that all who follow the plan are in one phase, their clocks have to
// agree. In a phase without a rate nothing goes.
type Phased struct {
	Line
	// Rates, in bit/s, are those of the phases.
	Rates []uint64
	// Each is how long a phase is, the first from Epoch on.
	Each  time.Duration
	Epoch clock.Time
	// Guard is how long before a phase ends its last packet goes, so that it is
	// over when the next begins.
	Guard time.Duration
}

// Allowed implements Controller.
func (p *Phased) Allowed(now clock.Time) Allowance {
	if len(p.Rates) == 0 || p.Each <= 0 {
		return Allowance{}
	}
	at := max(now, p.Epoch)
	number := int64(at.Sub(p.Epoch) / p.Each)
	begins := p.Epoch.Add(time.Duration(number) * p.Each)
	if at.Sub(begins) > p.Each-p.Guard {
		number, begins = number+1, begins.Add(p.Each)
	}
	for range p.Rates {
		if r := p.Rates[number%int64(len(p.Rates))]; r > 0 {
			return Allowance{Rate: r, From: max(begins, at)}
		}
		number, begins = number+1, begins.Add(p.Each)
	}
	return Allowance{From: clock.Never}
}
