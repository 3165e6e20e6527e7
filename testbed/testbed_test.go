package testbed_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"railbed/internal/reexec"
	"railbed/internal/rundir"
	"railbed/internal/units"
	"railbed/testbed"
	"railbed/testbed/probe"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// The tests run testbeds on this executable.
var _ = hosttest.MarkPackage(hosttest.Unraced, hosttest.AsNobody)

// echoPart is a part of this test binary that runs in nodes: it returns on
// its channel what it reads there.
const echoPart = "echo"

func TestMain(m *testing.M) {
	testbed.Init(reexec.Parts{echoPart: echo, sendPart: send, reachPart: reach, answerPart: answer,
		talkPart: talk, sumPart: sum, floodPart: flood,
		impostorPart: impostor, intruderPart: intruder}, probe.Parts())
	if reason := hosttest.Probe(hosttest.Testbed); reason != nil {
		// An example cannot skip itself.
		fmt.Println("the example cannot run here:", reason)
		flag.Parse()
		flag.Set("test.run", "^Test")
	}
	os.Exit(hosttest.Main(m))
}

func echo([]string) int {
	channel := os.NewFile(3, "channel")
	if _, err := io.Copy(channel, channel); err != nil {
		return 1
	}
	return 7
}

// twoHosts has a rate that a shaper of the kernel reaches on a busy host, too.
const twoHosts = `
name: %s
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: router}
  links: {default: {rate: 100mbit}}
`

func up(t *testing.T, name string) *testbed.Testbed {
	t.Helper()
	return upPlan(t, fmt.Sprintf(twoHosts, name))
}

// upPlan brings a testbed up for the time of the test.
func upPlan(t *testing.T, text string) *testbed.Testbed {
	t.Helper()
	return upWith(t, text, testbed.Options{})
}

func upWith(t *testing.T, text string, o testbed.Options) *testbed.Testbed {
	t.Helper()
	hosttest.Need(t, hosttest.Testbed)
	tb, err := testbed.Up(t.Context(), plantest.Compile(t, text), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Close(); err != nil {
			t.Errorf("close %s: %v", tb.Name(), err)
		}
		dir, err := rundir.Of(tb.Name())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir.Path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left after Close: %v", dir.Path, err)
		}
	})
	return tb
}

// TestUpThatIsCanceled: a bring-up that is canceled, at once or a moment later, leaves no run directory. At
// once, the supervisor does not learn which directory it is.
func TestUpThatIsCanceled(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "go-canceled"
	dir, err := rundir.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	const ms = time.Millisecond
	for _, after := range []time.Duration{0, ms, 20 * ms, 100 * ms} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		p := plantest.Compile(t, fmt.Sprintf(twoHosts, name))
		if tb, err := testbed.Up(ctx, p, testbed.Options{}); err == nil {
			if err := tb.Close(); err != nil {
				t.Error(err)
			}
		}
		cancel()
		if _, err := os.Stat(dir.Path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after %v: %s still exists (error %v)", after, dir.Path, err)
		}
	}
}

func TestCommand(t *testing.T) {
	tb := up(t, "go-command")
	commands(t, tb, tb.Node("h0"))
}

