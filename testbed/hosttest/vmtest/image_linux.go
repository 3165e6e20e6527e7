package vmtest

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"railbed/testbed/hosttest"
)

// image is what a guest boots from.
type image struct {
	kernel  string   // path of the kernel's image
	archive []byte   // the initramfs
	shares  []string // folders of the host, by the number of their tag
}

// guestConfig tells the guest's first process what to do.
type guestConfig struct {
	Argv    []string
	Env     []string
	Dir     string
	Modules []string // files in the initramfs, in the order of loading
	Shares  []string
}

// Places in the initramfs. The guest's root is a folder of it, because the
// initramfs itself cannot be unmounted or moved.
const (
	initPath   = "/init"
	configPath = "/config"
	moduleDir  = "/modules"
	rootDir    = "/root"
)

// bootModules are needed to see the host's folders and to report to it.
var bootModules = []string{"virtio_pci", "9pnet_virtio", "9p", "virtio_console", "virtio_rng"}

// skeleton is what the guest's root holds beside the host's folders.
var skeleton = []string{"dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp",
	"var/cache", "var/lib", "var/log", "var/tmp"}

// buildImage packs what a guest needs into an initramfs.
func buildImage(o Options, argv []string) (image, error) {
	kernel, modules, err := hosttest.GuestKernel()
	if err != nil {
		return image{}, err
	}
	config := guestConfig{Argv: argv, Env: o.Env}
	if config.Dir, err = os.Getwd(); err != nil {
		return image{}, err
	}
	a := newArchive()
	if err := a.addModules(modules, append(bootModules, o.Modules...), &config); err != nil {
		return image{}, err
	}
	if err := a.addSelf(); err != nil {
		return image{}, err
	}
	for _, dir := range skeleton {
		a.dir(filepath.Join(rootDir, dir))
	}
	if err := a.addReadable("/etc"); err != nil {
		return image{}, err
	}
	// Systems since about 2012 have these as links into /usr.
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		if target, err := os.Readlink(dir); err == nil {
			a.link(filepath.Join(rootDir, dir), target)
		} else if _, err := os.Stat(dir); err == nil {
			config.Shares = append(config.Shares, dir)
		}
	}
	config.Shares = append(config.Shares, "/usr", config.Dir)
	config.Shares = append(config.Shares, o.Dirs...)
	for _, share := range config.Shares {
		a.dir(filepath.Join(rootDir, share))
	}
	text, err := json.Marshal(config)
	if err != nil {
		return image{}, err
	}
	a.file(configPath, text, 0o600)
	return image{kernel: kernel, archive: a.bytes(), shares: config.Shares}, nil
}

func shareTag(i int) string { return fmt.Sprintf("share%d", i) }

// addSelf adds the test binary as the first process, and the libraries that it
// is linked with: one built with cgo needs some before the guest has mounted
// the host's.
func (a *archive) addSelf() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	a.file(filepath.Join(rootDir, Self), binary, 0o755)
	a.link(initPath, filepath.Join(rootDir, Self))
	libraries, err := librariesOf(self, binary)
	if err != nil {
		return err
	}
	for _, library := range libraries {
		content, err := os.ReadFile(library)
		if err != nil {
			return err
		}
		a.file(library, content, 0o755)
	}
	return nil
}

// library matches a line of ldd's: a name, where it was found, the address.
var library = regexp.MustCompile(`(?m)(/\S+) \(0x[0-9a-f]+\)$`)

// librariesOf is every shared library that a program is linked with, the
// dynamic linker included.
func librariesOf(path string, binary []byte) ([]string, error) {
	parsed, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}
	if parsed.Section(".interp") == nil {
		return nil, nil
	}
	output, err := exec.Command("ldd", path).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", path, err)
	}
	var found []string
	for _, match := range library.FindAllStringSubmatch(string(output), -1) {
		found = append(found, match[1])
	}
	return found, nil
}

// addModules adds the modules and those that they depend on.
func (a *archive) addModules(dir string, names []string, config *guestConfig) error {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if name, is := strings.CutSuffix(filepath.Base(path), ".ko"); is {
			files[moduleName(name)] = path
		}
		return err
	})
	if err != nil {
		return err
	}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(builtin)) {
		files[moduleName(strings.TrimSuffix(filepath.Base(strings.TrimSpace(line)), ".ko"))] = ""
	}
	done := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		name = moduleName(name)
		path, known := files[name]
		switch {
		case !known:
			return fmt.Errorf("the kernel in %s has no module %s", dir, name)
		case path == "" || done[name]:
			return nil
		}
		done[name] = true
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		needs, err := dependencies(content)
		if err != nil {
			return fmt.Errorf("read module %s: %w", path, err)
		}
		for _, need := range needs {
			if err := add(need); err != nil {
				return err
			}
		}
		packed := filepath.Join(moduleDir, name+".ko")
		a.file(packed, content, 0o600)
		config.Modules = append(config.Modules, packed)
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return err
		}
	}
	return nil
}

// moduleName is the kernel's own spelling, whatever the file's is.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// dependencies are the modules that a module names in its section .modinfo,
// which holds key=value texts that end in a zero byte.
func dependencies(module []byte) ([]string, error) {
	parsed, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := parsed.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, is := strings.CutPrefix(field, "depends="); is && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}

// addReadable adds the files below a folder that everybody may read.
func (a *archive) addReadable(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone since
		}
		if err != nil {
			return err
		}
		packed := filepath.Join(rootDir, path)
		switch {
		case entry.IsDir() && info.Mode().Perm()&0o5 != 0o5:
			return fs.SkipDir
		case entry.IsDir():
			a.dir(packed)
		case info.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			a.link(packed, target)
		case info.Mode().IsRegular() && info.Mode().Perm()&0o4 != 0:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			a.file(packed, content, info.Mode().Perm())
		}
		return nil
	})
}

// archive is a cpio archive in the "new ASCII" format, which the kernel
// unpacks as initramfs (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	buf   bytes.Buffer
	inode uint32
	dirs  map[string]bool
}

func newArchive() *archive { return &archive{dirs: map[string]bool{"/": true}} }

// Types of files as in stat(2).
const (
	typeDir     = 0o040000
	typeRegular = 0o100000
	typeLink    = 0o120000
)

// dir adds a folder and those above it, once.
func (a *archive) dir(path string) {
	if a.dirs[path] {
		return
	}
	a.dirs[path] = true
	a.entry(path, typeDir|0o755, nil)
}

func (a *archive) file(path string, content []byte, mode fs.FileMode) {
	a.entry(path, typeRegular|uint32(mode.Perm()), content)
}

func (a *archive) link(path, target string) { a.entry(path, typeLink|0o777, []byte(target)) }

func (a *archive) entry(path string, mode uint32, content []byte) {
	a.dir(filepath.Dir(path))
	a.header(strings.TrimPrefix(path, "/"), mode, len(content))
	a.buf.Write(content)
	a.pad()
}

// header writes thirteen fields of eight hexadecimal digits and the name.
func (a *archive) header(name string, mode uint32, size int) {
	a.inode++
	a.buf.WriteString("070701")
	for _, field := range []uint32{a.inode, mode, 0, 0, 1, 0, uint32(size), 0, 0, 0, 0, uint32(len(name) + 1), 0} {
		fmt.Fprintf(&a.buf, "%08X", field)
	}
	a.buf.WriteString(name + "\x00")
	a.pad()
}

func (a *archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}

// bytes ends the archive.
func (a *archive) bytes() []byte {
	a.header("TRAILER!!!", 0, 0)
	return a.buf.Bytes()
}
