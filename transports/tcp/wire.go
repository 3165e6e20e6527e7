package tcp

import (
	"fmt"

	"railbed/transports/streams"
)

// All numbers on the wire are big-endian.
//
// The connecting side opens with a hello and then sends messages, each a header (streams.Header) followed by
// its payload:
//
//	hello   magic[8] sender-id[16] receiver-id[16]
//
// The accepting side sends replies only. Messages are numbered from 1 in the order of their headers. A reply
// (streams.Reply) applies to all messages up to its number.
const (
	helloLen  = 40
	headerLen = streams.HeaderLen
	idLen     = 16
)

// HelloLen, HeaderLen and Goodbye describe a stream of messages. It has a hello at its beginning
// and a header for each message. If the sender closes politely, it ends with a header whose first
// byte is Goodbye. Replies go the other way.
const (
	HelloLen  = helloLen
	HeaderLen = headerLen
	Goodbye   = 0xff
)

const magic = "RAILTCP1"

// goodbye is the last header of a connection. The sender will close and waits for the receiver
// to close first. So no TIME_WAIT blocks the planned source port in the next run.
var goodbye = [headerLen]byte{Goodbye}

// Reply codes.
const (
	replyPlaced   = 0                    // every message up to number, unless refused, is placed.
	replyBounds   = byte(streams.Bounds) // up to this: refusals; detail is the region's length
	replyStranger = 4                    // the hello was meant for another endpoint
)

func encodeHello(from, to string) []byte { return []byte(magic + from + to) }

func decodeHello(raw *[helloLen]byte) (from, to string, err error) {
	if string(raw[:8]) != magic {
		return "", "", fmt.Errorf("hello starts with %q, want %q", raw[:8], magic)
	}
	return string(raw[8 : 8+idLen]), string(raw[8+idLen:]), nil
}
