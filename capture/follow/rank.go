package follow

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// Causes are ranked by class, then by the messages that did not arrive, then by weight.
const (
	// injected is the class of causes in the file that a record shows: a fault, a change of a link.
	injected = iota
	// particular is the class of causes at a place.
	particular
	// general is the class of circumstances that delay all messages alike, and of trifles: programs of most
	// nodes that sent late, the emulator, the end of the recording.
	general
)

// trifle is the part of the time up to which a cause at a place does not come before circumstances.
const trifle = 20

// ranked returns the causes in the order of their classes.
func (w *why) ranked() []Cause {
	var all []Cause
	var total, late time.Duration // late is the time of messages
	for _, c := range w.causes {
		all = append(all, *c)
		total += c.Extra
		if !c.between {
			late += c.Extra
		}
	}
	order := func(a, b Cause) int {
		class := w.class(&a, late)
		unfinished := 0
		if class != general { // the recording ended
			unfinished = cmp.Compare(b.Unfinished, a.Unfinished)
		}
		return cmp.Or(cmp.Compare(class, w.class(&b, late)), unfinished, cmp.Compare(b.weight, a.weight),
			compareCauses(a, b))
	}
	slices.SortFunc(all, compareCauses)
	all = w.spread(all)
	for i := range all {
		if c := &all[i]; c.at.tap >= 0 && (c.at.part == Pause || w.r.pausedLong(c.at.tap) > 0) {
			w.pauser(c) // a fault may have asked for the pauses
		}
		w.nameMarker(&all[i])
	}
	all = joinFaults(all)
	slices.SortFunc(all, order)
	shown := 0
	all = slices.DeleteFunc(all, func(c Cause) bool {
		large := (c.Unfinished > 0 || c.Extra*100 >= total) && shown < causesShown
		if large {
			shown++
		}
		return !large && !c.Injected
	})
	for i := range all {
		c := &all[i]
		if total > 0 {
			c.Share = float64(c.Extra) / float64(total)
		}
		w.explain(c)
		c.What += consequences(c.effects)
	}
	slices.SortStableFunc(all, order) // explain may have found that the file asked for one
	return all
}

// nameMarker makes a fault that marked a sender's packets the cause of the sender's low rate.
func (w *why) nameMarker(c *Cause) {
	if c.at.part != Host || c.What != sentNothing && c.What != fewInFlight {
		return
	}
	if fault, _ := w.r.marker(c.Where); fault != "" {
		c.Injected, c.at.by = true, fault
	}
}

// take adds another cause of the same kind.
func (c *Cause) take(o *Cause) {
	for _, at := range o.Where {
		if !slices.Contains(c.Where, at) {
			c.Where = append(c.Where, at)
		}
	}
	for message, unfinished := range o.counted {
		c.count(message, unfinished)
	}
	c.Extra += o.Extra
	c.weight += o.weight
	c.From, c.To = min(c.From, o.From), max(c.To, o.To)
	for effect, messages := range o.effects {
		c.led(effect, messages)
	}
}

// count counts a message that the cause made late, once.
func (c *Cause) count(message int, unfinished bool) {
	if _, counted := c.counted[message]; counted {
		return
	}
	c.counted[message] = unfinished
	if c.Messages++; unfinished {
		c.Unfinished++
	}
}

// led counts messages with something that the cause led to.
func (c *Cause) led(effect string, messages int) {
	if c.effects == nil {
		c.effects = map[string]int{}
	}
	c.effects[effect] += messages
}

// joinFaults makes one cause of all that a fault did. The cause that comes first keeps its words, and the
// others are among what it led to.
func joinFaults(all []Cause) (joined []Cause) {
	slices.SortFunc(all, compareCauses)
	at := map[string]int{}
	for _, c := range all {
		first, known := at[c.at.by]
		if c.at.by == "" || !known {
			at[c.at.by] = len(joined)
			joined = append(joined, c)
			continue
		}
		whole := &joined[first]
		if c.What != whole.What {
			whole.led(c.What+" at "+strings.Join(c.Where, ", "), c.Messages)
			c.Where = nil
		}
		whole.take(&c)
	}
	return joined
}

// class returns the class of a cause. Late is the time that all causes added to messages.
func (w *why) class(c *Cause, late time.Duration) int {
	unfinished := c.Unfinished > 0 && c.at.part != Unseen && c.at.part != Queue
	switch {
	case c.Injected && (unfinished || c.Extra*100 >= late || c.Extra == 0 && c.at.part == Host):
		return injected
	case unfinished:
		return particular
	case c.Extra*trifle < late, c.at.part == Emulator, c.at.part == Unseen:
		return general
	case w.everywhere(c):
		return general
	}
	return particular
}

// everywhere reports whether a cause is at most of the nodes or their NICs, and none of them stands out.
func (w *why) everywhere(c *Cause) bool {
	if c.between {
		return !c.focused
	}
	if w.senders < 3 || len(c.Where)*2 <= w.senders || c.focused {
		return false
	}
	return c.at.part == Host || c.at.tap >= 0 && w.r.Taps[c.at.tap].NIC && c.at.part != Recover &&
		c.at.part != Pause
}

func compareCauses(a, b Cause) int {
	return cmp.Or(cmp.Compare(b.Unfinished, a.Unfinished), cmp.Compare(b.weight, a.weight),
		cmp.Compare(a.Where[0], b.Where[0]), cmp.Compare(a.What, b.What))
}

// consequences lists what a cause led to, the most frequent first.
func consequences(effects map[string]int) string {
	all := slices.SortedFunc(maps.Keys(effects), func(a, b string) int {
		return cmp.Or(cmp.Compare(effects[b], effects[a]), cmp.Compare(a, b))
	})
	if len(all) == 0 {
		return ""
	}
	return "; it led to: " + strings.Join(all, ", ")
}

// spread joins causes of one kind that are spread over more than two places, of which none added half. It
// joins the losses of two ports of a switch if neither added more than three quarters. Losses of several
// switches and pauses of several ports stay apart, because each may have a cause of its own.
func (w *why) spread(all []Cause) (joined []Cause) {
	type kind struct {
		part     Part
		what     string
		nic      bool
		finished bool
		node     string // of a loss or pause
	}
	kinds := map[kind][]Cause{}
	var order []kind
	for _, c := range all {
		k := kind{c.at.part, c.at.what, c.at.tap >= 0 && w.r.Taps[c.at.tap].NIC, c.Unfinished == 0, ""}
		if k.part == Recover && c.at.tap >= 0 {
			k.node = w.r.Taps[c.at.tap].Node
		} else if k.part == Recover || k.part == Pause {
			k.node = c.Where[0]
		}
		if kinds[k] == nil {
			order = append(order, k)
		}
		kinds[k] = append(kinds[k], c)
	}
	for _, k := range order {
		group := kinds[k]
		whole := group[0]
		for _, c := range group[1:] {
			whole.take(&c)
		}
		two := len(group) == 2 && k.node != "" && group[0].Extra*4 <= whole.Extra*3
		if !two && (len(group) < 3 || group[0].Extra*2 > whole.Extra) {
			joined = append(joined, group...)
		} else {
			joined = append(joined, whole)
		}
	}
	return joined
}
