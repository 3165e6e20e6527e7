package report

import "railbed/plan/spec"

// Capture is a recording.
type Capture struct {
	// File is a path below the report's directory.
	File string `json:"file"`
	// Files is the number of files of a recording in several files: run.pcapng, run-2.pcapng. File is the
	// first. It is 0 for a recording in one file.
	Files  int      `json:"files,omitempty"`
	At     []string `json:"at"`               // the taps as the file has them
	Filter string   `json:"filter,omitempty"` // as the file has it
	Bytes  int64    `json:"bytes"`            // size of the file
	// Complete is false when the recording ended before the run did.
	Complete bool  `json:"complete"`
	Taps     []Tap `json:"taps"`
}

// Tap is one recorded port.
type Tap struct {
	Name    string `json:"name"`    // "h0:eth0"
	Packets uint64 `json:"packets"` // packets recorded
	Dropped uint64 `json:"dropped"` // packets that the recording lost
	// Limited counts packets that were not written because of the file's size limit.
	Limited uint64 `json:"limited"`
}

// Packets returns the number of recorded packets.
func (c Capture) Packets() (n uint64) {
	for _, tap := range c.Taps {
		n += tap.Packets
	}
	return n
}

// Dropped returns the number of lost packets.
func (c Capture) Dropped() (n uint64) {
	for _, tap := range c.Taps {
		n += tap.Dropped
	}
	return n
}

// maxListed bounds the files of a recording that are listed.
const maxListed = 20

// Listed returns the names of the first files.
func (c Capture) Listed() []string {
	names := []string{c.File}
	for number := 2; number <= min(c.Files, maxListed); number++ {
		names = append(names, spec.CapturePart(c.File, number))
	}
	return names
}

// Unlisted returns the number of files after those of Listed.
func (c Capture) Unlisted() int { return max(c.Files-maxListed, 0) }
