package wireshark

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"railbed/testkit/hosttest"

	"golang.org/x/sys/unix"
)

// played are testbeds that play a recording.
type played struct {
	names  []string
	stream []byte
	asked  *Recording
	err    error
}

func (p played) Running() ([]string, error) { return p.names, p.err }

func (p played) Taps(_ context.Context, testbed string) ([]string, error) {
	if testbed != "x" {
		return nil, errors.New("no testbed of this name is up")
	}
	return []string{"all", "nics", "switches", "h0", "h0:eth0"}, nil
}

func (p played) Record(ctx context.Context, _ string, r Recording, w io.Writer) error {
	if p.asked != nil {
		*p.asked = r
	}
	if p.err != nil {
		return p.err
	}
	if _, err := w.Write(p.stream); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func call(t *testing.T, p played, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := (&Plugin{Testbeds: p, Version: "1{2}", Stdout: &out}).Run(t.Context(), args); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String()
}

// TestQuestions checks the answers to each question of Wireshark, with arguments of later versions.
func TestQuestions(t *testing.T) {
	none, two := played{}, played{names: []string{"a", "x"}}
	if got, want := call(t, none, "--extcap-interfaces", "--extcap-version=4.0"),
		"extcap {version=1_2_}\n"; got != want {
		t.Errorf("nothing runs: %q, want %q", got, want)
	}
	got := call(t, two, "--extcap-interfaces", "--extcap-version", "9.9", "--colour", "red")
	for _, want := range []string{"interface {value=railbed:a}{display=Railbed: a, whole fabric}\n",
		"interface {value=railbed:x}{display=Railbed: x, whole fabric}\n",
		"control {number=0}{type=selector}",
		"control {number=2}{type=boolean}{display=Drops only}",
		"value {control=0}{value=all}{display=all: the whole fabric}{default=true}\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the interfaces lack %q:\n%s", want, got)
		}
	}
	if got := call(t, two, "--extcap-interface", "railbed:x", "--extcap-dlts"); !strings.HasPrefix(got,
		"dlt {number=1}{name=EN10MB}") {
		t.Errorf("link types: %s", got)
	}
	got = call(t, two, "--extcap-config", "--extcap-interface=railbed:x")
	for _, want := range []string{"{call=--taps}", "{call=--narrow}", "{call=--drops-only}",
		"{call=--events}",
		"{call=--snaplen}", "{reload=true}"} {
		if !strings.Contains(got, want) {
			t.Errorf("the configuration lacks %q:\n%s", want, got)
		}
	}
	got = call(t, two, "--extcap-interface", "railbed:x", "--extcap-reload-option", "taps", "--taps", "all")
	if strings.Count(got, "{value=all}") != 1 || !strings.Contains(got,
		"value {arg=0}{value=h0:eth0}{display=h0:eth0}{default=false}\n") {
		t.Errorf("loaded taps:\n%s", got)
	}
	if got := call(t, two, "--extcap-interface", "railbed:x", "--extcap-capture-filter",
		"udp port 53"); got != "" {
		t.Errorf("a right filter: %q", got)
	}
	if got := call(t, two, "--extcap-interface", "railbed:x", "--extcap-capture-filter",
		"udp prt 53"); got == "" {
		t.Error("a wrong filter: nothing is printed")
	}
	for _, line := range strings.Split(call(t, two, "--extcap-config")+call(t, two, "--extcap-interfaces"),
		"\n") {
		if strings.Count(line, "{") != strings.Count(line, "}") {
			t.Errorf("braces of %s", line)
		}
	}
}

// TestWrongCalls checks that errors say what would be right.
func TestWrongCalls(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	// tshark waits until the FIFO is opened, also if the call is wrong.
	pipe := fifo(t, "packets")
	reader, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for args, want := range map[string]string{
		"":                                       "want --extcap-interfaces",
		"--help":                                 "want --extcap-interfaces",
		"--extcap-interface":                     "argument --extcap-interface has no value",
		"--capture --extcap-interface railbed:x": "--capture without --fifo",
		"--capture --extcap-interface railbed:x --fifo /no": "open FIFO: stat /no",
		"--capture --extcap-interface railbed:x --fifo " +
			file: "railbed capture -w writes files",
		"--capture --fifo " + pipe:                                                 `interface "": want railbed:TESTBED`,
		"--capture --extcap-interface eth0 --fifo " + pipe:                         "want railbed:TESTBED",
		"--capture --extcap-interface railbed:x --narrow ip.scr --fifo " + pipe:    "ip.src",
		"--capture --extcap-interface railbed:x --fifo /x --snaplen many":          `--snaplen "many"`,
		"--extcap-reload-option taps --extcap-interface railbed:y --extcap-config": "no testbed of this name",
	} {
		err := (&Plugin{Testbeds: played{}, Stdout: io.Discard}).Run(t.Context(), strings.Fields(args))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

// capturing is a capture whose FIFOs the test reads and writes as Wireshark does.
type capturing struct {
	packets *os.File // what Wireshark reads
	done    chan error
	stop    context.CancelFunc
}

func fifo(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func start(t *testing.T, p played, args ...string) *capturing {
	t.Helper()
	path := fifo(t, "packets")
	ctx, stop := context.WithCancel(context.Background())
	c := &capturing{done: make(chan error, 1), stop: stop}
	args = append([]string{"--capture", "--extcap-interface", "railbed:x", "--fifo", path}, args...)
	go func() { c.done <- (&Plugin{Testbeds: p, Stdout: io.Discard}).Run(ctx, args) }()
	var err error
	if c.packets, err = os.Open(path); err != nil { // waits for the plugin
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); c.packets.Close() })
	return c
}

// end waits until the plugin has ended.
func (c *capturing) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-c.done:
		return err
	case <-time.After(hosttest.Bound):
		t.Fatal("the plugin goes on")
		return nil
	}
}

