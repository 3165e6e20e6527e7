package testbed_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"railbed/internal/frame"
	"railbed/testbed"
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
	for deadline, last := time.Now().Add(10*time.Second), 0; time.Now().Before(deadline); {
		time.Sleep(300 * time.Millisecond)
		if now := testbed.Unread(cmd); now > 0 && now == last {
			return
		} else {
			last = now
		}
	}
	t.Fatalf("%d bytes have arrived unread, and more do", testbed.Unread(cmd))
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
		for output.String() != "ready\n" {
			time.Sleep(time.Millisecond)
		}
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
	cmd := tb.Node("h0").Command(ctx, "sh", "-c", "setsid sleep 1000 & "+stubborn)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	cancel()
	cmd.Wait()
	time.Sleep(2500 * time.Millisecond) // longer than the grace
	state, err := tb.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if in, beside := state.Nodes[0].Processes, state.Nodes[1].Processes; in != 1 || beside != 1 {
		t.Errorf("%d processes in h0 and %d in h1; want the session's one, and the one left running", in,
			beside)
	}
}
