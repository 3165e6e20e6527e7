package live

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"railbed/internal/reexec"

	"golang.org/x/sys/unix"
)

// monitorThreads are the threads that read the packet sockets which measure arrivals; each thread reads a
// few sockets. Each thread has a descriptor table of its own, and its packet sockets are only in
// that table. The reason is the time to close them: closing a packet socket waits for all CPUs
// (packet_release: synchronize_net), 12 ms or more. A process that is killed closes the sockets of
// one table one after the other, and the nodes' namespaces live until then. The threads of a
// process end at the same time and wait in parallel.
type monitorThreads struct{ rows []*row }

// Numbers of sockets and threads. A row is one thread with its sockets.
const (
	seatsPerRow = 8
	mostRows    = 32
	// collects is how many frames are received at once.
	collects = 32
	// mostCollected is how many frames are received from one node until the next tick.
	mostCollected = 8 * collects
)

// startMonitor describes a node whose packet socket will be handed over: its NICs by the engine's
// numbers, and their interface indexes.
type startMonitor struct {
	NICs    []int `json:"nics"`
	Indexes []int `json:"indexes"`
}

// row is one thread.
type row struct {
	bell           int // eventfd: stop or want has changed
	stop           atomic.Bool
	private        chan error // receives the result once the thread has its own table
	opened         chan error // receives the result once it has its packet sockets
	begin          chan *monitors
	ended          chan error
	socket         int // the packet sockets come from it
	orders         chan func(epoll int, w *monitors)
	mu             sync.Mutex       // guards the list below, which only the thread changes
	monitorThreads []*monitorSocket // nil for a socket that was closed

	messages [collects]struct {
		header unix.Msghdr
		length uint32
		_      [4]byte
	}
	vectors [collects]unix.Iovec
	names   [collects]unix.RawSockaddrLinklayer
	control [collects][64]byte
	data    [collects][snapBytes]byte
}

// monitorSocket is a node's packet socket.
type monitorSocket struct {
	fd    int // in the row's table
	nics  map[int32]int
	level int          // index of its filter's share
	want  atomic.Int32 // requested level
	taken atomic.Uint64
	at    measured
}

// measured is a node, or a NIC in a namespace of another program.
type measured struct {
	foreign bool
	number  int
}

// startMonitorThreads starts the threads. They wait for the packet sockets of nodes, in any order, from a
// Unix socket. Each closes in its own table the descriptors of ports, from first to before last.
func startMonitorThreads(nodes []startMonitor, socket, first, last int) (*monitorThreads, error) {
	s := &monitorThreads{}
	rows := min(mostRows, (len(nodes)+seatsPerRow-1)/seatsPerRow)
	for i := range rows {
		bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return nil, fmt.Errorf("watch arrivals: make eventfd: %w", err)
		}
		r := &row{bell: bell, socket: socket, orders: make(chan func(int, *monitors), 1),
			private: make(chan error, 1), opened: make(chan error, 1), begin: make(chan *monitors, 1),
			ended: make(chan error, 1)}
		s.rows = append(s.rows, r)
		count := len(nodes)/rows + min(1, max(0, len(nodes)%rows-i))
		go r.run(nodes, count, first, last)
	}
	for _, r := range s.rows {
		if err := <-r.private; err != nil {
			return nil, fmt.Errorf("watch arrivals: %w", err)
		}
	}
	return s, nil
}

// taken waits until all packet sockets have arrived.
func (s *monitorThreads) taken() error {
	var errs []error
	for _, r := range s.rows {
		errs = append(errs, <-r.opened)
	}
	return errors.Join(errs...)
}

func (s *monitorThreads) watch(w *monitors) {
	for _, r := range s.rows {
		r.begin <- w
	}
}

// adjust widens the share of a packet socket with few samples, and narrows it with many. A flow of
// identical frames is sampled alternately as a whole and not at all.
func (s *monitorThreads) adjust(since time.Duration, nics int) {
	for _, r := range s.rows {
		changed := false
		r.mu.Lock()
		for _, one := range r.monitorThreads {
			if one == nil {
				continue
			}
			each := float64(max(leastBudget, budget/max(1, nics))*len(one.nics)) * since.Seconds()
			level := one.want.Load()
			taken := float64(one.taken.Swap(0))
			switch {
			case taken > each && int(level) < len(shares)-1:
				one.want.Store(level + 1)
			case taken < each/16 && level > 0:
				one.want.Store(level - 1)
			default:
				continue
			}
			changed = true
		}
		r.mu.Unlock()
		if changed {
			r.ring()
		}
	}
}

// close ends the threads and closes the packet sockets.
func (s *monitorThreads) close() error {
	for _, r := range s.rows {
		r.stop.Store(true)
		r.ring()
	}
	var errs []error
	for _, r := range s.rows {
		errs = append(errs, <-r.ended, unix.Close(r.bell))
	}
	return errors.Join(errs...)
}

func (r *row) ring() {
	one := [8]byte{1}
	_, _ = unix.Write(r.bell, one[:]) // it is full only if it is already readable
}

