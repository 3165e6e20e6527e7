package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest/dockertest"
)

// TestAbsentFilesOfContainers: a path in the file that leads nowhere is a mistake of the file, with its
// position, and not a feature that the host lacks.
func TestAbsentFilesOfContainers(t *testing.T) {
	dockertest.Start(t)
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "text.tar"), "no archive\n")
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	const local = "image: a:1, pull: never, "
	for node, want := range map[string]string{
		"rootfs: DIR/absent.tar":               "test.yaml:7:38: DIR/absent.tar does not exist",
		"rootfs: DIR/folder":                   "test.yaml:7:38: DIR/folder does not exist, or is not a file",
		"rootfs: DIR/text.tar":                 "rootfs DIR/text.tar: ",
		"build: DIR/absent":                    "test.yaml:7:37: DIR/absent does not exist",
		"image: nobody/nothing:1, pull: never": "image nobody/nothing:1: the engine does not have it",
		"image: 127.0.0.1:1/nothing:1":         "image 127.0.0.1:1/nothing:1: unsupported here",
		local + "binds: [DIR/absent:/x]":       "test.yaml:7:63: DIR/absent does not exist",
		local + "binds: [DIR/folder:/x]":       "image a:1: the engine does not have it",
		local + "binds: [/dev/null:/x:ro]":     "image a:1: the engine does not have it",
	} {
		o := options(t, twoHosts+"nodes:\n  default: {runtime: docker, "+
			strings.ReplaceAll(node, "DIR", dir)+"}\nsteps:\n  - exec: {nodes: [h0], command: [pwd]}\n")
		r := runAll(t, t.Context(), o)
		wanted := verdict.Fail
		if strings.Contains(want, "unsupported") { // no registry answers
			wanted = verdict.Unsupported
		}
		want = strings.ReplaceAll(want, "DIR", dir)
		if r.Verdict != wanted || !strings.Contains(r.Reason, want) {
			t.Errorf("%s: %s: %s; want %s: %q", node, r.Verdict, r.Reason, wanted, want)
		}
	}
}
