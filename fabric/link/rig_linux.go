package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/internal/units"
)

// rig is a shaped veth between two namespaces, with senders that keep the
// shaper's queue filled and a receiver that counts frames.
type rig struct {
	rate     units.Rate
	mtu      int
	frame    units.Bytes // length of the frames that are sent
	near     *kernel.Namespace
	far      *kernel.Namespace
	conn     *kernel.Conn // in near
	receiver int
	sockets  []int

	stop    atomic.Bool
	senders sync.WaitGroup
	failed  atomic.Pointer[error]

	peers   []net.Conn // the two ends of talk's connection
	talkers sync.WaitGroup
}

const (
	rigIndex = 2 // of the near end, in a namespace that otherwise only has lo
	rigGroup = 1
	// etherType is the first EtherType of IEEE 802 for local experiments. No protocol accepts such
	// frames, so receiving them costs little.
	etherType = 0x88B5
	// senderCount sockets keep the queue filled. Without the right to raise their buffers each
	// holds about 180 frames of 1,500 bytes, and sleeps until half of them have left. That is 4 ms
	// of traffic at 1 Gbit/s, so that the shaper's own timer drains the queue, and not the senders.
	senderCount = 8
	// sendBuffer is the size to which root raises the buffers.
	sendBuffer = 4 << 20
	// rigQueue exceeds everything that the senders may have outstanding.
	rigQueue = 256 << 20
	// edgePatience is how long a link may pass no frame at all: a frame of 60 bytes takes half a
	// second at 1 kbit/s.
	edgePatience = 20 * time.Second
	// settleTime lets a changed shaper, which starts with a full bucket, and new senders reach a
	// steady state.
	settleTime = 5 * time.Millisecond
)

var (
	nearMAC = kernel.MAC{2, 0, 0, 0, 0, 1}
	farMAC  = kernel.MAC{2, 0, 0, 0, 0, 2}
)

func newRig(rate units.Rate, mtu int) (*rig, error) {
	r := &rig{rate: rate, mtu: mtu, frame: testFrame(rate, mtu), receiver: -1}
	if err := r.build(); err != nil {
		return nil, errors.Join(err, r.close())
	}
	for _, fd := range r.sockets {
		r.senders.Go(func() { r.send(fd) })
	}
	return r, nil
}

// testFrame returns the length of the frames in a measurement. It is the longest that the MTU
// allows; on slow links it is shorter, so that a frame takes at most a millisecond. The bucket's
// loss depends on the lateness of the timer and on how much longer than a frame the burst is, but
// not on the frame. The relative loss is larger with short frames, so a burst that is good for
// short ones is good for long ones.
func testFrame(rate units.Rate, mtu int) units.Bytes {
	const shortest = 60
	return min(frameLength(mtu), max(shortest, units.Bytes(rate.BytesPerSecond()/1000)))
}

func (r *rig) build() (err error) {
	if r.near, err = kernel.NewNamespace(); err != nil {
		return err
	}
	if r.far, err = kernel.NewNamespace(); err != nil {
		return err
	}
	if r.conn, err = kernel.OpenIn(r.near); err != nil {
		return err
	}
	batch := kernel.NewBatch("calibration", nil)
	batch.AddVeth(
		kernel.VethEnd{Namespace: r.near, Node: "near", Name: "near", Index: rigIndex, MAC: nearMAC,
			MTU: r.mtu},
		kernel.VethEnd{Namespace: r.far, Node: "far", Name: "far", Index: rigIndex + 1, MAC: farMAC,
			MTU: r.mtu}, rigGroup)
	batch.SetUp("near", rigIndex, true)
	if err := r.conn.Do(batch); err != nil {
		return err
	}
	if err := r.conn.TurnOffloadsOff("near"); err != nil {
		return err
	}
	if err := r.far.Do(r.buildFar); err != nil {
		return err
	}
	return r.near.Do(func() error {
		for range senderCount {
			fd, err := packetSocket(rigIndex, etherType)
			if err != nil {
				return err
			}
			r.sockets = append(r.sockets, fd)
			if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer) != nil {
				// In a user namespace: the size that every user gets.
				if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer); err != nil {
					return fmt.Errorf("set send buffer: %w", err)
				}
			}
			// A sender checks the stop flag at least this often.
			timeout := unix.NsecToTimeval(int64(20 * time.Millisecond))
			if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
				return fmt.Errorf("set send timeout: %w", err)
			}
		}
		return nil
	})
}

