package traffic

import (
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/wire"
)

// run sends PFC frames until the time is over. It uses a packet socket, because the kernel has no
// other interface to send them.
func (s *Pauser) run(in io.Reader, out io.Writer) error {
	nic, err := net.InterfaceByName(s.NIC)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open packet socket: %w", err)
	}
	defer unix.Close(fd)
	to := &unix.SockaddrLinklayer{Ifindex: nic.Index, Halen: 6}
	copy(to.Addr[:], wire.MACControlAddress[:])
	var fields wire.PFCFields
	for _, q := range s.Priorities {
		fields.Enable |= 1 << (q & 7)
		fields.Quanta[q&7] = uint16(s.Quanta)
	}
	var frame [wire.EthernetMinLen]byte
	send := func() error {
		wire.EncodePFCFrame(frame[:], wire.MAC(nic.HardwareAddr), &fields)
		return unix.Sendto(fd, frame[:], 0, to)
	}
	if err := begin(in, out); err != nil {
		return err
	}
	count, held := 0, time.Duration(0)
	for start := time.Now(); time.Since(start) < s.For; count++ {
		if err := send(); err != nil {
			return fmt.Errorf("send PFC frame: %w", err)
		}
		began, wait := time.Now(), min(s.Every, s.For-time.Since(start))
		time.Sleep(wait)
		held += max(0, time.Since(began)-wait-s.Every) // a pause lasts for two intervals
	}
	fields.Quanta = [wire.PFCPriorities]uint16{}
	if err := send(); err != nil {
		return fmt.Errorf("send PFC frame: %w", err)
	}
	_, err = fmt.Fprintf(out, "%d PFC frames\n%s%v\n", count+1, heldUp, held)
	return err
}
