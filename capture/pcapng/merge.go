package pcapng

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Source returns the packets of a capture. A Reader and a Merger are sources.
type Source interface {
	// Next returns the next packet, which is valid until the following Next, and io.EOF after the last.
	Next() (*Packet, error)
	Section() Section
	Interfaces() []Interface
	Statistics() []Statistics
	// Missing names the files of recordings in several files that were not read. It is complete after the
	// last packet.
	Missing() []string
	// Parts returns the files of each recording in several files, in the order in which they were read.
	Parts() [][]Part
}

// Origin is the place of a record in one of several recordings.
type Origin struct {
	Recording int // index
	Number    int // of the record in the recording, from 1
}

// Merger reads several recordings of a testbed as one recording, in the order of their packets' times. It
// holds one packet of each recording and those of one time.
//
// Interfaces of the same name are the same tap. Two recordings of a tap contain its packets twice: records of
// the same time, direction and bytes are one packet. The recordings may differ in how many bytes of each
// packet they keep, and in the ids that they give to packets.
//
// Limit: the records of each recording have to be in the order of time. Packets of a recording that are not
// may be counted twice. Recorded.Unordered counts them.
type Merger struct {
	streams    []*stream // the recording with the most interfaces first, because its ids are used
	section    Section
	interfaces []Interface
	batch      []merged // packets of one time
	next       int      // of batch
	data       []byte   // of the packets of batch
	packets    int
	truncated  error
}

// stream is one of the recordings.
type stream struct {
	name    string
	index   int // in the caller's order
	reader  *Reader
	head    *Packet // nil at the end
	local   []int   // the Merger's interfaces, by interface
	found   []Recorded
	latest  int64 // time of the latest packet
	behind  uint64
	broken  string
	renamed renames
}

// merged is a packet and the last stream that has it.
type merged struct {
	Packet
	in *stream
}

// NewMerger reads the beginnings of recordings. names are for messages.
func NewMerger(names []string, sources []io.Reader) (*Merger, error) {
	m := &Merger{}
	var first SectionNote
	for i, source := range sources {
		s := &stream{name: names[i], index: i, renamed: renames{young: map[uint64]uint64{}}}
		var err error
		if s.reader, err = NewReader(source); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		note := sectionNoteOf(s.reader.Section())
		// A testbed without a clock of its own gives each recording its start as the epoch.
		note.Epoch, note.Recording, note.Part = time.Time{}, 0, 0
		if i == 0 {
			first, m.section = note, s.reader.Section()
		} else if note != first || s.reader.Section().Application != m.section.Application {
			return nil, fmt.Errorf("%s and %s are recordings of different testbeds, or of different tools",
				names[0], s.name)
		}
		if err := s.advance(m); err != nil {
			return nil, err
		}
		m.streams = append(m.streams, s)
	}
	slices.SortStableFunc(m.streams, func(a, b *stream) int {
		return cmp.Compare(len(b.reader.Interfaces()), len(a.reader.Interfaces()))
	})
	for _, s := range m.streams {
		s.describe(m)
	}
	return m, nil
}

// sectionNoteOf returns the note of Railbed in a section header.
func sectionNoteOf(s Section) (note SectionNote) {
	for _, comment := range s.Comments {
		if found, is := ParseSectionNote([]byte(comment)); is {
			note = found
		}
	}
	return note
}

// advance reads the next packet of a recording.
func (s *stream) advance(m *Merger) error {
	var err error
	if s.head, err = s.reader.Next(); err == nil {
		if s.head.Time < s.latest {
			s.behind++
		}
		s.latest = max(s.latest, s.head.Time)
		return nil
	}
	if err == io.EOF {
		return nil
	}
	s.head, err = nil, fmt.Errorf("%s: %w", s.name, err)
	if errors.Is(err, ErrTruncated) { // the other recordings go on
		m.truncated, s.broken = err, s.name+" is truncated"
		return nil
	}
	return err
}

// describe adds the interfaces that the recording has described since the last call.
func (s *stream) describe(m *Merger) {
	for _, described := range s.reader.Interfaces()[len(s.local):] {
		at := slices.IndexFunc(m.interfaces, func(i Interface) bool {
			return described.Name != "" && i.Name == described.Name && i.LinkType == described.LinkType
		})
		if at < 0 {
			at = len(m.interfaces)
			m.interfaces = append(m.interfaces, described)
		} else if described.Filter == "" {
			m.interfaces[at].Filter = ""
		}
		s.local = append(s.local, at)
		s.found = append(s.found, Recorded{Recording: s.index, Name: s.name, Filter: described.Filter,
			SnapLen: described.SnapLen, ethernet: described.LinkType == LinkEthernet})
	}
}

// Next implements Source. A Packet has its place in the recordings as Origin.
func (m *Merger) Next() (*Packet, error) {
	if m.next == len(m.batch) {
		if err := m.fill(); err != nil {
			return nil, err
		}
	}
	p := &m.batch[m.next].Packet
	m.next++
	m.packets++
	p.Number = m.packets
	return p, nil
}