// commands checks the behaviour of commands in every kind of node.
func commands(t *testing.T, tb *testbed.Testbed, h0 *testbed.Node) {
	ctx := t.Context()

	t.Run("outputs are apart", func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		cmd := h0.Command(ctx, "sh", "-c", "echo out; echo err >&2")
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil || stdout.String() != "out\n" || stderr.String() != "err\n" {
			t.Errorf("stdout %q, stderr %q, error %v", &stdout, &stderr, err)
		}
	})
	t.Run("input is carried whole", func(t *testing.T) {
		// More than the frames that may be under way, and no multiple of them.
		sent := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16+1)
		cmd := h0.Command(ctx, "cat")
		cmd.Stdin = bytes.NewReader(sent)
		if got, err := cmd.Output(); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes came back of %d, error %v", len(got), len(sent), err)
		}
	})
	t.Run("a command that does not read its input ends", func(t *testing.T) {
		cmd := h0.Command(ctx, "true")
		cmd.Stdin = endless{}
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
	})
	t.Run("exit code", func(t *testing.T) {
		_, err := h0.Command(ctx, "sh", "-c", "echo why >&2; exit 9").Output()
		var exit *testbed.ExitError
		if !errors.As(err, &exit) || exit.Code != 9 || string(exit.Stderr) != "why\n" {
			t.Errorf("error %v, want exit code 9 with its stderr", err)
		}
	})
	t.Run("signal", func(t *testing.T) {
		cmd := h0.Command(ctx, "sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		var exit *testbed.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.Signal != syscall.SIGTERM {
			t.Errorf("error %v, want an end by SIGTERM", err)
		}
	})
	t.Run("not found", func(t *testing.T) {
		if err := h0.Command(ctx, "no-such-program").Run(); !errors.Is(err, testbed.ErrNotFound) {
			t.Errorf("no such program: error %v, want ErrNotFound", err)
		}
		if err := tb.Node("nobody").Command(ctx, "true").Run(); !errors.Is(err, testbed.ErrNoSuchObject) {
			t.Errorf("no such node: error %v, want ErrNoSuchObject", err)
		}
	})
	t.Run("signals are as in a shell", func(t *testing.T) {
		// yes dies of SIGPIPE, silently, unless it was started with it ignored.
		got, err := h0.Command(ctx, "sh", "-c",
			"yes | head -1; grep SigIgn /proc/self/status").CombinedOutput()
		var ignored uint64
		if _, scanned := fmt.Sscanf(string(got), "y\nSigIgn:\t%x\n", &ignored); err != nil || scanned != nil {
			t.Fatalf("output %q, error %v", got, errors.Join(err, scanned))
		}
		for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE,
			syscall.SIGTERM} {
			if ignored&(1<<(signal-1)) != 0 {
				t.Errorf("%v is ignored", signal)
			}
		}
	})
	t.Run("a slow reader loses nothing", func(t *testing.T) {
		var got bytes.Buffer
		cmd := h0.Command(ctx, "sh", "-c", "head -c 60000 /dev/zero")
		cmd.Stdout = slowWriter{&got}
		if err := cmd.Run(); err != nil || got.Len() != 60000 {
			t.Errorf("%d bytes of 60000, error %v", got.Len(), err)
		}
	})
	t.Run("input of a terminal ends", func(t *testing.T) {
		cmd := h0.Command(ctx, "sh", "-c", "cat; sleep 0.3; echo after")
		cmd.Terminal = &supervisor.WindowSize{Rows: 24, Cols: 80}
		cmd.Stdin = strings.NewReader("")
		if got, err := cmd.Output(); err != nil || !strings.Contains(string(got), "after") {
			t.Errorf("output %q, error %v", got, err)
		}
	})
	t.Run("context ends the command", func(t *testing.T) {
		cancelled, cancel := context.WithCancel(ctx)
		cmd := h0.Command(cancelled, "sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := cmd.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		noProcesses(t, tb)
	})
	t.Run("terminal", func(t *testing.T) {
		cmd := h0.Command(ctx, "sh", "-c", "stty size; tty; ps -o tty= -p $$")
		cmd.Terminal = &supervisor.WindowSize{Rows: 33, Cols: 99}
		got, err := cmd.Output()
		lines := strings.Fields(string(got))
		if err != nil || len(lines) != 4 || lines[0] != "33" || lines[1] != "99" ||
			!strings.HasPrefix(lines[2], "/dev/pts/") || lines[2] != "/dev/"+lines[3] {
			t.Errorf("output %q, error %v", got, err)
		}
	})
	t.Run("channel", func(t *testing.T) {
		cmd := h0.Part(ctx, echoPart)
		channel := cmd.Channel()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		sent := bytes.Repeat([]byte("rendezvous"), 10000)
		if _, err := channel.Write(sent); err != nil {
			t.Fatal(err)
		}
		if err := channel.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(channel)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes came back of %d, error %v", len(got), len(sent), err)
		}
		var exit *testbed.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.Code != 7 {
			t.Errorf("error %v, want exit code 7", err)
		}
	})
}

