package pcapng

import (
	"fmt"
	"io"
)

// Parted is a source whose recording may be in several files. It reads one of the files.
type Parted interface {
	io.Reader
	// NextPart goes on with the file of a number or, if that file is missing, with the first file after it.
	// It returns the number of the file.
	NextPart(number int) (int, error)
}

// Part is a file of a recording in several files.
type Part struct {
	Number int // from 1
	Before int // packets that were read from earlier files
}

// parts is the state of a Reader between the files of a recording.
type parts struct {
	// source is nil if the input is a single file.
	source Parted
	// section is the number of the section, note its comment, and described the number of interfaces that it
	// has described so far. The section has statistics if counted is set.
	section   int
	note      SectionNote
	described int
	counted   bool
	// continued is the number of the next file, by the statistics of the section. opened is the number of a
	// file whose section header is awaited.
	continued, opened int
	// earlier has the same indexes as Reader.statistics.
	earlier []earlierStatistics
	read    []Part
	missing []string
}

// earlierStatistics are the statistics of an interface in the files before that of a section.
type earlierStatistics struct {
	first   int // section that counted the interface first
	section int
	sum     Statistics
}

// Parts implements Source, with the files of a single recording.
func (r *Reader) Parts() [][]Part { return [][]Part{r.parts.read} }

// Missing names the files of the recording that were not read. It is complete at the end of the input.
func (r *Reader) Missing() []string { return r.parts.missing }

func (p *parts) lack(format string, values ...any) {
	p.missing = append(p.missing, fmt.Sprintf(format, values...))
}

// lackParts notes that files between two others are missing.
func (p *parts) lackParts(first, last int) {
	switch {
	case first == last:
		p.lack("file %d of the recording is missing", first)
	case first < last:
		p.lack("files %d to %d of the recording are missing", first, last)
	}
}

// nextPart goes on with the next file at the end of a file. It returns io.EOF if there is none.
func (r *Reader) nextPart() error {
	p := &r.parts
	switch {
	case p.opened > 0:
		p.lack("file %d of the recording is empty", p.opened)
		return io.EOF
	case p.continued == 0:
		if p.note.Part > 1 && !p.counted {
			p.lack("file %d of the recording lacks its end", p.note.Part)
		}
		return io.EOF
	case p.source == nil:
		p.lack("file %d of the recording was not read", p.continued)
		return io.EOF
	}
	number, err := p.source.NextPart(p.continued)
	if err != nil {
		p.lack("file %d of the recording is missing: %v", p.continued, err)
		return io.EOF
	}
	p.opened, r.srcErr = number, nil
	return nil
}

// startPart is called at a section header. The section may continue the recording of the section before: then
// it has the same interfaces, and its statistics add up. text is the size of tables before the header. It
// returns io.EOF for a file that is not of the recording.
func (r *Reader) startPart(text int) error {
	p := &r.parts
	var note SectionNote
	for _, comment := range r.section.Comments {
		if found, is := ParseSectionNote([]byte(comment)); is {
			note = found
		}
	}
	whole := note
	whole.Part = p.note.Part
	switch continues := p.note.Part > 0 && note.Part > p.note.Part && whole == p.note; {
	case continues:
		p.lackParts(p.note.Part+1, note.Part-1)
		r.tableText = text
	case p.opened > 0:
		p.lack("file %d is of another recording", p.opened)
		return io.EOF
	default:
		if p.continued > 0 {
			p.lack("file %d of the recording is missing", p.continued)
		}
		if note.Part > 1 {
			p.lack("reading began with file %d of the recording, and not with file 1", note.Part)
		}
		r.base = len(r.interfaces)
	}
	p.section++
	p.note, p.described, p.counted, p.continued, p.opened = note, 0, false, 0, 0
	if note.Part > 0 {
		p.read = append(p.read, Part{note.Part, r.packets})
	}
	if len(p.read) > maxParts {
		return r.bad("more than %d files of recordings", maxParts)
	}
	return nil
}

// known reports whether an earlier file of the recording has described the section's next interface.
func (r *Reader) known(i Interface, s scale) (bool, error) {
	number := r.base + r.parts.described
	r.parts.described++
	if number >= len(r.interfaces) {
		return false, nil
	}
	if old := &r.interfaces[number]; old.Name != i.Name || old.LinkType != i.LinkType ||
		r.scales[number] != s {
		return false, r.bad("interface %q, and in the file before %q, want the same", i.Name, old.Name)
	}
	return true, nil
}

// addStatistics takes the statistics of an interface. It adds its statistics in earlier files of the
// recording, and reports whether there are any.
func (r *Reader) addStatistics(s Statistics) (earlier bool) {
	p := &r.parts
	p.counted = true
	note, noted := tapNoteOf(&s)
	p.continued = max(p.continued, note.Continued)
	at, known := r.statisticsAt[s.Interface]
	if !known {
		r.statisticsAt[s.Interface] = len(r.statistics)
		r.statistics = append(r.statistics, s)
		p.earlier = append(p.earlier, earlierStatistics{first: p.section, section: p.section})
		return false
	}
	e := &p.earlier[at]
	if e.section != p.section {
		e.section, e.sum = p.section, r.statistics[at]
	}
	if e.first == p.section { // a later count of the same file
		r.statistics[at] = s
		return false
	}
	s.Has = s.Has&e.sum.Has | (s.Has|e.sum.Has)&HasOSDropped
	s.Start = e.sum.Start
	s.Received += e.sum.Received
	s.Dropped += e.sum.Dropped
	s.Accepted += e.sum.Accepted
	s.OSDropped += e.sum.OSDropped
	s.Delivered += e.sum.Delivered
	sum, summed := tapNoteOf(&e.sum)
	if s.Comments = nil; noted && summed {
		sum.add(note)
		s.Comments = []string{string(sum.AppendTo(nil))}
	}
	r.statistics[at] = s
	return true
}

func tapNoteOf(s *Statistics) (TapNote, bool) {
	for _, comment := range s.Comments {
		if note, is := ParseTapNote([]byte(comment)); is {
			return note, true
		}
	}
	return TapNote{}, false
}
