package msccl

import (
	"slices"

	"railbed/plan/schedule"
)

// algorithm is the content of a file.
type algorithm struct {
	*element
	title         string
	kind          schedule.Kind
	ranks, chunks int
	channels      int
	// inPlace and outOfPlace say in which modes it may run.
	inPlace, outOfPlace bool
	gpus                []*gpu // by id
}

// gpu is a rank. chunks has the number of chunks of each buffer, by the buffer's letter.
type gpu struct {
	*element
	id     int
	chunks map[string]int
	blocks []*block // by id, then the block of copies if there are any
	copies *block   // from input to output, before all other steps; nil for none
	// changes is set if steps write to the rank's input.
	changes bool
}

// block is a thread block.
type block struct {
	*element
	id, send, recv, channel int
	steps                   []*step
}

// step is a step of a thread block.
type step struct {
	*element
	*operation
	src, dst reference
	count    int
	waits    bool // for a step of another block
	block    int
	after    int
	told     bool // other steps may wait for it
	bad      bool // the other fields are not set
}

// reference is a chunk in a buffer.
type reference struct {
	buffer string
	offset int
}

// operation is the effect of a type of step, in the order of the fields. It sends the data that it
// has received or computed, or else its source.
type operation struct {
	verb                                 string
	receives, reads, adds, writes, sends bool
}

var operations = []operation{
	{verb: "nop"},
	{verb: "s", reads: true, sends: true},
	{verb: "r", receives: true, writes: true},
	{verb: "rcs", receives: true, writes: true, sends: true},
	{verb: "rrs", receives: true, reads: true, sends: true},
	{verb: "rrc", receives: true, reads: true, writes: true},
	{verb: "rrcs", receives: true, reads: true, writes: true, sends: true},
	{verb: "cpy", reads: true, writes: true},
	{verb: "re", reads: true, adds: true, writes: true},
}

func (o *operation) nop() bool { return !o.reads && !o.writes }

// algorithm reads the attributes of an algorithm, and checks everything that needs no data flow.
func (r *reader) algorithm(e *element) *algorithm {
	in := r.in(e)
	a := &algorithm{
		element: e, title: in.text("name"),
		ranks:    in.number("ngpus", 1, maxRanks),
		chunks:   in.number("nchunksperloop", 1, maxChunks),
		channels: in.number("nchannels", 0, maxSteps),
	}
	a.inPlace = in.number("inplace", 0, 1) == 1
	a.outOfPlace = !a.inPlace
	if _, is := e.find("outofplace"); is {
		a.outOfPlace = in.number("outofplace", 0, 1) == 1
	}
	if !in.bad && !a.inPlace && !a.outOfPlace {
		in.wrong("outofplace", "0 with inplace=0: want 1 for at least one of them")
	}
	in.word("proto", "Simple", "LL", "LL128")
	coll, _ := e.find("coll")
	kinds, names := kinds()
	if coll == "custom" {
		in.wrong("coll", "custom: want another collective, because the file does not define the "+
			"result of a custom collective")
	} else {
		in.word("coll", names...)
	}
	if in.bad {
		return a
	}
	a.kind = kinds[slices.Index(names, coll)]
	if a.kind.Shares() && a.chunks%a.ranks != 0 {
		in.wrong("nchunksperloop", "%d: want a multiple of the %d ranks in %s", a.chunks, a.ranks, coll)
		return a
	}
	a.gpus = make([]*gpu, a.ranks)
	for _, child := range e.children {
		r.gpu(a, child)
	}
	for id, g := range a.gpus {
		if g == nil {
			in.wrong("ngpus", "the file has no gpu %d", id)
		}
	}
	return a
}

func (r *reader) gpu(a *algorithm, e *element) {
	in := r.in(e)
	g := &gpu{element: e, id: in.number("id", 0, a.ranks-1), chunks: map[string]int{}}
	for _, letter := range []string{"i", "o", "s"} {
		g.chunks[letter] = in.number(letter+"_chunks", 0, maxChunks)
	}
	if in.bad {
		return
	}
	if a.gpus[g.id] != nil {
		in.wrong("id", "gpu %d is defined twice", g.id)
		return
	}
	for letter, shares := range map[string]bool{"i": a.kind.SharesOf(schedule.Input),
		"o": a.kind.SharesOf(schedule.Output)} {
		want := a.chunks
		if shares {
			want /= a.ranks
		}
		if got := g.chunks[letter]; got != 0 && got != want {
			in.wrong(letter+"_chunks", "%d: want 0 or %d (nchunksperloop is %d)", got, want, a.chunks)
		}
	}
	a.gpus[g.id] = g
	copies := slices.DeleteFunc(slices.Clone(e.children), func(c *element) bool { return c.name != "copy" })
	g.blocks = make([]*block, len(e.children)-len(copies))
	for _, child := range e.children {
		if child.name == "tb" {
			r.block(a, g, child)
		}
	}
	defer r.copies(g, copies)
	for _, b := range g.blocks {
		for i := 0; b != nil && i < len(b.steps); i++ {
			r.dependency(g, b, i)
		}
	}
}

