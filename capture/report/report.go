// Package report has the results of a run as data, and reads and writes them as report.json. Package
// reporting shows them.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"railbed/internal/input"
	"railbed/internal/printable"
	"railbed/internal/usage"
	"railbed/internal/verdict"
	"railbed/plan/perf"
)

// Format is the version of report.json. A new field keeps the version. A field that is removed or
// changes its meaning makes a new version.
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

// Report is the content of report.json: one run of one file, whatever its outcome. Durations are in
// seconds, sizes in bytes and rates in bit/s unless the name says otherwise. Lists are in the order
// of the file.
type Report struct {
	Format  string          `json:"format"`  // the version of the format
	Verdict verdict.Verdict `json:"verdict"` // PASS, FAIL, INCONCLUSIVE, OVERLOADED, UNSUPPORTED or ABORTED
	// Reason is the reason, in one line, why the verdict is not PASS.
	Reason string `json:"reason,omitempty"`
	// Name is the testbed's name. File is the path that the user gave.
	Name        string `json:"name"`
	Description string `json:"description,omitempty"` // the file's description
	File        string `json:"file"`
	// PlanHash is the SHA-256 of the plan's JSON. Together with Seed and Versions it identifies the
	// run's input.
	PlanHash string `json:"plan_hash"`
	Seed     uint64 `json:"seed"` // of all random choices
	// Dilation is the factor by which the testbed's time ran slower than real time. All times and
	// rates here are in the testbed's time, except times with a date.
	Dilation uint64 `json:"dilation"`
	// Repeat is the command line that repeats this run.
	Repeat []string `json:"repeat"`
	// Started and Finished are wall clock times. Finished is zero in the report of a run that was
	// killed.
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished,omitzero"`
	// Began is the wall clock time at which the first step began. The times of steps count from here.
	Began    time.Time `json:"began,omitzero"`
	Versions Versions  `json:"versions"`
	Host     Host      `json:"host"`
	Testbed  Testbed   `json:"testbed"`
	// Unsupported is set if the host lacks a feature that the file needs.
	Unsupported *Unsupported `json:"unsupported,omitempty"`
	Steps       []Step       `json:"steps"`
	Workloads   []Workload   `json:"workloads"`
	Trainings   []Training   `json:"trainings,omitempty"`
	Messages    []Messages   `json:"messages,omitempty"`
	Stacks      []Stack      `json:"stacks,omitempty"`
	// Containers lists, in order of time, the events of the nodes' containers that Railbed did not
	// cause.
	Containers []string `json:"containers,omitempty"`
	// EventsDropped is the number of the testbed's events that were not kept until the end.
	EventsDropped int `json:"events_dropped,omitempty"`
	// Routing describes the reactions of the routing daemons. It is absent without routing daemons.
	Routing *Routing `json:"routing,omitempty"`
	// Signals counts the pauses and marks of soft switches. It is absent if no switch has PFC or ECN.
	Signals *Signals `json:"signals,omitempty"`
	// Faults are those that steps added, and how many packets they hit.
	Faults []Fault `json:"faults,omitempty"`
	// Acts are the changes of links and nodes that steps made.
	Acts   []Act   `json:"acts,omitempty"`
	Checks []Check `json:"checks"`
	// Fidelity is absent if the testbed did not come up.
	Fidelity *Fidelity `json:"fidelity,omitempty"`
	Captures []Capture `json:"captures"`
	Charts
}

// Versions are the versions of the programs that ran.
type Versions struct {
	Railbed string `json:"railbed"` // the version of railbed
	Go      string `json:"go"`      // the version of Go that built it
}

// Host is the host on which the run took place.
type Host struct {
	Name   string `json:"name"`   // the host name
	Kernel string `json:"kernel"` // the release of the kernel
	Arch   string `json:"arch"`   // the architecture, as Go names it
	CPUs   int    `json:"cpus"`   // logical CPUs
	Memory uint64 `json:"memory"` // bytes
	// Rootless is set if the testbed ran in a user namespace of an unprivileged user.
	Rootless bool `json:"rootless"`
}

