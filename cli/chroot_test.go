package cli_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"railbed/testkit/hosttest"
)

// inChroot makes a root directory that is no mount, on a file system whose
// mounts appear everywhere, and brings a testbed up in there.
const inChroot = `
mount --make-rprivate /
mount -t tmpfs tmpfs "$DIR"
mount --make-shared "$DIR"
root=$DIR/root
mkdir -p "$root/tmp" "$root/run" "$root/var/cache"
for dir in usr etc proc sys dev bin sbin lib lib64; do
	if [ -L /$dir ]; then
		cp -a /$dir "$root/$dir"
	elif [ -d /$dir ]; then
		mkdir "$root/$dir"
		mount --rbind /$dir "$root/$dir"
	fi
done
cp "$SELF" "$root/self"
printf 'name: cli-chroot\nfabric: {topology: single-switch, params: {hosts: 2}, links: {default: {rate: 10mbit}}}\n' >"$root/testbed.yaml"
railbed() { chroot "$root" bash -c 'exec -a railbed /self "$@"' bash "$@"; }
trap 'railbed down cli-chroot' EXIT
mounts=$(wc -l </proc/self/mountinfo)
railbed doctor mount-namespace proc-mount sysfs-mount run-netns
railbed up /testbed.yaml
railbed exec h0 -t cli-chroot -- ping -c1 h1
railbed exec h0 -t cli-chroot -- sh -c 'echo "here $(hostname): $(ls / | tr "\n" " ")"'
echo "mounts: $(($(wc -l </proc/self/mountinfo) - mounts)) more"
`

func TestChroot(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Ping)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := exec.Command("bash", "-euc", inChroot)
	script.Env = append(os.Environ(), "DIR="+t.TempDir(), "SELF="+self)
	script.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	output, err := script.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, want := range []string{" 0% packet loss", "here h0: ", " self ", "mounts: 0 more"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("%q is not in\n%s", want, output)
		}
	}
}
