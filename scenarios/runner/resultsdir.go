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

// makeDirs is os.MkdirAll that tells which directories it made: a directory that another
// program makes at the same time is not among them, and is not given to anybody.
func makeDirs(dir string) (made []string, err error) {
	var missing []string
	for path := filepath.Clean(dir); ; path = filepath.Dir(path) {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			break // whatever else is wrong shows below
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
	return made, os.MkdirAll(dir, dirMode) // says what else is wrong
}

// checkOwner refuses a directory that another user made in one that everybody can write to,
// as /tmp: that user could exchange what is written there. Elsewhere, who may make
// directories is up to the owner of the one above. It is what the kernel does for files
// there (fs.protected_regular in proc(5)).
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
	return fmt.Errorf("belongs to user %d, who made it in %s, where everybody can; want a directory of "+
		"your own, named by --out", owner, filepath.Dir(path))
}
