// Package transports is the interface that every collective is written against: an Endpoint writes
// messages from its owner's memory straight into memory that a peer has registered. Package
// transportstest checks the semantics below as a conformance suite; each implementation passes it.
//
// # Messages
//
// A message is one Request. WRITE places bytes in a peer's region. WRITE_IMM places bytes and then
// delivers 32 bits of immediate data to the peer. There is no receive call: the sender chooses the
// receiver's memory, as in RDMA.
//
//   - Each byte of a message is placed exactly once, at its offset, before the
//     message's immediate is delivered and before its sender's completion. No
//     byte of the message is placed after either.
//   - An immediate is delivered exactly once, as one Completion with OpReceive.
//     The receiver notices a WRITE only by its bytes.
//   - Messages are not ordered, even to one peer: neither their placement, nor
//     their immediates, nor their completions.
//   - A message may be gathered from several pieces of its sender's memory, but
//     it is placed as one contiguous block. For several blocks, post several
//     messages.
//   - Key, access and bounds are checked at the receiver before a byte is
//     placed. A message that fails the check is not placed, delivers no
//     immediate and completes at its sender with an error that wraps ErrAccess.
//     The transport decides whether other messages to that peer survive: on a
//     RoCE RC queue pair they do not, on tcp they do.
//
// # Buffers
//
// From Post until the completion of a request is polled, the bytes of its Local and More belong to
// the endpoint. The caller must not change or reuse them. There are two exceptions. The bytes of an
// Inline request belong to the caller again when Post has accepted it. And the caller may change
// Local once the receiver is known to have the message, for example because it said so in a later
// message. Placement is exactly once, so no peer can see that change. Peers may write to a
// registered region from Register until its Close returns.
//
// # Cancellation
//
// A request with a Context is canceled when that context is done, if this is still possible. It
// then completes with an error that wraps ErrCanceled and the context's cause. From that completion
// on, none of its bytes is placed any more and its immediate is not delivered. Before the
// completion, any of its bytes may have been placed. The whole message with its immediate may have
// been placed if it overtook the cancellation. If that is known, the request completes as if it had
// no Context. So it does if the transport cannot call back bytes that it began to send (tcp). A
// request completes once in any case, and not before the receiver is known to have discarded it. A
// silent peer delays that completion until the peer has failed.
//
// # Peers
//
// Endpoints exchange opaque addresses out of band. An address names one endpoint: after a
// restart a process has another address. Both ends add each other. Messages from an endpoint that
// was not added yet wait, unread, for AddPeer. An endpoint may add itself and write to itself.
// Adding an address twice gives the same Peer.
//
// A peer fails when it dies, closes, is unreachable for the transport's peer timeout, or breaks the
// protocol. Then every request outstanding to it completes with an error that wraps ErrPeerFailed,
// and after them one Completion with OpPeerDown reports the failure. A failed peer stays failed:
// Post refuses it with ErrPeerFailed. A transport without connections notices the death of a peer
// only while a request to it is outstanding.
//
// A request that completed with an error may or may not have been placed, in part or whole, unless
// the error is ErrAccess.
package transports

import (
	"context"
	"errors"
	"fmt"
)

const (
	// MaxMessage is the longest message in bytes that every transport carries.
	MaxMessage = 1 << 30
	// MaxPieces is the largest number of pieces of memory in a request, about the number that NICs
	// take in one request.
	MaxPieces = 16
	// MaxHoles is the largest number of holes that are listed of a message.
	MaxHoles = 256
	// MaxInline is the longest message in bytes that can be posted Inline. Copying longer messages
	// is no cheaper than keeping them until they complete.
	MaxInline = 256
)

// Errors that a caller distinguishes with errors.Is.
var (
	// ErrAccess: the request's region, offset or rights were refused.
	ErrAccess = errors.New("remote access refused")
	// ErrPeerFailed: the peer is gone; it will not come back.
	ErrPeerFailed = errors.New("peer failed")
	// ErrClosed: the endpoint was closed.
	ErrClosed = errors.New("endpoint closed")
	// ErrCanceled: the request's Context was done before its message was placed.
	ErrCanceled = errors.New("request canceled")
)

