package follow

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"

	"railbed/capture/bundle"
	"railbed/capture/pcapng"
	"railbed/capture/report"
	"railbed/capture/verify/evidence"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

// Options describe the run. All fields are optional. Without a plan no link's rate and
// delay is known, and time on links is Emulator.
type Options struct {
	evidence.Options
	// Workloads name the flows' ranks.
	Workloads []evidence.Workload
	// Memory bounds what a Recording takes, in bytes: the default 0 is MaxMemory. The records that come when
	// it is full are counted, and not followed.
	Memory int64
}

// Read follows all packets of a capture.
func Read(ctx context.Context, in io.Reader, o Options) (*Recording, error) {
	f := NewFollower(o)
	_, summary, err := evidence.Run(ctx, in, o.Options, f)
	if err != nil {
		return nil, fmt.Errorf("follow: %w", err)
	}
	return f.Recording(summary)
}

// NewFollower returns the check. Its Options.Plan must be the plan of evidence.Run's options.
func NewFollower(o Options) *Follower {
	f := &Follower{
		r: &Recording{most: cmp.Or(o.Memory, MaxMemory), Dilation: 1,
			paused: map[line][]span{}, cpus: map[string]float64{},
			tapped: map[string][]int{}, ends: map[string]bool{}, soft: map[string]bool{},
			slowed: map[string]*slowdown{}, kernels: map[string]report.NodeKernel{},
			heldBack: map[int]holdup{}, storms: map[int]string{}},
		windows: map[connection]*window{},
		packets: map[uint64]int32{}, streams: map[streamKey]*stream{}, spaces: map[evidence.RDSpace]*space{},
		owners: evidence.OwnersOf(o.Plan), exchanges: map[exchangeKey]int32{}, rounds: map[roundKey]int{},
	}
	f.ownSwitches(o.Plan)
	f.r.planned = o.Plan != nil
	for _, w := range o.Workloads {
		f.roles = append(f.roles, evidence.NewRoles(w))
	}
	return f
}

// Recording returns what the follower found. It is called once, after the pass.
func (f *Follower) Recording(summary evidence.Summary) (*Recording, error) {
	f.r.Lost, f.r.Truncated, f.r.Missing = summary.Lost, summary.Truncated, summary.Missing
	f.finish()
	return f.r, nil
}

// ownSwitches makes switches the owners of their own addresses, at which routing protocols and contributions
// to sums arrive.
func (f *Follower) ownSwitches(p *plan.Plan) {
	if p == nil {
		return
	}
	own := func(addr netip.Addr, name string) {
		f.owners[addr] = evidence.Owner{Node: name}
		f.r.ends[name] = true
	}
	for _, sw := range p.Switches {
		f.r.soft[sw.Name] = sw.Kind == spec.Soft
		for _, prefix := range sw.Loopbacks {
			own(prefix.Addr(), sw.Name)
		}
		for _, port := range sw.Ports {
			for _, prefix := range port.Addrs {
				own(prefix.Addr(), sw.Name)
			}
		}
	}
	for _, job := range p.AggregationJobs() {
		for _, sw := range job.Tree {
			own(sw.Addr4, sw.Switch)
			own(sw.Addr6, sw.Switch)
		}
	}
}

// ReadRun follows the packets of a run's recordings.
func ReadRun(ctx context.Context, run *bundle.Run) (*Recording, error) {
	return readRun(ctx, run, run.Captures())
}

// ReadCapture follows the packets of one of a run's recordings.
func ReadCapture(ctx context.Context, run *bundle.Run, name string) (*Recording, error) {
	return readRun(ctx, run, []string{name})
}

func readRun(ctx context.Context, run *bundle.Run, names []string) (*Recording, error) {
	keys, err := run.Keys()
	if err != nil {
		return nil, err
	}
	recordings, err := run.Recordings(names)
	if err != nil {
		return nil, err
	}
	defer recordings.Close()
	o := Options{Options: evidence.Options{Plan: run.Plan, Keys: keys}, Workloads: run.Workloads}
	f := NewFollower(o)
	_, summary, err := evidence.RunAll(ctx, names, recordings.Readers(), o.Options, f)
	if err != nil {
		return nil, fmt.Errorf("follow: %w", err)
	}
	r, err := f.Recording(summary)
	if err == nil {
		r.files = recordings.Files()
	}
	if err == nil && run.Report != nil {
		r.incidents, r.lacking = incidentsOf(run.Report.Acts), run.Report.Contention()
	}
	if err == nil && run.Report != nil && run.Report.Fidelity != nil {
		for _, n := range run.Report.Fidelity.Nodes {
			r.kernels[n.Node] = n
		}
	}
	return r, err
}

// Follower collects what a Recording needs. It is a check, so that one pass over a capture can serve it and
// other checks.
type Follower struct {
	r       *Recording
	capture *evidence.Capture
	roles   []*evidence.Roles
	owners  map[netip.Addr]evidence.Owner
	packets map[uint64]int32 // by id
	streams map[streamKey]*stream
	spaces  map[evidence.RDSpace]*space
	// exchanges are contributions to sums, and rounds the sums.
	exchanges map[exchangeKey]int32
	rounds    map[roundKey]int
	windows   map[connection]*window
	changed   []changed // packets that faults of the kernel changed, and that have not left yet
}