// run is the thread. It keeps its own descriptor table: the runtime ends the thread with the
// goroutine, and starts no thread from it that would share the table.
func (r *row) run(nodes []startMonitor, count, first, last int) {
	if err := ownTable(first, last); err != nil {
		r.private <- err
		return
	}
	reexec.NameThread("sw-arrivals")
	r.private <- nil
	epoll, err := r.open(nodes, count)
	r.opened <- err
	if err == nil {
		r.receive(epoll, <-r.begin)
	}
	errs := []error{unix.Close(epoll)}
	for _, one := range r.monitorThreads {
		if one != nil {
			errs = append(errs, unix.Close(one.fd))
		}
	}
	r.ended <- errors.Join(errs...)
}

// ownTable locks the calling goroutine to a thread permanently, and gives the thread its own
// descriptor table. The table is a copy of the process's, without the descriptors from first to
// before last.
//
// Go's runtime polls from any thread, including this one if it happens to start a garbage
// collection, and ends the process if that fails. So the copy must contain the runtime's
// descriptors for polling, which are created with the first file that can be polled.
func ownTable(first, last int) error {
	reader, writer, err := os.Pipe()
	if err == nil {
		err = errors.Join(reader.Close(), writer.Close())
	}
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		return fmt.Errorf("unshare table of descriptors: %w", err)
	}
	for fd := first; fd < last; fd++ {
		_ = unix.Close(fd) // the main table still has it
	}
	return nil
}

// open receives packet sockets and adds them to an epoll.
func (r *row) open(nodes []startMonitor, count int) (epoll int, err error) {
	if epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return epoll, fmt.Errorf("make epoll: %w", err)
	}
	for range count {
		fd, node, err := receiveNumbered(r.socket)
		if err != nil {
			return epoll, err
		}
		if node >= len(nodes) {
			return epoll, errors.Join(fmt.Errorf("receive monitor: node %d, want a number below %d", node,
				len(nodes)), unix.Close(fd))
		}
		one := &monitorSocket{fd: fd, nics: map[int32]int{}, at: measured{number: node}}
		for i, nic := range nodes[node].NICs {
			one.nics[int32(nodes[node].Indexes[i])] = nic
		}
		if err := r.sit(epoll, one); err != nil {
			return epoll, err
		}
	}
	for i := range r.messages {
		h := &r.messages[i].header
		r.vectors[i].Base = &r.data[i][0]
		r.vectors[i].SetLen(snapBytes)
		h.Iov, h.Name, h.Control = &r.vectors[i], (*byte)(unsafe.Pointer(&r.names[i])), &r.control[i][0]
		h.SetIovlen(1)
	}
	return epoll, unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, r.bell,
		&unix.EpollEvent{Events: unix.EPOLLIN, Fd: -1})
}

// sit adds a packet socket to the thread.
func (r *row) sit(epoll int, one *monitorSocket) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	place := slices.Index(r.monitorThreads, nil)
	if place < 0 {
		place = len(r.monitorThreads)
		r.monitorThreads = append(r.monitorThreads, nil)
	}
	if err := watchMonitor(epoll, one.fd, place); err != nil {
		return err
	}
	r.monitorThreads[place] = one
	return nil
}

// watchMonitor adds a packet socket to an epoll.
func watchMonitor(epoll, fd, place int) error {
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd,
		&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(place)}); err != nil {
		return fmt.Errorf("watch monitor: %w", err)
	}
	return nil
}

// tell makes the thread run a function between two readings.
func (r *row) tell(do func(epoll int, w *monitors) error) error {
	done := make(chan error, 1)
	r.orders <- func(epoll int, w *monitors) { done <- do(epoll, w) }
	r.ring()
	return <-done
}

// take adds the packet socket of a NIC in a namespace of another program; it comes from the Unix
// socket.
func (s *monitorThreads) take(nic, index int) error {
	r := s.rows[nic%len(s.rows)]
	return r.tell(func(epoll int, w *monitors) error {
		fd, _, err := receiveNumbered(r.socket)
		if err != nil {
			return err
		}
		w.nics[nic].share.Store(shares[0])
		if err := r.sit(epoll, &monitorSocket{fd: fd, nics: map[int32]int{int32(index): nic},
			at: measured{true, nic}}); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		return nil
	})
}

// give closes it again.
func (s *monitorThreads) give(nic int) error {
	r := s.rows[nic%len(s.rows)]
	return r.tell(func(int, *monitors) error {
		place := r.find(measured{true, nic})
		if place < 0 {
			return nil
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		one := r.monitorThreads[place]
		r.monitorThreads[place] = nil
		return unix.Close(one.fd) // this removes it from the epoll
	})
}

// replace gives a node another packet socket, from the Unix socket. The first one would keep the node's old
// namespace.
func (s *monitorThreads) replace(node int) error {
	for _, r := range s.rows {
		place := r.find(measured{number: node})
		if place < 0 {
			continue
		}
		return r.tell(func(epoll int, _ *monitors) error {
			fd, _, err := receiveNumbered(r.socket)
			if err != nil {
				return err
			}
			if err := watchMonitor(epoll, fd, place); err != nil {
				return errors.Join(err, unix.Close(fd))
			}
			one := r.monitorThreads[place]
			old := one.fd
			one.fd, one.level = fd, 0 // takeOrders sets the requested filter
			return unix.Close(old)    // this removes it from the epoll
		})
	}
	return discardDescriptor(fmt.Errorf("measure arrivals at node %d: %w", node, os.ErrNotExist))
}

// find returns the place of a packet socket, or -1.
func (r *row) find(at measured) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.IndexFunc(r.monitorThreads, func(one *monitorSocket) bool {
		return one != nil && one.at == at
	})
}

