package streams

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"railbed/transports"
)

// regions are the regions of an endpoint, by key. The zero value is ready. Its methods are safe for
// concurrent use. A peer enters a region, reads the payload into its bytes and leaves it.
type regions struct {
	mu    sync.RWMutex
	byKey map[uint64]*Region
}

// Region is registered memory, and has the peers that are placing bytes into it.
type Region struct {
	of     *regions
	buf    []byte
	access transports.Access
	key    uint64

	mu     sync.Mutex
	idle   sync.Cond
	users  map[*Peer]int // messages of each
	closed bool
}

// Refusal is a reason for which a message is not placed.
type Refusal byte

// Reasons of refusals.
const (
	NoRegion    Refusal = iota + 1 // no region has the key
	NotWritable                    // peers may not write into the region
	Bounds                         // the message exceeds the region
)

// text returns the reason as text for the sender. size is the size of the region.
func (r Refusal) text(size uint64) string {
	switch r {
	case NoRegion:
		return "the peer has no such region"
	case NotWritable:
		return "the region is not writable for peers"
	case Bounds:
		return fmt.Sprintf("the region has %d bytes", size)
	}
	return fmt.Sprintf("reason %d", byte(r))
}

// register adds a region.
func (rs *regions) register(buf []byte, access transports.Access) (*Region, error) {
	if len(buf) == 0 {
		return nil, errors.New("register region: it has no bytes, want at least 1")
	}
	r := &Region{of: rs, buf: buf, access: access, users: map[*Peer]int{}}
	r.idle.L = &r.mu
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.byKey == nil {
		rs.byKey = map[uint64]*Region{}
	}
	r.key = transports.NewKey(func(key uint64) bool { return rs.byKey[key] != nil })
	rs.byKey[r.key] = r
	return r, nil
}

// enter checks a message and keeps its region open until leave. It returns the memory for the message, or the
// refusal and the size of the region.
func (rs *regions) enter(by *Peer, key, offset uint64, length int) (r *Region, place []byte, refused Refusal,
	size uint64) {
	rs.mu.RLock()
	r = rs.byKey[key]
	rs.mu.RUnlock()
	if r == nil {
		return nil, nil, NoRegion, 0
	}
	size = uint64(len(r.buf))
	switch {
	case r.access&transports.RemoteWrite == 0:
		return nil, nil, NotWritable, size
	case offset > size || uint64(length) > size-offset:
		return nil, nil, Bounds, size
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil, NoRegion, 0
	}
	r.users[by]++
	end := offset + uint64(length)
	return r, r.buf[offset:end:end], 0, size
}

// leave ends a message that has entered the region.
func (r *Region) leave(by *Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users[by]--; r.users[by] == 0 {
		delete(r.users, by)
	}
	if len(r.users) == 0 {
		r.idle.Broadcast()
	}
}

// Busy reports whether a peer is placing bytes.
func (r *Region) Busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.users) > 0
}

// Remote implements transports.Region.
func (r *Region) Remote() []byte { return binary.BigEndian.AppendUint64(nil, r.key) }

// Close implements transports.Region. It fails the peers that are placing bytes, because a sender may
// stall in the middle of a message.
func (r *Region) Close() error {
	r.of.mu.Lock()
	delete(r.of.byKey, r.key)
	r.of.mu.Unlock()
	r.mu.Lock()
	r.closed = true
	caught := slices.Collect(maps.Keys(r.users))
	r.mu.Unlock()
	for _, user := range caught {
		user.Broken(errors.New("it was writing into a region that was being closed"))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.users) > 0 {
		r.idle.Wait()
	}
	return nil
}

// Close closes all regions.
func (rs *regions) Close() error {
	rs.mu.RLock()
	all := slices.Collect(maps.Values(rs.byKey))
	rs.mu.RUnlock()
	var errs []error
	for _, r := range all {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
