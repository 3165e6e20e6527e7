package collective

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"railbed/internal/element"
	"railbed/plan/schedule"
)

// Program is the Algorithm of a checked schedule, for a whole buffer of a given length.
type Program struct {
	schedule *schedule.Schedule
	plans    [2]*schedule.Plan // by Mode
	data     Data
	slices   int // slices of each chunk, each of which runs independently
	scratch  int // elements of scratch memory
	// eager is set if messages are sent without permission: see eagerBytes.
	eager  bool
	landed landingsOf
}

// eagerBytes is the largest buffer for which messages are sent without their receivers' permission.
// In such a program no rank ends an operation before all ranks to which it sends have begun it.
// These ranks have then finished the operation before. So each message has two places, used in
// turn. The data is copied from the places even if it could have landed in its final position.
const eagerBytes = 256 << 10

// eagerTurn is the bit of immediate data that selects the one of the two places that holds a message.
const eagerTurn = 1 << 19

// Data describes the data of an operation.
type Data struct {
	// Count is the number of elements of the whole buffer: for an all-gather, of a rank's output,
	// and for a reduce-scatter, of a rank's input.
	Count int
	Type  element.Type // default element.Float32
	// Op is element.Sum by default, and always element.None for kinds that combine nothing.
	Op element.Op
	// Channel is the part of the buffer that the operation works on.
	Channel Channel
}

// Channel is one of several channels that perform an operation together, on the same buffers and
// each over an endpoint of its own. It performs its part of every rank's work. The zero Channel
// performs all of it.
type Channel struct{ Number, Of int }

// Part returns the channel's part of the elements that all channels process together.
func (c Channel) Part(from, to int) (int, int) { return divide(from, to, max(c.Of, 1), c.Number) }

// withDefaults sets the defaults of unset fields, and checks the others.
func (d Data) withDefaults(kind schedule.Kind) (Data, error) {
	d.Type, d.Op = cmp.Or(d.Type, element.Float32), cmp.Or(d.Op, element.Sum)
	if d.Count < 0 || kind.Combines() && d.Op == element.None || kind == schedule.Barrier && d.Count != 0 ||
		d.Type.Size() == 0 || !slices.Contains(append(element.Ops(), element.None), d.Op) {
		return d, fmt.Errorf("%s of %d elements of type %q with operation %q: want 0 or more elements (0 "+
			"for a barrier), a known type and an operation that fits the kind", kind, d.Count, d.Type, d.Op)
	}
	if !kind.Combines() {
		d.Op = element.None
	}
	return d, nil
}

// NewProgram checks a schedule for the given data.
func NewProgram(s *schedule.Schedule, d Data) (*Program, error) {
	d, err := d.withDefaults(s.Kind)
	if err != nil {
		return nil, fmt.Errorf("make program: %w", err)
	}
	p := &Program{schedule: s, data: d, slices: 1}
	for _, mode := range p.modes() {
		plan, err := schedule.Check(s, mode == InPlace)
		if err != nil {
			return nil, err
		}
		p.plans[mode] = plan
	}
	if s.Equal && d.Channel.Of > 1 {
		return nil, fmt.Errorf("make program: %s in %d channels: want one channel, because its chunks "+
			"have equal length and may move", s.Algorithm, d.Channel.Of)
	}
	if s.Equal && d.Count%s.Chunks != 0 {
		return nil, fmt.Errorf("make program: %d elements: want a multiple of %d, the number of equal "+
			"chunks of %s", d.Count, s.Chunks, s.Algorithm)
	}
	if d.Count > 0 {
		p.slices = newLayout(s.Chunks, (d.Count+max(d.Channel.Of, 1)-1)/max(d.Channel.Of, 1),
			d.Type.Size()).slices
	}
	ranges := false
	for rank, threads := range s.Ranks {
		for _, t := range threads {
			for i := range t.Steps {
				step := &t.Steps[i]
				ranges = ranges || step.Count > 1
				if step.Op != schedule.Receive && step.Source == schedule.Scratch ||
					step.Op != schedule.Send && step.Target == schedule.Scratch {
					p.scratch = p.scratchLen()
				}
			}
		}
		if messages := p.slices * p.steps(rank); messages >= clearToSend {
			return nil, fmt.Errorf("make program: rank %[2]d has %[1]d messages, want at most %[3]d",
				messages, rank, clearToSend-1)
		}
	}
	if ranges && s.Kind.Shares() {
		if d.Channel.Of > 1 {
			return nil, fmt.Errorf("make program: %s by %s in %d channels: want one channel, because a "+
				"channel's parts of several chunks are not adjacent", s.Kind, s.Algorithm, d.Channel.Of)
		}
		p.slices = 1 // several chunks form one slice only if the slice is all of them
	}
	p.eager = IsShort(d.Count*d.Type.Size()) && (p.depends() || p.full() && p.mutual()) && p.leavesTurn()
	return p, nil
}

