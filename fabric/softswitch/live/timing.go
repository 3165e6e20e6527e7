package live

import "time"

// Timing is how exactly the soft switches keep time, in real time: as the
// kernel sees frames arrive at the nodes, and as the kernel runs the thread that
// sends them.
type Timing struct {
	// Arrivals is how long after their due time watched frames were at the far
	// NIC, by the kernel's receive stamp. Bounds are those of all histograms.
	Arrivals Histogram       `json:"arrivals"`
	Bounds   []time.Duration `json:"bounds_ns"`
	// Unmatched are watched frames whose other half was not seen: the kernel's
	// ring was full, or the node's own stack dropped the frame.
	Unmatched uint64 `json:"unmatched"`
	// Unit is the smallest time that the model still tells apart: the least of
	// delays and of MTUs' serialisation times over the links that carried
	// something, in real time. 0 is that it is not known, because no link has
	// carried anything yet, or none of these has either.
	Unit time.Duration `json:"unit_ns,omitempty"`
	// Windows are seconds, or longer where few frames came, of which Late had a
	// p99 above Unit. First is the first of these, Worst the one with the
	// highest p99 of all.
	Windows uint64  `json:"windows"`
	Late    uint64  `json:"late_windows"`
	First   *Window `json:"first_late,omitempty"`
	Worst   *Window `json:"worst,omitempty"`
	Thread  Thread  `json:"thread"`
}

// Window is the arrivals of about a second.
type Window struct {
	From time.Time     `json:"from"`
	For  time.Duration `json:"for_ns"`
	Quantiles
	// WorstAt is when the latest frame arrived.
	WorstAt time.Time     `json:"worst_at"`
	Unit    time.Duration `json:"unit_ns,omitempty"`
}

// Thread is what the kernel gave the timing thread since it started
// (/proc/PID/task/TID/schedstat, Documentation/scheduler/sched-stats.rst).
type Thread struct {
	Known  bool          `json:"known"`     // the kernel has the file
	Ran    time.Duration `json:"ran_ns"`    // on a CPU
	Waited time.Duration `json:"waited_ns"` // for one
	Turns  uint64        `json:"turns"`
	Since  time.Duration `json:"since_ns"` // its age
	Nice   int           `json:"nice"`
	// Priority is the thread's as a real-time thread, 0 where it is none.
	Priority int `json:"realtime_priority"`
	// Spin is how long before a due time it stops sleeping, now. Sleeps ended
	// by the timer, 99 % of them at most Overslept late.
	Spin      time.Duration `json:"spin_ns"`
	Sleeps    uint64        `json:"sleeps"`
	Overslept time.Duration `json:"overslept_p99_ns"`
}

const (
	// windowLength is the least length of a window, windowFrames the least
	// number of frames in it: of fewer there is no 99th percentile.
	windowLength = time.Second
	windowFrames = 100
)

// windows cuts arrivals into windows and remembers two of them.
type windows struct {
	began      time.Time
	late       Lateness
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

// look closes the window when it is long and full enough.
func (w *windows) look(now time.Time, unit time.Duration) {
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
	w.late = Lateness{}
	w.began = now
}

func (w *windows) present(now time.Time, unit time.Duration) *Window {
	return &Window{From: w.began, For: now.Sub(w.began), Quantiles: w.late.Quantiles(),
		WorstAt: time.Unix(0, w.worstAt), Unit: unit}
}

// tell fills in what the windows say. Where none was ever full, the one that is
// open stands for the whole.
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
