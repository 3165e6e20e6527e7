// Package jobfile reads training jobs from published file formats: workloads of SimAI and AICB,
// execution traces of Chakra, and traffic matrices of htsim. If a file asks for something that a
// program cannot do, the error names the position in the file.
package jobfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"railbed/internal/input"
	"railbed/workloads/training"
)

// Options are the parameters that a file does not contain.
type Options struct {
	// Ranks is the number of ranks of the job. Default: the number in the file.
	Ranks int
	// Groups is the file with the groups of ranks of Chakra's traces. Default: NAME.json in their folder,
	// if it exists.
	Groups string
	Scale  training.Scale
}

func (o Options) done(name string, b *training.Builder) (*training.Program, error) {
	p, err := b.Done(o.Scale)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// maxFile bounds the size of a file in bytes.
const maxFile = 64 << 20

// Read reads the program of a file. The extension gives the format: .txt is SimAI, .cm is htsim, and .et
// and .json are Chakra. For Chakra, NAME.0.et stands for the files NAME.0.et, NAME.1.et and so on, one for
// each rank. NAME.0.json stands for NAME.0.json and so on. Options.Groups, or a NAME.json in the same folder
// if there is one, has the groups of ranks.
func Read(path string, o Options) (*training.Program, error) {
	switch filepath.Ext(path) {
	case ".txt":
		text, err := load(path)
		if err != nil {
			return nil, err
		}
		return readSimAI(path, text, o)
	case ".cm":
		text, err := load(path)
		if err != nil {
			return nil, err
		}
		return readMatrix(path, text, o)
	case ".et", ".json":
		return readChakraFiles(path, o)
	}
	return nil, fmt.Errorf("%s: want a file that ends in .txt (SimAI), .et or .json (Chakra), or .cm (htsim)",
		path)
}

// AnyWorld reports whether the job of a file can have another number of ranks than the file has. Only
// SimAI's can.
func AnyWorld(path string) bool { return filepath.Ext(path) == ".txt" }

func load(path string) ([]byte, error) {
	text, err := input.ReadRegular(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return text, nil
}

func readChakraFiles(path string, o Options) (*training.Program, error) {
	form := filepath.Ext(path)
	prefix, found := strings.CutSuffix(path, ".0"+form)
	if !found {
		return nil, fmt.Errorf("%s: want the file of rank 0, whose name ends in .0%s", path, form)
	}
	var files []File
	for rank := 0; rank <= training.MaxRanks; rank++ {
		name := fmt.Sprintf("%s.%d%s", prefix, rank, form)
		content, err := load(name)
		if rank > 0 && errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, err
		}
		files = append(files, File{name, content})
	}
	known := groups{name: cmp.Or(o.Groups, prefix+".json")}
	content, err := load(known.name)
	if err == nil {
		known, err = readGroups(known.name, content, len(files))
	} else if o.Groups == "" && errors.Is(err, fs.ErrNotExist) {
		err = nil // it may not be needed
	}
	if err != nil {
		return nil, err
	}
	return readChakra(files, known, o)
}

// lineError returns an error about a line, counted from 1.
func lineError(name string, line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", name, line, fmt.Sprintf(format, args...))
}

// lines returns the lines of a text, each split at white space.
func lines(text []byte) [][]string {
	var all [][]string
	for line := range strings.Lines(string(text)) {
		all = append(all, strings.Fields(line))
	}
	return all
}

// shown returns a word of a file, shortened for an error.
func shown(word string) string {
	const most = 40
	if len(word) > most {
		word = word[:most] + "..."
	}
	return fmt.Sprintf("%q", word)
}