// IsShort reports whether a whole buffer of the given number of bytes is short enough for messages
// without permission, if the ranks' results depend on each other.
func IsShort(bytes int) bool { return bytes <= eagerBytes }

// depends reports whether each rank's result depends on every rank's input or, in a barrier, on
// every rank's begin.
func (p *Program) depends() bool {
	k := p.schedule.Kind
	if k.Rooted() {
		return false
	}
	if k.Combines() && !k.Shares() { // any element depends on all ranks
		return p.data.Count >= max(p.data.Channel.Of, 1)
	}
	return k == schedule.Barrier || k.Shares() && p.full()
}

// full reports whether every message has elements, so that no message is left out.
func (p *Program) full() bool {
	return p.data.Count >= max(p.data.Channel.Of, 1)*p.schedule.Chunks
}

// mutual reports whether every rank receives from each rank to which it sends.
func (p *Program) mutual() bool {
	sends := map[[2]int]bool{}
	for rank := range p.schedule.Ranks {
		for _, t := range p.schedule.Ranks[rank] {
			for i := range t.Steps {
				if t.Steps[i].Op == schedule.Send {
					sends[[2]int{rank, t.Steps[i].Peer}] = true
				}
			}
		}
	}
	for pair := range sends {
		if !sends[[2]int{pair[1], pair[0]}] {
			return false
		}
	}
	return true
}

// leavesTurn reports whether the numbers of messages leave the bit eagerTurn free.
func (p *Program) leavesTurn() bool {
	for rank := range p.schedule.Ranks {
		if p.slices*p.steps(rank) >= eagerTurn {
			return false
		}
	}
	return true
}

// direct reports whether the message of a step lands in its final position.
func (p *Program) direct(rank int, mode Mode, at schedule.At) bool {
	return !p.eager && p.plans[mode].Direct[rank][at.Thread][at.Step]
}

// modes returns the modes in which the program can run.
func (p *Program) modes() []Mode {
	if p.schedule.OutOfPlace {
		return []Mode{OutOfPlace}
	}
	return []Mode{OutOfPlace, InPlace}
}

func (p *Program) traits() traits {
	return traits{kind: p.schedule.Kind, algorithm: p.schedule.Algorithm, ranks: len(p.schedule.Ranks),
		data: p.data.Type, op: p.data.Op, modes: p.modes(), eager: p.eager}
}

// steps returns the number of steps of a rank.
func (p *Program) steps(rank int) (steps int) {
	for _, t := range p.schedule.Ranks[rank] {
		steps += len(t.Steps)
	}
	return steps
}

// divide returns part i of [from, to) cut into parts of equal length. If there is a remainder, the
// first parts are one element longer.
func divide(from, to, parts, i int) (int, int) {
	short, long := (to-from)/parts, (to-from)%parts
	start := from + i*short + min(i, long)
	if i < long {
		short++
	}
	return start, start + short
}

// whole returns the number of chunks and elements of a buffer that holds all of them.
func (p *Program) whole(b schedule.Buffer) (chunks, elements int) {
	chunks, elements = p.schedule.Len(b), p.data.Count
	if p.schedule.Equal {
		elements = p.data.Count / p.schedule.Chunks * chunks
	}
	return chunks, elements
}

