package live

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"railbed/fabric/softswitch"
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/feed"
	"railbed/plan"
)

// maxFeeds is how many captures can record soft switches at the same time.
const maxFeeds = 8

// taps is the engine's observer. It writes the events at the ports of each capture into the
// capture's feed.
type taps struct {
	loop  *loop
	feeds [maxFeeds]*tapped
	any   bool // there is a feed
	all   bool // a feed records enqueued packets, too
	// record is the current record, which is written to each feed in turn.
	record feed.Record
}

// tapped is a capture.
type tapped struct {
	writer *feed.Writer
	number []int32 // tap number in the feed, by port; -1 is none
	snap   int
	all    bool // record enqueued packets, too
}

var events = [...]feed.Event{
	softswitch.Arrived: feed.Receive, softswitch.Queued: feed.Enqueue, softswitch.Sent: feed.Send,
	softswitch.Dropped: feed.Drop,
	softswitch.Lost:    feed.Lose, softswitch.Entered: feed.Enter, softswitch.Harmed: feed.Harm,
}

var verdicts = [...]feed.Verdict{
	softswitch.Nothing: feed.Plain, softswitch.Marked: feed.Mark, softswitch.Trimmed: feed.Trim,
	softswitch.Paused:  feed.Pause,
	softswitch.Resumed: feed.Resume, softswitch.Slowed: feed.Slow, softswitch.Delayed: feed.Delay,
	softswitch.Duplicated: feed.Duplicate, softswitch.Corrupted: feed.Corrupt,
	softswitch.Truncated: feed.Truncate, softswitch.Rewritten: feed.Rewrite,
	softswitch.Mirrored: feed.Mirror, softswitch.Misrouted: feed.Misroute,
	softswitch.PauseRequested: feed.RequestPause,
}

// Observe implements softswitch.Observer. An action on a packet in a queue is recorded when the
// packet leaves. At an emulated NIC, a packet socket at the node sees sent and received frames. It
// does not see frames that the NIC drops, nor the control frames that the NIC honours. When a frame
// passes between the node and the NIC, a short record is written. With it the recorder finds the
// serial of a frame that the socket saw.
func (t *taps) Observe(o *softswitch.Observation) {
	if o.Kind == softswitch.Queued && !t.all {
		return
	}
	l := t.loop
	number, nic := l.engine.NIC(o.Port)
	switch {
	case nic && o.Kind == softswitch.Entered && o.Packet.Bypass:
		l.show(number, o.Packet.Data)
		t.bypass(o, feed.Send, o.Time)
		return
	case nic && o.Kind == softswitch.Arrived && o.Verdict == softswitch.Nothing &&
		l.steered(number, o.Packet) != nil:
		l.show(number, o.Packet.Data)
		// The records of the switches are older, also if the thread paused since it began to advance.
		t.bypass(o, feed.Receive, l.clock.Now())
		return
	case o.Kind == softswitch.Entered:
		t.pass(o, feed.Enter, o.Time)
		return
	case nic && o.Kind == softswitch.Arrived && o.Verdict == softswitch.Nothing:
		t.pass(o, feed.Leave, l.advanced)
		return
	case nic && o.Kind == softswitch.Sent && !t.all:
		return
	}
	now := l.clock.Now()
	r := &t.record
	r.Time, r.Serial = l.realTime(now), o.Packet.Serial
	r.Late = int64(l.clock.Wait(max(now.Sub(o.Time), 0)))
	r.Depth, r.Length, r.Queue = o.Depth, len(o.Packet.Data), o.Queue
	r.Event, r.Verdict, r.Reason = events[o.Kind], verdicts[o.Verdict], uint8(o.Reason)
	r.Fault = o.Fault
	if nic && o.Kind == softswitch.Sent {
		r.Event = feed.Dequeue
	}
	t.write(o.Port, o.Packet.Data)
}

// pass records that a frame passed between a node's NIC and the emulated NIC.
func (t *taps) pass(o *softswitch.Observation, event feed.Event, at clock.Time) {
	data := o.Packet.Data
	t.record = feed.Record{Time: t.loop.realTime(at), Serial: o.Packet.Serial, Length: len(data),
		Event: event}
	t.write(o.Port, data[:min(len(data), feed.PassSnap)])
}

