package capture

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/reexec"
	"railbed/testkit/hosttest"
)

// TestManyTaps opens 600 taps and records at each of them, in bounded memory
// and descriptors.
func TestManyTaps(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	ns := newNamespace(t)
	const pairs = 300
	var batch strings.Builder
	for i := range pairs {
		fmt.Fprintf(&batch, "link add a%d type veth peer name b%d\nlink set a%d up\nlink set b%d up\n", i, i,
			i, i)
	}
	name := filepath.Join(t.TempDir(), "batch")
	if err := os.WriteFile(name, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// IPv6 would talk on its own, to every one of them.
	within(t, ns, "sysctl -q -w net.ipv6.conf.default.disable_ipv6=1")
	within(t, ns, "ip -batch "+name)
	var taps []Tap
	for i := range pairs {
		for _, side := range "ab" {
			taps = append(taps, Tap{Node: fmt.Sprintf("%c%d", side, i), Port: fmt.Sprintf("%c%d", side, i),
				Link: fmt.Sprintf("l%d", i), NS: ns})
		}
	}
	var file bytes.Buffer
	began := time.Now()
	s := start(t, taps, Options{Filter: "ether proto 0x88b5"}, &file)
	t.Logf("%d taps record after %v", len(taps), time.Since(began))
	err := ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for i := range pairs {
			link, err := net.InterfaceByName(fmt.Sprintf("a%d", i))
			if err != nil {
				return err
			}
			frame := append(bytes.Repeat([]byte{0xff}, 12), 0x88, 0xb5, byte(i), byte(i>>8))
			frame = append(frame, make([]byte, 46)...)
			if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	stats, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("they are closed after %v", time.Since(began))
	for _, tap := range stats.Taps {
		if tap.Written != 1 || tap.Dropped != 0 {
			t.Errorf("%+v", tap)
		}
	}
	packets, _ := decode(t, file.Bytes())
	ids := map[uint64]int{}
	for _, p := range packets {
		ids[p.id]++
	}
	if len(packets) != 2*pairs || len(ids) != pairs || stats.Unordered != 0 {
		t.Errorf("%d packets with %d ids, %d unordered", len(packets), len(ids), stats.Unordered)
	}
}

// TestRecordingProcessDies kills the recording process: the session ends and
// says so, and the stream is noticed to be cut.
func TestRecordingProcessDies(t *testing.T) {
	l := newLine(t)
	var file bytes.Buffer
	s := start(t, l.taps(), Options{}, &file)
	if _, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err != nil {
		t.Skip("this kernel does not list children")
	}
	killed := 0
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		children, _ := os.ReadFile(task) // a thread may be gone
		for _, text := range strings.Fields(string(children)) {
			pid, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			if name, _ := os.ReadFile("/proc/" + text + "/cmdline"); strings.HasPrefix(string(name),
				reexec.Argv(part)[0]) {
				killed++
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if killed != 1 {
		t.Fatalf("killed %d recording processes", killed)
	}
	select {
	case <-s.Done():
	case <-time.After(hosttest.Bound):
		t.Fatal("the session goes on without its process")
	}
	if _, err := s.Stop(); err == nil || !strings.Contains(err.Error(), "the recording process ended") {
		t.Errorf("Stop says %v", err)
	}
}
