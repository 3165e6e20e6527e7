package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// turn is the interval at which a source sends what is due.
	turn = 500 * time.Microsecond
	// latest is the most time that a source catches up on after it was held up. More would be an
	// unrequested burst.
	latest = 5 * time.Millisecond
	// receiveRoom is the socket buffer that a sink requests. The kernel grants as much as it
	// allows.
	receiveRoom = 4 << 20
)

// run receives datagrams until SIGTERM.
func (s *Sink) run(out io.Writer) error {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(s.Addr))
	if err != nil {
		return err
	}
	_ = conn.SetReadBuffer(receiveRoom) // with less, only counts suffer
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-ended
		conn.Close()
	}()
	if _, err := fmt.Fprintln(out, Ready); err != nil {
		return err
	}
	var count, bytes uint64
	buffer := make([]byte, 1<<16)
	for {
		n, err := conn.Read(buffer)
		if errors.Is(err, net.ErrClosed) {
			_, err := fmt.Fprintf(out, "%d datagrams, %d bytes\n", count, bytes)
			return err
		}
		if err != nil {
			return err
		}
		count++
		bytes += uint64(n)
	}
}

// run sends until the time is over.
func (s *Source) run(in io.Reader, out io.Writer) error {
	if s.Payload < minPayload || s.Flows < 1 || len(s.To) == 0 || s.Frame < 1 {
		return fmt.Errorf("source of %d flows of %d bytes to %d nodes: want at least 1 flow, 1 node and "+
			"%d bytes", s.Flows, s.Payload, len(s.To), minPayload)
	}
	conns, err := s.open()
	if err != nil {
		return err
	}
	if err := begin(in, out); err != nil {
		return err
	}
	payload := make([]byte, s.Payload)
	start := time.Now()
	var sent, refused uint64
	due := pace{rate: uint64(s.Rate), each: uint64(s.Frame) * 8 * uint64(time.Second), last: start}
	for {
		now := time.Now()
		burst := uint64(16)
		if s.Rate > 0 {
			burst = due.frames(now)
		}
		if now.Sub(start) >= s.For {
			break
		}
		for range burst {
			n := sent + refused
			binary.BigEndian.PutUint64(payload, n)
			copy(payload[8:], "railbed!")
			took, err := send(conns[n%uint64(len(conns))], payload)
			due.waited += took
			switch {
			case err == nil:
				sent++
			case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOBUFS),
				errors.Is(err, syscall.EPERM),
				errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
				refused++ // errors of the network do not end the load
			default:
				return err
			}
		}
		if s.Rate > 0 {
			time.Sleep(turn)
		}
	}
	_, err = fmt.Fprintf(out, "%d datagrams sent, %d refused, in %v\n%s%v\n", sent, refused,
		time.Since(start).Round(time.Millisecond), heldUp, due.held)
	return err
}

// pace determines how many frames of a source are due.
type pace struct {
	rate   uint64 // bit/s
	each   uint64 // bits of a frame, times 1e9
	last   time.Time
	waited time.Duration // for room in the node's queue, since last
	credit uint64        // bits, times 1e9
	// held is the time on which the source did not catch up, except for the time that it waited.
	held time.Duration
}

// frames returns how many frames are due since the last call.
func (p *pace) frames(now time.Time) (count uint64) {
	since := now.Sub(p.last)
	p.held += max(0, since-latest-p.waited)
	p.credit += uint64(min(since, latest)) * p.rate
	count = p.credit / p.each
	p.credit %= p.each
	p.last, p.waited = now, 0
	return count
}

// send sends a datagram, and returns for how long the socket had no room for it.
func send(to syscall.RawConn, payload []byte) (waited time.Duration, err error) {
	var full time.Time
	failed := to.Write(func(fd uintptr) bool {
		_, err = unix.Write(int(fd), payload)
		if err == unix.EAGAIN && full.IsZero() {
			full = time.Now()
		}
		return err != unix.EAGAIN
	})
	if !full.IsZero() {
		waited = time.Since(full)
	}
	return waited, errors.Join(failed, err)
}

// open opens a socket for each flow.
func (s *Source) open() (conns []syscall.RawConn, err error) {
	for flow := range s.Flows {
		for i, to := range s.To {
			port := int(s.Port) + flow*len(s.To) + i
			conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: s.From.AsSlice(), Port: port},
				net.UDPAddrFromAddrPort(to))
			if err != nil {
				return nil, err
			}
			raw, err := conn.SyscallConn()
			if err != nil {
				return nil, err
			}
			conns = append(conns, raw)
			var set error
			err = raw.Control(func(fd uintptr) {
				set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, s.TOS)
			})
			if err := errors.Join(err, set); err != nil {
				return nil, fmt.Errorf("set type of service %#x: %w", s.TOS, err)
			}
		}
	}
	return conns, nil
}
