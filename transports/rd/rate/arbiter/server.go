package arbiter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"railbed/transports/rd/privacy"
)

const (
	// lead is the minimum time between the assignment of a slot and its beginning. It covers the
	// grant's transmission, and the time until the host's process runs.
	lead = 500 * time.Microsecond
	// horizon is how far ahead slots are assigned, so that the arbiter need not run for each slot.
	horizon = 2 * time.Millisecond
)

// Options configure an arbiter. All but Secret are required.
type Options struct {
	Hosts int
	// Slot is the number of payload bytes of a slot, and Time its length in real time.
	Slot int
	Time time.Duration
	// Secret is shared by the arbiter and its hosts. If nil, messages are not authenticated.
	Secret *privacy.Secret
}

// server is the arbiter without its socket. Times are in ns since 1970.
type server struct {
	Options
	allocator *Allocator
	wanted    []uint64 // bytes by from and to, so far
	granted   []uint64
	last      []int64  // when the latest slot of a pair begins
	next      int64    // when the next slot begins
	messages  [][]byte // to hosts, waiting to be sent
	grants    []Grant
	channels  []*channel // to hosts
}

func newServer(o Options) *server {
	s := &server{
		Options:   o,
		allocator: NewAllocator(o.Hosts, o.Slot),
		wanted:    make([]uint64, o.Hosts*o.Hosts),
		granted:   make([]uint64, o.Hosts*o.Hosts),
		last:      make([]int64, o.Hosts*o.Hosts), messages: make([][]byte, o.Hosts),
	}
	life := newLife()
	for range o.Hosts {
		s.channels = append(s.channels, newChannel(o.Secret, life))
	}
	return s
}

// request processes a request, and returns its host. If bytes were granted already, it reports the
// grant again.
func (s *server) request(b []byte, send func(host int, message []byte)) (host int, valid bool) {
	if len(b) < headLen {
		return 0, false
	}
	if host = hostOf(b); host >= s.Hosts {
		return 0, false
	}
	if b, valid = s.channels[host].open(b); !valid {
		return 0, false
	}
	if _, valid = readMessage(b, typeRequest, requestLen); !valid {
		return 0, false
	}
	for i := range entries(b) {
		to, total, _ := entry(b, i, requestLen)
		if to < 0 || to >= s.Hosts || to == host {
			continue
		}
		at := host*s.Hosts + to
		if more := total - s.wanted[at]; total > s.wanted[at] && more <= 1<<40 {
			s.wanted[at] = total
			s.allocator.Want(host, to, int(more))
		}
		if s.granted[at] > 0 {
			s.add(host, to, send)
		}
	}
	return host, true
}

// add adds the latest grant for a pair to the host's next message.
func (s *server) add(host, to int, send func(int, []byte)) {
	m := s.messages[host]
	if len(m) == 0 {
		m = newMessage(m, typeGrant, host)
	}
	m = addEntry(m, to, s.granted[host*s.Hosts+to])
	s.messages[host] = binary.BigEndian.AppendUint64(m, uint64(s.last[host*s.Hosts+to]))
	if entries(m) == mostEntries {
		send(host, s.messages[host])
		s.messages[host] = s.messages[host][:0]
	}
}

// run assigns slots up to the horizon and sends the pending messages. It returns the time at which
// it must run again, or 0 if not before a request.
func (s *server) run(now int64, send func(host int, message []byte)) (again int64) {
	s.next = max(s.next, now+int64(lead))
	for s.allocator.Waiting() > 0 && s.next < now+int64(lead+horizon) {
		s.grants = s.allocator.Allocate(s.grants[:0])
		for _, g := range s.grants {
			at := g.From*s.Hosts + g.To
			s.granted[at] += uint64(g.Bytes)
			s.last[at] = s.next
			s.add(g.From, g.To, send)
		}
		s.next += int64(s.Time)
	}
	for host, m := range s.messages {
		if len(m) > 0 {
			send(host, m)
			s.messages[host] = m[:0]
		}
	}
	if s.allocator.Waiting() > 0 {
		return max(s.next-int64(lead+horizon/2), now+1)
	}
	return 0
}

// Serve runs an arbiter at an address until the context ends. A host's address is the source of its
// latest request.
//
// With a secret, an attacker without it cannot request, grant, or redirect answers by replaying a
// request. Such an attacker can still delay or drop messages, which costs time. Hosts with the
// secret can send requests in each other's names.
//
// Without a secret, any host that reaches the arbiter can send requests in another host's name and
// receive the answers. Any host that reaches a client can grant that client the requested bytes,
// for any time. Then slots are only as reliable as the network is closed. Sending is still bounded
// by the bytes that the sender needs to send and by its NIC's rate.
//
// Either way no message makes memory grow.
func Serve(ctx context.Context, at netip.AddrPort, o Options) error {
	if o.Hosts < 1 || o.Hosts > 1<<12 || o.Slot < 1 || o.Time <= 0 {
		return fmt.Errorf("serve arbiter: %d hosts, slots of %d bytes and %v: want 1 to %d hosts, and "+
			"both above 0", o.Hosts, o.Slot, o.Time, 1<<12)
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return fmt.Errorf("serve arbiter: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := express(conn, at.Addr()); err != nil {
		return fmt.Errorf("serve arbiter: %w", err)
	}
	s := newServer(o)
	from := make([]netip.AddrPort, o.Hosts)
	send := func(host int, message []byte) {
		if sealed := s.channels[host].seal(message); sealed != nil {
			_, _ = conn.WriteToUDPAddrPort(sealed, from[host]) // a lost grant is requested again
		}
	}
	var again int64
	buffer := make([]byte, 1<<11)
	for {
		var deadline time.Time
		if again != 0 {
			deadline = time.Unix(0, again)
		}
		_ = conn.SetReadDeadline(deadline) // fails if closed, and so does the read
		n, who, err := conn.ReadFromUDPAddrPort(buffer)
		switch now := time.Now().UnixNano(); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			again = s.run(now, send)
		case err != nil:
			return fmt.Errorf("serve arbiter: %w", err)
		default:
			// A full message is sent by request itself, to the host's previous address. If there is
			// none, the grant is lost and requested again.
			if host, valid := s.request(buffer[:n], send); valid {
				from[host] = who
			}
			again = s.run(now, send)
		}
	}
}
