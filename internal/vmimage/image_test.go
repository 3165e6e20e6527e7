package vmimage

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/internal/verdict"
)

// module returns an ELF file that has only a section .modinfo, as `ld -r -b binary` and objcopy
// make one; fields are its key=value texts.
func module(t *testing.T, fields ...string) []byte {
	t.Helper()
	info := []byte(strings.Join(fields, "\x00") + "\x00")
	names := []byte("\x00.modinfo\x00.shstrtab\x00")
	var b bytes.Buffer
	// Elf64_Ehdr: little endian, relocatable, x86-64, three section headers behind
	// the data (System V ABI, chapter 4).
	const header, section = 64, 64
	at := header + len(info) + len(names)
	le := func(size int, values ...int) {
		for _, v := range values {
			for i := range size {
				b.WriteByte(byte(v >> (8 * i)))
			}
		}
	}
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	le(2, 1, 62)
	le(4, 1)
	le(8, 0, 0, at)
	le(4, 0)
	le(2, header, 0, 0, section, 3, 2)
	b.Write(info)
	b.Write(names)
	b.Write(make([]byte, section))
	for _, s := range [][]int{{1, 1, header, len(info)}, {10, 3, header + len(info), len(names)}} {
		le(4, s[0], s[1])
		le(8, 0, 0, s[2], s[3])
		le(4, 0, 0)
		le(8, 1, 0)
	}
	return b.Bytes()
}

// kernelOf writes a kernel with modules by the names of their files.
func kernelOf(t *testing.T, release string, modules map[string][]byte) (root string) {
	t.Helper()
	root = t.TempDir()
	folder := filepath.Join(root, "lib/modules", release, "kernel")
	for path, content := range map[string][]byte{
		filepath.Join(root, "boot/vmlinuz-"+release): []byte("kernel"),
		filepath.Join(root, "lib/modules", release,
			"modules.builtin"): []byte("kernel/lib/crc32.ko\n"),
		filepath.Join(root, "lib/modules", release, "modules.builtin.modinfo"): nil,
	} {
		writeFile(t, path, content)
	}
	for name, content := range modules {
		writeFile(t, filepath.Join(folder, name), content)
	}
	return root
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// The word "module" and a line end, as xz 5.4, zstd 1.5 and gzip 1.12 pack it.
var packedWord = map[string]string{
	"a.ko.xz":  "/Td6WFoAAATm1rRGAgAhARYAAAB0L+WjAQAGbW9kdWxlCgAA3OTkTR1MSeEAAR8HFi64cx+2830BAAAAAARZWg==",
	"a.ko.zst": "KLUv/SQHOQAAbW9kdWxlCibRUSU=",
	"a.ko.gz":  "H4sIAAAAAAAAA8vNTynNSeUCAE+KbgcHAAAA",
}

func TestReadModule(t *testing.T) {
	for name, text := range packedWord {
		content, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), name)
		writeFile(t, path, content)
		if got, err := readModule(path); err != nil || string(got) != "module\n" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		writeFile(t, path, content[:len(content)-4])
		if got, err := readModule(path); err == nil {
			t.Errorf("%s, cut: %q and no error", name, got)
		}
	}
}

