package transportstest

import "time"

// flawPause is long enough for a test that polls to look at memory that a
// broken fabric has not written yet.
const flawPause = 200 * time.Microsecond

// place copies a message to its place, or beside it.
func (fl flaws) place(place, local []byte) {
	switch {
	case fl.misplace && len(place) > 4096:
		copy(place[1:], local)
	case fl.truncate && len(place) > 4096:
		copy(place, local[:len(local)-1])
	default:
		copy(place, local)
	}
}

// pauseLocked lets everybody else run for a moment.
func (f *Fabric) pauseLocked() {
	f.changed.Broadcast()
	f.mu.Unlock()
	time.Sleep(flawPause)
	f.mu.Lock()
}
