// Package reexec lets one executable run as several parts. The railbed command, or any program that
// uses the Go API, starts itself again as a supervisor, a node's init or a worker. The part is
// named by argv[0], so flags and environment of the program are not touched.
package reexec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const prefix = "railbed:"

// Self is the path by which a process starts its own executable again.
const Self = "/proc/self/exe"

// Parts maps the name of a part to its main function, which gets the
// arguments after argv[0] and returns the exit code.
type Parts map[string]func(args []string) int

// Argv returns the argument vector that starts a part.
func Argv(part string, args ...string) []string {
	return append([]string{prefix + part}, args...)
}

// Run runs the part that argv[0] names and exits. It returns if argv[0] names none, as when a user
// starts the program.
func Run(parts Parts) {
	// argv[0] of a container's first process has a path
	name, found := strings.CutPrefix(filepath.Base(os.Args[0]), prefix)
	if !found {
		return
	}
	run, known := parts[name]
	if !known {
		fmt.Fprintf(os.Stderr, "railbed: no part named %q in this executable\n", name)
		os.Exit(127)
	}
	Name("", name)
	os.Exit(run(os.Args[1:]))
}
