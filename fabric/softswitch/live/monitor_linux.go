package live

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"railbed/plan"
)

// A packet socket in each node's namespace (OpenMonitor) measures when frames arrive at the node's
// NICs, independently of the switch. Its filter passes a share of the arriving frames, with the
// kernel's stamp. The switch records when they were due. Separate threads (type row) match the two
// a few times a second, so that few frames cause a wake-up.

const (
	// queueBytes limits the packets waiting in such a socket, in bytes of kernel memory; the kernel
	// allows at most net.core.rmem_max. Under load frames are read every restlessTick.
	queueBytes    = 4 << 20
	loopbackIndex = 1

	// budget is the intended number of sampled frames a second of all NICs, leastBudget the least
	// of one NIC.
	budget, leastBudget = 8000, 50
	// adjustEvery is the interval for adjusting a NIC's share.
	adjustEvery = 250 * time.Millisecond

	restlessTick = 20 * time.Millisecond
	idleTick     = 100 * time.Millisecond
	unitEvery    = time.Second
	// forgetAfter is how long a release waits for its arrival.
	forgetAfter = 2 * time.Second
)

// OpenMonitor opens a packet socket that measures arrivals at the node in whose namespace the
// calling thread is. It sees frames that arrive at one interface there or, with index 0, at any
// except the loopback. It has no mapped ring: a mapping keeps the socket open for the whole
// process, and only one thread may hold it (see monitorthreads_linux.go).
func OpenMonitor(index int) (file *os.File, err error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("watch arrivals: open packet socket: %w", err)
	}
	file = os.NewFile(uintptr(fd), "monitor")
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("watch arrivals: %w", err), file.Close())
			file = nil
		}
	}()
	if err := filterMonitor(fd, 0); err != nil {
		return file, err
	}
	for _, option := range []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1}, {unix.SOL_SOCKET, unix.SO_RCVBUF, queueBytes},
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
	} {
		if err := unix.SetsockoptInt(fd, option.level, option.name, option.value); err != nil {
			return file, fmt.Errorf("socket option %d: %w", option.name, err)
		}
	}
	const all = unix.ETH_P_ALL
	return file, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all>>8 | all<<8&0xFF00, Ifindex: index})
}

// filters are the kernel's equivalents of watched, one for each share. They are made in advance,
// because a share changes while frames pass, and nothing must be allocated then.
var filters = func() (all [len(shares)][]unix.SockFilter) {
	const interfaceIndex = 0xFFFFF000 + 8 // SKF_AD_OFF + SKF_AD_IFINDEX
	for level, mask := range shares {
		all[level] = append([]unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: interfaceIndex},
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: loopbackIndex},
			{Code: unix.BPF_RET | unix.BPF_K},
		}, monitorFilter(mask)...)
	}
	return all
}()

// filterMonitor attaches the filter of a share to a packet socket.
func filterMonitor(fd, level int) error {
	program := filters[level]
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err != nil {
		return fmt.Errorf("attach filter: %w", err)
	}
	return nil
}

func monitorFilter(mask uint32) []unix.SockFilter {
	const (
		byteAt = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		halfAt = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		gotoK  = unix.BPF_JMP | unix.BPF_JA
	)
	op := func(code int, k uint32) unix.SockFilter { return unix.SockFilter{Code: uint16(code), K: k} }
	// on continues if the value is k, and otherwise skips some instructions.
	on := func(k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: equal, Jf: skip, K: k}
	}
	// Each transport loads its value and jumps to the hash. The jumps with K 0 get their targets
	// later.
	transports := func(at uint32, icmp uint32) []unix.SockFilter {
		return []unix.SockFilter{
			on(protoTCP, 2), op(halfAt, at+tcpChecksum), op(gotoK, 0),
			on(protoUDP, 4), op(halfAt, at+udpChecksum), on(0, 1), op(halfAt, at+udpPayload), op(gotoK, 0),
			on(icmp, 2), op(halfAt, at+icmpChecksum), op(gotoK, 0),
			op(unix.BPF_RET|unix.BPF_K, 0),
		}
	}
	v4 := append([]unix.SockFilter{op(byteAt, 14), on(ipv4Plain, 1), op(byteAt, 23)},
		transports(34, protoICMP)...)
	v4[1].Jf = uint8(len(v4) - 1 - 2) // to the end of v4, which rejects
	v6 := append([]unix.SockFilter{op(byteAt, 20)}, transports(54, protoICMPv6)...)
	program := []unix.SockFilter{op(halfAt, ethertypeAt), on(ipv4At, uint8(len(v4)))}
	program = append(program, v4...)
	program = append(program, on(ipv6At, uint8(len(v6)-1)))
	program = append(program, v6...)
	for i := range program {
		if program[i].Code == gotoK {
			program[i].K = uint32(len(program) - i - 1)
		}
	}
	return append(program,
		op(unix.BPF_ALU|unix.BPF_MUL|unix.BPF_K, sampleMul),
		op(unix.BPF_ALU|unix.BPF_RSH|unix.BPF_K, sampleShift),
		op(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask), on(0, 1),
		op(unix.BPF_RET|unix.BPF_K, snapBytes), op(unix.BPF_RET|unix.BPF_K, 0))
}

