package live

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/testbed/plan"
)

// A witness sees frames arrive at a node's NIC, independently of the switch: a
// packet socket in the node's namespace, whose filter takes a share of what
// arrives, with the kernel's stamp. The switch remembers when it should have
// arrived. A thread of its own puts the two together a few times a second, from
// memory, so that no frame wakes anybody.

const (
	// slotBytes holds a packet's header, the kernel's address of it, and
	// snapBytes; slots of a ring are read every restlessTick under load.
	slotBytes = 160
	ringBytes = 64 << 10
	slots     = ringBytes / slotBytes

	// budget is how many watched frames a second there should be of all NICs,
	// least of one NIC.
	budget, leastBudget = 8000, 50
	// adjustEvery is how often the share of a NIC is looked at.
	adjustEvery = 250 * time.Millisecond

	restlessTick = 20 * time.Millisecond
	idleTick     = 100 * time.Millisecond
	unitEvery    = time.Second
	// forgetAfter is how long a release waits for its arrival.
	forgetAfter = 2 * time.Second
)

// OpenWitness opens a witness at the interface of a node, in whose namespace
// the calling thread is. It sees nothing before it has a filter.
func OpenWitness(name string) (file *os.File, err error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("watch arrivals at %s: open packet socket: %w", name, err)
	}
	file = os.NewFile(uintptr(fd), "witness "+name)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("watch arrivals at %s: %w", name, err), file.Close())
			file = nil
		}
	}()
	request, err := unix.NewIfreq(name)
	if err != nil {
		return file, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return file, err
	}
	if err := filterWitness(fd, shares[0]); err != nil {
		return file, err
	}
	for _, option := range []struct{ name, value int }{{unix.PACKET_VERSION, unix.TPACKET_V2}, {unix.PACKET_IGNORE_OUTGOING, 1}} {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, option.name, option.value); err != nil {
			return file, fmt.Errorf("packet option %d: %w", option.name, err)
		}
	}
	ring := unix.TpacketReq{Block_size: ringBytes, Block_nr: 1, Frame_size: slotBytes, Frame_nr: slots}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &ring); err != nil {
		return file, fmt.Errorf("make ring: %w", err)
	}
	const all = unix.ETH_P_ALL
	return file, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all>>8 | all<<8&0xFF00, Ifindex: int(request.Uint32())})
}

// filterWitness attaches the filter of a share: watched, for the kernel.
func filterWitness(fd int, mask uint32) error {
	program := witnessFilter(mask)
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err != nil {
		return fmt.Errorf("attach filter: %w", err)
	}
	return nil
}

func witnessFilter(mask uint32) []unix.SockFilter {
	const (
		byteAt = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		halfAt = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		gotoK  = unix.BPF_JMP | unix.BPF_JA
	)
	op := func(code int, k uint32) unix.SockFilter { return unix.SockFilter{Code: uint16(code), K: k} }
	// on continues when the value is k, and else skips some instructions.
	on := func(k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: equal, Jf: skip, K: k}
	}
	// Each transport loads its value and goes to the hash, which the jumps with
	// K 0 are then made to reach.
	transports := func(at uint32, icmp uint32) []unix.SockFilter {
		return []unix.SockFilter{
			on(protoTCP, 2), op(halfAt, at+tcpChecksum), op(gotoK, 0),
			on(protoUDP, 4), op(halfAt, at+udpChecksum), on(0, 1), op(halfAt, at+udpPayload), op(gotoK, 0),
			on(icmp, 2), op(halfAt, at+icmpChecksum), op(gotoK, 0),
			op(unix.BPF_RET|unix.BPF_K, 0),
		}
	}
	v4 := append([]unix.SockFilter{op(byteAt, 14), on(ipv4Plain, 1), op(byteAt, 23)}, transports(34, protoICMP)...)
	v4[1].Jf = uint8(len(v4) - 1 - 2) // to the end of v4, which refuses
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
		op(unix.BPF_ALU|unix.BPF_MUL|unix.BPF_K, sampleMul), op(unix.BPF_ALU|unix.BPF_RSH|unix.BPF_K, sampleShift),
		op(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask), on(0, 1),
		op(unix.BPF_RET|unix.BPF_K, snapBytes), op(unix.BPF_RET|unix.BPF_K, 0))
}

// witness is one NIC's.
type witness struct {
	end    plan.End
	file   *os.File
	fd     int
	memory []byte
	at     int           // the slot that is read next
	share  atomic.Uint32 // mask of the watched share; the timing thread reads it
	level  int           // of shares

	// pending are releases that wait for their arrival, from oldest on; frames
	// arrive in the order in which they are released.
	pending [256]due
	head    int // oldest
	count   int
	taken   uint64 // arrivals since the share was looked at
	late    Lateness
}

// witnesses are those of all NICs and the thread that listens to them.
type witnesses struct {
	nics []witness
	dues dues
	stop chan struct{}
	done chan struct{}
	unit func() time.Duration // by the timing thread, in real time

	mu        sync.Mutex // guards what follows, and late of the NICs
	all       Lateness
	windows   windows
	present   time.Duration // unit
	unmatched uint64
}

// newWitnesses maps the rings. The files are used up, whatever comes of it.
func newWitnesses(ends []plan.End, files []*os.File, unit func() time.Duration) (*witnesses, error) {
	w := &witnesses{nics: make([]witness, len(files)), stop: make(chan struct{}), done: make(chan struct{}), unit: unit}
	for i, file := range files {
		one := &w.nics[i]
		one.end, one.file, one.fd = ends[i], file, int(file.Fd())
		var err error
		if one.memory, err = unix.Mmap(one.fd, 0, ringBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			return nil, fmt.Errorf("map witness of %s:%s: %w", ends[i].Node, ends[i].Port, err)
		}
	}
	return w, nil
}

