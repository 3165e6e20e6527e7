package reexec

import "os"

// Paths of the loader, the libraries and the program itself where a dynamically linked program is
// started in a file system other than the one it was linked in (nodes/docker).
const (
	Loader    = "/.railbed/ld.so"
	Libraries = "/.railbed/lib"
	Linked    = "/.railbed/railbed"
)

// Again returns the path and the arguments that start this executable again with the given argument
// vector. If this process was started through its loader by path, so is the new process.
func Again(args []string) (path string, all []string) {
	if self, err := os.Readlink(Self); err != nil || self != Loader || len(args) == 0 {
		return Self, args
	}
	return Loader, append([]string{Loader, "--argv0", args[0], "--library-path", Libraries, Linked},
		args[1:]...)
}
