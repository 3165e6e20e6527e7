// Package vmimage prepares the files from which a virtual machine boots. It finds an unpacked
// kernel of a distribution on this host, and packs an initramfs with programs and with modules of
// that kernel. It installs nothing and runs nothing but ldd.
package vmimage

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Archive is a cpio archive in the "new ASCII" format, which the kernel unpacks as initramfs
// (Documentation/driver-api/early-userspace/buffer-format.rst). Its zero value is empty. It is not
// safe for concurrent use.
//
// The format is implemented here, in forty lines: the maintained library for it, u-root's pkg/cpio,
// would add all of u-root's module.
type Archive struct {
	buf   bytes.Buffer
	inode uint32
	dirs  map[string]bool
}

// Types of files as in stat(2).
const (
	typeDir     = 0o040000
	typeRegular = 0o100000
	typeLink    = 0o120000
)

// Dir adds a directory and its parents, each once.
func (a *Archive) Dir(path string) {
	if path == "/" || a.dirs[path] {
		return
	}
	if a.dirs == nil {
		a.dirs = map[string]bool{}
	}
	a.dirs[path] = true
	a.entry(path, typeDir|0o755, nil)
}

// File adds a file and its parent directories. The path is absolute.
func (a *Archive) File(path string, content []byte, mode fs.FileMode) {
	a.entry(path, typeRegular|uint32(mode.Perm()), content)
}

// Link adds a symbolic link and its parent directories.
func (a *Archive) Link(path, target string) { a.entry(path, typeLink|0o777, []byte(target)) }

func (a *Archive) entry(path string, mode uint32, content []byte) {
	a.Dir(filepath.Dir(path))
	a.header(strings.TrimPrefix(path, "/"), mode, len(content))
	a.buf.Write(content)
	a.pad()
}

// header writes thirteen fields of eight hexadecimal digits and the name.
func (a *Archive) header(name string, mode uint32, size int) {
	a.inode++
	a.buf.WriteString("070701")
	for _, field := range []uint32{a.inode, mode, 0, 0, 1, 0, uint32(size), 0, 0, 0, 0, uint32(len(name) + 1),
		0} {
		fmt.Fprintf(&a.buf, "%08X", field)
	}
	a.buf.WriteString(name + "\x00")
	a.pad()
}

func (a *Archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}

// Bytes ends the archive and returns it. Nothing may be added afterwards.
func (a *Archive) Bytes() []byte {
	a.header("TRAILER!!!", 0, 0)
	return a.buf.Bytes()
}

// Program adds a program of the host at path, and its shared libraries at their own paths. A test
// binary that was built with cgo needs libraries before the guest has mounted the host's.
func (a *Archive) Program(path, host string) error {
	binary, err := os.ReadFile(host)
	if err != nil {
		return err
	}
	a.File(path, binary, 0o755)
	libraries, err := Libraries(host)
	if err != nil {
		return err
	}
	for _, library := range libraries {
		content, err := os.ReadFile(library)
		if err != nil {
			return err
		}
		a.File(library, content, 0o755)
	}
	return nil
}

// library matches a line of ldd's output: a name, its path, its address.
var library = regexp.MustCompile(`(?m)(/\S+) \(0x[0-9a-f]+\)$`)

// Libraries returns the paths of all shared libraries of a program, including the dynamic linker.
// For a static program it returns none.
func Libraries(path string) ([]string, error) {
	parsed, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read program %s: %w", path, err)
	}
	defer parsed.Close()
	if parsed.Section(".interp") == nil {
		return nil, nil
	}
	output, err := exec.Command("ldd", path).Output()
	if err != nil {
		return nil, fmt.Errorf("list libraries of %s with ldd: %w", path, err)
	}
	var found []string
	for _, match := range library.FindAllStringSubmatch(string(output), -1) {
		found = append(found, match[1])
	}
	return found, nil
}