// Begin implements evidence.Check.
func (f *Follower) Begin(c *evidence.Capture) { f.capture = c }

// Event implements evidence.Watcher.
func (f *Follower) Event(p *evidence.Packet) { f.Packet(p) }

// Result implements evidence.Check.
func (f *Follower) Result() evidence.Result { return evidence.Result{Name: "follow"} }

// Packet implements evidence.Check.
func (f *Follower) Packet(p *evidence.Packet) {
	r := f.r
	if r.LeftOut > 0 || r.memory() >= r.most {
		r.LeftOut++
		return
	}
	f.addTaps()
	if r.Start == 0 {
		r.Start = p.Time
	}
	r.End = max(r.End, p.Time)
	if p.PFC != nil && p.Direction == evidence.In {
		for q := range 8 {
			if p.PFC.Enable>>q&1 != 0 {
				r.pause(line{p.Tap.Index, int8(q)}, p.Due, f.capture.PauseLength(p.Tap, false,
					p.PFC.Quanta[q]))
			}
		}
	}
	packet, known := f.packets[p.ID]
	if p.Event && p.Fault != "" {
		f.markByFault(p)
		if known {
			f.harmed(p, packet)
		}
		packet, known = f.recordChange(p, packet, known)
		f.recorded(p, packet, known)
		return
	}
	at := f.sight(p)
	if known {
		f.append(packet, at)
	} else {
		packet = f.add(p, at)
	}
	f.recorded(p, packet, true)
	f.see(p, packet, at)
}

// sight adds the sight of a record, and returns its number.
func (f *Follower) sight(p *evidence.Packet) int32 {
	f.r.sights = append(f.r.sights, Sight{Number: p.Number, Tap: p.Tap.Index,
		Out: p.Direction == evidence.Out, Event: p.Event, Verdict: p.Verdict, Reason: reasonOf(p),
		Time: p.Time, Due: p.Due, Depth: p.Depth, Queue: int8(p.Queue), timed: p.Timed, next: -1})
	return int32(len(f.r.sights) - 1)
}

// append makes a sight the last of a packet.
func (f *Follower) append(packet, at int32) {
	q := &f.r.Packets[packet]
	f.r.sights[q.last].next = at
	q.last = at
}

// harmed takes the record of a fault that did not drop a packet. At a soft switch it acted on a packet that
// has just been sent there, or come to the switch. At a port of the kernel it acts on a packet before the
// port sends it.
func (f *Follower) harmed(p *evidence.Packet, packet int32) {
	r := f.r
	last := &r.sights[r.Packets[packet].last]
	switch {
	case !f.capture.Numbered():
		if !last.Out && r.Taps[last.Tap].Node == p.Tap.Node {
			f.append(packet, f.sight(p))
		}
	case last.Tap == p.Tap.Index || p.Verdict == "misroute":
		last.Verdict, last.Reason = p.Verdict, reasonOf(p)
		switch p.Verdict {
		case "truncate": // it does not arrive whole
			r.Packets[packet].Trimmed = true
		case delays:
			r.heldBack[last.Number] = holdup{p.Due, p.Number}
		case "request-pause":
			r.storms[p.Tap.Index] = reasonOf(p)
		}
	}
}

// delays is the verdict of faults that hold packets back: delay, reorder and limit.
const delays = "delay"

// reasonOf returns a record's reason, with the name of the fault.
func reasonOf(p *evidence.Packet) string { return strings.TrimSpace(p.Reason + " " + p.Fault) }

// inFile returns the file of a record and the record's number in it. The name is "" if all records are of a
// single file.
func (r *Recording) inFile(record int) (file string, number int) {
	if record < 1 || len(r.files) == 0 {
		return "", 0
	}
	of := pcapng.Origin{Number: record}
	if len(r.files) > 1 {
		of = r.origins[record-1]
	}
	files, parts := r.files[of.Recording], r.parts[of.Recording]
	switch {
	case len(parts) > 1 && len(files) >= len(parts):
		i := sort.Search(len(parts), func(i int) bool { return parts[i].Before >= of.Number }) - 1
		return files[i], of.Number - parts[i].Before
	case len(r.files) > 1:
		return files[0], of.Number
	}
	return "", 0
}

// recorded remembers of which packet a record is.
func (f *Follower) recorded(p *evidence.Packet, packet int32, known bool) {
	for len(f.r.records) < p.Number {
		f.r.records = append(f.r.records, -1)
	}
	if known {
		f.r.records[p.Number-1] = packet
	}
	if p.Origin.Number == 0 {
		return
	}
	for len(f.r.origins) < p.Number {
		f.r.origins = append(f.r.origins, pcapng.Origin{})
	}
	f.r.origins[p.Number-1] = p.Origin
}