// scratchLen returns the number of elements of the channel's own scratch memory.
func (p *Program) scratchLen() int {
	_, elements := p.whole(schedule.Scratch)
	return p.scratchAt(elements)
}

// scratchAt returns the position in scratch memory of an element of the whole buffer: the number of
// the channel's elements before it.
func (p *Program) scratchAt(element int) (at int) {
	chunks, elements := p.whole(schedule.Scratch)
	switch channel := p.data.Channel; {
	case channel.Of <= 1:
		return element
	case !p.schedule.Kind.Shares():
		from, to := channel.Part(0, elements)
		return min(element, to) - from
	default:
		for chunk := range chunks {
			from, to := channel.Part(divide(0, elements, chunks, chunk))
			at += max(0, min(element, to)-from)
		}
	}
	return at
}

// part returns the elements of a slice of chunks of a buffer. If ranks have shares, each chunk is
// divided into the channels' parts, and a part into slices. Otherwise a channel's part of the
// buffer is divided into slices, and a slice into chunks, so that several chunks are one message.
// If chunks have equal length, so have their slices.
func (p *Program) part(b schedule.Buffer, chunk, count, slice int) (from, to int) {
	if count == 0 {
		return 0, 0
	}
	chunks, elements := p.whole(b)
	bound := func(chunk int) (int, int) {
		if p.schedule.Kind.Shares() {
			from, to := p.data.Channel.Part(divide(0, elements, chunks, chunk))
			return divide(from, to, p.slices, slice)
		}
		if p.schedule.Equal { // so that all chunks of a slice are equal, too
			from, to := divide(0, elements/chunks, p.slices, slice)
			return from*chunks + chunk*(to-from), from*chunks + (chunk+1)*(to-from)
		}
		from, to := p.data.Channel.Part(0, elements)
		from, to = divide(from, to, p.slices, slice)
		return divide(from, to, chunks, chunk)
	}
	from, _ = bound(chunk)
	_, to = bound(chunk + count - 1)
	return from, to
}

// Span returns the elements of the whole buffer that a rank's input or output holds out of place.
func (p *Program) Span(rank int, b schedule.Buffer) (from, to int) {
	s := p.schedule
	if s.Kind == schedule.Barrier {
		return 0, 0
	}
	if s.Kind.SharesOf(b) {
		each := s.Chunks / len(s.Ranks)
		from, _ = divide(0, p.data.Count, s.Chunks, rank*each)
		_, to = divide(0, p.data.Count, s.Chunks, (rank+1)*each-1)
		return from, to
	}
	if !s.Has(rank, b, 0) {
		return 0, 0
	}
	return 0, p.data.Count
}

// Lengths implements Algorithm.
func (p *Program) Lengths(rank int) Memory[int] {
	size := p.data.Type.Size()
	length := func(b schedule.Buffer) int {
		from, to := p.Span(rank, b)
		return (to - from) * size
	}
	return Memory[int]{Input: length(schedule.Input), Output: length(schedule.Output),
		Work: p.workLen(rank) * size}
}

// buffer implements Algorithm.
func (p *Program) buffer(rank int, mode Mode, b schedule.Buffer) (place, int) {
	from, to := p.Span(rank, b)
	if from == to {
		return place{}, from
	}
	return p.place(rank, mode, b, from, to).times(p.data.Type.Size()), from
}

// workLen returns the number of elements of memory that a rank needs, without its input and output:
// scratch memory, and places for messages that cannot land in their final position.
func (p *Program) workLen(rank int) int {
	most := 0
	for _, mode := range p.modes() {
		landings := p.landings(rank, mode)
		length := landings.length
		if p.eager {
			length += landings.turn(p)
		}
		most = max(most, length)
	}
	return most
}

// landings are the places in a rank's work memory where messages land that have places there.
type landings struct {
	at     []int // by slice and step
	length int   // of the work memory
}

