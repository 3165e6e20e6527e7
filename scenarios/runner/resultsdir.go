package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

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
