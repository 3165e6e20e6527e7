package tcp

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"

	"railbed/transports"
)

// region is registered memory, with the connections that are placing bytes into it right now.
type region struct {
	endpoint *Endpoint
	buf      []byte
	access   transports.Access
	key      uint64

	mu     sync.Mutex
	idle   sync.Cond
	users  map[*incoming]struct{}
	closed bool
}

// Remote implements transports.Region.
func (r *region) Remote() []byte { return binary.BigEndian.AppendUint64(nil, r.key) }

// enter checks a message and keeps the region open until leave. It returns the memory for the
// message, or the code and detail of the refusal.
func (r *region) enter(by *incoming, h header) (place []byte, code byte, detail uint64) {
	size := uint64(len(r.buf))
	switch {
	case r.access&transports.RemoteWrite == 0:
		return nil, replyNotWritable, 0
	case h.offset > size || uint64(h.length) > size-h.offset:
		return nil, replyBounds, size
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, replyNoRegion, 0
	}
	r.users[by] = struct{}{}
	end := h.offset + uint64(h.length)
	return r.buf[h.offset:end:end], replyPlaced, 0
}

func (r *region) leave(by *incoming) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.users, by)
	if len(r.users) == 0 {
		r.idle.Broadcast()
	}
}

// Close implements transports.Region.
func (r *region) Close() error {
	r.endpoint.forget(r)
	r.mu.Lock()
	r.closed = true
	caught := slices.Collect(maps.Keys(r.users))
	r.mu.Unlock()
	for _, user := range caught {
		// A sender may stall in the middle of a message. Only the end of its connection unblocks
		// the reader then.
		user.peer.fail(fmt.Errorf("%w: it was writing into a region that was being closed",
			transports.ErrPeerFailed), abrupt)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.users) > 0 {
		r.idle.Wait()
	}
	return nil
}
