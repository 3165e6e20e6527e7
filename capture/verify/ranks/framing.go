package ranks

import (
	"slices"

	"railbed/capture/verify/evidence"
)

// around returns the bytes of framing of a stream to a rank, without the goodbye.
func around(f *evidence.Framing, to int) uint64 {
	if to < 0 || to >= len(f.Messages) {
		return 0
	}
	return uint64(f.Hello) + f.Messages[to]*uint64(f.Header)
}

// isGoodbye reports whether a segment is the header that ends a stream, and whether that is unknown
// because the capture holds none of the segment's bytes. The goodbye has a segment of its own,
// because its sender has received replies to all earlier messages.
func isGoodbye(f *evidence.Framing, p *evidence.Packet) (is, unknown bool) {
	if f == nil || p.Payload != int(f.Header) {
		return false, false
	}
	if len(p.Segment) == 0 {
		return false, true
	}
	return p.Segment[0] == f.Goodbye &&
		!slices.ContainsFunc(p.Segment[1:], func(b byte) bool { return b != 0 }), false
}
