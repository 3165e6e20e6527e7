package transportstest

import (
	"bytes"
	"time"

	"railbed/transports"
)

// flawPause is long enough for a polling test to read memory that a broken fabric has not written
// yet.
const flawPause = 200 * time.Microsecond

// place copies a message to its place, or beside it with a flaw.
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

// gather returns the bytes of a message, or others with a flaw.
func (fl flaws) gather(r *transports.Request) []byte {
	switch {
	case fl.firstPieceOnly && len(r.More) > 0:
		return append(bytes.Clone(r.Local), make([]byte, r.Size()-len(r.Local))...)
	case fl.swapPieces && len(r.More) > 0:
		return append(bytes.Join(r.More, nil), r.Local...)
	}
	return r.Gather(nil)
}

// pauseLocked lets other goroutines run for a moment.
func (f *Fabric) pauseLocked() {
	f.changed.Broadcast()
	f.mu.Unlock()
	time.Sleep(flawPause)
	f.mu.Lock()
}
