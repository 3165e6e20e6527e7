package descriptors

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"railbed/testkit/hosttest"
)

// TestMain also finds descriptors that stay open.
func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "socket")
		conn, err := net.FileConn(file)
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if ends[i], err = Socket(conn); err != nil {
			t.Fatal(err)
		}
	}
	return ends[0], ends[1]
}

func devNull(t *testing.T, count int) []*os.File {
	t.Helper()
	files := make([]*os.File, count)
	for i := range files {
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		files[i] = file
	}
	return files
}

func opened(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestMessages(t *testing.T) {
	const most, length = 3, 16
	for name, test := range map[string]struct {
		value string
		files int
		want  string // of the error
	}{
		"no descriptor":               {"value", 0, ""},
		"descriptors":                 {"value", most, ""},
		"one descriptor too many":     {"value", most + 1, "message exceeds 16 bytes or 3 descriptors"},
		"more descriptors":            {"value", most + 5, "message exceeds 16 bytes or 3 descriptors"},
		"more bytes":                  {"a value that is long", 0, "message exceeds 16 bytes"},
		"more bytes with descriptors": {"a value that is long", 2, "message exceeds 16 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := pair(t)
			if err := Send(from, test.value, devNull(t, test.files)...); err != nil {
				t.Fatal(err)
			}
			before := opened(t)
			var got string
			files, err := Receive(to, &got, make([]byte, length), most)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) || opened(t) != before {
					t.Errorf("%v, %d descriptors opened, want %s", err, opened(t)-before, test.want)
				}
				return
			}
			if err != nil || got != test.value || len(files) != test.files {
				t.Errorf("%q with %d descriptors, %v", got, len(files), err)
			}
			for _, file := range files {
				if flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
					t.Errorf("a program that is executed has the descriptor: %v", err)
				}
			}
			if err := Close(files); err != nil || opened(t) != before {
				t.Errorf("%v; %d descriptors stay", err, opened(t)-before)
			}
		})
	}
}

// A message that is no value, or has more descriptors than the receiver takes, leaves none open.
func TestBadMessages(t *testing.T) {
	from, to := pair(t)
	file := devNull(t, 1)[0]
	before := opened(t)
	if _, _, err := from.WriteMsgUnix([]byte("{"), unix.UnixRights(int(file.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	var v any
	if files, err := Receive(to, &v, make([]byte, 16), 1); err == nil || files != nil || opened(t) != before {
		t.Errorf("no value: %v, %v, %d descriptors opened", files, err, opened(t)-before)
	}
	if err := Send(from, 1, file); err != nil {
		t.Fatal(err)
	}
	if _, err := Receive(to, &v, make([]byte, 16), 0); err == nil || opened(t) != before {
		t.Errorf("a descriptor that is unwanted: %v, %d descriptors opened", err, opened(t)-before)
	}
	from.Close()
	if _, err := Receive(to, &v, make([]byte, 16), 1); !errors.Is(err, io.EOF) {
		t.Errorf("the other side has ended: %v", err)
	}
}

func TestSocketOfOtherConnections(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, err := Socket(a); err == nil {
		t.Error("a pipe passes descriptors")
	}
}
