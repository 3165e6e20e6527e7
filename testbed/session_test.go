package testbed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"railbed/internal/frame"
	"railbed/testbed"
	"railbed/testkit/hosttest"
)

// TestUnreadChannel: a command whose channel is not read waits. When the channel is read it
// continues, and no data are lost.
func TestUnreadChannel(t *testing.T) {
	tb := up(t, "go-unread")
	const sent = 32 << 20
	cmd := tb.Node("h0").Command(t.Context(), "sh", "-c",
		"echo begun; head -c 33554432 /dev/zero >&3; echo over")
	channel := cmd.Channel()
	output := &lockedBuffer{}
	cmd.Stdout = output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const most = frame.ChannelAhead * 32 << 10
	settled(t, cmd)
	if n := testbed.Unread(cmd); n > most || output.String() != "begun\n" {
		t.Errorf("%d bytes wait to be read, want at most %d; output %q", n, most, output)
	}
	if n, err := io.Copy(io.Discard, channel); err != nil || n != sent {
		t.Errorf("%d bytes of %d, error %v", n, sent, err)
	}
	if err := cmd.Wait(); err != nil || output.String() != "begun\nover\n" {
		t.Errorf("output %q, error %v", output, err)
	}
}

// settled waits until some of the channel has arrived and no more does.
func settled(t *testing.T, cmd *testbed.Cmd) {
	t.Helper()
	last := 0
	hosttest.Eventually(t, "the last of the bytes that arrive unread", func() error {
		before := last
		time.Sleep(300 * time.Millisecond)
		if last = testbed.Unread(cmd); last == 0 || last != before {
			return fmt.Errorf("%d bytes have arrived, and more do", last)
		}
		return nil
	})
}

// TestChannelIsReadAfterTheEnd: what is left does not hold up the end, and is
// not lost.
func TestChannelIsReadAfterTheEnd(t *testing.T) {
	tb := up(t, "go-left")
	for range 20 {
		cmd := tb.Node("h0").Command(t.Context(), "sh", "-c", "head -c 200000 /dev/zero >&3")
		channel := cmd.Channel()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, channel); err != nil || n != 200000 {
			t.Fatalf("%d bytes of 200000, error %v", n, err)
		}
	}
}

// lockedBuffer is written by one goroutine and looked at by another.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// TestGroupEndsWithTheCommand: what ignores the signals of the end is killed
// with its group, also when the leader has ended by then. What is in a session
// of its own stays.
func TestGroupEndsWithTheCommand(t *testing.T) {
	tb := up(t, "go-group")
	const stubborn = `(trap "" HUP TERM; echo ready; exec sleep 1000)`
	for _, script := range []string{
		stubborn + " & wait",               // the leader ends at once
		`trap "" HUP TERM; ` + stubborn,    // no process of the group ends
		`(` + stubborn + ` & wait) & wait`, // two deep
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := tb.Node("h0").Command(ctx, "sh", "-c", script)
		output := &lockedBuffer{}
		cmd.Stdout = output
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		hosttest.Until(t, "a stubborn process", func() bool { return output.String() == "ready\n" })
		cancel()
		if err := cmd.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		noProcesses(t, tb)
	}
	// A command that ends by itself leaves running what it means to.
	if err := tb.Node("h1").Command(t.Context(), "sh", "-c",
		"sleep 1000 >/dev/null 2>&1 &").Run(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cmd := tb.Node("h0").Command(ctx, "sh", "-c", "setsid sh -c 'echo ready; exec sleep 1000' & "+stubborn)
	output := &lockedBuffer{}
	cmd.Stdout = output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, "both processes", func() bool { return output.String() == "ready\nready\n" })
	cancel()
	cmd.Wait()
	hosttest.Eventually(t, "the session's process alone, and the process left running", func() error {
		nodes := inspected(t, tb).Nodes
		if in, beside := nodes[0].Processes, nodes[1].Processes; in != 1 || beside != 1 {
			return fmt.Errorf("%d processes in h0 and %d in h1", in, beside)
		}
		return nil
	})
}
