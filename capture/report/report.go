// Package report is what a run leaves for people and machines: the report
// itself (report.json), JUnit for CI systems, one HTML page, and the tables of
// the terminal. All of them are made from a Report and nothing else, so that
// each can be made again from report.json.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"railbed/internal/printable"
	"railbed/internal/verdict"
	"railbed/plan/perf"
)

// Format is the version of report.json. Fields are added to a version; a field
// that changes its meaning or goes makes a new one.
const Format = "railbed-report/1"

// Names of the files in a directory of results.
const (
	JSONFile  = "report.json"
	JUnitFile = "junit.xml"
	HTMLFile  = "report.html"
)

// Verdicts on fidelity, best first.
const (
	Faithful   = "faithful"
	Degraded   = "degraded"
	Overloaded = "overloaded"
)

// Report is report.json: one run of one file, whatever became of it. Durations
// are seconds, sizes bytes and rates bit/s unless the name says otherwise;
// lists are in the order of the file.
type Report struct {
	Format  string          `json:"format"`
	Verdict verdict.Verdict `json:"verdict"`
	// Reason says in one line why the verdict is not PASS.
	Reason string `json:"reason,omitempty"`
	// Name is the testbed's; File is the path as the user gave it.
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	File        string `json:"file"`
	// PlanHash is the SHA-256 of the plan's JSON; with Seed and Versions it
	// says what ran.
	PlanHash string `json:"plan_hash"`
	Seed     uint64 `json:"seed"`
	// Dilation is how many times slower than real time the testbed's time ran.
	// All times and rates here are of the testbed's time, but those with a date.
	Dilation uint64 `json:"dilation"`
	// Repeat is the command line that does this run again.
	Repeat []string `json:"repeat"`
	// Started and Finished are wall clock times; Finished is zero in the
	// report of a run that was killed.
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished,omitzero"`
	Versions Versions  `json:"versions"`
	Host     Host      `json:"host"`
	Testbed  Testbed   `json:"testbed"`
	// Unsupported is set when the host lacks what the file needs.
	Unsupported *Unsupported `json:"unsupported,omitempty"`
	Steps       []Step       `json:"steps"`
	Workloads   []Workload   `json:"workloads"`
	Trainings   []Training   `json:"trainings,omitempty"`
	Messages    []Messages   `json:"messages,omitempty"`
	Stacks      []Stack      `json:"stacks,omitempty"`
	// Containers is what happened to the nodes' containers by itself, in the order of its
	// time.
	Containers []string `json:"containers,omitempty"`
	// EventsDropped is how many of the testbed's events were not kept up to the end.
	EventsDropped int `json:"events_dropped,omitempty"`
	// Routing is what routers' daemons did; absent without any.
	Routing *Routing `json:"routing,omitempty"`
	Checks  []Check  `json:"checks"`
	// Fidelity is absent when the testbed did not come up.
	Fidelity *Fidelity `json:"fidelity,omitempty"`
	Captures []Capture `json:"captures"`
}

// Versions says which programs ran.
type Versions struct {
	Railbed string `json:"railbed"`
	Go      string `json:"go"`
}

// Host is where it ran.
type Host struct {
	Name   string `json:"name"`
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	CPUs   int    `json:"cpus"`
	Memory uint64 `json:"memory"`
	// Rootless says that the testbed ran in a user namespace of an ordinary
	// user.
	Rootless bool `json:"rootless"`
}

// Testbed is the size of the cluster and the time that it took.
type Testbed struct {
	Nodes    int `json:"nodes"`
	Switches int `json:"switches"`
	Links    int `json:"links"`
	Ranks    int `json:"ranks"`
	// Topology is the file's word for the fabric.
	Topology string  `json:"topology"`
	BringUp  float64 `json:"bring_up"`
	TakeDown float64 `json:"take_down"`
}

// Unsupported is a feature that the host lacks.
type Unsupported struct {
	Feature string `json:"feature"`
	Reason  string `json:"reason"`
	Remedy  string `json:"remedy,omitempty"`
	// Where is the place in the file that needs it, as file:line:column.
	Where string `json:"where,omitempty"`
}

// State says how far a step came.
type State string

// States of a step.
const (
	Passed    State = "passed"
	Failed    State = "failed"
	Cancelled State = "cancelled" // it ran when the run ended for another reason
	Skipped   State = "skipped"   // the run ended before its turn
)

