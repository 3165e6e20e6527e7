package ui

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"railbed/fabric"
	"railbed/plan"
	"railbed/testbed/supervisor"
)

// summary is the state of the whole testbed, for the head of the page.
type summary struct {
	Name     string    `json:"name"`
	File     string    `json:"file,omitempty"`
	Created  time.Time `json:"created,omitzero"`
	Plan     string    `json:"plan,omitempty"` // its hash; the picture changes with it
	Nodes    int       `json:"nodes"`
	Switches int       `json:"switches"`
	Links    int       `json:"links"`
	Ranks    int       `json:"ranks"`
	// Processes is the number of processes in the nodes, those of Railbed included.
	Processes int `json:"processes"`
	// Held is the number of packets in soft switches and on their links, Dropped the number that were
	// dropped, and Deadlocks the number of deadlocks. Late is the 99th percentile of the time by which
	// frames were late.
	Soft      bool   `json:"soft"`
	Held      int    `json:"held"`
	Dropped   uint64 `json:"dropped"`
	Deadlocks uint64 `json:"deadlocks"`
	Late      string `json:"late,omitempty"`
	// Trouble is why there is no state.
	Trouble string `json:"trouble,omitempty"`
}

func newSummary(s *supervisor.State, p *plan.Plan) summary {
	made := summary{Name: s.Name, File: s.File, Created: s.Created, Plan: s.PlanHash, Nodes: len(s.Nodes),
		Switches: len(s.Switches), Links: len(s.Links), Ranks: len(p.Ranks)}
	for _, n := range s.Nodes {
		made.Processes += n.Processes
	}
	if soft := s.Soft; soft != nil {
		made.Soft, made.Held, made.Dropped = true, soft.Held, soft.Totals.Dropped
		made.Deadlocks, made.Late = soft.DeadlockCount, soft.Late.P99.String()
	}
	return made
}

// link is the state of a link in the table of the page.
type link struct {
	Name  string `json:"name"`
	Class string `json:"class"`
	Up    bool   `json:"up"`
	// Ends are its ports, as NODE:PORT, which are taps of recordings.
	Ends [2]string `json:"ends"`
	// Directions are a-to-b and b-to-a.
	Directions [2]direction `json:"directions"`
}

// direction is the state of a direction of a link. The sending port has
// the counters.
type direction struct {
	Up       bool   `json:"up"`
	Rate     string `json:"rate"`
	Settings string `json:"settings,omitempty"` // other than rate and queue
	// BitsPerSecond counts since the state before, in the time of the testbed, and Load is its share of
	// Rate.
	BitsPerSecond float64 `json:"bps"`
	Load          float64 `json:"load"`
	Bytes         uint64  `json:"bytes"`
	Packets       uint64  `json:"packets"`
	Waiting       uint64  `json:"waiting"` // bytes in queues
	Drops         uint64  `json:"drops"`
	// Dropping reports whether Drops grew since the state before.
	Dropping bool     `json:"dropping"`
	Reasons  []string `json:"reasons,omitempty"` // of Drops, by soft switches
	Marks    uint64   `json:"marks"`
	Trims    uint64   `json:"trims"`
	Pauses   uint64   `json:"pauses"` // PFC frames that the port received
	Paused   bool     `json:"paused"`
}

// sample is a state with the time at which it was taken.
type sample struct {
	links []fabric.LinkState
	at    time.Time
	// dilation is how many times slower than real time the testbed runs.
	dilation float64
}

func newSample(s *supervisor.State, at time.Time, dilation uint64) *sample {
	return &sample{links: s.Links, at: at, dilation: float64(max(1, dilation))}
}

// row returns the state of the i-th link, with rates since an earlier sample, if there is one.
func (s *sample) row(i int, before *sample) link {
	l := &s.links[i]
	made := link{Name: l.Name, Class: l.Class, Up: l.Up,
		Ends:       [2]string{l.A.Node + ":" + l.A.Port, l.B.Node + ":" + l.B.Port},
		Directions: [2]direction{newDirection(&l.AToB, &l.A), newDirection(&l.BToA, &l.B)}}
	// The state before is of an earlier page if it is older.
	if before == nil || s.at.Sub(before.at) > 10*period {
		return made
	}
	was := before.row(i, nil)
	seconds := s.at.Sub(before.at).Seconds() / s.dilation
	old := &before.links[i]
	// Of a rate that has changed, the higher one was in force for a part of the time.
	for n, rate := range []float64{float64(max(l.AToB.Rate, old.AToB.Rate)),
		float64(max(l.BToA.Rate, old.BToA.Rate))} {
		d := &made.Directions[n]
		d.Dropping = d.Drops > was.Directions[n].Drops
		if sent := d.Bytes - was.Directions[n].Bytes; d.Bytes > was.Directions[n].Bytes && seconds > 0 {
			d.BitsPerSecond = math.Round(8 * float64(sent) / seconds)
			d.Load = math.Round(1000*d.BitsPerSecond/max(1, rate)) / 1000
		}
	}
	return made
}

// newDirection returns the state of a direction without its rate.
func newDirection(d *fabric.DirectionState, from *fabric.EndState) direction {
	made := direction{Up: d.Up, Rate: d.Rate.String(), Settings: strings.Join(d.Effects(), ", "),
		Bytes: from.Counters.TxBytes, Packets: from.Counters.TxPackets,
		Waiting: uint64(d.Shaper.BacklogBytes), Drops: uint64(d.Shaper.Drops)}
	if port := from.Soft; port != nil {
		made.Waiting += uint64(port.Waiting())
		made.Drops += port.Drops.Total()
		for why, counts := range port.Drops {
			made.Reasons = append(made.Reasons, fmt.Sprintf("%s %d", why, counts.Total()))
		}
		slices.Sort(made.Reasons)
		made.Marks, made.Trims = port.Marks.Total(), port.Trims.Total()
		for _, n := range port.Counters.PausesReceived {
			made.Pauses += n
		}
		made.Paused = slices.Contains(port.Paused[:], true)
	}
	return made
}
