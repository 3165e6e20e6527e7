package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCaptureFollowsNoPlantedLink: the file of capture -w is none that a link of another user leads to.
func TestCaptureFollowsNoPlantedLink(t *testing.T) {
	dir := t.TempDir()
	victim, shared := filepath.Join(dir, "victim"), filepath.Join(dir, "shared")
	path := filepath.Join(shared, "run.pcapng")
	for _, err := range []error{
		os.WriteFile(victim, []byte("precious"), 0o600), os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777),
		os.Symlink(victim, path),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	file := lateFile{path: path}
	_, err := file.Write([]byte("packets"))
	if closeErr := file.Close(); closeErr != nil {
		t.Error(closeErr)
	}
	if err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("write to a planted link: %v", err)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("the link's file has %q, %v", text, err)
	}
}