// receive receives arrivals until stop is set. The first frame wakes it; it then waits for more before
// it receives them.
func (r *row) receive(epoll int, w *monitors) {
	var events []unix.EpollEvent
	for {
		if len(events) <= len(r.monitorThreads) {
			events = make([]unix.EpollEvent, len(r.monitorThreads)+1)
		}
		count, err := unix.EpollWait(epoll, events, -1)
		if err != nil {
			continue // EINTR: a signal from the runtime
		}
		for _, event := range events[:count] {
			if event.Fd < 0 {
				r.takeOrders(epoll, w)
				count--
			}
		}
		if r.stop.Load() {
			return
		}
		if count == 0 {
			continue
		}
		tick := unix.NsecToTimespec(int64(restlessTick))
		_ = unix.Nanosleep(&tick, nil)
		count, _ = unix.EpollWait(epoll, events, 0)
		for _, event := range events[:max(count, 0)] {
			if event.Fd >= 0 {
				r.collect(r.monitorThreads[event.Fd], w)
			}
		}
	}
}

// takeOrders sets the requested filters, and runs the requested function.
func (r *row) takeOrders(epoll int, w *monitors) {
	var rung [8]byte
	_, _ = unix.Read(r.bell, rung[:])
	select {
	case order := <-r.orders:
		order(epoll, w)
	default:
	}
	for _, one := range r.monitorThreads {
		if one == nil {
			continue
		}
		level := int(one.want.Load())
		if level == one.level || filterMonitor(one.fd, level) != nil {
			continue
		}
		one.level = level
		for _, nic := range one.nics {
			w.nics[nic].share.Store(shares[level])
		}
	}
}

// collect receives waiting frames from a packet socket, up to a limit. A flow of identical frames
// can be in the share as a whole; the rest is received next time. Between batches the timing
// thread, which has the same priority, may run.
func (r *row) collect(one *monitorSocket, w *monitors) {
	for range mostCollected / collects {
		for i := range r.messages {
			h := &r.messages[i].header
			h.Namelen = uint32(unsafe.Sizeof(r.names[i]))
			h.SetControllen(len(r.control[i]))
		}
		got, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(one.fd),
			uintptr(unsafe.Pointer(&r.messages[0])), collects, unix.MSG_DONTWAIT, 0, 0)
		if errno != 0 || got == 0 {
			return // nothing is waiting, or the interface has gone down
		}
		one.taken.Add(uint64(got))
		w.mu.Lock()
		for i := range int(got) {
			stamp, stamped := r.stamp(i)
			if nic, ours := one.nics[r.names[i].Ifindex]; ours && stamped {
				w.arrive(&w.nics[nic], keyOf(r.data[i][:r.messages[i].length]), stamp)
			}
		}
		w.mu.Unlock()
		if got < collects {
			return
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

// stamp returns when the kernel received a message's frame, in nanoseconds of CLOCK_REALTIME.
func (r *row) stamp(i int) (int64, bool) {
	if int(r.messages[i].header.Controllen) < unix.CmsgLen(int(unsafe.Sizeof(unix.Timespec{}))) {
		return 0, false
	}
	header := (*unix.Cmsghdr)(unsafe.Pointer(&r.control[i][0]))
	if header.Level != unix.SOL_SOCKET || header.Type != unix.SO_TIMESTAMPNS {
		return 0, false
	}
	return (*unix.Timespec)(unsafe.Pointer(&r.control[i][unix.CmsgLen(0)])).Nano(), true
}

// receiveNumbered receives a descriptor into the calling thread's table, with the number that was
// sent with it.
func receiveNumbered(socket int) (fd, number int, err error) {
	var text [4]byte
	fd, err = receiveDescriptor(socket, text[:])
	return fd, int(binary.LittleEndian.Uint32(text[:])), err
}

// discardDescriptor closes the descriptor of a request that fails with an error. Otherwise the next request
// would receive the descriptor.
func discardDescriptor(err error) error {
	fd, _, received := receiveNumbered(descriptorsFd)
	if received != nil {
		return err
	}
	return errors.Join(err, unix.Close(fd))
}

// sendNumbered sends a descriptor with the number of its node, and closes it here.
func sendNumbered(socket *os.File, node int, file *os.File) error {
	number := binary.LittleEndian.AppendUint32(nil, uint32(node))
	err := unix.Sendmsg(int(socket.Fd()), number, unix.UnixRights(int(file.Fd())), nil, 0)
	if err != nil {
		err = fmt.Errorf("hand a descriptor to the soft switches: %w", err)
	}
	return errors.Join(err, file.Close())
}
