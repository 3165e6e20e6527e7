package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"railbed/plan/spec"
	"railbed/scenarios/runner"
	"railbed/scenarios/runner/suite"
)

// scenarios are the scenarios of an argument, and the files that are passed over.
type scenarios struct {
	files []string
	over  []suite.PassedOver
}

func (s *scenarios) pass(path, reason string) {
	s.over = append(s.over, suite.PassedOver{Path: path, Reason: reason})
}

// scenarioFiles returns a file, or the files below a directory that describe a fabric.
func scenarioFiles(arg string) (*scenarios, error) {
	found := &scenarios{}
	info, err := os.Stat(arg)
	if err != nil {
		if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
			err = failed.Err
		}
		return nil, fmt.Errorf("%s cannot be read: %w; name a file or a directory that you can read", arg,
			err)
	}
	if !info.IsDir() {
		found.files = []string{arg}
		return found, nil
	}
	if arg, err = filepath.EvalSymlinks(arg); err != nil { // WalkDir follows no link
		return nil, err
	}
	return found, filepath.WalkDir(arg, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if name != arg {
				return found.enter(name)
			}
			return nil
		}
		return found.add(name, entry)
	})
}

// enter decides about a directory below an argument.
func (s *scenarios) enter(dir string) error {
	switch base := filepath.Base(dir); {
	case strings.HasPrefix(base, "."): // the page says so
		return fs.SkipDir
	case base == "testdata":
		s.pass(dir, "folders of this name hold no scenarios; name the folder itself")
		return fs.SkipDir
	}
	if _, err := suite.Read(dir); err == nil {
		s.pass(dir, "it holds results of railbed test")
		return fs.SkipDir
	}
	if !runner.IsResults(dir) {
		return nil
	}
	s.pass(dir, "it holds results of railbed run")
	return fs.SkipDir
}

// scenarioExts are the extensions of files that may be scenarios, in lower case. JSON is YAML.
var scenarioExts = []string{".yaml", ".yml", ".json"}

// add decides about a file below an argument.
func (s *scenarios) add(name string, entry fs.DirEntry) error {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if slices.Contains(scenarioExts, strings.ToLower(filepath.Ext(name))) {
			s.pass(name, "the link leads nowhere")
		}
		return nil
	case err != nil:
		return err
	case info.IsDir() && !strings.HasPrefix(entry.Name(), "."):
		s.pass(name, "it is a link to a folder; name the folder itself")
		return nil
	case !slices.Contains(scenarioExts, strings.ToLower(filepath.Ext(name))):
		return nil
	case strings.HasPrefix(entry.Name(), ".") && filepath.Ext(name) == ".json":
		return nil // settings of other programs
	case !info.Mode().IsRegular():
		s.pass(name, "it is no regular file")
		return nil
	}
	text, err := spec.ReadText(name)
	var wrong spec.Problems
	if errors.As(err, &wrong) && len(wrong) > 0 {
		s.pass(name, wrong[0].What)
		return nil
	} else if err != nil {
		return err
	}
	if is, reason := spec.Describes(text); is {
		s.files = append(s.files, name)
	} else {
		s.pass(name, reason)
	}
	return nil
}

// printPassedOver prints the files that are passed over.
func (a *app) printPassedOver(over []suite.PassedOver) {
	for _, p := range over {
		a.say("passed over %s: %s", p.Path, p.Reason)
	}
}
