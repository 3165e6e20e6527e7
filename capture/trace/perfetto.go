package trace

import (
	"bufio"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of Perfetto's messages (protos/perfetto/trace in https://github.com/google/perfetto).
const (
	tracePacket = 1 // of Trace

	packetTimestamp  = 8 // of TracePacket
	packetSequence   = 10
	packetEvent      = 11
	packetDescriptor = 60

	trackUUID    = 1 // of TrackDescriptor
	trackName    = 2
	trackProcess = 3
	trackThread  = 4
	trackParent  = 5
	trackCounter = 8

	processPID  = 1 // of ProcessDescriptor
	processName = 6

	threadPID  = 1 // of ThreadDescriptor
	threadTID  = 2
	threadName = 5

	counterUnit = 6 // unit_name of CounterDescriptor

	eventAnnotation = 4 // of TrackEvent
	eventType       = 9
	eventTrack      = 11
	eventName       = 23
	eventValue      = 30
	eventFlow       = 47
	eventLastFlow   = 48

	annotationInt  = 4 // of DebugAnnotation
	annotationName = 10
)

// Types of TrackEvent.
const (
	sliceBegin = 1 + iota
	sliceEnd
	instantEvent
	counterEvent
)

// sequence is the trusted_packet_sequence_id of all packets.
const sequence = 1

// perfetto writes Perfetto's protobuf format. Tracks have the UUIDs of processes behind those of tracks.
type perfetto struct {
	to           *bufio.Writer
	packet, part []byte // reused
	inner        []byte
	err          error
}

// processUUID is the UUID of a process's track.
func processUUID(process int) uint64 { return 1<<32 + uint64(process) }

func appendUint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendBytes(b []byte, field protowire.Number, part []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), part)
}

// write writes a packet of the trace.
func (p *perfetto) write() {
	if p.err != nil {
		return
	}
	p.inner = appendBytes(p.inner[:0], tracePacket, p.packet)
	_, p.err = p.to.Write(p.inner)
}

// describe writes the track that p.part describes.
func (p *perfetto) describe() {
	p.packet = appendUint(p.packet[:0], packetSequence, sequence)
	p.packet = appendBytes(p.packet, packetDescriptor, p.part)
	p.write()
}

func (p *perfetto) process(id int, name string) {
	process := appendText(appendUint(nil, processPID, uint64(id)), processName, name)
	p.part = appendUint(p.part[:0], trackUUID, processUUID(id))
	p.part = appendBytes(p.part, trackProcess, process)
	p.describe()
}

func (p *perfetto) track(id, process, thread int, name string, lane bool) {
	p.part = appendUint(p.part[:0], trackUUID, uint64(id))
	p.part = appendUint(p.part, trackParent, processUUID(process))
	if lane {
		p.part = appendText(p.part, trackName, name)
	} else {
		described := appendUint(appendUint(nil, threadPID, uint64(process)), threadTID, uint64(thread))
		p.part = appendBytes(p.part, trackThread, appendText(described, threadName, name))
	}
	p.describe()
}

func (p *perfetto) counter(id, process int, name, unit string) {
	p.part = appendUint(p.part[:0], trackUUID, uint64(id))
	p.part = appendUint(p.part, trackParent, processUUID(process))
	p.part = appendText(p.part, trackName, name)
	p.part = appendBytes(p.part, trackCounter, appendText(nil, counterUnit, unit))
	p.describe()
}

// event writes the event that p.part goes on with.
func (p *perfetto) event(kind uint64, track int, at int64) {
	p.part = appendUint(p.part, eventType, kind)
	p.part = appendUint(p.part, eventTrack, uint64(track))
	p.packet = appendUint(p.packet[:0], packetTimestamp, uint64(max(at, 0)))
	p.packet = appendUint(p.packet, packetSequence, sequence)
	p.packet = appendBytes(p.packet, packetEvent, p.part)
	p.write()
}

func (p *perfetto) named(name string, args []arg) {
	p.part = appendText(p.part[:0], eventName, name)
	for _, a := range args {
		p.inner = appendUint(appendText(p.inner[:0], annotationName, a.name), annotationInt, uint64(a.value))
		p.part = appendBytes(p.part, eventAnnotation, p.inner)
	}
}

func (p *perfetto) slice(track int, from, to int64, name string, args []arg, way arrow) {
	p.named(name, args)
	if way.packet != 0 {
		field := protowire.Number(eventFlow)
		if way.last {
			field = eventLastFlow
		}
		p.part = protowire.AppendFixed64(protowire.AppendTag(p.part, field, protowire.Fixed64Type),
			way.packet)
	}
	p.event(sliceBegin, track, from)
	p.part = p.part[:0]
	p.event(sliceEnd, track, to)
}

func (p *perfetto) instant(track int, at int64, name string, args []arg) {
	p.named(name, args)
	p.event(instantEvent, track, at)
}

func (p *perfetto) value(counter int, at int64, value int64) {
	p.part = appendUint(p.part[:0], eventValue, uint64(value))
	p.event(counterEvent, counter, at)
}

func (p *perfetto) close() error {
	if p.err != nil {
		return p.err
	}
	return p.to.Flush()
}