// Testbed is the size of the cluster, and the times to bring it up and take it down.
type Testbed struct {
	Nodes    int `json:"nodes"`    // number of nodes
	Switches int `json:"switches"` // number of switches
	Links    int `json:"links"`    // number of links
	Ranks    int `json:"ranks"`    // number of ranks
	// Bypass is the number of nodes whose programs reach the NICs past the kernel (nic-path: bypass).
	Bypass int `json:"bypass,omitempty"`
	// Topology is the file's name for the fabric's topology.
	Topology string  `json:"topology"`
	BringUp  float64 `json:"bring_up"`  // time until it was up
	TakeDown float64 `json:"take_down"` // time until it was gone
}

// Unsupported is a feature that the host lacks.
type Unsupported struct {
	Feature string `json:"feature"`          // as railbed doctor names it
	Reason  string `json:"reason"`           // what needs the feature
	Remedy  string `json:"remedy,omitempty"` // how to get it
	// Where is the position in the file that needs the feature, as file:line:column.
	Where string `json:"where,omitempty"`
}

// State is the outcome of a step.
type State string

// States of a step.
const (
	Passed    State = "passed"
	Failed    State = "failed"
	Cancelled State = "cancelled" // it was running when the run ended for another reason
	Skipped   State = "skipped"   // the run ended before its turn
)

// Step is a step of the timeline.
type Step struct {
	// Name is the kind and the object: "workload ar", "link h0--s0 down".
	Name  string `json:"name"`
	Where string `json:"where"` // file:line:column
	State State  `json:"state"` // passed, failed, cancelled or skipped
	// Error is why a step failed.
	Error string `json:"error,omitempty"`
	// Late is set if the step failed because it did not end within its limit.
	Late bool `json:"late,omitempty"`
	// Start and End are seconds from the start of the first step. End is the end of the step's own
	// work, also for a background step. A link change ends when it is undone, or, without "for",
	// when it is made.
	Start float64 `json:"start"`
	End   float64 `json:"end"`
	// Times is how often a step with every or retry was done. 0 for other steps.
	Times int `json:"times,omitempty"`
	// Background is set if the next step did not wait for this one.
	Background bool `json:"background,omitempty"`
	// Logs are paths below the report's directory.
	Logs []string `json:"logs,omitempty"`
	// Called is the name that the file gives the step or its fault. Active are the times in which the fault,
	// or the change of a link, was in force.
	Called string   `json:"called,omitempty"`
	Active []Active `json:"active,omitempty"`
}

// Key returns the key of the step in files, such as "workload".
func (s *Step) Key() string {
	key, _, _ := strings.Cut(s.Name, " ")
	return key
}

// At returns the wall clock time of a moment that is some seconds after the start of the first step.
func (r *Report) At(seconds float64) time.Time {
	dilated := seconds * float64(max(r.Dilation, 1))
	return r.Began.Add(time.Duration(dilated * float64(time.Second)))
}

// Active is a time in which the change of a step was in force, in seconds as in Step.Start. It came into
// force between Begun and From, and ended between To and Ended. Without Ended it lasted to the end of the
// run.
type Active struct {
	Begun float64 `json:"begun"`           // when the step began to make the change
	From  float64 `json:"from"`            // from when it was surely in force
	To    float64 `json:"to,omitempty"`    // until when it was surely in force
	Ended float64 `json:"ended,omitempty"` // when it was undone
}

// LeftOut counts bytes of messages that a transport was allowed to leave out.
type LeftOut struct {
	// Missing is the number of bytes that never arrived, warm-ups included. MayMiss is the number
	// of bytes that may be left out. Wrong is judged by the result without the missing bytes.
	Missing uint64 `json:"missing,omitempty"`
	MayMiss uint64 `json:"may_miss,omitempty"`
}

