// Package reexec lets one executable play several parts: the railbed command,
// or any program that uses the Go API, starts itself again as a supervisor, a
// node's init or a worker. The part is named by argv[0], so flags and
// environment of the program are not touched.
package reexec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const prefix = "railbed:"

// Self is the path of the running executable for starting it again.
const Self = "/proc/self/exe"

// Parts maps the name of a part to its main function, which gets the
// arguments after argv[0] and returns the exit code.
type Parts map[string]func(args []string) int

// Argv is the argument vector that starts a part.
func Argv(part string, args ...string) []string {
	return append([]string{prefix + part}, args...)
}

// Run runs the part that argv[0] names and exits; it returns when argv[0]
// names none, which is how a program is started by people.
func Run(parts Parts) {
	// a container's first process has a path
	name, found := strings.CutPrefix(filepath.Base(os.Args[0]), prefix)
	if !found {
		return
	}
	run, known := parts[name]
	if !known {
		fmt.Fprintf(os.Stderr, "railbed: no part named %q in this executable\n", name)
		os.Exit(127)
	}
	os.Exit(run(os.Args[1:]))
}