// bypass records a frame that a program passed to the NIC, or gets from it, past the kernel: no packet socket
// sees it.
func (t *taps) bypass(o *softswitch.Observation, event feed.Event, at clock.Time) {
	t.record = feed.Record{Time: t.loop.realTime(at), Serial: o.Packet.Serial, Length: len(o.Packet.Data),
		Event: event, Depth: -1}
	t.write(o.Port, o.Packet.Data)
}

// refuse records frames that arrived at an emulated NIC and for which the node's own queue had no
// room.
func (t *taps) refuse(nic int, frames ...*packet.Packet) {
	for _, one := range frames {
		t.drop(nic, feed.Refuse, softswitch.Refused, one.Serial, one.Data)
	}
}

// noMemory records a frame from a node for which there was no packet memory.
func (t *taps) noMemory(nic int, data []byte, at clock.Time) {
	port, known := t.loop.engine.PortNumber(t.loop.nics[nic].end)
	if !known || !t.any {
		return
	}
	one := packet.Packet{Data: data, Serial: t.loop.engine.NextSerial()}
	t.pass(&softswitch.Observation{Port: port, Packet: &one}, feed.Enter, at)
	t.drop(nic, feed.Lose, softswitch.Memory, one.Serial, data)
}

// drop records a frame that the emulator drops outside its model.
func (t *taps) drop(nic int, event feed.Event, why softswitch.Reason, serial uint64, data []byte) {
	port, known := t.loop.engine.PortNumber(t.loop.nics[nic].end)
	if !known || !t.any {
		return
	}
	t.record = feed.Record{Time: t.loop.realTime(t.loop.clock.Now()), Serial: serial, Length: len(data),
		Event: event, Reason: uint8(why)}
	t.write(port, data)
}

// write writes the record of a port into the feeds that record this port.
func (t *taps) write(port int, data []byte) {
	r := &t.record
	for _, one := range t.feeds {
		if one == nil || one.number[port] < 0 ||
			(r.Event == feed.Enqueue || r.Event == feed.Dequeue) && !one.all {
			continue
		}
		r.Tap = uint16(one.number[port])
		r.Data = data[:min(len(data), one.snap)]
		one.writer.Write(r)
	}
}

// add starts a capture and returns its index.
func (t *taps) add(writer *feed.Writer, ports []int, o *openTaps) (place int, err error) {
	for place = range t.feeds {
		if t.feeds[place] != nil {
			continue
		}
		one := &tapped{writer: writer, snap: o.Snap, all: o.Events,
			number: make([]int32, t.loop.engine.PortCount())}
		for i := range one.number {
			one.number[i] = -1
		}
		for i, port := range ports {
			one.number[port] = int32(i)
		}
		for i, name := range t.loop.engine.FaultNames() {
			writer.NameFault(uint8(i+1), name)
		}
		t.feeds[place] = one
		t.observe()
		return place, nil
	}
	return 0, fmt.Errorf("capture at soft switches: %d captures are running already; end one first", maxFeeds)
}

// named tells all captures the names of the engine's faults.
func (t *taps) named() {
	names := t.loop.engine.FaultNames()
	for _, one := range t.feeds {
		if one != nil {
			one.writer.NameFault(uint8(len(names)), names[len(names)-1])
		}
	}
}

// remove ends a capture.
func (t *taps) remove(place int) error {
	one := t.feeds[place]
	if one == nil {
		return nil
	}
	t.feeds[place] = nil
	t.observe()
	return one.writer.Close()
}

// observe makes the engine observe the recorded ports, and the NICs with mirrors.
func (t *taps) observe() {
	t.any, t.all = false, false
	for _, one := range t.feeds {
		t.any = t.any || one != nil
		t.all = t.all || one != nil && one.all
	}
	for port := range t.loop.engine.PortCount() {
		number, isNIC := t.loop.engine.NIC(port)
		wanted := isNIC && t.loop.nics[number].mirror != nil
		for _, one := range t.feeds {
			wanted = wanted || one != nil && one.number[port] >= 0
		}
		t.loop.engine.Observe(port, wanted)
	}
}