// turn returns the distance, in elements, between the two places of an eager message.
func (l *landings) turn(p *Program) int { return l.length - p.scratch }

// landingsOf keeps landings by mode and rank, because each sender to a rank needs the rank's landings.
type landingsOf struct {
	mu  sync.Mutex
	all [2]map[int]*landings
}

func (p *Program) landings(rank int, mode Mode) *landings {
	p.landed.mu.Lock()
	defer p.landed.mu.Unlock()
	all := &p.landed.all[mode]
	if *all == nil {
		*all = map[int]*landings{}
	}
	if (*all)[rank] == nil {
		(*all)[rank] = p.findLandings(rank, mode)
	}
	return (*all)[rank]
}

func (p *Program) findLandings(rank int, mode Mode) *landings {
	l := &landings{length: p.scratch}
	for slice := range p.slices {
		for thread, t := range p.schedule.Ranks[rank] {
			for i := range t.Steps {
				step := &t.Steps[i]
				l.at = append(l.at, l.length)
				if takes(step.Op) && !p.direct(rank, mode, schedule.At{Thread: thread, Step: i}) {
					from, to := p.target(step, slice)
					l.length += to - from
				}
			}
		}
	}
	return l
}

// combinations returns how the received elements of a slice, or its source, are combined. The
// chunks of one step differ if some are a rank's own elements and others are already sums.
func (p *Program) combinations(rank int, mode Mode, slice int, at schedule.At) (all []combination) {
	step, size := &p.schedule.Ranks[rank][at.Thread].Steps[at.Step], p.data.Type.Size()
	start, _ := p.target(step, slice)
	var last schedule.Terms
	for i, terms := range p.plans[mode].Terms[rank][at.Thread][at.Step] {
		from, to := p.part(step.Target, step.Chunk+step.Move+i, 1, slice)
		from, to = (from-start)*size, (to-start)*size
		if i > 0 && terms == last {
			all[len(all)-1].to = to
			continue
		}
		last = terms
		all = append(all, combination{from, to,
			element.Combiner(p.data.Type, p.data.Op,
				element.Terms{A: terms.Came, B: terms.Has, Ranks: len(p.schedule.Ranks)})})
	}
	return all
}

// source and target return the elements of a slice that a step reads, and those that it writes.
func (p *Program) source(s *schedule.Step, slice int) (from, to int) {
	return p.part(s.Source, s.Chunk, s.Count, slice)
}

func (p *Program) target(s *schedule.Step, slice int) (from, to int) {
	return p.part(s.Target, s.Chunk+s.Move, s.Count, slice)
}

// place returns the memory of elements of the whole buffer in one of a rank's buffers. Its bounds are
// elements. In place, the buffer that holds all elements serves as both input and output. A rank that has
// no part of that buffer uses its other buffer as it does out of place.
func (p *Program) place(rank int, mode Mode, b schedule.Buffer, from, to int) place {
	if b == schedule.Scratch {
		at := p.scratchAt(from)
		return place{b, at, at + to - from}
	}
	if whole := p.schedule.Kind.InPlace(); mode == InPlace && p.schedule.Has(rank, whole, 0) {
		return place{whole, from, to}
	}
	start, _ := p.Span(rank, b)
	return place{b, from - start, to - start}
}

// lands returns where the message that a step of a rank receives lands. landing is its position in
// work memory if it does not land directly.
func (p *Program) lands(rank int, mode Mode, at schedule.At, from, to, landing int) place {
	if p.direct(rank, mode, at) {
		return p.place(rank, mode, p.schedule.Ranks[rank][at.Thread].Steps[at.Step].Target, from, to)
	}
	return place{schedule.Scratch, landing, landing + to - from}
}

// Partners implements Algorithm. It sorts by rank.
func (p *Program) Partners(rank int) []int {
	var partners []int
	for _, t := range p.schedule.Ranks[rank] {
		for i := range t.Steps {
			if step := &t.Steps[i]; !step.Op.Local() {
				partners = append(partners, step.Peer)
			}
		}
	}
	slices.Sort(partners)
	return slices.Compact(partners)
}