// see takes what a record says about a packet.
func (f *Follower) see(p *evidence.Packet, packet, at int32) {
	r := f.r
	q := &r.Packets[packet]
	if p.Drop != "" {
		q.Dropped = p.Drop
	}
	if p.Verdict == "trim" || p.RD != nil && p.RD.Trimmed {
		q.Trimmed = true
	}
	if q.changed == 0 && p.Length == q.Length && !q.Trimmed && p.Identity() != q.identity {
		q.changed = at
	}
	q.unsound = q.unsound || !p.Tap.NIC && p.Direction == evidence.In && p.Unsound()
	if q.Arrived == 0 && !q.Trimmed && !p.Foreign && q.changed == 0 && r.arrives(q, &r.sights[at]) {
		q.Arrived = p.Time
	}
	f.restrain(p, packet)
	if p.Tap.NIC && p.Direction == evidence.In && p.RD != nil && p.RD.Type == wire.RDAck && p.RD.Clear() {
		f.acknowledge(p)
	}
}

// arrives reports whether a record is of a packet's arrival at its destination.
func (r *Recording) arrives(q *Packet, s *Sight) bool {
	tap := &r.Taps[s.Tap]
	if s.Out || s.Event || s.Verdict == "drop" || !tap.NIC && !r.ends[tap.Node] {
		return false
	}
	if q.Flow < 0 {
		return false
	}
	to := r.Flows[q.Flow].To
	return to == tap.Node || to == "" && tap.NIC
}

// Sees reports whether the recording has, at a time, a tap at which the packets of a flow arrive. Without one
// it is not known which packets got lost, and when messages arrived. With a plan that does not have the
// destination, the place of the arrival is not known.
func (r *Recording) Sees(flow int, at int64) bool {
	to := r.Flows[flow].To
	if to == "" {
		return !r.planned && len(r.tapped) > 0
	}
	return slices.ContainsFunc(r.tapped[to], func(tap int) bool { return r.Taps[tap].recorded(at) })
}

// addTaps adds the taps that the capture has found.
func (f *Follower) addTaps() {
	for _, tap := range f.capture.Taps[len(f.r.Taps):] {
		f.r.Taps = append(f.r.Taps, Tap{Node: tap.Node, Port: tap.Port, NIC: tap.NIC, Link: tap.Link,
			recorded: tap.Recorded})
		if tap.NIC || f.r.ends[tap.Node] {
			f.r.tapped[tap.Node] = append(f.r.tapped[tap.Node], len(f.r.Taps)-1)
		}
	}
}

// flow returns the index of a packet's flow.
func (f *Follower) flow(p *evidence.Packet) int {
	if p.Flow == nil {
		return -1
	}
	for i := len(f.r.Flows); i <= p.Flow.Index; i++ {
		f.r.Flows = append(f.r.Flows, Flow{})
	}
	flow := &f.r.Flows[p.Flow.Index]
	if flow.Packets++; flow.Packets == 1 {
		flow.Src, flow.Dst = p.Flow.Src, p.Flow.Dst
		flow.From, flow.To = f.owners[flow.Src.Addr()].Node, f.owners[flow.Dst.Addr()].Node
		flow.Protocol = protocol(p)
		f.name(flow, p)
	}
	return p.Flow.Index
}

func protocol(p *evidence.Packet) string {
	switch {
	case p.RD != nil:
		return "rd"
	case p.RoCE != nil:
		return "roce"
	case p.Aggregation != nil:
		return "agg"
	case p.Proto == evidence.ProtoTCP:
		return "tcp"
	case p.Proto == evidence.ProtoUDP:
		return "udp"
	}
	return strconv.Itoa(int(p.Proto))
}

// finish completes the recording.
func (f *Follower) finish() {
	r := f.r
	f.addTaps()
	r.parts = f.capture.Parts
	for i, tap := range f.capture.Taps {
		r.Taps[i].Lost, r.Taps[i].whole = tap.Lost, tap.Whole()
	}
	r.Dilation = max(int64(f.capture.Dilation), 1)
	r.lanes, r.links = lanesOf(f.capture.Plan, r.Taps, r.Dilation), linkEnds(f.capture.Plan)
	if f.capture.Plan != nil {
		for _, n := range f.capture.Plan.Nodes {
			r.cpus[n.Name] = n.CPU
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(f.windows), connection.compare) {
		f.endWait(f.windows[of])
		f.endFlight(&f.windows[of].flight)
	}
	f.discards()
	f.numberMessages()
	r.account()
}

// name gives a flow its ranks. Several workloads may have the same ranks: then it takes the workload at the
// time of the first packet.
func (f *Follower) name(flow *Flow, p *evidence.Packet) {
	flow.FromRank, flow.ToRank = -1, -1
	for _, roles := range f.roles {
		w := &roles.Workload
		role := roles.Of(p)
		if during := p.Time >= w.From && (w.To == 0 || p.Time <= w.To); !role.Relevant ||
			!during && flow.Workload != "" {
			continue
		}
		flow.Workload = w.Name
		if role.Rank >= 0 {
			flow.FromRank = w.Ranks[role.Rank].Rank
		}
		if role.To >= 0 {
			flow.ToRank = w.Ranks[role.To].Rank
		}
		if roles.Encrypted() && flow.Protocol == "udp" {
			flow.Protocol = "quic"
		}
	}
}