// Op is the operation of a request and the kind of a completion.
type Op uint8

// Operations. OpWrite and OpWriteImm are posted and complete at the sender;
// OpReceive and OpPeerDown appear only in completions.
const (
	OpWrite    Op = 1 + iota // place Local at Remote[Offset:]
	OpWriteImm               // the same, then deliver Imm
	OpReceive                // a peer's WRITE_IMM was placed here
	OpPeerDown               // a peer failed; everything outstanding to it has completed
)

// String returns the operation's name in the InfiniBand specification.
func (o Op) String() string {
	switch o {
	case OpWrite:
		return "WRITE"
	case OpWriteImm:
		return "WRITE_IMM"
	case OpReceive:
		return "RECEIVE"
	case OpPeerDown:
		return "PEER_DOWN"
	}
	return "UNKNOWN"
}

// Access is the set of rights of peers to a region.
type Access uint8

// RemoteWrite lets peers that hold the region's handle write into it. The zero Access grants no
// right.
const RemoteWrite Access = 1

// Peer is an endpoint's own number for a peer. Other endpoints number peers independently.
type Peer uint32

// Class is a traffic class, 0 (best effort) to 7. A transport with one queue per peer carries every
// class in it.
type Class uint8

// Request is one message to send.
type Request struct {
	// ID is copied into the completion. The endpoint does not interpret it.
	ID   uint64
	Op   Op
	Peer Peer
	// Local is the data to send. It needs no registration. An empty WRITE_IMM is a pure
	// notification. For an empty message, Remote and Offset are ignored.
	Local []byte
	// More are further pieces, sent after Local in the same message: at most MaxPieces with Local,
	// at most MaxMessage bytes in all. They may be empty. The endpoint reads the list during Post
	// only, and the bytes until the completion.
	More [][]byte
	// Inline makes Post copy the bytes, at most MaxInline, so that the caller may change them as
	// soon as Post accepted the request.
	Inline bool
	// Remote is the Region.Remote of the peer's region, as exchanged by rendezvous. The endpoint
	// reads it during Post only.
	Remote []byte
	// Offset is the offset in the region of Local's first byte.
	Offset uint64
	// Imm is the immediate data of a WRITE_IMM.
	Imm   uint32
	Class Class
	// Unsignaled is set if the caller does not wait for this completion alone. It waits for the
	// completion of a later request to the same peer that is neither Unsignaled nor canceled. A
	// transport may report both together, as InfiniBand's selective signaling does. A transport
	// that gains nothing by this reports each as usual.
	Unsignaled bool
	// Context cancels the request; see the package comment. Nil never cancels.
	Context context.Context
	// Droppable is the number of bytes of the message that may be left out. A transport that can
	// report lost bytes to the receiver delivers the message with holes. Other transports deliver
	// it whole.
	Droppable int
}

// Size is the length of the message in bytes.
func (r *Request) Size() int {
	size := len(r.Local)
	for _, piece := range r.More {
		size += len(piece)
	}
	return size
}

// Check returns the error for which every transport refuses a request: the request is malformed, or
// its Context is done.
func (r *Request) Check() error {
	if r.Op != OpWrite && r.Op != OpWriteImm {
		return fmt.Errorf("operation %v cannot be posted, want %v or %v", r.Op, OpWrite, OpWriteImm)
	}
	limit := MaxMessage
	if r.Inline {
		limit = MaxInline
	}
	if size := r.Size(); size > limit {
		return fmt.Errorf("%v of %d bytes, limit %d", r.Op, size, limit)
	}
	if pieces := 1 + len(r.More); pieces > MaxPieces {
		return fmt.Errorf("%v of %d pieces, limit %d", r.Op, pieces, MaxPieces)
	}
	if r.Context != nil && r.Context.Err() != nil {
		return Canceled(r.Context)
	}
	return nil
}

