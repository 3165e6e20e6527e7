package quic

import (
	quicgo "github.com/quic-go/quic-go"

	"railbed/transports/streams"
)

// Each side of a connection opens a stream of replies first. Each further stream is a message: a header
// (streams.Header) and its payload. A reply (streams.Reply) has the number of the stream of the message that
// it ends. The first reply of a stream ends none. It is replyWelcome, which a side sends when it reads
// messages.
const (
	headerLen = streams.HeaderLen
	replyLen  = streams.ReplyLen
)

// protocol is the name of this protocol in TLS (ALPN, RFC 7301).
const protocol = "railbed-quic/1"

// Reply codes. A message is placed, or it was discarded because its stream was reset. Greater codes are the
// refusals of package streams. The detail is the region's length then.
const (
	replyPlaced = iota
	replyWelcome
	replyDiscarded
	replyBounds = replyDiscarded + byte(streams.Bounds)
)

// Codes with which an endpoint closes a connection: because it closes itself, because the peer has
// failed, or because the peer has a connection already.
const (
	codeClosed quicgo.ApplicationErrorCode = iota
	codeBroken
	codeRefused
)

// codeReset is the code with which streams of messages are ended. The reply has the reason.
const codeReset quicgo.StreamErrorCode = 0
