package reexec

import "os"

// Where a program that is linked dynamically is started in a file system that is not
// the one it was linked in (nodes/docker): its loader, libraries and itself.
const (
	Loader    = "/.railbed/ld.so"
	Libraries = "/.railbed/lib"
	Linked    = "/.railbed/railbed"
)

// Again is the path and the arguments that start this executable again with an
// argument vector, also where its loader had to be told where it is.
func Again(args []string) (path string, all []string) {
	if self, err := os.Readlink(Self); err != nil || self != Loader || len(args) == 0 {
		return Self, args
	}
	return Loader, append([]string{Loader, "--argv0", args[0], "--library-path", Libraries, Linked},
		args[1:]...)
}
