package engine

// list is a queue of packets by their slots, linked through the packets.
type list struct {
	first, final uint16
	count        int
}

// link appends a packet that is in no list to one.
func (o *outbound) link(l *list, slot uint16, state packetState) {
	k := &o.packets[slot]
	k.state = state
	if l.count == 0 {
		l.first = slot
	} else {
		o.packets[l.final].after, k.before = slot, l.final
	}
	l.final = slot
	l.count++
	if state == inFlight {
		o.under += int(k.size)
	}
}

// unlink removes a packet from the list that its state names.
func (o *outbound) unlink(slot uint16) {
	k := &o.packets[slot]
	var l *list
	switch k.state {
	case inFlight:
		l = &o.flight
		o.under -= int(k.size)
	case isLost:
		l = &o.lost
	case isBusy:
		l = &o.busy
	default:
		return
	}
	if slot == l.first {
		l.first = k.after
	} else {
		o.packets[k.before].after = k.after
	}
	if slot == l.final {
		l.final = k.before
	} else {
		o.packets[k.after].before = k.before
	}
	l.count--
	k.state = free
}
