package bundle

import (
	"errors"
	"fmt"
	"io"

	"railbed/capture/keep"
	"railbed/capture/pcapng"
)

// Recordings are open recordings of a run. Close them after use.
type Recordings struct {
	names []string
	Parts []*keep.Parts
}

// Recordings opens recordings of Captures.
func (r *Run) Recordings(names []string) (*Recordings, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: %w", r.Name, ErrNoCapture)
	}
	opened := &Recordings{names: names}
	for _, name := range names {
		file, err := r.OpenCapture(name)
		if err != nil {
			return nil, errors.Join(err, opened.Close())
		}
		opened.Parts = append(opened.Parts, file)
	}
	return opened, nil
}

// Packets reads all recordings in the order of time.
func (r *Recordings) Packets() (pcapng.Source, error) {
	if len(r.Parts) == 1 {
		return pcapng.NewReader(r.Parts[0])
	}
	return pcapng.NewMerger(r.names, r.Readers())
}

// Readers returns the recordings.
func (r *Recordings) Readers() (sources []io.Reader) {
	for _, file := range r.Parts {
		sources = append(sources, file)
	}
	return sources
}

// Files returns the names of the files that were read, of each recording.
func (r *Recordings) Files() (all [][]string) {
	for _, file := range r.Parts {
		all = append(all, file.Names())
	}
	return all
}

// Close closes the recordings.
func (r *Recordings) Close() (err error) {
	for _, file := range r.Parts {
		err = errors.Join(err, file.Close())
	}
	return err
}