// fill reads the packets of the earliest time.
func (m *Merger) fill() error {
	m.batch, m.next, m.data = m.batch[:0], 0, m.data[:0]
	var earliest *stream
	for _, s := range m.streams {
		if s.head != nil && (earliest == nil || s.head.Time < earliest.head.Time) {
			earliest = s
		}
	}
	switch {
	case earliest == nil && m.truncated != nil:
		return m.truncated
	case earliest == nil:
		return io.EOF
	}
	at := earliest.head.Time
	for _, s := range m.streams {
		for s.head != nil && s.head.Time == at {
			m.add(s)
			if err := s.advance(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a copy of a recording's packet, unless an earlier recording has it.
func (m *Merger) add(s *stream) {
	s.describe(m)
	p := *s.head
	own := p.ID
	s.found[p.Interface].count(&p)
	p.ID = s.renamed.get(own)
	p.Interface = s.local[p.Interface]
	p.Origin = Origin{s.index, p.Number}
	same := slices.IndexFunc(m.batch, func(b merged) bool { return b.in != s && repeats(&b.Packet, &p) })
	if same >= 0 {
		b := &m.batch[same]
		b.in = s
		if p.ID != b.ID {
			s.renamed.put(own, b.ID)
		}
		if len(p.Data) > len(b.Data) {
			b.Data = m.copy(p.Data)
		}
		return
	}
	p.Data = m.copy(p.Data)
	p.Comments = slices.Clone(p.Comments)
	for i, comment := range p.Comments {
		p.Comments[i] = m.copy(comment)
	}
	m.batch = append(m.batch, merged{p, s})
}

// count counts a packet and its annotations.
func (r *Recorded) count(p *Packet) {
	r.Packets++
	if group := r.ethernet && len(p.Data) > 0 && p.Data[0]&1 != 0; !group {
		if r.Last == 0 {
			r.First = p.Time
		}
		r.First, r.Last = min(r.First, p.Time), max(r.Last, p.Time)
	}
	for _, comment := range p.Comments {
		if a, is := ParseAnnotation(comment); is {
			r.Notes.Count(a.Verdict)
		}
	}
}

func (m *Merger) copy(b []byte) []byte {
	from := len(m.data)
	m.data = append(m.data, b...)
	return m.data[from:len(m.data):len(m.data)]
}

// repeats reports whether records of one time, of different recordings, are of the same packet.
func repeats(a, b *Packet) bool {
	least := min(len(a.Data), len(b.Data))
	return a.Interface == b.Interface && a.Flags == b.Flags && a.Length == b.Length &&
		bytes.Equal(a.Data[:least], b.Data[:least]) && verdictOf(a) == verdictOf(b)
}

// verdictOf returns a switch's verdict and its reason. Only recordings with all events note that a packet
// left its queue.
func verdictOf(p *Packet) (of Annotation) {
	for _, comment := range p.Comments {
		if a, is := ParseAnnotation(comment); is && a.Verdict != "dequeue" {
			of = Annotation{Verdict: a.Verdict, Reason: a.Reason, Name: a.Name}
		}
	}
	return of
}

// mostRenames bounds the ids that a recording's table holds, to half.
const mostRenames = 1 << 17

// renames maps ids of a recording to ids of another. It forgets the oldest.
type renames struct{ young, old map[uint64]uint64 }

func (r *renames) put(id, to uint64) {
	if len(r.young) >= mostRenames {
		r.young, r.old = map[uint64]uint64{}, r.young
	}
	r.young[id] = to
}

func (r *renames) get(id uint64) uint64 {
	if to, is := r.young[id]; is {
		return to
	}
	if to, is := r.old[id]; is {
		return to
	}
	return id
}

// Section implements Source. The recordings differ in nothing that readers use.
func (m *Merger) Section() Section { return m.section }

// Interfaces implements Source. A tap has a filter if all its recordings have one. Recorded has the filter of
// each.
func (m *Merger) Interfaces() []Interface { return m.interfaces }

// Missing implements Source.
func (m *Merger) Missing() (all []string) {
	for _, s := range m.ordered() {
		for _, what := range s.reader.Missing() {
			all = append(all, s.name+": "+what)
		}
	}
	return all
}

// Parts implements Source.
func (m *Merger) Parts() (all [][]Part) {
	for _, s := range m.ordered() {
		all = append(all, s.reader.Parts()...)
	}
	return all
}

// ordered returns the recordings in the caller's order.
func (m *Merger) ordered() []*stream {
	return slices.SortedFunc(slices.Values(m.streams), func(a, b *stream) int { return a.index - b.index })
}

// Statistics implements Source. It is complete after the last packet. Each recording of an interface has
// statistics of its own, in the caller's order. Their fields besides Recorded are zero if the recording has
// none.
func (m *Merger) Statistics() (all []Statistics) {
	for _, s := range m.ordered() {
		s.describe(m)
		if missing := s.reader.Missing(); len(missing) > 0 && s.broken == "" {
			s.broken = s.name + ": " + strings.Join(missing, "; ")
		}
		of := make([]Statistics, len(s.local))
		for _, one := range s.reader.Statistics() {
			of[one.Interface] = one
		}
		for i := range of {
			s.found[i].Unordered, s.found[i].Broken = s.behind, s.broken
			of[i].Interface, of[i].Recorded = s.local[i], &s.found[i]
		}
		all = append(all, of...)
	}
	return all
}