// Step is a step of the timeline.
type Step struct {
	// Name is the kind and the object: "workload ar", "link h0--s0 down".
	Name  string `json:"name"`
	Where string `json:"where"` // file:line:column
	State State  `json:"state"`
	// Error is why a step failed.
	Error string `json:"error,omitempty"`
	// Start and End count from the start of the first step. End is when the
	// step's own work had ended, that of a background step included; a link
	// change ends when it is undone or, without "for", when it is made.
	Start float64 `json:"start"`
	End   float64 `json:"end"`
	// Background says that the next step did not wait for this one.
	Background bool `json:"background,omitempty"`
	// Logs are paths below the report's directory.
	Logs []string `json:"logs,omitempty"`
}

// LeftOut is bytes of messages that a transport was allowed to leave out.
type LeftOut struct {
	// Missing is how many never came, warm-ups included, and MayMiss how many may be left
	// out; what they leave of the result is what Wrong judges by.
	Missing uint64 `json:"missing,omitempty"`
	MayMiss uint64 `json:"may_miss,omitempty"`
}

// Workload is a collective's result in the words of nccl-tests.
type Workload struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Algorithm string `json:"algorithm"`
	// File is where the algorithm comes from, if not from us.
	File      string `json:"file,omitempty"`
	Transport string `json:"transport"`
	Ranks     int    `json:"ranks"`
	// Bytes is the size of the buffer of each rank, Count its elements.
	Bytes      uint64 `json:"bytes"`
	Count      uint64 `json:"count"`
	Type       string `json:"type"`  // float
	RedOp      string `json:"redop"` // sum
	Warmup     int    `json:"warmup"`
	Iterations int    `json:"iterations"`
	// Time is the mean of the timed iterations in microseconds; AlgBW and
	// BusBW are in 10^9 bytes per second, as nccl-tests prints them.
	Time  float64 `json:"time_us"`
	AlgBW float64 `json:"algbw_gb_s"`
	BusBW float64 `json:"busbw_gb_s"`
	// Rows are those of all sizes of a workload that has several; what stands above is of
	// the last one, out of place.
	Rows []perf.Row `json:"rows,omitempty"`
	// Wrong counts the elements that were not what they must be, over all
	// ranks and iterations.
	Wrong uint64 `json:"wrong"`
	LeftOut
	// Sent are the payload bytes that each rank says it handed to its
	// transport, warm-ups included; indexed by rank.
	Sent []uint64 `json:"sent,omitempty"`
	// Learning is of sgd.
	Learning *Learning `json:"learning,omitempty"`
	Mixture  *Mixture  `json:"mixture,omitempty"` // of moe
	Conduct
}

// Conduct is what ranks say of themselves and of each other, whatever they did.
type Conduct struct {
	// Straggler is the rank for which the others waited; none stands out where it is left out.
	Straggler *Straggler `json:"straggler,omitempty"`
	// Pace is of reliable datagrams: how far behind its schedule the latest of the
	// ranks was, by their own account.
	Pace Pace `json:"pace,omitzero"`
}

// Straggler is a rank that worked while the others waited. What a training job computes is no
// work of a rank, but time that passes.
type Straggler struct {
	Rank int    `json:"rank"`
	Node string `json:"node"`
	// Worked is the part of the timed operations in which it did not wait for others, and
	// Others the greatest such part of another rank.
	Worked float64 `json:"worked"`
	Others float64 `json:"others"`
}

// String says who it is and by how much.
func (s Straggler) String() string {
	return fmt.Sprintf("the ranks waited for rank %d on %s: it worked %.0f%% of the time, the others at "+
		"most %.0f%%", s.Rank, s.Node, 100*s.Worked, 100*s.Others)
}

// Pace is how late packets went that a rate held back: behind the moment at which
// their schedule let them go. None goes before. P50 and P99 are rounded up to powers
// of two of microseconds.
type Pace struct {
	Packets uint64        `json:"packets"`
	P50     time.Duration `json:"p50_ns"`
	P99     time.Duration `json:"p99_ns"`
	Most    time.Duration `json:"most_ns"`
}

// Worst takes in another rank's pace: packets are added, and of lateness the worst
// counts.
func (p *Pace) Worst(o Pace) {
	p.Packets += o.Packets
	p.P50, p.P99, p.Most = max(p.P50, o.P50), max(p.P99, o.P99), max(p.Most, o.Most)
}