func (r *rig) buildFar() (err error) {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	batch := kernel.NewBatch("calibration", nil)
	batch.SetUp("far", rigIndex+1, true)
	if err := conn.Do(batch); err != nil {
		return err
	}
	if err := conn.TurnOffloadsOff("far"); err != nil {
		return err
	}
	if r.receiver, err = packetSocket(rigIndex+1, etherType); err != nil {
		return err
	}
	// No process reads the frames: the socket also counts frames that it has no room for. With less
	// room, less is copied.
	return unix.SetsockoptInt(r.receiver, unix.SOL_SOCKET, unix.SO_RCVBUF, 0)
}

// packetSocket opens a packet socket on an interface of the thread's namespace.
func packetSocket(index int, etherType uint16) (int, error) {
	etherTypeBE := etherType>>8 | etherType<<8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(etherTypeBE))
	if err != nil {
		return -1, fmt.Errorf("open packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: etherTypeBE, Ifindex: index}); err != nil {
		return -1, errors.Join(fmt.Errorf("bind packet socket: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// sendBatch is how many frames go into one system call.
const sendBatch = 32

// send sends frames of the rig's length until the rig stops.
func (r *rig) send(fd int) {
	frame := make([]byte, r.frame)
	copy(frame, farMAC[:])
	copy(frame[6:], nearMAC[:])
	frame[12], frame[13] = etherType>>8, etherType&0xff
	vector := unix.Iovec{Base: &frame[0]}
	vector.SetLen(len(frame))
	messages := make([]mmsghdr, sendBatch)
	for i := range messages {
		messages[i].header.Iov = &vector
		messages[i].header.SetIovlen(1)
	}
	for !r.stop.Load() {
		_, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&messages[0])),
			sendBatch, 0, 0, 0)
		switch errno {
		case 0, unix.EAGAIN, unix.EINTR, unix.ENOBUFS:
		default:
			err := fmt.Errorf("send frame: %w", errno)
			r.failed.Store(&err)
			return
		}
	}
}

// talk replaces the senders by one TCP connection over the link. From then on measure counts its
// data packets.
func (r *rig) talk() error {
	r.stop.Store(true)
	r.senders.Wait()
	for _, end := range []struct {
		ns      *kernel.Namespace
		dev     string
		index   int
		address string
	}{{r.near, "near", rigIndex, "192.0.2.1/30"}, {r.far, "far", rigIndex + 1, "192.0.2.2/30"}} {
		conn, err := kernel.OpenIn(end.ns)
		if err != nil {
			return err
		}
		batch := kernel.NewBatch("calibration", nil)
		// Remove the senders' queue, and configure the end as in a fabric.
		batch.DeleteQdisc(end.dev, end.index)
		batch.SetMaxSegments(end.dev, end.index, Shaping{}.MaxSegments())
		batch.AddAddress(end.dev, end.index, netip.MustParsePrefix(end.address))
		err = kernel.IgnoreMissing(conn.Do(batch))
		if err = errors.Join(err, conn.Close()); err != nil {
			return err
		}
	}
	if err := r.connect(); err != nil {
		return err
	}
	r.talkers.Go(func() { _, _ = io.Copy(io.Discard, r.peers[1]) }) // until close
	r.talkers.Go(func() {
		for chunk := make([]byte, 256<<10); ; {
			if _, err := r.peers[0].Write(chunk); err != nil {
				return
			}
		}
	})
	return nil
}

// connect opens the connection and a counter of its data packets. All packets except the last of a
// write are as long as the MTU.
func (r *rig) connect() error {
	err := r.far.Do(func() error {
		listener, err := net.Listen("tcp4", "192.0.2.2:0")
		if err != nil {
			return err
		}
		defer listener.Close()
		err = r.near.Do(func() error {
			near, err := net.DialTCP("tcp4", nil, listener.Addr().(*net.TCPAddr))
			if err == nil {
				r.peers = append(r.peers, near)
			}
			return err
		})
		if err != nil {
			return err
		}
		far, err := listener.Accept()
		if err != nil {
			return err
		}
		r.peers = append(r.peers, far)
		if err := unix.Close(r.receiver); err != nil {
			return err
		}
		r.receiver, err = packetSocket(rigIndex+1, unix.ETH_P_IP)
		return err
	})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return unix.SetsockoptInt(r.receiver, unix.SOL_SOCKET, unix.SO_RCVBUF, 0)
}

// close stops the senders, then closes sockets and namespaces, and with them the veth.
func (r *rig) close() error {
	r.stop.Store(true)
	r.senders.Wait()
	var errs []error
	for _, peer := range r.peers {
		errs = append(errs, peer.Close())
	}
	r.talkers.Wait()
	if r.conn != nil {
		// The queue may hold seconds of traffic, which keeps the namespaces' sockets alive;
		// deleting the veth drops it now. If build failed early, there is no veth to delete.
		batch := kernel.NewBatch("calibration", nil)
		batch.DeleteGroup(rigGroup)
		if err := r.conn.Do(batch); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, err)
		}
		errs = append(errs, r.conn.Close())
	}
	for _, fd := range r.sockets {
		errs = append(errs, unix.Close(fd))
	}
	if r.receiver >= 0 {
		errs = append(errs, unix.Close(r.receiver))
	}
	for _, ns := range []*kernel.Namespace{r.near, r.far} {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	return errors.Join(errs...)
}

