package docker

import (
	"os"
	"path/filepath"
	"testing"
)

// TestIdentityBehindALink: a link of an image, as images of systems with systemd-resolved have for
// resolv.conf, leads the node's files neither to a directory that is missing nor into the host's.
func TestIdentityBehindALink(t *testing.T) {
	dir := t.TempDir()
	hosts := filepath.Join(dir, "of-the-host")
	if err := os.WriteFile(hosts, []byte("the host's"), 0o644); err != nil {
		t.Fatal(err)
	}
	dangling, leading := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "machine-id")
	for link, target := range map[string]string{dangling: "../run/systemd/resolve/stub-resolv.conf",
		leading: hosts} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&configuration{Files: map[string]string{dangling: "a", leading: "b"}}).write(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dangling: "a", leading: "b", hosts: "the host's"} {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s holds %q, %v; want %q", path, text, err, want)
		}
	}
}
