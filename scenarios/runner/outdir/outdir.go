// Package outdir makes the directories into which `railbed run` and `railbed test` write. Files
// and directories there belong to the user who called sudo, and no link leads out of the directory.
package outdir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"railbed/internal/input"
	"railbed/testbed"
)

const dirMode = 0o755

// Dir is a directory for results. It is safe for concurrent use.
type Dir struct {
	*os.Root
	// UID and GID are the owner of new files and directories. They are -1 without sudo.
	UID, GID int
}

// Open makes a directory and its parents, or opens a directory. It refuses a directory that another user made
// in a directory to which everybody can write.
func Open(dir string) (*Dir, error) {
	d := &Dir{}
	d.UID, d.GID = testbed.InvokingUser()
	made, err := makeDirs(dir)
	if err != nil {
		return nil, err
	}
	for _, path := range made {
		if err := os.Lchown(path, d.UID, d.GID); err != nil {
			return nil, err
		}
	}
	if err := checkOwner(dir, os.Geteuid(), d.UID); err != nil {
		return nil, err
	}
	d.Root, err = os.OpenRoot(dir)
	return d, err
}

// Below makes a directory below d and its parents, or opens such a directory. The path is slash-separated and
// relative to d. A link that leads out of d is an error.
func (d *Dir) Below(at string) (*Dir, error) {
	if err := d.makeParents(at); err != nil {
		return nil, err
	}
	root, err := d.OpenRoot(filepath.FromSlash(at))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(d.Name(), at), err)
	}
	return &Dir{root, d.UID, d.GID}, nil
}

// makeParents makes the elements of a path that do not exist.
func (d *Dir) makeParents(at string) error {
	for i, char := range at + "/" {
		if char != '/' || i == 0 {
			continue
		}
		err := d.Mkdir(at[:i], dirMode)
		if err == nil {
			err = d.Lchown(at[:i], d.UID, d.GID)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s: %w", filepath.Join(d.Name(), at), err)
		}
	}
	return nil
}

// Replace writes a file, and its parent directories. The file has its old content until the new one is
// complete. A link in place of the file is replaced.
func (d *Dir) Replace(at string, write func(io.Writer) error) error {
	if above := path.Dir(at); above != "." {
		if err := d.makeParents(above); err != nil {
			return err
		}
	}
	temporary := at + ".new"
	if err := d.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write %s: %w", filepath.Join(d.Name(), at), err)
	}
	file, err := d.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(d.Name(), at), err)
	}
	if err = file.Chown(d.UID, d.GID); err == nil {
		err = input.Fill(file, write)
	} else {
		file.Close()
	}
	if err == nil {
		err = d.Rename(temporary, at)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(d.Name(), at), errors.Join(err, d.Remove(temporary)))
	}
	return nil
}

// makeDirs is os.MkdirAll and also returns the directories that it made. A directory that another
// program makes at the same time is not among them, so its owner is not changed.
func makeDirs(dir string) (made []string, err error) {
	var missing []string
	for path := filepath.Clean(dir); ; path = filepath.Dir(path) {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			break // any other error appears below
		}
		missing = append(missing, path)
	}
	for _, path := range slices.Backward(missing) {
		err := os.Mkdir(path, dirMode)
		if err == nil {
			made = append(made, path)
		} else if !errors.Is(err, fs.ErrExist) {
			return made, err
		}
	}
	return made, os.MkdirAll(dir, dirMode) // returns any other error
}

// checkOwner refuses a directory that another user made in a directory to which everybody can
// write, such as /tmp: that user could exchange the files written there. Elsewhere the owner of the
// parent directory decides who may make directories. The kernel does the same for files in such
// directories (fs.protected_regular in proc(5)).
func checkOwner(dir string, users ...int) error {
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	own, err := os.Stat(path)
	if err != nil {
		return err
	}
	above, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	owner := own.Sys().(*syscall.Stat_t).Uid
	users = append(users, int(above.Sys().(*syscall.Stat_t).Uid))
	if above.Mode()&os.ModeSticky == 0 || above.Mode().Perm()&0o002 == 0 ||
		slices.Contains(users, int(owner)) {
		return nil
	}
	return fmt.Errorf("belongs to user %d, who made it in %s, which everybody can write to; want a "+
		"directory of your own, named by --out", owner, filepath.Dir(path))
}
