package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckLinks returns the recorded links that are missing or differ from the record.
func CheckLinks(links []Link) (missing []Link) {
	for _, link := range links {
		if !link.ours() {
			missing = append(missing, link)
		}
	}
	return missing
}

// Republish creates links again that Publish recorded and created and that were removed since. It
// returns the links that it created. A name that exists now belongs to another program: it stays as
// it is, and Republish returns an error.
func (d Dir) Republish(links []Link) (made []Link, err error) {
	release, err := lockRoot(filepath.Dir(d.Path))
	if err != nil {
		return nil, err
	}
	defer release()
	var failures error
	for _, link := range CheckLinks(links) {
		// The directory, too, if Publish created it.
		err := os.MkdirAll(filepath.Dir(link.Path), 0o755)
		if err == nil {
			err = os.Symlink(link.Target, link.Path)
		}
		switch {
		case errors.Is(err, fs.ErrExist):
			failures = errors.Join(failures,
				fmt.Errorf("publish %s: another program's file has that name", link.Path))
		case err != nil:
			failures = errors.Join(failures, fmt.Errorf("publish %s: %w", link.Path, err))
		default:
			made = append(made, link)
		}
	}
	return made, failures
}
