package vmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	guest "railbed/internal/vmimage"
)

// image holds the files from which a guest boots.
type image struct {
	kernel  string   // path of the kernel's image
	archive []byte   // the initramfs
	shares  []string // folders of the host, by the number of their tag
}

// guestConfig is the configuration of the guest's first process.
type guestConfig struct {
	Argv    []string
	Env     []string
	Dir     string
	Modules []string // files in the initramfs, in the order of loading
	Shares  []string
}

// Paths in the initramfs. The guest's root is a directory of it, because the initramfs itself
// cannot be unmounted or moved.
const (
	initPath   = "/init"
	configPath = "/config"
	moduleDir  = "/modules"
	rootDir    = "/root"
)

// bootModules are needed to mount the host's directories and to report to the host.
var bootModules = []string{"virtio_pci", "9pnet_virtio", "9p", "virtio_console", "virtio_rng"}

// skeleton lists the directories of the guest's root besides the host's.
var skeleton = []string{"dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp",
	"var/cache", "var/lib", "var/log", "var/tmp"}

// buildImage packs the guest's files into an initramfs.
func buildImage(o Options, argv []string) (image, error) {
	kernel, err := guest.FindKernel()
	if err != nil {
		return image{}, err
	}
	config := guestConfig{Argv: argv, Env: o.Env}
	if config.Dir, err = os.Getwd(); err != nil {
		return image{}, err
	}
	a := &guest.Archive{}
	if config.Modules, err = a.Modules(moduleDir, kernel, append(bootModules, o.Modules...)); err != nil {
		return image{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return image{}, err
	}
	if err := a.Program(filepath.Join(rootDir, Self), self); err != nil {
		return image{}, err
	}
	a.Link(initPath, filepath.Join(rootDir, Self))
	for _, dir := range skeleton {
		a.Dir(filepath.Join(rootDir, dir))
	}
	if err := addReadable(a, "/etc"); err != nil {
		return image{}, err
	}
	// Systems since about 2012 have these as links into /usr.
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		if target, err := os.Readlink(dir); err == nil {
			a.Link(filepath.Join(rootDir, dir), target)
		} else if _, err := os.Stat(dir); err == nil {
			config.Shares = append(config.Shares, dir)
		}
	}
	config.Shares = append(config.Shares, "/usr", config.Dir)
	config.Shares = append(config.Shares, o.Dirs...)
	for _, share := range config.Shares {
		a.Dir(filepath.Join(rootDir, share))
	}
	text, err := json.Marshal(config)
	if err != nil {
		return image{}, err
	}
	a.File(configPath, text, 0o600)
	return image{kernel: kernel.Image, archive: a.Bytes(), shares: config.Shares}, nil
}

func shareTag(i int) string { return fmt.Sprintf("share%d", i) }

// addReadable adds the files below a directory that everybody may read.
func addReadable(a *guest.Archive, dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		if err != nil {
			return err
		}
		packed := filepath.Join(rootDir, path)
		switch {
		case entry.IsDir() && info.Mode().Perm()&0o5 != 0o5:
			return fs.SkipDir
		case entry.IsDir():
			a.Dir(packed)
		case info.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			a.Link(packed, target)
		case info.Mode().IsRegular() && info.Mode().Perm()&0o4 != 0:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			a.File(packed, content, info.Mode().Perm())
		}
		return nil
	})
}
