package engine

// Awaits returns how many full data packets can arrive before a message that has begun completes, or an
// acknowledgement is owed for their number. It is 1 if no message has begun. A driver that is not woken for
// each packet must call the engine after AckDelay at the latest: fewer may come.
func (e *Engine) Awaits() int {
	most, kept := ackEvery, e.begun[:0]
	for _, in := range e.begun {
		if in.begun == 0 || in.peer.err != nil {
			in.listed = false
			continue
		}
		kept = append(kept, in)
		most = min(most, ackEvery-in.unsaid, in.left())
	}
	clear(e.begun[len(kept):])
	e.begun = kept
	if len(kept) == 0 {
		return 1
	}
	return max(most, 1)
}

// set changes the state of a message that begins or is over.
func (in *inbound) set(m *inMessage, state inMessage) {
	if m.stage != unseen && m.stage != over {
		in.begun--
	}
	if state.stage != over {
		in.begun++
		if !in.listed {
			in.listed = true
			in.engine.begun = append(in.engine.begun, in)
		}
	}
	*m = state
}

// left returns how many packets the message lacks that will complete first.
func (in *inbound) left() int {
	payload, least := in.engine.config.Payload, ackEvery
	number := in.message
	for begun := in.begun; begun > 0; number++ {
		m := &in.messages[number%Messages]
		if m.stage == unseen || m.stage == over {
			continue
		}
		begun--
		least = min(least, (int(m.total-m.have-m.missing)+payload-1)/payload)
	}
	return least
}