func TestModules(t *testing.T) {
	root := kernelOf(t, "1.2.3", map[string][]byte{
		"top-most.ko": module(t, "license=GPL", "depends=middle,low_est", "name=top_most"),
		"middle.ko":   module(t, "depends=low_est"),
		"low-est.ko":  module(t, "depends="),
		"odd.ko":      module(t, "depends=missing"),
		"text.ko":     []byte("no module"),
		"rdma_rxe.ko": module(t, "depends=low_est"), "crc32_generic.ko": module(t, "depends="),
	})
	k, err := findIn(root)
	if err != nil || k.Release != "1.2.3" {
		t.Fatalf("%+v, %v", k, err)
	}
	var a Archive
	got, err := a.Modules("/m", k, []string{"top-most", "crc32", "middle"})
	if want := []string{"/m/low_est.ko", "/m/middle.ko", "/m/top_most.ko"}; err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	packed := a.Bytes()
	for _, name := range append(got, "TRAILER!!!") {
		if count := bytes.Count(packed, []byte(strings.TrimPrefix(name, "/")+"\x00")); count != 1 {
			t.Errorf("%s is %d times in the archive", name, count)
		}
	}
	if len(packed)%4 != 0 || !bytes.HasPrefix(packed, []byte("070701")) {
		t.Error("not an archive in the new format, or not padded")
	}
	got, err = (&Archive{}).Modules("/m", k, []string{"rdma_rxe"})
	if want := []string{"/m/low_est.ko", "/m/crc32_generic.ko", "/m/rdma_rxe.ko"}; err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("rxe with what it asks for: %v, %v; want %v", got, err, want)
	}
	later, err := findIn(kernelOf(t, "1.2.3", map[string][]byte{"rdma_rxe.ko": module(t, "depends=")}))
	if err != nil {
		t.Fatal(err)
	}
	if got, err = (&Archive{}).Modules("/m", later, []string{"rdma_rxe"}); err != nil || len(got) != 1 {
		t.Errorf("rxe that computes by itself: %v, %v", got, err)
	}
	for _, name := range []string{"missing", "odd"} {
		if _, err := (&Archive{}).Modules("/m", k, []string{name}); !errors.Is(err, ErrNoModule) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (&Archive{}).Modules("/m", k, []string{"text"}); err == nil {
		t.Error("a text was taken for a module")
	}
}

// TestFindKernel: the user's kernel comes before the kernel for all users, and the newest of
// several is used. Without a kernel, the error contains the remedy.
func TestFindKernel(t *testing.T) {
	root := kernelOf(t, "9.9.9-test", nil)
	cache := t.TempDir()
	if err := os.MkdirAll(filepath.Join(cache, "railbed"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(cache, "railbed/vm")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", cache)
	writeFile(t, filepath.Join(root, "boot/vmlinuz-9.9.9-without-modules"), nil)
	k, err := FindKernel()
	if err != nil || k.Release != "9.9.9-test" {
		t.Errorf("%+v, %v", k, err)
	}
	var lacking *verdict.UnsupportedError
	if _, err := findIn(t.TempDir()); err == nil || !errors.As(unsupported(err), &lacking) ||
		lacking.Remedy != Remedy {
		t.Errorf("no kernel: %v", err)
	}
}

// TestKernelOfAnyRelease: a kernel is found where the packages of Debian 12, 13 and 14
// have it and its modules, the newest of all places, and modules are read from there.
func TestKernelOfAnyRelease(t *testing.T) {
	root := t.TempDir()
	for _, c := range []struct{ release, image, modules string }{
		{"6.1.0", "boot/vmlinuz-6.1.0", "lib/modules/6.1.0"},
		{"6.12.0", "boot/vmlinuz-6.12.0", "usr/lib/modules/6.12.0"},
		{"6.19.0", "usr/lib/modules/6.19.0/vmlinuz", "usr/lib/modules/6.19.0"},
		{"7.0.0", "lib/modules/7.0.0/vmlinuz", "lib/modules/7.0.0"},
	} {
		want := Kernel{Release: c.release, Image: filepath.Join(root, c.image),
			Modules: filepath.Join(root, c.modules)}
		writeFile(t, filepath.Join(want.Modules, "modules.builtin"), nil)
		if k, err := findIn(root); err == nil && k.Release == c.release {
			t.Errorf("%s without an image: %+v", c.release, k)
		}
		writeFile(t, want.Image, nil)
		writeFile(t, filepath.Join(want.Modules, "kernel/rdma_rxe.ko"), module(t, "depends="))
		k, err := findIn(root)
		if err != nil || k != want {
			t.Errorf("%+v, %v; want %+v", k, err, want)
		}
		if got, err := (&Archive{}).Modules("/m", k, []string{"rdma_rxe"}); err != nil || len(got) != 1 {
			t.Errorf("%s: modules %v, %v", c.release, got, err)
		}
	}
	writeFile(t, filepath.Join(root, "usr/lib/modules/9.9.9/vmlinuz"), nil)
	if k, err := findIn(root); err != nil || k.Release != "7.0.0" {
		t.Errorf("beside an image without modules: %+v, %v", k, err)
	}
}
