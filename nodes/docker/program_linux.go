package docker

import (
	"fmt"
	"os"
	"path"

	"github.com/docker/docker/api/types/mount"

	"railbed/internal/reexec"
	"railbed/internal/vmimage"
)

// program is this program as it is mounted into containers: one file, or, if it is linked
// dynamically, the loader, the libraries and the file. They are separate from the image's own.
type program struct {
	mounts     []mount.Mount
	entrypoint []string
	// dir holds the program as railbed, for the PATH of programs in the container. It is empty if the
	// program needs the loader as its first argument.
	dir string
}

// ownProgram returns the program. It is started under the name of its part, which selects its main
// function.
func ownProgram() (program, error) {
	part := path.Join(ownDir, reexec.Argv(Part)[0])
	self, err := os.Executable()
	if err != nil {
		return program{}, err
	}
	libraries, err := vmimage.Libraries(self)
	if err != nil {
		return program{}, err
	}
	if len(libraries) == 0 {
		dir := path.Join(ownDir, "bin")
		return program{[]mount.Mount{readOnly(self, part), readOnly(self, path.Join(dir, "railbed"))},
			[]string{part}, dir}, nil
	}
	p := program{
		mounts: []mount.Mount{readOnly(self, reexec.Linked)},
		entrypoint: []string{reexec.Loader, "--argv0", part, "--library-path", reexec.Libraries,
			reexec.Linked},
	}
	loader := false
	for _, library := range libraries {
		target := path.Join(reexec.Libraries, path.Base(library))
		if name := path.Base(library); len(name) > 3 && name[:3] == "ld-" {
			target, loader = reexec.Loader, true
		}
		p.mounts = append(p.mounts, readOnly(library, target))
	}
	if !loader {
		return program{}, fmt.Errorf("%s is linked dynamically, and its loader is not among %v; build it "+
			"with CGO_ENABLED=0", self, libraries)
	}
	return p, nil
}

func readOnly(source, target string) mount.Mount {
	return mount.Mount{Type: mount.TypeBind, Source: source, Target: target, ReadOnly: true}
}
