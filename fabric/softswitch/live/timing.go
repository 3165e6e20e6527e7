package live

import "time"

// Timing measures how exactly the soft switches keep time, in real time. It has the kernel's view
// of frames that arrive at nodes, and of the thread that sends them.
type Timing struct {
	// Arrivals is the time from the due time of sampled frames to their arrival at the far NIC, by
	// the kernel's receive stamp. Bounds are the bounds of all histograms.
	Arrivals Histogram       `json:"arrivals"`
	Bounds   []time.Duration `json:"bounds_ns"`
	// Unmatched counts sampled frames for which only the release or only the arrival was seen: the
	// kernel's ring was full, or the node's own stack dropped the frame.
	Unmatched uint64 `json:"unmatched"`
	// Unit is the smallest time that the model distinguishes, in real time. It is the least of the
	// delays and MTU serialisation times of links that have carried frames. 0 means that it is not
	// known: no link has carried frames yet, or none of those has a delay or a rate.
	Unit time.Duration `json:"unit_ns,omitempty"`
	// Windows counts periods of a second, or longer if few frames arrived. Late counts the periods
	// with a p99 above Unit. First is the first late window, Worst the window with the highest p99
	// of all.
	Windows uint64  `json:"windows"`
	Late    uint64  `json:"late_windows"`
	First   *Window `json:"first_late,omitempty"`
	Worst   *Window `json:"worst,omitempty"`
	Thread  Thread  `json:"thread"`
}

// Window describes the arrivals of about a second.
type Window struct {
	From time.Time     `json:"from"`
	For  time.Duration `json:"for_ns"`
	Quantiles
	// WorstAt is the time at which the latest frame arrived.
	WorstAt time.Time     `json:"worst_at"`
	Unit    time.Duration `json:"unit_ns,omitempty"`
}

// Thread is the CPU time that the kernel gave the timing thread since it started
// (/proc/PID/task/TID/schedstat, Documentation/scheduler/sched-stats.rst).
type Thread struct {
	Known  bool          `json:"known"`     // the kernel has the file
	Ran    time.Duration `json:"ran_ns"`    // on a CPU
	Waited time.Duration `json:"waited_ns"` // for a CPU
	Turns  uint64        `json:"turns"`
	Since  time.Duration `json:"since_ns"` // its age
	Nice   int           `json:"nice"`
	// Priority is the thread's real-time priority, or 0 if it is not a real-time thread.
	Priority int `json:"realtime_priority"`
	// Spin is how early, before a due time, the thread stops sleeping at present. Sleeps counts the
	// sleeps that a timer ended. 99 % of these sleeps ended at most Overslept late.
	Spin      time.Duration `json:"spin_ns"`
	Sleeps    uint64        `json:"sleeps"`
	Overslept time.Duration `json:"overslept_p99_ns"`
}

const (
	// windowLength is the shortest length of a window. WindowFrames is the least number of frames
	// in it: with fewer there is no 99th percentile.
	windowLength = time.Second
	windowFrames = 100
)

// windows divides arrivals into windows and keeps two of them.
type windows struct {
	began      time.Time
	late       lateness
	worstAt    int64
	count, bad uint64 // closed windows, and those that were late
	first      *Window
	worst      *Window
}

// add counts an arrival at a time in nanoseconds of CLOCK_REALTIME.
func (w *windows) add(late time.Duration, at int64) {
	if late > w.late.Worst || w.late.Total == 0 {
		w.worstAt = at
	}
	w.late.Add(late)
}

// endIfDue closes the window if it is long and full enough.
func (w *windows) endIfDue(now time.Time, unit time.Duration) {
	if w.began.IsZero() || w.late.Total == 0 {
		w.began = now // it begins with its first frames
		return
	}
	if now.Sub(w.began) >= windowLength && w.late.Total >= windowFrames {
		w.close(now, unit)
	}
}

func (w *windows) close(now time.Time, unit time.Duration) {
	closed := w.present(now, unit)
	w.count++
	if unit > 0 && closed.P99 > unit {
		w.bad++
		if w.first == nil {
			w.first = closed
		}
	}
	if w.worst == nil || closed.P99 > w.worst.P99 {
		w.worst = closed
	}
	w.late = lateness{}
	w.began = now
}

func (w *windows) present(now time.Time, unit time.Duration) *Window {
	return &Window{From: w.began, For: now.Sub(w.began), Quantiles: w.late.Quantiles(),
		WorstAt: time.Unix(0, w.worstAt), Unit: unit}
}

// tell fills in the windows' results. If no window was full, the open one represents the whole
// time.
func (w *windows) tell(t *Timing, now time.Time) {
	t.Windows, t.Late, t.First, t.Worst = w.count, w.bad, w.first, w.worst
	if w.count == 0 && w.late.Total > 0 {
		open := w.present(now, t.Unit)
		t.Windows, t.Worst = 1, open
		if t.Unit > 0 && open.P99 > t.Unit {
			t.Late, t.First = 1, open
		}
	}
}
