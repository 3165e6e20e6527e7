package collective

import (
	"context"

	"railbed/transports"
)

// ahead holds sent messages of operations that returned before the messages had arrived. The
// messages are copied into the places of the operations in turn, so that the operations' buffers
// are free. Only some operations have their messages signaled, and a completion covers the earlier
// messages too. For the others the transport need not reply. A place is free long before it is used
// again.
type ahead struct {
	places      [][]byte // by the operation's number modulo the number of places
	under       []int    // messages in transit, by place
	outstanding int      // messages in transit in all places
}

const (
	// aheadBytes and aheadPlaces bound the memory. There are at least two places.
	aheadBytes  = 1 << 20
	aheadPlaces = 32
	// aheadID is the bit of a request's ID that marks the other bits as the number of a place.
	aheadID = 1 << 40
)

// newAhead returns an ahead whose places have the given number of bytes.
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

// place returns the place of an operation.
func (a *ahead) place(operation uint32) int { return int(operation) % len(a.places) }

// take copies the message of an action into a place, so that no operation waits for its arrival.
func (a *ahead) take(request *transports.Request, of *action, operation uint32) {
	i := a.place(operation)
	request.ID = aheadID | uint64(i)
	source := request.Local
	request.Local = a.places[i][of.copied:][:len(source)]
	copy(request.Local, source)
	half := len(a.places) / 2
	request.Unsignaled = i%half != half-1
	a.under[i]++
	a.outstanding++
}

// arrived handles the completion of a message.
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