// Workload is the result of a collective, in the terms of nccl-tests.
type Workload struct {
	Name      string `json:"name"`      // the step's name
	Kind      string `json:"kind"`      // the collective
	Algorithm string `json:"algorithm"` // the algorithm that ran
	// File is the file that the algorithm comes from; empty for a built-in algorithm.
	File      string `json:"file,omitempty"`
	Transport string `json:"transport"` // tcp, rd, roce, quic or in-switch
	Ranks     int    `json:"ranks"`     // number of ranks
	// Bytes is the size of each rank's buffer and Count its number of elements.
	Bytes      uint64 `json:"bytes"`
	Count      uint64 `json:"count"`      // elements of the buffer
	Type       string `json:"type"`       // float
	RedOp      string `json:"redop"`      // sum
	Warmup     int    `json:"warmup"`     // operations before the measured ones
	Iterations int    `json:"iterations"` // measured operations
	// Time is the mean of the timed iterations in microseconds. AlgBW and BusBW are in 10^9 bytes
	// per second, as in nccl-tests.
	Time  float64 `json:"time_us"`
	AlgBW float64 `json:"algbw_gb_s"` // 10^9 bytes per second: the size by the mean time
	BusBW float64 `json:"busbw_gb_s"` // algbw scaled to the load of a link, as in nccl-tests
	// Rows are the results of all sizes, if the workload has several. The fields above then hold
	// the last size, out of place.
	Rows []perf.Row `json:"rows,omitempty"`
	// Wrong counts the elements with a wrong value, over all ranks and iterations.
	Wrong uint64 `json:"wrong"`
	LeftOut
	// Sent are the payload bytes that each rank reports to have passed to its transport, warm-ups
	// included, indexed by rank.
	Sent []uint64 `json:"sent,omitempty"`
	// Learning is the result of sgd.
	Learning *Learning `json:"learning,omitempty"`
	Mixture  *Mixture  `json:"mixture,omitempty"` // of moe
	Conduct
}

// Pace describes the lateness of packets that a rate held back. Lateness counts from the time at
// which the schedule allowed a packet. No packet is sent before that time. P50 and P99 are rounded
// up to powers of two of microseconds.
type Pace struct {
	Packets uint64        `json:"packets"` // packets that were paced
	P50     time.Duration `json:"p50_ns"`  // median lateness
	P99     time.Duration `json:"p99_ns"`  // 99th percentile of the lateness
	Most    time.Duration `json:"most_ns"` // largest lateness
}

// Worst merges another rank's pace: packets are added, and the worse lateness is kept.
func (p *Pace) Worst(o Pace) {
	p.Packets += o.Packets
	p.P50, p.P99, p.Most = max(p.P50, o.P50), max(p.P99, o.P99), max(p.Most, o.Most)
}

// BusBWBits returns the bus bandwidth in bit/s.
func (w Workload) BusBWBits() float64 { return perf.Bits(w.BusBW) }

// Check is a check of the file and its result.
type Check struct {
	// Name is the kind and the object: "workload ar", "packets
	// bytes-per-rank ar".
	Name    string          `json:"name"`
	Where   string          `json:"where"`   // file:line:column
	Verdict verdict.Verdict `json:"verdict"` // PASS, FAIL or INCONCLUSIVE
	Summary string          `json:"summary"` // one sentence
	// Details are further lines for people: the ranks, ports or packets that violate the check.
	Details []string `json:"details,omitempty"`
	// Timed is set if the verdict is FAIL and rests on measured times only, so that a less busy machine may
	// give another one.
	Timed bool `json:"timed,omitempty"`
	// Near are the numbers, with their bounds, that satisfy a bound but are at most 10 % away from it.
	Near []string `json:"near,omitempty"`
	// Values are the numbers on which the verdict is based.
	Values []Value `json:"values,omitempty"`
	// Excerpt is a path, below the report's directory, of a capture. It has packets that break the check, and
	// their neighbours.
	Excerpt string `json:"excerpt,omitempty"`
	// Commands are command lines that show the evidence.
	Commands [][]string `json:"commands,omitempty"`
}

// Value is a measured number and its bound.
type Value struct {
	Name  string  `json:"name"`           // the figure
	Value float64 `json:"value"`          // the measured value
	Unit  string  `json:"unit,omitempty"` // its unit
	// Want is the bound, in words: ">= 600 Mbit/s".
	Want string `json:"want,omitempty"`
}

