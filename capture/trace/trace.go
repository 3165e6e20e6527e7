// Package trace writes a recording as a trace for Perfetto's user interface (https://ui.perfetto.dev) or in
// Chrome's JSON form.
//
// Each node and switch is a process, and each of its ports a thread. A port has a slice for each frame that
// it sends, as long as the frame takes at the link's rate. Above it are slices for the frames that wait in
// its queue. Counters show the queue's depth and the rate. A node has a slice for each message that it
// sends, and for the operations and steps of its ranks that Options has. Arrows lead from port to port with
// each packet. Records of drops, marks and trims are instants.
//
// Times are in the testbed's own time, from the first step or record. At soft switches they are the
// model's, without the emulator's lateness.
package trace

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"railbed/capture/follow"
	"railbed/plan/topology"
)

// Step is a slice: a step of the run, or an operation of a rank or a step of its algorithm.
type Step struct {
	// Node is the process, and Rank its track. Default: the process "run", and its track of steps.
	Node, Rank string
	Name       string
	From, To   int64 // ns since 1970
}

// Options select what a trace shows. The zero value shows everything.
type Options struct {
	// From and To bound the packets by the time of their first record, from the first record of all. To 0
	// is no bound.
	From, To time.Duration
	// Packet reports whether a packet is shown, by its index. Nil shows all.
	Packet func(packet int) bool
	Steps  []Step
}

// Written counts what a trace has.
type Written struct {
	Packets int `json:"packets"`
	Slices  int `json:"slices"`
	Events  int `json:"events"` // instants and values of counters
}

// output is a format of traces. Times are in nanoseconds. Tracks are described before their events.
type output interface {
	process(id int, name string)
	// track describes a track of a process: a thread, or a lane above the thread of that number.
	track(id, process, thread int, name string, lane bool)
	counter(id, process int, name, unit string)
	slice(track int, from, to int64, name string, args []arg, way arrow)
	instant(track int, at int64, name string, args []arg)
	value(counter int, at int64, value int64)
	close() error
}

// arrow is a step on the way of a packet, 0 for none. First and last are set for the packet's first and
// last step.
type arrow struct {
	packet      uint64
	first, last bool
}

type arg struct {
	name  string
	value int64
}

// Perfetto writes a trace in Perfetto's protobuf format.
func Perfetto(to io.Writer, r *follow.Recording, o Options) (Written, error) {
	buffered := bufio.NewWriterSize(to, 1<<20)
	return write(&perfetto{to: buffered}, r, o)
}

// Chrome writes a trace in the JSON Object Format of Chrome's about:tracing.
func Chrome(to io.Writer, r *follow.Recording, o Options) (Written, error) {
	buffered := bufio.NewWriterSize(to, 1<<20)
	return write(&chrome{to: buffered}, r, o)
}

func write(out output, r *follow.Recording, o Options) (Written, error) {
	w := &writer{out: out, r: r, o: o, base: r.Start, processes: map[string]int{},
		tracks: map[trackKey]*track{}}
	for _, step := range o.Steps {
		w.base = min(w.base, step.From)
	}
	w.steps()
	w.packets()
	w.messages()
	w.emit()
	return w.written, out.close()
}

// writer collects slices by track, because the slices of a track are written in the order of their times.
type writer struct {
	out       output
	r         *follow.Recording
	o         Options
	processes map[string]int
	tracks    map[trackKey]*track
	order     []*track
	next      int   // number of tracks so far
	base      int64 // the time that is 0 in the trace
	written   Written
}

// trackKey names a group of lanes of a process.
type trackKey struct {
	process string
	name    string
	counter string // its unit, or "" for a track of slices
}

// track is a group of lanes. Slices that overlap are in different lanes.
type track struct {
	trackKey
	lane     bool
	slices   []slice
	instants []slice
	values   []point
}

type slice struct {
	from, to int64
	packet   int32 // its packet, or its message
	depth    int64
	kind     kind
	way      arrow
	text     string
}

type point struct{ at, value int64 }

type kind uint8

const (
	sends kind = iota
	waits
	message
	plain
)

func (w *writer) track(key trackKey, lane bool) *track {
	if t := w.tracks[key]; t != nil {
		return t
	}
	t := &track{trackKey: key, lane: lane}
	w.tracks[key] = t
	w.order = append(w.order, t)
	return t
}

func (w *writer) own(at int64) int64 { return int64(w.r.Own(at - w.base)) }

