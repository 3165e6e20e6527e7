package spec

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// requiredName is the form of an element of requires that is no file: a feature of `railbed doctor`, or the
// name of a program.
var requiredName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)

// BesideFile returns the path of a file that a scenario file names. A relative name is relative to the folder
// of the scenario file.
func BesideFile(file, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(file), name)
}

// RequiredFile reports whether an element of requires is a file or folder of the host.
func RequiredFile(name string) bool { return strings.Contains(name, "/") }

// partsOfNames are the characters of names of programs and of paths to programs.
const partsOfNames = "/._+-"

// Names reports whether a command names a program: whether the name is a word of an argument, such as the
// text of a shell. A path to a program, such as ./prog or /opt/prog, does not name the program prog.
func Names(command []string, program string) bool {
	return slices.ContainsFunc(command, func(argument string) bool {
		words := strings.FieldsFunc(argument, func(r rune) bool {
			letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
			return !letter && !strings.ContainsRune(partsOfNames, r)
		})
		return slices.Contains(words, program)
	})
}

// Command returns the command of a step that runs programs of the file, and the patterns of its nodes. An
// empty list of nodes stands for all nodes.
func (s *Step) Command() (command, nodes []string) {
	switch {
	case s.Exec != nil:
		return s.Exec.Command, s.Exec.Nodes
	case s.Stack != nil:
		return s.Stack.Command, s.Stack.Nodes
	}
	return nil, nil
}