// Fidelity describes how closely the emulation matched the file.
type Fidelity struct {
	// Verdict is faithful, degraded or overloaded, as FIDELITY.md defines them numerically.
	Verdict string `json:"verdict"`
	// Reasons are the measurements because of which the verdict is not faithful.
	Reasons []string `json:"reasons,omitempty"`
	// Cause names the programs or the machine that kept the emulator from keeping up, and the largest effect.
	// It is absent if the run was faithful, and if the measurements show no cause.
	Cause string `json:"cause,omitempty"`
	// Remedy proposes a run without this cause. It is absent without a cause.
	Remedy string `json:"remedy,omitempty"`
	// Links are the directions of links that carried traffic, busiest first.
	Links []LinkRate `json:"links"`
	// Pressure is the share of the run's time in which some task waited for a CPU. PressureSource
	// names the source of the number.
	Pressure       float64 `json:"cpu_pressure"`
	PressureSource string  `json:"cpu_pressure_source"` // the file of the kernel
	// Steal is the share of CPU time that the hypervisor took from this machine.
	Steal float64 `json:"cpu_steal"`
	// Idle is the share of CPU time in which the CPUs had nothing to do.
	Idle float64 `json:"cpu_idle"`
	// Others are programs of the host that are not part of the run and used CPUs, busiest first.
	Others []usage.Busy `json:"others,omitempty"`
	// Dropped is the number of packets that captures lost.
	Dropped uint64 `json:"capture_dropped"`
	// Samples is the number of times that the links were sampled.
	Samples int `json:"samples"`
	// Undilated lists the parts of the run that kept real time although the testbed's time ran
	// slower.
	Undilated []Undilated `json:"undilated,omitempty"`
	// HeldUp are sources of traffic that the host did not schedule when they should have sent.
	HeldUp []HeldUp `json:"held_up,omitempty"`
	// Overruns are ranks that lost packets because the host did not schedule their receivers.
	Overruns []Overrun `json:"overruns,omitempty"`
	// Nodes lists the packets that the nodes' own kernels dropped, and the processor time that their programs
	// were denied. Nodes with drops are first, then those whose programs were denied most. A node is absent
	// if it has neither, and if it is a virtual machine.
	Nodes []NodeKernel `json:"nodes,omitempty"`
	// Backlog counts the packets of kernel switches' links that the host dropped because too many waited for
	// a CPU (the second column of /proc/net/softnet_stat, and what the interfaces dropped).
	Backlog uint64 `json:"backlog_drops,omitempty"`
	// Downs are the NICs that were down for a time although no step and no fault took their links down.
	Downs []NICDown `json:"nics_down,omitempty"`
	// Timing is the timing accuracy of soft switches. It is absent without soft switches.
	Timing *Timing `json:"timing,omitempty"`
}

// HeldUp is the share of time in which the host delayed a source of traffic.
type HeldUp struct {
	Traffic string  `json:"traffic"` // the step
	Node    string  `json:"node"`    // the node
	Share   float64 `json:"share"`   // of the time
	// Asked is the part of Share for which the file held the node's programs back.
	Asked float64 `json:"asked,omitempty"`
	For   float64 `json:"for"` // seconds of real time for which the source should have sent
}

// Overrun is the number of packets that arrived at a rank of a workload and found no room.
type Overrun struct {
	Workload string `json:"workload"` // the step
	Rank     int    `json:"rank"`     // its number
	Node     string `json:"node"`     // its node
	Packets  uint64 `json:"packets"`  // packets that found no room
	// Asked is set if the file held the node's programs back.
	Asked bool `json:"asked,omitempty"`
}

// Undilated is a part that keeps real time in a dilated run.
type Undilated struct {
	What string `json:"what"` // as the file names it: tcp, programs
	// Timers are the timers that are not dilated.
	Timers []string `json:"timers"`
	// Accepted is set if the file accepts this.
	Accepted bool `json:"accepted"`
}

// Text returns a line for people.
func (u Undilated) Text() string {
	return "not dilated: " + u.What + ": " + strings.Join(u.Timers, ", ")
}

