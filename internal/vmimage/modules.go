package vmimage

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// ErrNoModule is wrapped by Archive.Modules for a module that the kernel does not have.
var ErrNoModule = errors.New("the kernel has no such module")

// Modules adds modules of a kernel to a directory, each after its dependencies. It returns the
// archive's paths of the files in the order of loading. Names are spelled with "-" or "_". A module
// that is built into the kernel has no file.
//
// Dependencies are read from the modules: a kernel unpacked from its package has no modules.dep,
// which depmod makes when the package is installed. A module may also request a feature at run time
// without naming the module that provides it. Such requests are not among the dependencies; only
// the requests of rdma_rxe are known here.
func (a *Archive) Modules(folder string, k Kernel, names []string) ([]string, error) {
	files, err := k.modules()
	if err != nil {
		return nil, err
	}
	var packed []string
	done := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		name = moduleName(name)
		path, known := files[name]
		switch {
		case !known:
			return fmt.Errorf("load module %s: %w: %s", name, ErrNoModule, k.Release)
		case path == "" || done[name]:
			return nil
		}
		done[name] = true
		content, err := readModule(path)
		if err != nil {
			return fmt.Errorf("read module %s: %w", path, err)
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
		for _, need := range asked[name] {
			if err := add(need); err != nil && !errors.Is(err, ErrNoModule) {
				return err
			}
		}
		file := filepath.Join(folder, name+".ko")
		a.File(file, content, 0o600)
		packed = append(packed, file)
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return packed, nil
}

// asked are modules that a module requests when it is used. rdma_rxe requests the cipher "crc32".
// Kernels in which rdma_rxe computes the CRC itself have no such module.
var asked = map[string][]string{"rdma_rxe": {"crc32_generic"}}

// modules returns the kernel's modules by name; built-in modules have no file.
func (k Kernel) modules() (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(k.Modules, func(path string, _ fs.DirEntry, err error) error {
		name, _, is := strings.Cut(filepath.Base(path), ".ko")
		if _, known := decompressors[filepath.Ext(path)]; is && known {
			files[moduleName(name)] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	builtin, err := os.ReadFile(filepath.Join(k.Modules, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(builtin)) {
		files[moduleName(strings.TrimSuffix(filepath.Base(strings.TrimSpace(line)), ".ko"))] = ""
	}
	return files, nil
}

// moduleName returns the kernel's own spelling of a module's name.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// decompressors are keyed by the last extension of a module's file name: Debian 12 has uncompressed
// modules, Debian 13 xz, Ubuntu zstd.
var decompressors = map[string]func(io.Reader) (io.Reader, error){
	".ko":  func(r io.Reader) (io.Reader, error) { return r, nil },
	".xz":  func(r io.Reader) (io.Reader, error) { return xz.NewReader(r) },
	".gz":  func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	".zst": func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r, zstd.WithDecoderConcurrency(1)) },
}

// mostModule is the largest accepted module, in bytes; the largest of Debian's has 15 MB.
const mostModule = 256 << 20

func readModule(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := decompressors[filepath.Ext(path)](file)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(reader, mostModule+1))
	if err == nil && len(content) > mostModule {
		err = fmt.Errorf("more than %d bytes", mostModule)
	}
	return content, err
}

// dependencies returns the modules on which a module depends, from its section .modinfo, which
// holds key=value texts that end in a zero byte.
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