// release remembers a frame that is about to be sent to a NIC. The timing thread
// calls it.
func (w *witnesses) release(nic int, frame []byte, at int64) {
	if watched(frame, w.nics[nic].share.Load()) {
		w.dues.push(due{key: keyOf(frame), at: at, nic: int32(nic)})
	}
}

// listen matches arrivals with releases until close.
func (w *witnesses) listen() {
	defer close(w.done)
	tick, adjusted, united := idleTick, time.Now(), time.Time{}
	for {
		select {
		case <-w.stop:
			return
		case <-time.After(tick):
		}
		now := time.Now()
		if now.Sub(united) >= unitEvery {
			unit := w.unit()
			w.mu.Lock()
			w.present = unit
			w.mu.Unlock()
			united = now
		}
		tick = idleTick
		if w.match(now) > 0 {
			tick = restlessTick
		}
		if now.Sub(adjusted) >= adjustEvery {
			w.adjust(now.Sub(adjusted))
			adjusted = now
		}
	}
}

// match takes what arrived, and returns how much that was.
func (w *witnesses) match(now time.Time) (arrived int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.nics {
		one := &w.nics[i]
		for range slots {
			slot := unsafe.Pointer(&one.memory[one.at*slotBytes])
			// The kernel sets the status last.
			if atomic.LoadUint32((*uint32)(slot))&unix.TP_STATUS_USER == 0 {
				break
			}
			header := (*unix.Tpacket2Hdr)(slot)
			stamp := int64(header.Sec)*1e9 + int64(header.Nsec)
			mac, length := int(header.Mac), int(header.Snaplen)
			key := uint64(0)
			if mac+length <= slotBytes {
				key = keyOf(one.memory[one.at*slotBytes+mac:][:length])
			}
			atomic.StoreUint32((*uint32)(slot), 0)
			one.at = (one.at + 1) % slots
			w.arrive(one, key, stamp)
			arrived++
		}
	}
	w.drain() // releases are never more than the arrivals so far and what is under way
	for i := range w.nics {
		w.nics[i].forget(now.Add(-forgetAfter).UnixNano(), &w.unmatched)
	}
	w.windows.look(now, w.present)
	return arrived
}

// drain takes the releases over into their NICs' lists.
func (w *witnesses) drain() {
	for {
		released, ok := w.dues.pop()
		if !ok {
			return
		}
		one := &w.nics[released.nic]
		if one.count == len(one.pending) {
			one.drop(1, &w.unmatched)
		}
		one.pending[(one.head+one.count)%len(one.pending)] = released
		one.count++
	}
}

// arrive finds the release of an arrival. Releases before it will not arrive any
// more.
func (w *witnesses) arrive(one *witness, key uint64, stamp int64) {
	one.taken++
	place := one.find(key)
	if place < 0 {
		w.drain()
		place = one.find(key)
	}
	if place < 0 {
		w.unmatched++
		return
	}
	one.drop(place, &w.unmatched)
	late := time.Duration(stamp - one.pending[one.head].at)
	unused := uint64(0)
	one.drop(1, &unused)
	one.late.Add(late)
	w.all.Add(late)
	w.windows.add(late, stamp)
}

// find is the place of a release among those that wait, or -1.
func (w *witness) find(key uint64) int {
	for i := range w.count {
		if w.pending[(w.head+i)%len(w.pending)].key == key {
			return i
		}
	}
	return -1
}

// drop takes the oldest releases off the list.
func (w *witness) drop(count int, unmatched *uint64) {
	w.head = (w.head + count) % len(w.pending)
	w.count -= count
	*unmatched += uint64(count)
}

func (w *witness) forget(before int64, unmatched *uint64) {
	for w.count > 0 && w.pending[w.head].at < before {
		w.drop(1, unmatched)
	}
}

// adjust widens the share where little is seen, and narrows it where much is. A
// flow whose frames are all alike is seen in turns: none of it, then all.
func (w *witnesses) adjust(since time.Duration) {
	each := float64(max(leastBudget, budget/max(1, len(w.nics)))) * since.Seconds()
	for i := range w.nics {
		one := &w.nics[i]
		level := one.level
		switch taken := float64(one.taken); {
		case taken > each && level < len(shares)-1:
			level++
		case taken < each/16 && level > 0:
			level--
		}
		one.taken = 0
		if level == one.level {
			continue
		}
		if filterWitness(one.fd, shares[level]) == nil {
			one.level = level
			one.share.Store(shares[level])
		}
	}
}

// timing is all that was seen, and of each NIC.
func (w *witnesses) timing() (t Timing, nics []Quantiles) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t = Timing{Arrivals: w.all.Quantiles(), Counts: w.all.Cumulative(), Unmatched: w.unmatched + w.dues.full.Load(), Unit: w.present}
	w.windows.tell(&t, time.Now())
	for i := range w.nics {
		nics = append(nics, w.nics[i].late.Quantiles())
	}
	return t, nics
}

// close ends listening and gives the sockets back.
func (w *witnesses) close() error {
	close(w.stop)
	<-w.done
	var errs []error
	for i := range w.nics {
		errs = append(errs, unix.Munmap(w.nics[i].memory), w.nics[i].file.Close())
	}
	return errors.Join(errs...)
}
