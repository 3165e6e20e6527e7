package vm

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"railbed/internal/reexec"
	"railbed/testkit/hosttest"
)

// machine is a host in a folder: the real one's files under an overlay, with links in the place of some
// directories and other file systems on /mnt and /srv.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T, links map[string]string) *machine {
	t.Helper()
	base := t.TempDir()
	mount := func(source, target, kind string, flags uintptr, data string) {
		t.Helper()
		if err := unix.Mount(source, target, kind, flags, data); err != nil {
			t.Fatalf("mount %s on %s: %v", source, target, err)
		}
	}
	mount("tmpfs", base, "tmpfs", 0, "mode=755")
	t.Cleanup(func() {
		if err := unix.Unmount(base, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	m := &machine{t: t, root: filepath.Join(base, "root")}
	for _, dir := range []string{"root", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range links {
		m.do(os.Symlink(target, filepath.Join(base, "upper", name)))
	}
	mount("overlay", m.root, "overlay", 0, "lowerdir=/,upperdir="+base+"/upper,workdir="+base+"/work")
	for _, dir := range []string{"dev", "proc"} {
		mount("/"+dir, filepath.Join(m.root, dir), "", unix.MS_BIND|unix.MS_REC, "")
	}
	for _, dir := range []string{"mnt", "srv"} {
		mount("tmpfs", filepath.Join(m.root, dir), "tmpfs", 0, "mode=755")
	}
	return m
}

func (m *machine) do(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// write writes a file that everybody may read.
func (m *machine) write(path, content string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	m.do(os.MkdirAll(filepath.Dir(path), 0o755))
	m.do(os.WriteFile(path, []byte(content), 0o644))
}

// bind shows a directory at another place, too.
func (m *machine) bind(from, to string) {
	m.t.Helper()
	m.do(os.MkdirAll(filepath.Join(m.root, to), 0o755))
	m.do(unix.Mount(filepath.Join(m.root, from), filepath.Join(m.root, to), "", unix.MS_BIND, ""))
}

// see runs a script as the process that becomes QEMU would run QEMU, on the machine.
func (m *machine) see(private []string, script string) string {
	m.t.Helper()
	ours, theirs, err := reexec.SocketPair()
	m.do(err)
	defer ours.Close()
	var said strings.Builder
	command := &exec.Cmd{
		Path:       reexec.Self,
		Args:       reexec.Argv(Part),
		Dir:        "/",
		Env:        []string{"PATH=/usr/bin:/bin"},
		Stdout:     &said,
		Stderr:     &said,
		ExtraFiles: []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{Chroot: m.root,
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC},
	}
	err = command.Start()
	theirs.Close()
	m.do(err)
	l := launch{Args: []string{"sh", "-c", script}, Private: private}
	l.User, l.Groups = identity(TCG)
	m.do(json.NewEncoder(ours).Encode(l))
	refusal, err := io.ReadAll(ours)
	m.do(err)
	if err := command.Wait(); err != nil || len(refusal) > 0 {
		m.t.Fatalf("%v, %s\n%s", err, refusal, said.String())
	}
	return strings.TrimSpace(said.String())
}

// TestGuestsViewIsResolved: hidden files are visible at no other place either. The places are
// links, the homes in the host's database of users, the user's own directories, and further mounts
// of any of them.
func TestGuestsViewIsResolved(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Root) // in a user namespace the host's mounts are locked
	if !hosttest.InMounts(t) {
		return
	}
	const secret = "RAILBED-SECRET"
	const users = "root:x:0:0::/srv/admin:/bin/sh\ndaemon:x:1:1::/usr/sbin:/bin/false\n" +
		"carol:x:1001:1001::/mnt/people/carol:/bin/sh\n" +
		"null:x:1002:1002::/dev/null:/bin/sh\nall:x:1003:1003::/:/bin/sh\n" +
		"nobody:x:65534:65534::/mnt/open:/bin/false\n"
	m := newMachine(t, map[string]string{"home": "srv/homes", "tmp": "mnt/temporary"})
	// Homes: of root and of a user elsewhere, of all by a link, of the testbed's user by the environment.
	m.write("/etc/passwd", users)
	for _, path := range []string{"/srv/homes/alice/f", "/srv/admin/f", "/mnt/people/carol/f", "/mnt/dave/f",
		"/srv/homes/erin/project/f"} {
		m.write(path, secret)
	}
	m.do(os.Symlink("/mnt/dave", filepath.Join(m.root, "mnt/link")))
	// The same once more: above, at, and below what is hidden.
	m.bind("/srv", "/mnt/all-of-srv")
	m.bind("/srv/homes", "/mnt/backup")
	m.bind("/srv/homes/erin/project", "/opt/project")
	// Temporary files behind a link.
	m.write("/mnt/temporary/f", secret)
	// The host's administrator.
	for _, path := range []string{"/etc/shadow-", "/etc/gshadow.old", "/var/backups/shadow.bak",
		"/etc/security/opasswd", "/srv/keys/passwords"} {
		m.write(path, secret)
	}
	m.do(os.RemoveAll(filepath.Join(m.root, "etc/shadow")))
	m.do(os.Symlink("/srv/keys/passwords", filepath.Join(m.root, "etc/shadow")))
	// The kernel's files of another root.
	m.do(os.MkdirAll(filepath.Join(m.root, "mnt/other/proc"), 0o755))
	m.do(unix.Mount("proc", filepath.Join(m.root, "mnt/other/proc"), "proc", 0, ""))
	// What everybody may see.
	m.write("/mnt/open/f", "open")
	m.write("/usr/lib/f", "open")

	own := []string{"/mnt/link", "/", "/does/not/exist"}
	if got := m.see(own, "timeout 30 grep -rl --exclude-dir=other "+secret+" "+shareDir+"/mnt "+
		shareDir+"/srv "+shareDir+"/opt "+shareDir+"/home "+shareDir+"/etc "+
		shareDir+"/var/backups /mnt /srv /opt/project /home/ /etc /var/backups 2>/dev/null; "+
		"true"); got != "" {
		t.Errorf("a guest sees\n%s", got)
	}
	if got := m.see(own, "ls "+shareDir+"/mnt/other/proc "+shareDir+"/proc "+shareDir+
		"/tmp/ "+shareDir+"/run"); strings.ContainsAny(got, "0123456789") {
		t.Errorf("a guest sees the kernel's files:\n%s", got)
	}
	if got := m.see(own, "cat "+shareDir+"/mnt/open/f "+shareDir+"/usr/lib/f && test -x "+
		shareDir+"/usr/bin/env && test -c /dev/null && echo programs"); got != "openopenprograms" {
		t.Errorf("a guest sees of what everybody may see %q", got)
	}
}

// TestQEMUIsAnotherUser: QEMU runs as a user without files wherever there is one. So permissions
// keep the host's secrets from guests even if a hiding mount is gone: Linux removes the mount on a
// file that the host replaces.
func TestQEMUIsAnotherUser(t *testing.T) {
	const all, one = "         0          0 4294967295\n", "         0       1000          1\n"
	const container, podman = "0 100000 65536\n", "0 1000 1\n1 100000 65536\n"
	for _, test := range []struct {
		uids, gids string
		want       int
	}{
		{all, all, 2_000_000_000}, {one, one, 0}, {container, container, 65533}, {podman, podman, 65533},
		{container, one, 0}, {one, container, 0}, {all, container, 65533},
		{"0 100000 1000\n", "0 100000 1000\n", 0}, {"", "", 0},
	} {
		if got := unassigned(test.uids, test.gids); got != test.want {
			t.Errorf("of users %q and groups %q QEMU becomes %d, want %d", test.uids, test.gids, got,
				test.want)
		}
	}
}
