package live

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/clock"
	"railbed/internal/reexec"
	"railbed/plan"
)

// The kernel wakes a thread late: by a few microseconds if another thread keeps the core awake, by
// tens if the core was halted. So the thread wakes earlier, by as much as most wake-ups are late,
// and then polls the clock until the due time. If wake-ups are late because cores are busy, polling
// would only take CPU time from the workload, so the thread does not do it.
const (
	leastSpin, firstSpin, mostSpin = 1 * time.Microsecond, 60 * time.Microsecond, 150 * time.Microsecond
	// A wake-up that is later than spin adds spinUp to it, one that is not
	// takes spinDown off: in balance one of a thousand is later. A due time that
	// is near at once takes it off, too, so that a thread that is too busy to sleep
	// notices that sleeping has become better; and where cores are short, so does
	// each look at the clock spinFade.
	spinUp, spinDown, spinFade = 4995 * time.Nanosecond, 5 * time.Nanosecond, 25 * time.Nanosecond
	// leastSleep is what is looked at the clock instead of slept.
	leastSleep = 10 * time.Microsecond
)

// thread is the timing thread and how the kernel serves it. Only that thread
// uses it.
type thread struct {
	id       int
	nice     int
	priority int // as a real-time thread; 0 is none
	began    time.Time
	spin     time.Duration
	over     Lateness // of sleeps that ended by the timer
	patience patience
	near     clock.Time // the due time for which it did not sleep
	cores    cores
	// woken is when frames ended a sleep, slept how long it was; woken is 0 once
	// frames that they brought have left, and after any other wait.
	woken clock.Time
	slept time.Duration
}

// shortSlice is the shortest slice that a thread may ask for.
const shortSlice = 100 * time.Microsecond

// begin asks the kernel for exact timers, and notes what hasten got.
func (t *thread) begin() {
	t.id, t.began, t.spin = unix.Gettid(), time.Now(), firstSpin
	t.cores.begin()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	if attributes, err := unix.SchedGetAttr(t.id, 0); err == nil {
		t.nice, t.priority = int(attributes.Nice), int(attributes.Priority)
	}
}

// mostUrgent is the lowest nice value.
const mostUrgent = -20

// hasten asks the kernel for the core whenever a thread of the process wants it.
// All threads ask for the same: when Go's scheduler takes a thread from its
// goroutine (every 10 ms, and when a system call took long), it is another
// thread that gives it back. With more Ps than threads at work, one is free when
// a system call returns.
//
// Root's threads become real-time ones. Where that is not allowed, a low nice
// value and a short slice are asked for. The process is the leader of a session,
// and where the kernel groups tasks by session (sched(7), autogroup) a thread's
// nice value counts within its session alone; against other sessions the group's
// does. A thread with a short slice preempts one with a longer slice when it
// wakes (Linux 6.12; older kernels ignore sched_runtime). Ordinary users get the
// slice alone.
func hasten() {
	runtime.GOMAXPROCS(manyPs)
	if reexec.RealTime(reexec.SwitchPriority) {
		return
	}
	_ = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(mostUrgent)), 0)
	for _, nice := range []int{mostUrgent, 0} {
		attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: int32(nice),
			Runtime: uint64(shortSlice)}
		if reexec.EachThread(func(id int) error { return unix.SchedSetAttr(id, &attributes, 0) }) == nil {
			return
		}
	}
}

const manyPs = 8

// early is how long to sleep first if there is so much time; not at all is 0. Some
// wake-ups are later than spin by far, where frames are rare most of all. So a sleep
// leaves a third of the time, but twice spin at most, of which the next one leaves a
// third. That is done where cores are to spare, and not by an ordinary user's thread,
// which would use its share of the core up.
func (t *thread) early(d time.Duration) time.Duration {
	d -= t.spin
	if t.cores.spare && t.priority > 0 {
		d -= min(2*t.spin, d/3)
	}
	if d < leastSleep {
		return 0
	}
	return d
}

// looks is told that it looks at the clock for a due time.
func (t *thread) looks(due clock.Time) {
	switch {
	case !t.cores.spare:
		t.spin = max(t.spin-spinFade, leastSpin)
	case due != t.near:
		t.spin = max(t.spin-spinDown, leastSpin)
	}
	t.near = due
}

// overslept learns from a sleep that ended by the timer.
func (t *thread) overslept(by time.Duration) {
	t.over.Add(by)
	if by > t.spin && by <= mostSpin {
		t.spin = min(t.spin+spinUp, mostSpin)
	} else {
		t.spin = max(t.spin-spinDown, leastSpin)
	}
}