// runProcess is the name of the process with the run's steps.
const runProcess = "run"

func (w *writer) steps() {
	for _, step := range w.o.Steps {
		key := trackKey{process: runProcess, name: "steps"}
		if step.Node != "" {
			key = trackKey{process: step.Node, name: step.Rank}
		}
		t := w.track(key, true)
		t.slices = append(t.slices, slice{from: w.own(step.From), to: w.own(step.To), kind: plain,
			text: step.Name})
	}
}

// shown reports whether a packet is in the trace.
func (w *writer) shown(packet int) bool {
	at := w.r.Own(w.r.Sent(packet) - w.r.Start)
	return at >= w.o.From && (w.o.To == 0 || at < w.o.To) && (w.o.Packet == nil || w.o.Packet(packet))
}

func (w *writer) packets() {
	for i := range w.r.Packets {
		if !w.shown(i) {
			continue
		}
		w.written.Packets++
		hops := w.r.Hops(i)
		var last *track
		for h := range hops {
			if port := w.hop(int32(i), &hops[h]); port != nil {
				port.slices[len(port.slices)-1].way = arrow{packet: uint64(i) + 1, first: last == nil}
				last = port
			}
		}
		if last != nil {
			last.slices[len(last.slices)-1].way.last = true
		}
	}
}

func (w *writer) port(tap int, queue bool) *track {
	t := w.r.Taps[tap]
	if queue {
		return w.track(trackKey{process: t.Node, name: t.Port + " queue"}, true)
	}
	return w.track(trackKey{process: t.Node, name: t.Port}, false)
}

// hop adds a hop. It returns the port whose last slice is the transmission, or nil.
func (w *writer) hop(packet int32, h *follow.Hop) (sender *track) {
	at := h.To.Tap // the port with the queue
	if h.Link {
		at = h.From.Tap
	}
	waited := h.Account[follow.Queue] + h.Account[follow.Pause]
	from := w.own(h.From.Due)
	left := w.own(h.From.Due + waited)
	if left > from {
		queue := w.port(at, true)
		queue.slices = append(queue.slices, slice{from: from, to: left, packet: packet, kind: waits,
			depth: h.To.Depth})
	}
	if h.Link {
		sender = w.port(at, false)
		to := w.own(h.From.Due + waited + h.Account[follow.Serialise])
		sender.slices = append(sender.slices, slice{from: left, to: to, packet: packet, kind: sends,
			depth: -1})
	}
	if !h.Link && h.To.Depth >= 0 {
		depth := w.track(trackKey{w.r.Taps[at].Node, w.r.Taps[at].Port + " depth", "B"}, false)
		depth.values = append(depth.values, point{w.own(h.To.Due), h.To.Depth})
	}
	v := h.To.Verdict
	if v == "drop" || v == "mark" || v == "trim" || strings.HasPrefix(h.To.Reason, "fault ") {
		text := v
		if h.To.Reason != "" {
			text += " " + h.To.Reason
		}
		port := w.port(h.To.Tap, false)
		port.instants = append(port.instants, slice{from: w.own(h.To.Due), packet: packet, text: text,
			depth: h.To.Depth})
	}
	return sender
}

func (w *writer) messages() {
	for i := range w.r.Messages {
		m := &w.r.Messages[i]
		f := &w.r.Flows[m.Flow]
		if f.Protocol == "udp" || f.Protocol == "quic" || !slices.ContainsFunc(m.Packets,
			func(p int32) bool { return w.shown(int(p)) }) {
			continue
		}
		process, to := f.From, f.To
		if process == "" {
			process, to = f.Src.Addr().String(), f.Dst.Addr().String()
		}
		end := m.Placed
		if end == 0 {
			end = w.r.Sent(int(m.Packets[len(m.Packets)-1]))
		}
		t := w.track(trackKey{process: process, name: "messages to " + to}, true)
		t.slices = append(t.slices, slice{from: w.own(m.Start), to: w.own(end), packet: int32(i),
			kind: message})
	}
}

// rateEvery is the time over which a port's rate is the mean.
const rateEvery = int64(time.Millisecond)

