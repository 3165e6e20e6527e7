package live

// none is no slot.
const none = -1

// waitingSlots is the largest number of releases of all NICs that wait for their arrivals, and
// mostWaiting that of one NIC. If the host stalls for a second, all frames due in that second are
// then released in one burst. The limits must not discard just these frames.
const (
	waitingSlots = 32 << 10
	mostWaiting  = 8 << 10
)

// waiting is the memory of releases that wait.
type waiting struct {
	slots []waitingSlot
	free  int32 // the first, or none
}

type waitingSlot struct {
	due
	since int64 // when it was released, or little later, in nanoseconds of CLOCK_REALTIME
	next  int32
}

func newWaiting(slots int) *waiting {
	w := &waiting{slots: make([]waitingSlot, slots)}
	for i := range w.slots {
		w.slots[i].next = int32(i) + 1
	}
	w.slots[slots-1].next = none
	return w
}

// line is the releases of one NIC that wait, from the oldest to the newest.
type line struct {
	first, last int32
	count       int
}

// add puts a release at the line's end, unless there is no room.
func (w *waiting) add(l *line, one due, since int64) bool {
	at := w.free
	if at == none || l.count == mostWaiting {
		return false
	}
	w.free = w.slots[at].next
	w.slots[at] = waitingSlot{due: one, since: since, next: none}
	if l.count == 0 {
		l.first = at
	} else {
		w.slots[l.last].next = at
	}
	l.last = at
	l.count++
	return true
}

// oldest is the line's first; there is one.
func (w *waiting) oldest(l *line) *waitingSlot { return &w.slots[l.first] }

// find is the place of a release in its line, or none.
func (w *waiting) find(l *line, key uint64) int {
	at := l.first
	for place := range l.count {
		if w.slots[at].key == key {
			return place
		}
		at = w.slots[at].next
	}
	return none
}

// drop takes the oldest out of the line.
func (w *waiting) drop(l *line, count int) {
	for range count {
		at := l.first
		l.first = w.slots[at].next
		w.slots[at].next, w.free = w.free, at
		l.count--
	}
}
