package live

// none means no slot.
const none = -1

// waitingSlots is the largest number of releases of all NICs that wait for their arrivals, and
// mostWaiting that of one NIC. If the host stalls for a second, all frames due in that second are
// then released in one burst. The limits must not discard just these frames.
const (
	waitingSlots = 32 << 10
	mostWaiting  = 8 << 10
)

// waiting is the memory for releases that wait for their arrivals.
type waiting struct {
	slots []waitingSlot
	free  int32 // index of the first, or none
}

type waitingSlot struct {
	due
	since int64 // when it was released, or slightly later, in nanoseconds of CLOCK_REALTIME
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

// line lists the waiting releases of one NIC, from the oldest to the newest.
type line struct {
	first, last int32
	count       int
}

// add appends a release to the line, unless there is no room.
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

// oldest returns the line's first release; there must be one.
func (w *waiting) oldest(l *line) *waitingSlot { return &w.slots[l.first] }

// find returns the position of a release in its line, or none.
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

// drop removes the oldest releases from the line.
func (w *waiting) drop(l *line, count int) {
	for range count {
		at := l.first
		l.first = w.slots[at].next
		w.slots[at].next, w.free = w.free, at
		l.count--
	}
}
