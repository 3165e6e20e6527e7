package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/internal/kernel"
	"railbed/testkit/hosttest"
)

const (
	frameType   = 0x88B5 // IEEE 802's first local experimental one, of which a node's stack knows nothing
	frameBatch  = 64
	frameRing   = 4 << 20                // of which a window is half
	frameHeader = port.HeaderLen + 1 + 8 // Ethernet's, whether it has data, and the receiver's count
	frameBytes  = 256 << 20              // that each node sends
	frameWait   = 2 * time.Second
)

// BenchmarkFramesBesideCollectives measures the throughput of the links of
// BenchmarkCollectivesBesideOpenMPI without any transport. Each of four nodes sends full frames to
// the next node, past its stack and its queueing discipline. It sends no more than a window ahead
// of the counts that come back. No frame is placed, added up or retransmitted, so no transport can
// be faster. The metric is a node's frames without their Ethernet headers, in Gbit/s.
func BenchmarkFramesBesideCollectives(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.Testbed)
	for _, links := range []besideLinks{{mtu: 1500}, {mtu: 9000}} {
		for _, driver := range []port.Driver{port.Packet, port.XDP} {
			b.Run(fmt.Sprintf("%v/%s", links, driver), func(b *testing.B) {
				s := upBeside(b, 4, links)
				var rates []float64
				for b.Loop() {
					rates = append(rates, s.frames(driver, links.mtu))
				}
				slices.Sort(rates)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(rates[len(rates)/2], "Gbit/s")
			})
		}
	}
}

// framesNode is a node's end of the ring.
type framesNode struct {
	port       port.Port
	data, told []byte // frames for the next node and for the one before
	total      int
}

// frames has every node send its frames to the next one, and returns the rate of all.
func (s *beside) frames(driver port.Driver, mtu int) float64 {
	planned := s.tb.Plan().Nodes
	nodes := make([]framesNode, len(planned))
	mac := func(i int) []byte { return planned[i%len(planned)].NICs[0].MAC[:] }
	for i := range nodes {
		n := &nodes[i]
		if err := s.openFrames(n, planned[i].Name, planned[i].NICs[0].Name, driver); err != nil {
			s.b.Fatal(err)
		}
		defer n.port.Close()
		n.data, n.told = make([]byte, port.HeaderLen+mtu), make([]byte, frameHeader)
		copy(n.data, mac(i+1))
		copy(n.told, mac(i+len(nodes)-1))
		for _, frame := range [][]byte{n.data, n.told} {
			copy(frame[6:], mac(i))
			binary.BigEndian.PutUint16(frame[12:], frameType)
		}
		n.data[port.HeaderLen] = 1
		n.total = frameBytes / mtu
	}
	// the kernel shares out the processors, as among processes
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 * len(nodes)))
	failed := make(chan error, len(nodes))
	began := time.Now()
	for i := range nodes {
		go func() { failed <- nodes[i].run() }()
	}
	var err error
	for range nodes {
		err = errors.Join(err, <-failed)
	}
	if err != nil {
		s.b.Fatal(err)
	}
	return float64(frameBytes) * 8 / time.Since(began).Seconds() / 1e9
}

func (s *beside) openFrames(n *framesNode, node, nic string, driver port.Driver) error {
	space, err := kernel.OpenNamespace("/run/netns/" + s.tb.Name() + "-" + node)
	if err != nil {
		return err
	}
	defer space.Close()
	return space.Do(func() error {
		handle, err := port.Open(driver, nic, port.Options{RingBytes: frameRing})
		if err == nil {
			n.port, err = handle.Port()
		}
		return err
	})
}

// run sends and receives until both are done.
func (n *framesNode) run() error {
	frames := make([]port.Frame, frameBatch)
	for i := range frames {
		frames[i].Data = make([]byte, n.port.Description().Room())
	}
	out := make([][]byte, 0, frameBatch+1)
	var sent, counted, got, told int
	window := n.port.Description().Slots / 2
	for counted < n.total || got < n.total {
		came, err := n.port.Receive(frames)
		if err != nil {
			return err
		}
		for _, frame := range frames[:came] {
			switch data := frame.Data; {
			case len(data) < frameHeader || binary.BigEndian.Uint16(data[12:]) != frameType:
			case data[port.HeaderLen] == 1:
				got++
			default:
				counted = max(counted, int(binary.BigEndian.Uint64(data[port.HeaderLen+1:])))
			}
		}
		out = out[:0]
		room := min(frameBatch, counted+window-sent, n.total-sent)
		if got-told >= window/4 || got > told && (came+room == 0 || got == n.total) {
			binary.BigEndian.PutUint64(n.told[port.HeaderLen+1:], uint64(got))
			out, told = append(out, n.told), got
		}
		for range room {
			out = append(out, n.data)
		}
		if len(out) > 0 {
			if err := n.send(out); err != nil {
				return err
			}
			sent += room
		} else if came == 0 {
			if ready, err := unix.Poll([]unix.PollFd{{Fd: int32(n.port.Fd()), Events: unix.POLLIN}},
				int(frameWait.Milliseconds())); err == nil && ready == 0 {
				stats, err := n.port.Stats()
				return errors.Join(fmt.Errorf("nothing came for %v: sent %d, of which %d came, and "+
					"received %d of %d (%+v)", frameWait, sent, counted, got, n.total, stats), err)
			}
		}
	}
	return nil
}

// send sends all frames.
func (n *framesNode) send(frames [][]byte) error {
	for len(frames) > 0 {
		taken, err := n.port.Send(frames)
		if err == nil {
			err = n.port.Flush()
		}
		if err != nil {
			return err
		}
		frames = frames[taken:]
	}
	return nil
}