// compareClocks takes over steps of the wall clock, which kernel stamps follow.
// The two clocks are read one after the other; of some tries the one counts in
// which least can have come between.
func (l *loop) compareClocks() {
	least := time.Hour
	for range 3 {
		before := time.Now()
		both := time.Now()
		if took := time.Since(before); took < least {
			least = took
			l.wall = both.UnixNano() - int64(both.Sub(l.clock.Epoch()))
		}
	}
	l.compared = l.clock.Now()
}

// wait sleeps until frames come, a command does, or just before next.
func (l *loop) wait(next clock.Time) {
	now := l.clock.Now()
	sleep := longestSleep
	if next != clock.Never {
		sleep = min(sleep, l.thread.early(l.clock.Wait(next.Sub(now))))
	}
	var count int
	l.thread.woken = 0
	switch {
	case sleep == 0:
		l.thread.looks(next)
		count = l.poll()
	case l.thread.patience.pays(l.clock.Wait(time.Duration(now))):
		count = l.look(now, min(sleep, lookFor))
	default:
		count = l.sleep(sleep)
		ended := l.clock.Now()
		slept := l.clock.Wait(ended.Sub(now))
		if l.thread.patience.rested(slept); count == 0 {
			l.thread.overslept(slept - sleep)
		} else {
			l.thread.woken, l.thread.slept = ended, slept
		}
	}
	for i := range count {
		event := &l.events[i]
		switch number := int(event.Fd); number {
		case len(l.nics):
			l.obey()
		case len(l.nics) + 1:
			l.receiveTrunk(event.Events)
		default:
			l.receive(number, event.Events)
		}
	}
}

// look looks for events for a time in real nanoseconds.
func (l *loop) look(from clock.Time, d time.Duration) (count int) {
	for count == 0 && l.clock.Wait(l.clock.Now().Sub(from)) < d {
		count = l.poll()
	}
	l.thread.patience.looked(count > 0)
	return count
}

// noticed is told of frames that are sent, by when the first was due. An ordinary
// user's thread has no patience: it would use its share of the core up.
func (t *thread) noticed(due clock.Time) {
	if t.woken != 0 && due < t.woken && t.priority > 0 {
		t.patience.overslept(t.slept)
	}
	t.woken = 0
}

// poll looks for events without giving the core away.
func (l *loop) poll() int {
	count, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epoll),
		uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(count)
}

// sleep waits for events for a time in real nanoseconds.
func (l *loop) sleep(d time.Duration) int {
	timeout := unix.NsecToTimespec(int64(d))
	count, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epoll),
		uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno != 0 {
		return 0
	}
	return int(count)
}

// state is how the kernel served the thread so far.
func (t *thread) state() Thread {
	s := Thread{
		Since:     time.Since(t.began),
		Nice:      t.nice,
		Priority:  t.priority,
		Spin:      t.spin,
		Sleeps:    t.over.Total,
		Overslept: t.over.Quantile(0.99),
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", t.id))
	if err != nil {
		return s
	}
	_, err = fmt.Fscan(strings.NewReader(string(text)), (*int64)(&s.Ran), (*int64)(&s.Waited), &s.Turns)
	s.Known = err == nil
	return s
}

// watchArrivals begins to watch what arrives at the nodes' NICs.
func (l *loop) watchArrivals(ends []plan.End, taken *seats) {
	l.arrived = newWitnesses(ends, taken, func() (unit time.Duration) {
		l.do(func() { unit = l.clock.Wait(l.engine.Tightest()) })
		return unit
	})
	go l.arrived.listen()
}

// timing completes a state with what was seen of its timing.
func (l *loop) timing(s *State) {
	var t thread
	var unit time.Duration
	l.do(func() { t, unit = l.thread, l.clock.Wait(l.engine.Tightest()) })
	if l.arrived != nil {
		var nics []Histogram
		s.Timing, nics = l.arrived.timing(unit)
		for i := range nics {
			s.NICs[i].Arrivals = nics[i]
		}
	}
	s.Timing.Thread = t.state()
}

// farOff is more than frames wait for a thread that sleeps its longest.
const farOff = 2 * longestSleep

// sentAt is the virtual time of a kernel stamp, and not after now. The clocks are
// compared once a second; a frame whose stamp is far off may be the first after the
// wall clock was set, by hours.
func (l *loop) sentAt(stamp int64) clock.Time {
	at := l.virtual(stamp)
	if off := at.Sub(l.engine.Now()); off < farOff && off > -farOff {
		return at
	}
	l.compareClocks()
	return min(l.virtual(stamp), l.compared)
}

func (l *loop) virtual(stamp int64) clock.Time {
	return clock.Time(clock.Dilation(l.clock.Dilation()).Passed(time.Duration(stamp - l.wall)))
}
