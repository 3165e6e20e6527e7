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
	var sent, refused, credit uint64 // of 1/8 frame bytes per nanosecond
	each := uint64(s.Frame) * 8 * uint64(time.Second)
	held := time.Duration(0)
	for last := start; ; {
		now := time.Now()
		if now.Sub(start) >= s.For {
			break
		}
		burst := uint64(16)
		if s.Rate > 0 {
			credit += uint64(min(now.Sub(last), latest)) * uint64(s.Rate)
			burst = credit / each
			credit %= each
		}
		last = now
		for range burst {
			n := sent + refused
			binary.BigEndian.PutUint64(payload, n)
			copy(payload[8:], "railbed!")
			switch _, err := conns[n%uint64(len(conns))].Write(payload); {
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
			began := time.Now()
			time.Sleep(turn)
			held += max(0, time.Since(began)-latest)
		}
	}
	_, err = fmt.Fprintf(out, "%d datagrams sent, %d refused, in %v\n%s%v\n", sent, refused,
		time.Since(start).Round(time.Millisecond), heldUp, held)
	return err
}

// open opens a socket for each flow.
func (s *Source) open() (conns []*net.UDPConn, err error) {
	for flow := range s.Flows {
		for i, to := range s.To {
			port := int(s.Port) + flow*len(s.To) + i
			conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: s.From.AsSlice(), Port: port},
				net.UDPAddrFromAddrPort(to))
			if err != nil {
				return nil, err
			}
			conns = append(conns, conn)
			raw, err := conn.SyscallConn()
			if err != nil {
				return nil, err
			}
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
