package privacy

import (
	"railbed/internal/clock"
	"railbed/internal/wire"
)

// Outcome is the result of opening an encrypted packet.
type Outcome uint8

// Outcomes.
const (
	Opened    Outcome = iota
	Malformed         // it is too short, or its lengths disagree.
	Stale             // its epoch has ended, or is too far ahead.
	Replayed          // it arrived before, or is too old for the window.
	Forged            // its tag is wrong
)

// Opener decrypts the packets of one direction.
type Opener struct {
	secret    *Secret
	direction Direction
	limits    Limits
	// previous, current and next are the epochs that are opened. The key of next is derived in
	// advance, so that no unauthenticated packet makes Opener derive a key.
	previous, current, next *epoch
	until                   clock.Time // until when previous is opened
	heard                   bool
}

type epoch struct {
	number uint16
	crypt  cryptor
	came   window
}

// NewOpener makes the opener of a direction.
func NewOpener(s *Secret, d Direction, l Limits) *Opener {
	o := &Opener{secret: s, direction: d, limits: l.withDefaults()}
	o.current, o.next = o.epoch(0), o.epoch(1)
	return o
}

func (o *Opener) epoch(number uint16) *epoch {
	return &epoch{number: number, crypt: newCryptor(o.secret.Key(o.direction, number))}
}

// Heard reports whether a packet was opened, and the low half of the newest epoch.
func (o *Opener) Heard() (any bool, epoch uint8) { return o.heard, uint8(o.current.number) }

// find returns an epoch that is opened now, or nil.
func (o *Opener) find(number uint16, now clock.Time) *epoch {
	if o.previous != nil && now >= o.until {
		o.previous = nil
	}
	for _, e := range [...]*epoch{o.current, o.next, o.previous} {
		if e != nil && e.number == number {
			return e
		}
	}
	return nil
}

// Open decrypts a datagram that is Valid, Sealed and not cut, in place. The result is as long as
// its type specifies and has the Check of its base. Unless the outcome is Opened, b cannot be used
// any more.
func (o *Opener) Open(b wire.RD, now clock.Time) (wire.RD, Outcome) {
	if len(b) < wire.RDSealedLeast+wire.RDTagLen {
		return nil, Malformed
	}
	f := b.Security()
	clear := wire.RDSealedLeast + 4*int(f.Readable)
	if clear+wire.RDTagLen > len(b) {
		return nil, Malformed
	}
	e := o.find(f.Epoch, now)
	if e == nil {
		return nil, Stale
	}
	if e.came.has(f.Counter) {
		return nil, Replayed
	}
	if _, err := e.crypt.aead.Open(b[clear:clear], e.crypt.at(f.Counter), b[clear:], b[:clear]); err != nil {
		return nil, Forged
	}
	e.came.add(f.Counter)
	o.heard = true
	if e == o.next {
		o.previous, o.current, o.next = o.current, o.next, nil
		o.until = now.Add(o.limits.Overlap)
		if e.number != 1<<16-1 {
			o.next = o.epoch(e.number + 1)
		}
	}
	plain := b.Unseal()
	if !plain.Formed() {
		return nil, Malformed
	}
	return plain, Opened
}

// Window is the largest distance of a counter behind the newest at which a packet can be
// distinguished from a replay. It is four times the packets that can be outstanding.
const Window = 4096

// window records which counters arrived, as in RFC 6479: in a ring of words, of which the one in
// front is empty.
type window struct {
	behind uint64 // one more than the highest that arrived
	words  [Window/64 + 1]uint64
}

func (w *window) bit(counter uint64) (word *uint64, bit uint64) {
	return &w.words[counter/64%uint64(len(w.words))], 1 << (counter % 64)
}

// has reports whether a counter arrived, or is too old for the window.
func (w *window) has(counter uint64) bool {
	if counter >= w.behind {
		return counter == 1<<64-1 // behind cannot represent it
	}
	if w.behind-counter > Window {
		return true
	}
	word, bit := w.bit(counter)
	return *word&bit != 0
}

// add records a counter that has not arrived before.
func (w *window) add(counter uint64) {
	if counter >= w.behind {
		from, to := w.behind/64, counter/64 // the words that are begun
		if w.behind%64 != 0 {
			from++
		}
		for i := from; i <= to && i < from+uint64(len(w.words)); i++ {
			w.words[i%uint64(len(w.words))] = 0
		}
		w.behind = counter + 1
	}
	word, bit := w.bit(counter)
	*word |= bit
}