// openTaps is a request to record ports; the feed's descriptor comes through the socket for
// descriptors.
type openTaps struct {
	Ports []plan.End `json:"ports"`
	Snap  int        `json:"snap"`
	// Events also requests records of packets that enter queues.
	Events bool `json:"events,omitempty"`
}

// start records ports into a feed.
func (t *taps) start(o *openTaps, file *os.File) (place int, err error) {
	defer file.Close()
	writer, err := feed.NewWriter(file)
	if err != nil {
		return 0, err
	}
	writer.Touch()
	var ports []int
	t.loop.do(func() {
		for _, end := range o.Ports {
			number, known := t.loop.engine.PortNumber(end)
			if !known {
				err = fmt.Errorf("capture at %s:%s: no soft switch or emulated NIC has this port", end.Node,
					end.Port)
				return
			}
			ports = append(ports, number)
		}
		place, err = t.add(writer, ports, o)
	})
	if err != nil {
		err = errors.Join(err, writer.Close())
	}
	return place, err
}

// Feed is a recording of the packets at some ports.
type Feed struct {
	File    *os.File // for a capture; the feed already has its writer
	process *Process
	place   int
}

// RecordOptions are the options of Record.
type RecordOptions struct {
	// Snap is the largest number of bytes written of each packet; 0 is none.
	Snap int
	// Events also requests a record of each packet that enters a queue.
	Events bool
}

// Record starts writing the packets at ports into a feed. A tap's number is the port's index in the
// list. For a node's NIC it records the frames that the emulated NIC drops and the control frames
// that it honours.
func (s *Process) Record(ports []plan.End, o RecordOptions) (*Feed, error) {
	file, err := feed.Create(feedSize)
	if err != nil {
		return nil, err
	}
	feed.Allocate(file) // by a thread that is not a real-time thread
	place, err := s.openTaps(&openTaps{Ports: ports, Snap: o.Snap, Events: o.Events}, file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Feed{File: file, process: s, place: place}, nil
}

// feedSize is enough for the frames that two cores can switch in a tenth of a second.
const feedSize = 64 << 20

// End ends the recording. It does not close the file.
func (f *Feed) End() error {
	_, err := f.process.ask(request{CloseTaps: &f.place})
	return err
}

// openTaps sends the descriptor and then the request.
func (s *Process) openTaps(o *openTaps, file *os.File) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.hand(file); err != nil {
		return 0, fmt.Errorf("hand a feed to the soft switches: %w", err)
	}
	a, err := s.askLocked(request{OpenTaps: o})
	return a.Place, err
}

// hand sends a descriptor, which stays open here.
func (s *Process) hand(file *os.File) error {
	return unix.Sendmsg(int(s.descriptors.Fd()), []byte{0}, unix.UnixRights(int(file.Fd())), nil, 0)
}

// receiveFile receives a descriptor from a socket.
func receiveFile(socket int) (*os.File, error) {
	var data [1]byte
	fd, err := receiveDescriptor(socket, data[:])
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "feed"), nil
}

// receiveDescriptor receives a descriptor, and the whole message with it, into the calling thread's
// table.
func receiveDescriptor(socket int, message []byte) (fd int, err error) {
	rights := make([]byte, unix.CmsgSpace(4))
	n, control, _, _, err := unix.Recvmsg(socket, message, rights, unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR {
		n, control, _, _, err = unix.Recvmsg(socket, message, rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return -1, fmt.Errorf("receive descriptor: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:control])
	if err != nil || len(messages) != 1 || n != len(message) {
		return -1, fmt.Errorf("receive descriptor: %d control messages in %d bytes, want 1: %w",
			len(messages), n, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, fmt.Errorf("receive descriptor: %d descriptors, want 1: %w", len(fds), err)
	}
	return fds[0], nil
}

// realTime returns CLOCK_REALTIME at a virtual time.
func (l *loop) realTime(at clock.Time) int64 { return int64(l.clock.Wait(at.Sub(0))) + l.wall }
