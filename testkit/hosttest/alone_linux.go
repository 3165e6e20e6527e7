package hosttest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// aloneEnv is set if a parent of the process holds the lock.
const aloneEnv = "RAILBED_TEST_ALONE"

// MainAlone is Main for tests that bind fixed ports of loopback addresses. Test binaries of one user
// that give the same name run one after the other, even if one go test, or two, would run them at
// once.
func MainAlone(m *testing.M, name string) int {
	if os.Getenv(aloneEnv) == name {
		return Main(m)
	}
	path := filepath.Join(os.TempDir(), "railbed-test-"+strconv.Itoa(os.Getuid())+"-"+name+".lock")
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_EX) // the kernel unlocks it with the process
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "lock %s: %v\n", path, err)
		return 1
	}
	os.Setenv(aloneEnv, name)
	return Main(m)
}