// Timing is the timing accuracy of a testbed's soft switches. Times that end in _us are in
// microseconds, the others in seconds from the start of the first step.
type Timing struct {
	// Arrivals is the lateness of watched frames at the nodes: their arrival by the kernel's
	// receive timestamps, less their due time.
	Arrivals Lateness `json:"arrivals"`
	// Released is the lateness of frames when they were passed to the kernel, by the switch's own
	// clock.
	Released Lateness `json:"released"`
	// Unmatched counts watched frames whose release or arrival was not seen, so that their lateness
	// is not known.
	Unmatched uint64 `json:"unmatched"`
	// Unit is the smallest time that the links with traffic distinguish: the least delay, or the
	// least time to send a frame of the MTU. It is 0 if they have neither.
	Unit float64 `json:"unit_us"`
	// Windows counts windows of a second, or longer if few frames came. Late counts the windows in
	// which more than 1 % of the frames were later than Unit. First is the first late window, and
	// Worst the window with the highest 99th percentile.
	Windows uint64  `json:"windows"`
	Late    uint64  `json:"late_windows"` // windows in which frames were late
	First   *Window `json:"first_late,omitempty"`
	Worst   *Window `json:"worst,omitempty"`
	// Waited is the share of time in which the timing thread was runnable but had no CPU. It is
	// below 0 if the kernel does not report it.
	Waited float64 `json:"waited"`
	// Ran is the share of time in which the timing thread had a CPU.
	Ran float64 `json:"ran"`
	// Priority is the priority of the timing thread as a real-time thread. It is 0 for a thread
	// without real-time priority, and then Nice counts.
	Priority int `json:"realtime_priority"`
	Nice     int `json:"nice"` // nice value of the thread
	// Lost counts frames that the emulator lost although the model did not drop them. Frames counts
	// the frames that the nodes sent.
	Lost   uint64 `json:"lost"`
	Frames uint64 `json:"frames"`
}

// Lateness summarizes how late frames were.
type Lateness struct {
	Frames uint64  `json:"frames"`   // frames watched
	P50    float64 `json:"p50_us"`   // median
	P99    float64 `json:"p99_us"`   // 99th percentile
	Worst  float64 `json:"worst_us"` // largest
	// Buckets are the buckets that hold frames, in order.
	Buckets []Bucket `json:"buckets,omitempty"`
}

// Bucket counts the frames with a lateness of at least From and less than To, in microseconds of
// the testbed's time. The first bucket covers 0 to 1.024 us of real time. Each bucket reaches twice
// as far as the one before. The last possible bucket, from about a second on, has no end.
type Bucket struct {
	From   float64 `json:"from_us"`         // from this lateness on
	To     float64 `json:"to_us,omitempty"` // below this lateness
	Frames uint64  `json:"frames"`          // frames of this lateness
}

// Window is a part of the run of about a second.
type Window struct {
	From   float64 `json:"from"`   // from the first step
	Length float64 `json:"length"` // of the window
	Lateness
	// WorstAt is the time at which the latest frame arrived.
	WorstAt float64 `json:"worst_at"`
}

// LinkRate is the traffic of one direction of a link.
type LinkRate struct {
	Link      string `json:"link"`        // its name
	Direction string `json:"direction"`   // a-to-b or b-to-a
	From      string `json:"from"`        // "leaf0:p3"
	To        string `json:"to"`          // the port that receives
	Asked     uint64 `json:"asked_bit_s"` // rate of the plan
	// Achieved is the rate over the time in which the link was busy: it had more to send than it
	// could carry. It is zero if the link was never busy.
	Achieved uint64 `json:"achieved_bit_s"`
	// Peak is the highest rate over a time of PeakOver seconds: 10 ms of real time if the link was recorded,
	// else one sampling interval.
	Peak     uint64  `json:"peak_bit_s"`
	PeakOver float64 `json:"peak_over,omitempty"` // seconds
	// Busy is the time in seconds in which the link was busy.
	Busy    float64 `json:"busy"`
	Packets uint64  `json:"packets"` // packets sent
	Bytes   uint64  `json:"bytes"`   // bytes sent, Ethernet headers included
	Dropped uint64  `json:"dropped"` // by the link's queue
	// Drops, Marks and Trims count the packets that the port of a soft switch dropped, marked and
	// trimmed, by reason and by priority, 0 to 7. Dropped is the sum of Drops plus the drops of a
	// node's own shaper.
	Drops map[string][8]uint64 `json:"drops,omitempty"`
	Marks map[string][8]uint64 `json:"marks,omitempty"`
	Trims map[string][8]uint64 `json:"trims,omitempty"`
	// Late is the lateness of the frames that a soft switch sent to a node.
	Late *Lateness `json:"late,omitempty"`
}

// Elapsed returns the duration of the run, or zero if the run was killed.
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
	if err := input.DecodeDocument(in, r); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if r.Format != Format {
		return nil, fmt.Errorf("read report: format %q, want %q", r.Format, Format)
	}
	return r, nil
}