// TestCaptureEnds: by SIGTERM, after which the rest arrives, by the end of the reader, and by an error.
func TestCaptureEnds(t *testing.T) {
	stream := recorded(t)
	t.Run("stopped", func(t *testing.T) {
		var asked Recording
		c := start(t, played{stream: stream, asked: &asked}, "--taps", "h0, leaf*", "--events", "--snaplen",
			"300",
			"--extcap-capture-filter", "udp", "--future=1", "--more", "things")
		got := make([]byte, 100)
		if _, err := io.ReadFull(c.packets, got); err != nil {
			t.Fatal(err)
		}
		c.stop()
		rest, err := io.ReadAll(c.packets)
		if got = append(got, rest...); err != nil || !bytes.Equal(got, stream) {
			t.Errorf("%d bytes, want %d; %v", len(got), len(stream), err)
		}
		if err := c.end(t); err != nil {
			t.Error(err)
		}
		if strings.Join(asked.Taps, " ") != "h0 leaf*" || asked.Filter != "udp" || asked.SnapLen != 300 ||
			!asked.Events {
			t.Errorf("recorded: %+v", asked)
		}
	})
	t.Run("closed", func(t *testing.T) {
		c := start(t, played{stream: stream})
		if _, err := io.ReadFull(c.packets, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		c.packets.Close() // no packet comes that a write could fail with
		if err := c.end(t); err != nil {
			t.Error(err)
		}
	})
	t.Run("failed", func(t *testing.T) {
		c := start(t, played{err: errors.New("no such tap")})
		if err := c.end(t); err == nil || err.Error() != "no such tap" {
			t.Errorf("%v", err)
		}
	})
	t.Run("not read", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := (&Plugin{Testbeds: played{}, Stdout: io.Discard}).Run(ctx, []string{"--capture",
			"--extcap-interface", "railbed:x", "--fifo", fifo(t, "packets")})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// TestToolbar plays Wireshark's toolbar: the plugin offers the testbed's taps, does what is set, and says
// what is wrong with a filter.
func TestToolbar(t *testing.T) {
	in, out := fifo(t, "in"), fifo(t, "out")
	n := &narrowing{taps: "all"}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		(&controls{narrowing: n}).run(ctx, in, out, func() ([]string, error) {
			return played{}.Taps(ctx, "x")
		})
	}()
	from, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(in, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	messages := bufio.NewReader(from)
	next := func() controlMessage {
		t.Helper()
		m, err := readControl(messages)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, want := range []string{"h0", "h0:eth0"} {
		if m := next(); m.control != 0 || m.command != 2 || string(m.payload) != want {
			t.Errorf("offered %+v, want %s", m, want)
		}
	}
	// The bytes follow the developer's guide: T, a length of 3 bytes, control, command, payload.
	say := func(text string) {
		t.Helper()
		if _, err := to.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	say("T\x00\x00\x02\x00\x00")           // initialized
	say("T\x00\x00\x06\x00\x01nics")       // taps
	say("T\x00\x00\x03\x02\x01\x01")       // drops only
	say("T\x00\x00\x07\x63\x01other")      // a control of a later version
	say("T\x00\x00\x0C\x01\x01udp || arp") // filter: 10 bytes and 2
	if m := next(); m.command != 6 {
		t.Errorf("after a filter: %+v", m)
	}
	n.mu.Lock()
	if n.taps != "nics" || !n.drops || n.filter == nil || n.filter.String() != "udp || arp" {
		t.Errorf("set: %s, %t, %v", n.taps, n.drops, n.filter)
	}
	n.mu.Unlock()
	say("T\x00\x00\x08\x01\x01ip.scr")
	if m := next(); m.command != 8 || !strings.Contains(string(m.payload), "ip.src") {
		t.Errorf("after a wrong filter: %d %s", m.command, m.payload)
	}
	n.mu.Lock()
	if n.filter.String() != "udp || arp" {
		t.Errorf("a wrong filter replaces another: %s", n.filter)
	}
	n.mu.Unlock()
	say("T\x00\x00\x02\x01\x01") // no filter
	next()
	n.mu.Lock()
	if n.filter != nil {
		t.Errorf("an empty filter leaves %s", n.filter)
	}
	n.mu.Unlock()
	to.Close()
	stop()
	<-ended
}

func FuzzControl(f *testing.F) {
	f.Add([]byte("T\x00\x00\x06\x00\x01nics"))
	f.Add([]byte("T\x00\x00\x0C\x01\x01udp || arp"))
	f.Add([]byte("T\xff\xff\xff\x00\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &controls{narrowing: &narrowing{}}
		for r := bufio.NewReader(bytes.NewReader(data)); ; {
			m, err := readControl(r)
			if err != nil {
				return
			}
			if again, err := readControl(bufio.NewReader(bytes.NewReader(m.encode()))); err != nil ||
				!bytes.Equal(again.payload, m.payload) {
				t.Fatalf("%+v becomes %+v, %v", m, again, err)
			}
			c.set(m)
		}
	})
}

func FuzzArguments(f *testing.F) {
	f.Add("--capture --fifo /x --extcap-interface railbed:x --drops-only false")
	f.Add("--extcap-interfaces --extcap-version=4.0 --snaplen=7 --taps")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parse(strings.Fields(text))
		if err == nil && len(a.recording().Taps) == 0 {
			t.Fatal("no taps")
		}
	})
}