// Canceled returns the error of a request whose Context is done.
func Canceled(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrCanceled, context.Cause(ctx))
}

// Gather appends the bytes of the message to b.
func (r *Request) Gather(b []byte) []byte {
	b = append(b, r.Local...)
	for _, piece := range r.More {
		b = append(b, piece...)
	}
	return b
}

// PostEach implements Endpoint.Post with a function that posts one request and reports whether it
// was accepted.
func PostEach(ctx context.Context, requests []Request, post func(*Request) (taken bool, err error)) (n int,
	err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	for i := range requests {
		taken, err := post(&requests[i])
		if err != nil {
			return i, fmt.Errorf("post request %d: %w", i, err)
		}
		if !taken {
			return i, nil
		}
	}
	return len(requests), nil
}

// Completion reports the end of a posted request (OpWrite, OpWriteImm), a message from a peer
// (OpReceive) or a peer's failure (OpPeerDown).
type Completion struct {
	// ID is the request's ID, or 0 for OpReceive and OpPeerDown.
	ID   uint64
	Peer Peer
	Op   Op
	// Imm is the immediate data of an OpReceive.
	Imm uint32
	// Bytes is the number of bytes placed: here for OpReceive, at the peer for a successful
	// request.
	Bytes int
	// Missing counts the bytes of a Droppable message that were not placed. A sender counts the
	// bytes that it gave up, some of which may have arrived after all.
	Missing int
	// Holes are the parts of an OpReceive's message that were not placed, in order. The region
	// keeps its old bytes there. Holes add up to Missing bytes unless there are more than MaxHoles:
	// then the two closest holes are merged.
	Holes []Hole
	// Err is the reason why a request failed, or why a peer is down.
	Err error
}

// Hole is a range of bytes, from Offset on, that were not received.
type Hole struct{ Offset, Bytes int }

// Region is registered memory.
type Region interface {
	// Remote is the handle that lets a peer write here. It is opaque, at most 64 bytes,
	// unguessable, and valid for this region of this endpoint only.
	Remote() []byte
	// Close revokes the handle. When it returns, no more bytes are placed in the memory. A peer
	// that was writing into it at that moment fails. A second Close does nothing.
	Close() error
}

// Endpoint is the end of a transport at one NIC or one rank. All methods are safe for concurrent
// use.
type Endpoint interface {
	// Address is the address that a peer passes to AddPeer: opaque, at most 128 bytes.
	Address() []byte
	// AddPeer adds the endpoint with this address as a peer. It does not wait for the peer; an
	// unreachable peer fails later.
	AddPeer(address []byte) (Peer, error)
	// Register makes buf writable for peers as access says. The memory must stay allocated until
	// the region or the endpoint is closed. Regions may overlap. An empty buf is refused.
	Register(buf []byte, access Access) (Region, error)
	// Post queues requests in order and returns the number of accepted requests. It never waits for
	// room: n < len(requests) with a nil error is back-pressure, and a later completion says that
	// there is room again. With an error, requests[n] was refused and none of its bytes was sent.
	// The reason is that it is malformed, its peer is unknown or failed (ErrPeerFailed), its
	// Context is done (ErrCanceled), the endpoint is closed (ErrClosed), or ctx is done. ctx bounds
	// Post alone. Each accepted request completes exactly once.
	Post(ctx context.Context, requests []Request) (n int, err error)
	// Poll moves up to len(completions) completions out of the endpoint and returns their number.
	// It never waits. An endpoint whose owner does not poll stops receiving; it loses nothing.
	Poll(completions []Completion) int
	// Wait returns nil as soon as Poll has a completion, ctx's error when ctx is done, or
	// ErrClosed. With several pollers, another goroutine may have taken the completion by then.
	Wait(ctx context.Context) error
	// Close completes all outstanding requests with ErrClosed, revokes all regions and ends every
	// goroutine of the endpoint before it returns. Completions can still be polled after it.
	// Messages whose completions were not polled may be lost. A second Close does nothing.
	Close() error
}