func (r *reader) block(a *algorithm, g *gpu, e *element) {
	in := r.in(e)
	b := &block{
		element: e, id: in.number("id", 0, len(g.blocks)-1),
		send:    in.number("send", -1, a.ranks-1),
		recv:    in.number("recv", -1, a.ranks-1),
		channel: in.number("chan", -1, a.channels-1),
	}
	if in.bad {
		return
	}
	if g.blocks[b.id] != nil {
		in.wrong("id", "thread block %d of gpu %d is defined twice", b.id, g.id)
		return
	}
	if b.channel < 0 && (b.send >= 0 || b.recv >= 0) {
		in.wrong("chan", "-1: want a channel, because the thread block sends or receives")
	}
	for _, way := range []struct {
		name string
		peer func(b *block) int
	}{{"send", func(b *block) int { return b.send }}, {"recv", func(b *block) int { return b.recv }}} {
		peer := way.peer(b)
		if peer == g.id {
			in.wrong(way.name, "%d is the gpu itself: want another gpu", peer)
		}
		if other := slices.IndexFunc(g.blocks, func(o *block) bool {
			return o != nil && peer >= 0 && o.channel == b.channel && way.peer(o) == peer
		}); other >= 0 {
			in.wrong(way.name, "thread block %d already uses gpu %d on channel %d", other, peer, b.channel)
		}
	}
	g.blocks[b.id] = b
	for i, child := range e.children {
		s := r.step(g, b, child, i)
		b.steps = append(b.steps, s)
		g.changes = g.changes || s.writes && s.dst.buffer == "i"
	}
}

// copies adds a block with the copies of a gpu. Older tools write them in place of steps of type cpy, one for
// each chunk that is in the input and in the output. A chunk is copied before the thread blocks begin.
func (r *reader) copies(g *gpu, elements []*element) {
	if len(elements) == 0 {
		return
	}
	g.copies = &block{id: len(g.blocks), send: -1, recv: -1, channel: -1}
	for _, e := range elements {
		in := r.in(e)
		s := &step{element: e, operation: local("cpy"), count: 1}
		s.src = reference{"i", in.number("i_off", 0, g.chunks["i"]-1)}
		s.dst = reference{"o", in.number("o_off", 0, g.chunks["o"]-1)}
		g.copies.steps = append(g.copies.steps, s)
	}
	g.blocks = append(g.blocks, g.copies)
}

// local returns the operation of a type of step.
func local(verb string) *operation {
	return &operations[slices.IndexFunc(operations, func(o operation) bool { return o.verb == verb })]
}

func (r *reader) step(g *gpu, b *block, e *element, number int) *step {
	in := r.in(e)
	s := &step{element: e, operation: &operations[0]}
	if n := in.number("s", 0, maxSteps); !in.bad && n != number {
		in.wrong("s", "%d: want %d, because steps are numbered from 0 in order", n, number)
	}
	names := make([]string, len(operations))
	for i := range operations {
		names[i] = operations[i].verb
	}
	if i := slices.Index(names, in.word("type", names...)); i >= 0 {
		s.operation = &operations[i]
	}
	s.src = reference{in.word("srcbuf", "i", "o", "s"), in.number("srcoff", -1, maxChunks)}
	s.dst = reference{in.word("dstbuf", "i", "o", "s"), in.number("dstoff", -1, maxChunks)}
	s.count = in.number("cnt", 0, maxChunks)
	s.block, s.after = in.number("depid", -1, len(g.blocks)-1), in.number("deps", -1, maxSteps)
	s.waits = s.block >= 0
	s.told = in.number("hasdep", 0, 1) == 1
	if in.bad {
		return &step{element: e, operation: &operations[0], bad: true}
	}
	if !s.nop() && s.count == 0 {
		in.wrong("cnt", "0: want at least 1 chunk for %s", s.verb)
	}
	if s.nop() && !s.waits {
		in.wrong("depid", "-1: want the thread block for which the nop waits")
	}
	if s.sends && b.send < 0 {
		in.wrong("type", "%s in a thread block with send=-1: want a gpu to send to", s.verb)
	}
	if s.receives && b.recv < 0 {
		in.wrong("type", "%s in a thread block with recv=-1: want a gpu to receive from", s.verb)
	}
	for _, use := range []struct {
		name string
		used bool
		reference
	}{{"srcoff", s.reads, s.src}, {"dstoff", s.writes, s.dst}} {
		if has := g.chunks[use.buffer]; use.used && (use.offset < 0 || use.offset > has-s.count) {
			in.wrong(use.name, "%d chunks from chunk %d on do not fit: buffer %s of gpu %d has %d chunks",
				s.count, use.offset, use.buffer, g.id, has)
		}
	}
	return s
}

// dependency resolves the step for which a step waits: the first step with hasdep, starting with
// the step that it names.
func (r *reader) dependency(g *gpu, b *block, number int) {
	s := b.steps[number]
	if s.nop() && s.waits &&
		(number+1 == len(b.steps) || !b.steps[number+1].waits && !b.steps[number+1].bad) {
		r.in(s.element).wrong("type", "nop: want a next step that waits, too (depid of 0 or more)")
	}
	if !s.waits || g.blocks[s.block] == nil {
		return
	}
	in, steps := r.in(s.element), g.blocks[s.block].steps
	if s.after < 0 || s.after >= len(steps) {
		in.wrong("deps", "%d: want a step of thread block %d, which has %d steps", s.after, s.block,
			len(steps))
		return
	}
	i := slices.IndexFunc(steps[s.after:], func(o *step) bool { return o.bad || o.told && !o.nop() })
	if i < 0 {
		in.wrong("deps", "%[1]d: want a step with hasdep=1 in thread block %[2]d from step %[1]d on, else "+
			"this step waits forever", s.after, s.block)
		return
	}
	s.after += i
}