// slowWriter takes longer for a chunk than output is waited for.
type slowWriter struct{ w io.Writer }

func (s slowWriter) Write(p []byte) (int, error) {
	time.Sleep(250 * time.Millisecond)
	return s.w.Write(p)
}

// endless is input that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// noProcesses waits until nothing runs in any node.
func noProcesses(t *testing.T, tb *testbed.Testbed) {
	t.Helper()
	hosttest.Eventually(t, "the end of all processes", func() error {
		for _, node := range inspected(t, tb).Nodes {
			if node.Processes > 0 {
				return fmt.Errorf("%d run in %s", node.Processes, node.Name)
			}
		}
		return nil
	})
}

func TestNameIsTaken(t *testing.T) {
	up(t, "go-taken")
	_, err := testbed.Up(t.Context(), plantest.Compile(t, fmt.Sprintf(twoHosts, "go-taken")),
		testbed.Options{})
	if !errors.Is(err, testbed.ErrRunning) {
		t.Errorf("second up: %v, want ErrRunning", err)
	}
	if _, err := testbed.Open(t.Context(), "go-absent"); !errors.Is(err, testbed.ErrNotRunning) {
		t.Errorf("open of nothing: %v, want ErrNotRunning", err)
	}
}

// TestSameNameAtOnce has several claim one name; exactly one gets it.
func TestSameNameAtOnce(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	p := plantest.Compile(t, fmt.Sprintf(twoHosts, "go-race"))
	var group sync.WaitGroup
	var mu sync.Mutex
	var won []*testbed.Testbed
	for range 6 {
		group.Go(func() {
			tb, err := testbed.Up(t.Context(), p, testbed.Options{})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won = append(won, tb)
			} else if !errors.Is(err, testbed.ErrRunning) {
				t.Errorf("up: %v, want ErrRunning", err)
			}
		})
	}
	group.Wait()
	if len(won) != 1 {
		t.Errorf("%d of 6 brought the testbed up, want 1", len(won))
	}
	for _, tb := range won {
		if err := tb.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTwoTestbeds brings up two testbeds of the same shape at once, which therefore have the same
// addresses and interface names. Neither receives packets of the other.
func TestTwoTestbeds(t *testing.T) {
	hosttest.Need(t, hosttest.Ping)
	a, b := up(t, "go-two-a"), up(t, "go-two-b")
	for _, tb := range []*testbed.Testbed{a, b} {
		if output, err := tb.Node("h0").Command(t.Context(), "ping", "-c1",
			"h1").CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", tb.Name(), err, output)
		}
	}
	if _, err := a.Node("h0").Command(t.Context(), "sh", "-c",
		"echo a >/tmp/mark; setsid sleep 1000 &").Output(); err != nil {
		t.Fatal(err)
	}
	if output, err := b.Node("h0").Command(t.Context(), "sh", "-c",
		"cat /tmp/mark; ps -e | grep sleep; true").CombinedOutput(); err != nil ||
		strings.Contains(string(output), "\na") || strings.Contains(string(output), "1000") {
		t.Errorf("b sees a's: %q, error %v", output, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if output, err := b.Node("h0").Command(t.Context(), "ping", "-c1", "h1").CombinedOutput(); err != nil {
		t.Errorf("b after a's end: %v\n%s", err, output)
	}
	if err := b.Verify(t.Context()); err != nil {
		t.Errorf("b after a's end: %v", err)
	}
}

func TestLinkAndEvents(t *testing.T) {
	tb := up(t, "go-link")
	hosttest.Need(t, hosttest.Ping)
	ctx := t.Context()
	link := tb.Plan().Links[0].Name
	ping := func() error {
		return tb.Node("h0").Command(ctx, "ping", "-c1", "-W1", "h1").Run()
	}
	change := func(request supervisor.LinkRequest) {
		t.Helper()
		if err := tb.ChangeLink(ctx, request); err != nil {
			t.Fatal(err)
		}
	}
	change(supervisor.LinkRequest{Where: link, State: "down"})
	if ping() == nil {
		t.Error("a ping crosses a link that is down")
	}
	change(supervisor.LinkRequest{Where: link, State: "up"})
	if err := ping(); err != nil {
		t.Errorf("ping after the link is up again: %v", err)
	}
	slower := tb.Plan().Links[0].AToB
	slower.Rate /= 10
	change(supervisor.LinkRequest{Where: link + " a-to-b", Set: &slower})
	state, err := tb.Inspect(ctx)
	if err != nil || state.Links[0].AToB.Rate != slower.Rate || state.Links[0].BToA.Rate != slower.Rate*10 {
		t.Errorf("state %+v, error %v", state.Links[0], err)
	}
	if _, err := tb.Converge(ctx, tb.Plan(), testbed.Options{}); err != nil {
		t.Error(err)
	}
	if state, err = tb.Inspect(ctx); err != nil || state.Links[0].AToB.Rate != slower.Rate*10 {
		t.Errorf("after Converge: state %+v, error %v", state.Links[0], err)
	}
	for _, wrong := range []supervisor.LinkRequest{
		{Where: "no--link", State: "up"}, {Where: link, State: "sideways"},
		{Where: link + " up", State: "up"}, {Where: link},
	} {
		if err := tb.ChangeLink(ctx, wrong); err == nil {
			t.Errorf("change %+v succeeds", wrong)
		}
	}
	jittery := tb.Plan().Links[0].AToB
	jittery.Jitter = units.Duration(time.Second)
	for _, request := range []supervisor.LinkRequest{{Where: link + " b-to-a", Set: &jittery},
		{Where: link, Set: &slower, Back: &jittery}} {
		if err := tb.ChangeLink(ctx, request); err == nil ||
			!strings.Contains(err.Error(), "jitter is 1s and delay 0s; want a delay at least as long") {
			t.Errorf("jitter without a delay: %v", err)
		}
	}
	if state, err = tb.Inspect(ctx); err != nil || state.Links[0].AToB.Rate != slower.Rate*10 {
		t.Errorf("after changes that were refused: state %+v, error %v", state.Links[0], err)
	}
	var kinds []string
	if err := tb.Events(ctx, false, func(e supervisor.Event) error {
		kinds = append(kinds, e.Kind)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"testbed.up", "link.down", "link.up", "link.set", "process.start",
		"process.exit"} {
		if !slices.Contains(kinds, kind) {
			t.Errorf("no event %s in %v", kind, kinds)
		}
	}
}

// TestClosedByDefault holds that a node reaches neither the host nor beyond.
func TestClosedByDefault(t *testing.T) {
	tb := up(t, "go-closed")
	output, err := tb.Node("h0").Command(t.Context(), "sh", "-c",
		`for a in 127.0.0.53 192.0.2.1 1.1.1.1; do ping -c1 -W1 $a >/dev/null 2>&1 && [ $a != 127.0.0.53 ] && echo reached $a; done; ls /sys/class/net`).Output()
	if err != nil || string(output) != "eth0\nlo\n" {
		t.Errorf("output %q, error %v; want only eth0 and lo and no answer", output, err)
	}
}

// TestOwnerOnly holds the modes of the run directory and the socket.
func TestOwnerOnly(t *testing.T) {
	tb := up(t, "go-owner")
	dir, err := rundir.Of(tb.Name())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{dir.Path: 0o700, dir.Socket(): 0o600, dir.Log(): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, error %v; want %v", path, info.Mode().Perm(), err, want)
		}
	}
}
