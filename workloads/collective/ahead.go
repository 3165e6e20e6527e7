package collective

import (
	"context"

	"railbed/transports"
)

// ahead is what operations sent that returned before it had arrived. It is copied, so that
// their buffers are free, into the places of operations in turn. Only some of these have
// their messages signaled, which tells of those before them, too: elsewhere transports need
// not reply, and a place is free long before its turn comes again.
type ahead struct {
	places      [][]byte // by the operation's number
	under       []int    // messages under way, of each
	outstanding int      // of all
}

const (
	// aheadBytes and aheadPlaces bound the memory, of which there are two places in any case.
	aheadBytes  = 1 << 20
	aheadPlaces = 32
	// aheadID is the bit of a request's ID that says that the others are a place.
	aheadID = 1 << 40
)

// newAhead has places of so many bytes.
func newAhead(bytes int) ahead {
	count := 2
	for count < aheadPlaces && 2*count*bytes <= aheadBytes {
		count *= 2
	}
	a := ahead{places: make([][]byte, count), under: make([]int, count)}
	memory := make([]byte, count*bytes)
	for i := range a.places {
		a.places[i] = memory[i*bytes:][:bytes]
	}
	return a
}

// place is that of an operation.
func (a *ahead) place(operation uint32) int { return int(operation) % len(a.places) }

// take makes the message of an action one that nobody waits for.
func (a *ahead) take(request *transports.Request, of *action, operation uint32) {
	i := a.place(operation)
	request.ID = aheadID | uint64(i)
	request.Local = a.places[i][of.copied:][:len(of.source)]
	copy(request.Local, of.source)
	half := len(a.places) / 2
	request.Unsignaled = i%half != half-1
	a.under[i]++
	a.outstanding++
}

// arrived is the completion of a message.
func (a *ahead) arrived(id uint64) {
	a.under[id&^aheadID]--
	a.outstanding--
}

// makeRoom waits until the place of an operation is free.
func (r *Runner) makeRoom(ctx context.Context) error {
	if r.ahead.places == nil {
		r.ahead = newAhead(max(r.modes[OutOfPlace].sent, r.modes[InPlace].sent))
	}
	for r.ahead.under[r.ahead.place(r.current)] > 0 {
		if err := r.driver.turn(ctx, r.handle); err != nil {
			return err
		}
	}
	return nil
}