// measure sets the shaper to the burst and measures the rate at the receiver.
func (r *rig) measure(ctx context.Context, burst units.Bytes) (units.Rate, error) {
	batch := kernel.NewBatch("calibration", nil)
	batch.SetTBF("near", rigIndex, kernel.Root, kernel.Handle(1, 0), kernel.TBF{
		Rate: r.rate, Burst: burst - frameLength(r.mtu) + r.frame, Limit: rigQueue})
	if err := r.conn.Do(batch); err != nil {
		return 0, err
	}
	if err := sleep(ctx, settleTime); err != nil {
		return 0, err
	}
	if _, err := r.edge(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := sleep(ctx, r.window()); err != nil {
		return 0, err
	}
	frames, err := r.edge(ctx)
	if err != nil {
		return 0, err
	}
	elapsed := time.Since(start)
	bits := 8 * float64(frames) * float64(r.frame)
	return units.Rate(bits / elapsed.Seconds()), nil
}

// window returns how long to count. The queue is never empty, so the bucket stays empty. The error
// is the difference between the two edges, some 50 us, which is 0.1 % of 50 ms. On a slow link
// several frames must pass.
func (r *rig) window() time.Duration {
	const least, most, leastFrames = 50 * time.Millisecond, 150 * time.Millisecond, 20
	return max(least, min(leastFrames*r.rate.SerialisationTime(r.frame), most))
}

// edge waits until a frame has just arrived, and returns how many have arrived since the last edge.
// Counting from arrival to arrival keeps the error of a slow link, on which frames are rare, as
// small as the error of a fast one.
func (r *rig) edge(ctx context.Context) (frames uint64, err error) {
	const pollTime = 20 * time.Microsecond // a slower check was interrupted, and may be late
	start := time.Now()
	for first := true; ctx.Err() == nil; first = false {
		if failed := r.failed.Load(); failed != nil {
			return 0, *failed
		}
		asked := time.Now()
		stats, err := unix.GetsockoptTpacketStats(r.receiver, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil {
			return 0, fmt.Errorf("count received frames: %w", err)
		}
		frames += uint64(stats.Packets)
		if stats.Packets > 0 && !first && time.Since(asked) < pollTime {
			return frames, nil
		}
		if asked.Sub(start) > edgePatience && frames == 0 {
			return 0, fmt.Errorf("no frame arrived within %s", edgePatience)
		}
	}
	return 0, context.Cause(ctx)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
