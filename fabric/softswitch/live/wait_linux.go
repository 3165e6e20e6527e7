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
	// A wake-up later than spin adds spinUp to it; any other wake-up subtracts spinDown. In
	// equilibrium one wake-up of a thousand is later. A due time that leaves no time to sleep
	// subtracts spinDown, too. So the spin of a thread that is too busy to sleep also follows when
	// sleeping has become more exact. If cores are short, each check of the clock subtracts
	// spinFade.
	spinUp, spinDown, spinFade = 4995 * time.Nanosecond, 5 * time.Nanosecond, 25 * time.Nanosecond
	// leastSleep is the shortest sleep; shorter times are spent polling the clock.
	leastSleep = 10 * time.Microsecond
	// If programs are starved, a wake-up comes this much later than the first event that is due, so that it
	// serves several events. Each wake-up takes a core from a program.
	starvedSlack = 100 * time.Microsecond
)

// thread is the timing thread and its treatment by the kernel. Only that thread uses it.
type thread struct {
	id       int
	nice     int
	priority int // as a real-time thread; 0 if it is not one
	began    time.Time
	spin     time.Duration
	over     lateness // lateness of sleeps that a timer ended
	patience patience
	near     clock.Time // the due time for which it did not sleep
	cores    cores
	// woken is when frames ended a sleep; slept is the length of that sleep. Woken is 0 once the
	// resulting frames have left, and after any other wait.
	woken clock.Time
	slept time.Duration
}

// shortSlice is the shortest time slice that a thread may request.
const shortSlice = 100 * time.Microsecond

// begin requests exact timers from the kernel, and records the result of raisePriority.
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

// raisePriority requests the core from the kernel whenever a thread of the process is ready to run. It
// does so for all threads. Go's scheduler takes a P from a goroutine every 10 ms, and when a system
// call takes long, and then another thread must give it back. With more Ps than working threads,
// one is free when a system call returns.
//
// Root's threads become real-time threads. Where that is not allowed, raisePriority requests a low nice
// value and a short slice. The process is the leader of a session. If the kernel groups tasks by
// session (sched(7), autogroup), a thread's nice value only counts within its session; against
// other sessions the group's nice value counts. A thread with a short slice preempts a thread with
// a longer slice when it wakes (Linux 6.12; older kernels ignore sched_runtime). Ordinary users
// only get the slice.
func raisePriority() {
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

// early returns how long to sleep first if there is enough time; 0 means not at all. Some wake-ups
// are much later than spin, most of all when frames are rare. So a sleep leaves a third of the
// time, but at most twice spin, and the next sleep again leaves a third of the rest. This is done
// only if cores are spare. If programs are starved, one sleep lasts until starvedSlack after the event.
func (t *thread) early(d time.Duration) time.Duration {
	if t.cores.starved {
		return d + starvedSlack
	}
	d -= t.spin
	if t.cores.spare && t.mayPoll() {
		d -= min(2*t.spin, d/3)
	}
	if d < leastSleep {
		return 0
	}
	return d
}

// pollsFor records that the thread polls the clock for a due time.
func (t *thread) pollsFor(due clock.Time) {
	switch {
	case !t.cores.spare:
		t.spin = max(t.spin-spinFade, leastSpin)
	case due != t.near:
		t.spin = max(t.spin-spinDown, leastSpin)
	}
	t.near = due
}

// overslept adjusts spin after a sleep that a timer ended.
func (t *thread) overslept(by time.Duration) {
	t.over.Add(by)
	if by > t.spin && by <= mostSpin {
		t.spin = min(t.spin+spinUp, mostSpin)
	} else {
		t.spin = max(t.spin-spinDown, leastSpin)
	}
}

// compareClocks follows steps of the wall clock, which kernel stamps also follow. It reads the two
// clocks one after the other, several times, and uses the reading with the shortest time in
// between.
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

// wait sleeps until frames or a command arrive, or until shortly before next.
func (l *loop) wait(next clock.Time) {
	now := l.clock.Now()
	if l.takeQueued(now) > 0 {
		return
	}
	sleep := longestSleep
	if next != clock.Never {
		sleep = min(sleep, l.thread.early(l.clock.Wait(next.Sub(now))))
	}
	var count int
	l.thread.woken = 0
	switch {
	case sleep == 0:
		l.thread.pollsFor(next)
		count = l.poll()
	case l.thread.polls(l.clock.Wait(time.Duration(now))):
		count = l.pollUntil(now, min(sleep, pollFor))
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
			l.takeOrders()
		case len(l.nics) + 1:
			l.receiveTrunk(event.Events)
		case len(l.nics) + 2: // a doorbell: the next wait takes the frames
		default:
			l.receive(number, event.Events)
		}
	}
}

// polls reports whether to poll for frames before sleeping, at a real time since the thread began.
// If cores are short, the program that is to send or receive the next frame may wait for this
// thread's core. Then polling finds nothing, and each frame that the program sends after all starts
// the next polling: a flood was down to 5,000 frames a second.
func (t *thread) polls(now time.Duration) bool { return !t.cores.short && t.patience.pays(now) }

// pollUntil polls for events for a time in real nanoseconds.
func (l *loop) pollUntil(from clock.Time, d time.Duration) (count int) {
	for count == 0 && l.clock.Wait(l.clock.Now().Sub(from)) < d {
		count = l.poll()
	}
	l.thread.patience.polled(count > 0)
	return count
}

// mayPoll reports whether the thread may poll for longer than spin. A thread that is not a real-time thread
// has only a share of a core if others want it, and polling exhausts that share.
func (t *thread) mayPoll() bool { return t.priority > 0 || t.cores.idle }

// noticed records that frames are sent, the first of which was due at due.
func (t *thread) noticed(due clock.Time) {
	if t.woken != 0 && due < t.woken && t.mayPoll() {
		t.patience.overslept(t.slept)
	}
	t.woken = 0
}

// poll checks for events without yielding the core.
func (l *loop) poll() int {
	if l.anyQueued() {
		return l.doorbell()
	}
	count, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epoll),
		uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(count)
}

// sleep waits for events for a time in real nanoseconds.
func (l *loop) sleep(d time.Duration) int {
	if !l.restQueues(d) {
		return l.doorbell()
	}
	defer l.wakeQueues(len(l.queues))
	timeout := unix.NsecToTimespec(int64(d))
	count, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.epoll),
		uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno != 0 {
		return 0
	}
	return int(count)
}

// state returns the kernel's treatment of the thread so far.
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

// watchArrivals starts measuring arrivals at the nodes' NICs.
func (l *loop) watchArrivals(ends []plan.End, taken *monitorThreads) {
	l.arrived = newMonitors(ends, taken, func() (unit time.Duration) {
		l.do(func() { unit = l.clock.Wait(l.engine.Tightest()) })
		return unit
	})
	go l.arrived.listen()
}

// timing adds the measurements of timing to a state.
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

// farOff is longer than frames can wait for a thread in its longest sleep.
const farOff = 2 * longestSleep

// sentAt returns the virtual time of a kernel stamp, but at most now. The clocks are compared once
// a second. A frame with a stamp that is far off may be the first after the wall clock was set, by
// hours.
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