// BusBWBits is the bus bandwidth in bit/s.
func (w Workload) BusBWBits() float64 { return w.BusBW * 8e9 }

// Check is a check of the file and how it ended.
type Check struct {
	// Name is the kind and the object: "workload ar", "packets
	// bytes-per-rank ar".
	Name    string          `json:"name"`
	Where   string          `json:"where"` // file:line:column
	Verdict verdict.Verdict `json:"verdict"`
	Summary string          `json:"summary"`
	// Details are further lines for people: the offending ranks, ports or
	// packets.
	Details []string `json:"details,omitempty"`
	// Values are the numbers that the verdict rests on.
	Values []Value `json:"values,omitempty"`
}

// Value is a measured number beside what was wanted of it.
type Value struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
	// Want is what was asked, in words: ">= 600 Mbit/s".
	Want string `json:"want,omitempty"`
}

// Fidelity says how far the emulation was what the file asked for.
type Fidelity struct {
	// Verdict is faithful, degraded or overloaded, as FIDELITY.md defines them
	// by numbers.
	Verdict string `json:"verdict"`
	// Reasons are the numbers that spoke against faithful.
	Reasons []string `json:"reasons,omitempty"`
	// Links are the directions of links that carried traffic, busiest first.
	Links []LinkRate `json:"links"`
	// Pressure is the share of the run's time in which some task waited for a
	// CPU; PressureSource names where the number comes from.
	Pressure       float64 `json:"cpu_pressure"`
	PressureSource string  `json:"cpu_pressure_source"`
	// Steal is the share of CPU time that the hypervisor took.
	Steal float64 `json:"cpu_steal"`
	// Dropped counts packets that captures lost.
	Dropped uint64 `json:"capture_dropped"`
	// Samples is how often the links were looked at.
	Samples int `json:"samples"`
	// Undilated is what kept real time although the testbed's ran slower.
	Undilated []Undilated `json:"undilated,omitempty"`
	// HeldUp are sources of traffic that the host did not run when they should
	// have sent.
	HeldUp []HeldUp `json:"held_up,omitempty"`
	// Overruns are ranks that lost packets because the host did not let them read.
	Overruns []Overrun `json:"overruns,omitempty"`
	// Timing is how exactly soft switches kept time; absent without them.
	Timing *Timing `json:"timing,omitempty"`
}

// HeldUp is the share of its time in which the host held a source of traffic up.
type HeldUp struct {
	Traffic string  `json:"traffic"` // the step
	Node    string  `json:"node"`
	Share   float64 `json:"share"`
}

// Overrun is how many packets came to a rank of a workload that had no room for them.
type Overrun struct {
	Workload string `json:"workload"` // the step
	Rank     int    `json:"rank"`
	Node     string `json:"node"`
	Packets  uint64 `json:"packets"`
}

// Undilated is something that keeps real time in a dilated run.
type Undilated struct {
	What string `json:"what"` // as the file names it: tcp, programs
	// Timers are those that stay as they are.
	Timers []string `json:"timers"`
	// Accepted says that the file accepts it.
	Accepted bool `json:"accepted"`
}

// Text is a line for people.
func (u Undilated) Text() string {
	return "not dilated: " + u.What + ": " + strings.Join(u.Timers, ", ")
}

// Timing is how exactly the soft switches of a testbed kept time. Times that end
// in _us are microseconds, the others seconds from the start of the first step.
type Timing struct {
	// Arrivals is how long after they were due watched frames were at the
	// nodes, by the kernel's receive stamps.
	Arrivals Lateness `json:"arrivals"`
	// Released is how long after they were due frames were given to the kernel,
	// by the switch's own clock.
	Released Lateness `json:"released"`
	// Unmatched are watched frames of which either the release or the arrival
	// was not seen, and whose lateness therefore is not known.
	Unmatched uint64 `json:"unmatched"`
	// Unit is the smallest time that the links that carried something tell
	// apart: the least delay, or the least time that a frame of the MTU takes.
	// It is 0 where they have neither.
	Unit float64 `json:"unit_us"`
	// Windows are seconds, or longer where few frames came; in Late of them more
	// than 1 % of the frames were later than Unit. First is the first of these,
	// Worst the window with the highest 99th percentile.
	Windows uint64  `json:"windows"`
	Late    uint64  `json:"late_windows"`
	First   *Window `json:"first_late,omitempty"`
	Worst   *Window `json:"worst,omitempty"`
	// Waited is the share of the time in which the timing thread wanted a CPU
	// and had none; below 0 where the kernel does not tell.
	Waited float64 `json:"waited"`
	// Ran is the share of the time in which it had one.
	Ran float64 `json:"ran"`
	// Priority is the thread's as a real-time thread, 0 where it is none and Nice
	// counts.
	Priority int `json:"realtime_priority"`
	Nice     int `json:"nice"`
	// Lost counts frames that the emulator lost and the model did not, Frames
	// those that the nodes sent.
	Lost   uint64 `json:"lost"`
	Frames uint64 `json:"frames"`
}