// emit writes everything, track by track: first the run, then the nodes by their names.
func (w *writer) emit() {
	first := func(t *track) int {
		if t.process == runProcess {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(w.order, func(a, b *track) int {
		return cmp.Or(first(a)-first(b), topology.CompareNames(a.process, b.process),
			cmp.Compare(a.name, b.name))
	})
	for _, t := range w.order {
		if _, known := w.processes[t.process]; !known {
			w.processes[t.process] = len(w.processes) + 1
			w.out.process(w.processes[t.process], t.process)
		}
		switch {
		case t.counter != "":
			w.counter(t.process, t.name, t.counter, t.values)
		default:
			w.lanes(t)
		}
		if len(t.slices) > 0 && t.slices[0].kind == sends {
			w.rate(t)
		}
	}
}

func (w *writer) counter(process, name, unit string, values []point) {
	w.next++
	w.out.counter(w.next, w.processes[process], name, unit)
	slices.SortStableFunc(values, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	for _, v := range values {
		w.out.value(w.next, v.at, v.value)
		w.written.Events++
	}
}

// rate writes a port's rate in bit/s.
func (w *writer) rate(t *track) {
	var values []point
	var bytes int64
	window := int64(0)
	for i := range t.slices {
		s := &t.slices[i]
		for s.from >= window+rateEvery {
			values = append(values, point{window, bytes * 8 * int64(time.Second) / rateEvery})
			window += rateEvery
			if bytes = 0; s.from >= window+rateEvery { // idle until then
				values = append(values, point{window, 0})
				window = s.from / rateEvery * rateEvery
			}
		}
		bytes += int64(w.r.Packets[s.packet].Length)
	}
	values = append(values, point{window, bytes * 8 * int64(time.Second) / rateEvery},
		point{window + rateEvery, 0})
	w.counter(t.process, t.name+" rate", "bit/s", values)
}

// lanes writes the slices of a track. Each goes to the first lane that is free.
func (w *writer) lanes(t *track) {
	slices.SortStableFunc(t.slices, func(a, b slice) int { return cmp.Compare(a.from, b.from) })
	type lane struct {
		id   int
		free int64
	}
	var lanes []lane
	add := func() {
		w.next++
		lanes = append(lanes, lane{id: w.next})
		w.out.track(w.next, w.processes[t.process], w.next, t.name, t.lane)
	}
	add()
	for i := range t.slices {
		s := &t.slices[i]
		at := slices.IndexFunc(lanes, func(l lane) bool { return l.free <= s.from })
		if at < 0 {
			add()
			at = len(lanes) - 1
		}
		lanes[at].free = s.to
		w.slice(lanes[at].id, s)
	}
	for i := range t.instants {
		s := &t.instants[i]
		w.out.instant(lanes[0].id, s.from, s.text, w.packetArgs(int(s.packet), s.depth))
		w.written.Events++
	}
}

func (w *writer) slice(track int, s *slice) {
	w.written.Slices++
	switch s.kind {
	case plain:
		w.out.slice(track, s.from, s.to, s.text, nil, arrow{})
	case message:
		m := &w.r.Messages[s.packet]
		name := fmt.Sprintf("%s message %d", w.r.Flows[m.Flow].Protocol, m.Number)
		if m.Placed == 0 {
			name += ", unfinished"
		}
		args := []arg{{"bytes", m.Bytes}, {"packets", int64(len(m.Packets))}, {"sent_again", int64(m.Again)}}
		for part, ns := range m.Account {
			if ns != 0 {
				args = append(args, arg{follow.Part(part).String() + "_ns", int64(w.r.Own(ns))})
			}
		}
		w.out.slice(track, s.from, s.to, name, args, arrow{})
	default:
		p := &w.r.Packets[s.packet]
		w.out.slice(track, s.from, s.to, w.packetName(p), w.packetArgs(int(s.packet), s.depth), s.way)
	}
}

func (w *writer) packetName(p *follow.Packet) string {
	if p.Flow < 0 {
		return "frame"
	}
	if p.PSN == 0 {
		return w.r.Flows[p.Flow].Protocol
	}
	return w.r.Flows[p.Flow].Protocol + " " + strconv.FormatUint(uint64(p.PSN), 10)
}

func (w *writer) packetArgs(packet int, depth int64) []arg {
	p := &w.r.Packets[packet]
	args := []arg{{"record", int64(w.r.First(packet))}, {"length", int64(p.Length)}}
	if p.Message >= 0 {
		args = append(args, arg{"message", int64(w.r.Messages[p.Message].Number)})
	}
	if depth >= 0 {
		args = append(args, arg{"depth", depth})
	}
	return args
}
