package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckLinks looks whether recorded links are there and are the recorded ones;
// it returns those that are not.
func CheckLinks(links []Link) (missing []Link) {
	for _, link := range links {
		if !link.ours() {
			missing = append(missing, link)
		}
	}
	return missing
}

// Republish makes links again that Publish recorded and made and somebody
// removed since. It returns those that it made. A name that exists is somebody
// else's by now and stays as it is, which is an error.
func (d Dir) Republish(links []Link) (made []Link, err error) {
	release, err := lockRoot(filepath.Dir(d.Path))
	if err != nil {
		return nil, err
	}
	defer release()
	var failures error
	for _, link := range CheckLinks(links) {
		// With the directory, if it was Publish that made it.
		err := os.MkdirAll(filepath.Dir(link.Path), 0o755)
		if err == nil {
			err = os.Symlink(link.Target, link.Path)
		}
		switch {
		case errors.Is(err, fs.ErrExist):
			failures = errors.Join(failures,
				fmt.Errorf("publish %s: there is something else of that name", link.Path))
		case err != nil:
			failures = errors.Join(failures, fmt.Errorf("publish %s: %w", link.Path, err))
		default:
			made = append(made, link)
		}
	}
	return made, failures
}