// Lateness sums up how late frames were.
type Lateness struct {
	Frames uint64  `json:"frames"`
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
	Worst  float64 `json:"worst_us"`
	// Buckets are those that hold frames, in order.
	Buckets []Bucket `json:"buckets,omitempty"`
}

// Bucket is the frames of a histogram from one lateness on to below another, in
// microseconds of the testbed's time. Each reaches twice as far as the one before,
// the first from 0 to 1.024 us of real time; the last one of all, from about a
// second on, has no end.
type Bucket struct {
	From   float64 `json:"from_us"`
	To     float64 `json:"to_us,omitempty"`
	Frames uint64  `json:"frames"`
}

// Window is a part of the run of about a second.
type Window struct {
	From   float64 `json:"from"`
	Length float64 `json:"length"`
	Lateness
	// WorstAt is when the latest frame arrived.
	WorstAt float64 `json:"worst_at"`
}

// LinkRate is what one direction of a link carried.
type LinkRate struct {
	Link      string `json:"link"`
	Direction string `json:"direction"` // a-to-b or b-to-a
	From      string `json:"from"`      // "leaf0:p3"
	To        string `json:"to"`
	Asked     uint64 `json:"asked_bit_s"`
	// Achieved is the rate over the time in which the link was busy, that is
	// had more to send than it could; zero when it never was.
	Achieved uint64 `json:"achieved_bit_s"`
	// Peak is the highest rate of one sampling interval.
	Peak uint64 `json:"peak_bit_s"`
	// Busy is the time in seconds in which the link was busy.
	Busy    float64 `json:"busy"`
	Packets uint64  `json:"packets"`
	Bytes   uint64  `json:"bytes"`
	Dropped uint64  `json:"dropped"` // by the link's queue
	// Drops, Marks and Trims are what the port of a soft switch did to packets, by
	// reason and by priority, 0 to 7. Dropped is the sum of Drops, and what a node's
	// own shaper dropped.
	Drops map[string][8]uint64 `json:"drops,omitempty"`
	Marks map[string][8]uint64 `json:"marks,omitempty"`
	Trims map[string][8]uint64 `json:"trims,omitempty"`
	// Late is of the frames that a soft switch sent to a node.
	Late *Lateness `json:"late,omitempty"`
}

// Capture is a recording.
type Capture struct {
	// File is a path below the report's directory.
	File   string   `json:"file"`
	At     []string `json:"at"`
	Filter string   `json:"filter,omitempty"`
	Bytes  int64    `json:"bytes"`
	// Complete is false when the recording ended before the run did.
	Complete bool  `json:"complete"`
	Taps     []Tap `json:"taps"`
}

// Tap is one recorded port.
type Tap struct {
	Name    string `json:"name"` // "h0:eth0"
	Packets uint64 `json:"packets"`
	Dropped uint64 `json:"dropped"`
	// Limited counts packets that the size limit of the file kept out.
	Limited uint64 `json:"limited"`
}

// Packets counts what was recorded.
func (c Capture) Packets() (n uint64) {
	for _, tap := range c.Taps {
		n += tap.Packets
	}
	return n
}

// Dropped counts what was lost.
func (c Capture) Dropped() (n uint64) {
	for _, tap := range c.Taps {
		n += tap.Dropped
	}
	return n
}

// Elapsed is how long the run took; zero when it was killed.
func (r *Report) Elapsed() time.Duration {
	if r.Finished.IsZero() {
		return 0
	}
	return r.Finished.Sub(r.Started)
}

// WriteJSON writes report.json.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(printable.NewWriter(w)) // people print the file
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// Read reads report.json.
func Read(in io.Reader) (*Report, error) {
	r := &Report{}
	if err := json.NewDecoder(in).Decode(r); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if r.Format != Format {
		return nil, fmt.Errorf("read report: format %q, want %q", r.Format, Format)
	}
	return r, nil
}