// monitor holds the measurements at one NIC.
type monitor struct {
	end   plan.End
	share atomic.Uint32 // mask of the sampled share; the timing thread reads it

	// pending lists releases that wait for their arrival; frames arrive in the order of their
	// release.
	pending line
	late    lateness
}

// monitors holds the measurements of all NICs and the thread that matches arrivals with releases.
type monitors struct {
	nics           []monitor
	monitorThreads *monitorThreads
	dues           dues
	stop           chan struct{}
	done           chan struct{}
	unit           func() time.Duration // calls the timing thread; in real time

	mu        sync.Mutex // guards the fields below, and late and pending of the NICs
	waiting   *waiting
	all       lateness
	windows   windows
	present   time.Duration // the current unit
	unmatched uint64
}

// newMonitors starts measuring. It takes ownership of the threads.
func newMonitors(ends []plan.End, taken *monitorThreads, unit func() time.Duration) *monitors {
	w := &monitors{nics: make([]monitor, len(ends)), monitorThreads: taken, stop: make(chan struct{}),
		done: make(chan struct{}), unit: unit, waiting: newWaiting(waitingSlots)}
	for i := range w.nics {
		w.nics[i].end = ends[i]
	}
	taken.watch(w)
	return w
}

// release records a frame that is about to be sent to a NIC. The timing thread calls it.
func (w *monitors) release(nic int, frame []byte, at int64) {
	if watched(frame, w.nics[nic].share.Load()) {
		w.dues.push(due{key: keyOf(frame), at: at, nic: int32(nic)})
	}
}

// deliver records a frame that a program gets past the kernel: it arrives with its release.
func (w *monitors) deliver(nic int, frame []byte, at int64, late time.Duration) {
	if watched(frame, w.nics[nic].share.Load()) {
		w.dues.push(due{at: at, nic: int32(nic), late: late, arrived: true})
	}
}

// listen does everything except receiving arrivals, until close.
func (w *monitors) listen() {
	defer close(w.done)
	adjusted, united := time.Now(), time.Time{}
	for {
		select {
		case <-w.stop:
			return
		case <-time.After(idleTick):
		}
		now := time.Now()
		if now.Sub(united) >= unitEvery {
			unit := w.unit()
			w.mu.Lock()
			w.present = unit
			w.mu.Unlock()
			united = now
		}
		w.mu.Lock()
		w.drain()
		for i := range w.nics {
			w.forget(&w.nics[i], now.Add(-forgetAfter).UnixNano())
		}
		w.windows.endIfDue(now, w.present)
		w.mu.Unlock()
		if now.Sub(adjusted) >= adjustEvery {
			w.monitorThreads.adjust(now.Sub(adjusted), len(w.nics))
			adjusted = now
		}
	}
}

// drain moves the releases into their NICs' lists. A release for which there is no room is
// discarded. It was released later than those in the list, and is not later by more.
func (w *monitors) drain() {
	now := time.Now().UnixNano()
	for {
		released, ok := w.dues.pop()
		if !ok {
			return
		}
		if released.arrived {
			w.nics[released.nic].late.Add(released.late)
			w.all.Add(released.late)
			w.windows.add(released.late, released.at+int64(released.late))
			continue
		}
		if !w.waiting.add(&w.nics[released.nic].pending, released, now) {
			w.unmatched++
		}
	}
}

// arrive matches an arrival with its release; it needs the lock. Earlier releases in the list will
// not arrive any more.
func (w *monitors) arrive(one *monitor, key uint64, stamp int64) {
	place := w.waiting.find(&one.pending, key)
	if place == none {
		w.drain()
		place = w.waiting.find(&one.pending, key)
	}
	if place == none {
		w.unmatched++
		return
	}
	w.waiting.drop(&one.pending, place)
	w.unmatched += uint64(place)
	late := time.Duration(stamp - w.waiting.oldest(&one.pending).at)
	w.waiting.drop(&one.pending, 1)
	one.late.Add(late)
	w.all.Add(late)
	w.windows.add(late, stamp)
}

// forget removes releases from before a time.
func (w *monitors) forget(one *monitor, before int64) {
	for one.pending.count > 0 && w.waiting.oldest(&one.pending).since < before {
		w.waiting.drop(&one.pending, 1)
		w.unmatched++
	}
}

// timing returns the measurements of all NICs and of each NIC, with the current smallest time.
func (w *monitors) timing(unit time.Duration) (t Timing, nics []Histogram) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t = Timing{Arrivals: w.all.Histogram(), Bounds: Bounds(), Unmatched: w.unmatched + w.dues.full.Load(),
		Unit: unit}
	w.windows.tell(&t, time.Now())
	for i := range w.nics {
		nics = append(nics, w.nics[i].late.Histogram())
	}
	return t, nics
}

// close stops listening and closes the packet sockets.
func (w *monitors) close() error {
	close(w.stop)
	<-w.done
	return w.monitorThreads.close()
}
