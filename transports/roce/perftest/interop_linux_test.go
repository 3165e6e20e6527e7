package perftest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"railbed/internal/reexec"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/vmtest"
)

// runEnv has the test binary run a config, in a network of its own.
const runEnv = "RAILBED_TEST_PERFTEST"

func TestMain(m *testing.M) {
	if text := os.Getenv(runEnv); text != "" {
		os.Exit(runHere(text))
	}
	if text := os.Getenv(besideEnv); text != "" {
		if err := measureBeside(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(hosttest.Main(m))
}

// runHere prints the tables, and the result as JSON behind them.
func runHere(text string) int {
	var c Config
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		if !c.Test.Latency() {
			reexec.Batch() // as railbed rdma does
		}
		var result *Result
		if result, err = Run(context.Background(), c, os.Stdout); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(result)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// ourCommand is this package in a network, as a process.
func ourCommand(network string, c Config) *exec.Cmd {
	// A guest on a busy host stands still for longer than all retries of 67 ms take; of
	// rdma_rxe's there is no end.
	c.QPTimeout = cmp.Or(c.QPTimeout, 17)
	text, err := json.Marshal(&c)
	if err != nil {
		panic(err) // a Config has nothing that cannot be
	}
	self, err := os.Executable()
	if err != nil {
		panic(err) // Linux has /proc
	}
	cmd := exec.Command("ip", "netns", "exec", network, self)
	cmd.Env = append(os.Environ(), runEnv+"="+string(text))
	return cmd
}

// process is a program that runs.
type process struct {
	*exec.Cmd
	output bytes.Buffer
	ended  chan struct{}
	err    error
}

// start starts a command, whose output also goes to others.
func start(t *testing.T, cmd *exec.Cmd, others ...io.Writer) *process {
	t.Helper()
	p := &process{Cmd: cmd, ended: make(chan struct{})}
	all := io.MultiWriter(append(others, &p.output)...)
	cmd.Stdout, cmd.Stderr = all, all
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// finish waits for the end of two processes.
func finish(t *testing.T, server, client *process) {
	t.Helper()
	late := time.After(60 * time.Second)
	for _, p := range []*process{client, server} {
		select {
		case <-p.ended:
		case <-late:
			p.Process.Kill()
			<-p.ended
			p.err = errors.New("it did not end")
		}
		if p.err != nil {
			t.Errorf("%v: %v\n%s", p.Args, p.err, p.output.String())
		}
	}
}

// listeners is a command that prints who listens at the port in a network.
func listeners(network string) []string {
	args := []string{"ss", "-Hltn", fmt.Sprintf("sport = :%d", DefaultPort)}
	if network != "" {
		args = append([]string{"ip", "netns", "exec", network}, args...)
	}
	return args
}

// awaitOutput waits until a command prints something.
func awaitOutput(ctx context.Context, command []string) error {
	for {
		out, err := exec.Command(command[0], command[1:]...).Output()
		if err == nil && len(bytes.TrimSpace(out)) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nobody listens: %w", errors.Join(ctx.Err(), err))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// rows are the lines of a table behind its header.
func rows(output string) (header string, rows []string) {
	for line := range strings.Lines(output) {
		switch {
		case strings.HasPrefix(line, " #bytes"):
			header = line
		case header != "" && strings.HasPrefix(line, " ") && line[1] >= '0' && line[1] <= '9':
			rows = append(rows, line)
		}
	}
	return header, rows
}

// reprint returns this package's output for the numbers of a row.
func reprint(t *testing.T, c *Config, row string) (header, again string) {
	t.Helper()
	var out strings.Builder
	p := printer{out: &out, config: c}
	var err error
	if c.Test.Latency() {
		p.latencyHeader()
		var l Latency
		_, err = fmt.Sscan(row, &l.Bytes, &l.Iterations, &l.Min, &l.Max, &l.Typical, &l.Average, &l.Deviation,
			&l.P99, &l.P999)
		p.latency(&l)
	} else {
		p.bandwidthHeader()
		var b Bandwidth
		_, err = fmt.Sscan(row, &b.Bytes, &b.Iterations, &b.Peak, &b.Average, &b.Messages)
		p.bandwidth(&b, b.Average < 0.1)
	}
	if err != nil {
		t.Errorf("row %q: %v", row, err)
	}
	lines := strings.SplitAfter(out.String(), "\n")
	return lines[len(lines)-3], lines[len(lines)-2]
}

// both is how many of the tests below run in both directions, beside those with -R. The rest runs
// in one direction, to save time: their dialogues are like those of others.
const both = 4

// TestUnmodifiedPrograms runs each test with the unmodified program of Debian's perftest on the
// kernel's rdma_rxe at the other end, as client and as server. The program's output equals this
// package's output for the same numbers, byte for byte.
func TestUnmodifiedPrograms(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Root, hosttest.Perftest) // an ordinary user's guests are the same
	if !vmtest.InGuest(t, vmtest.Options{Modules: []string{"veth", "rdma_rxe", "ib_uverbs", "rdma_ucm"},
		Timeout: 4 * time.Minute}) {
		return
	}
	if out, err := exec.Command("sh", "-c", `set -e
		ip netns add ours
		ip link add v0 mtu 4200 type veth peer name v1 mtu 4200 netns ours
		ip addr add 10.9.0.1/24 dev v0
		ip link set v0 up
		ip -n ours addr add 10.9.0.2/24 dev v1
		ip -n ours link set v1 up
		rdma link add rxe0 type rxe netdev v0`).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("sh", "-c",
			"ip netns del ours && umount /run/netns").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	for i, c := range []struct {
		config  Config
		program string
		args    string
	}{
		{Config{Test: WriteBW, Iterations: 20}, "ib_write_bw", "-n 20"},
		{Config{Test: WriteLat, Iterations: 50, Size: 3000}, "ib_write_lat", "-n 50 -s 3000"},
		{Config{Test: SendBW, Iterations: 50, Size: 5000, Gigabits: true}, "ib_send_bw",
			"-n 50 -s 5000 --report_gbits"},
		{Config{Test: ReadBW, Iterations: 20, MTU: 1024, QueuePairs: 2}, "ib_read_bw", "-n 20 -m 1024 -q 2"},
		{Config{Test: SendLat, Iterations: 50}, "ib_send_lat", "-n 50"},
		{Config{Test: AtomicBW, Iterations: 50}, "ib_atomic_bw", "-n 50"},
		{Config{Test: WriteBW, Iterations: 20, Size: 8192, Bidirectional: true}, "ib_write_bw",
			"-n 20 -s 8192 -b"},
		{Config{Test: WriteBW, Iterations: 20, CM: true}, "ib_write_bw", "-n 20 -R"},
		{Config{Test: SendBW, Iterations: 50, Size: 5000, CM: true}, "ib_send_bw", "-n 50 -s 5000 -R"},
		{Config{Test: ReadBW, Iterations: 20, QueuePairs: 2, CM: true}, "ib_read_bw", "-n 20 -q 2 -R"},
		{Config{Test: WriteLat, Iterations: 50, ExchangeCM: true}, "ib_write_lat", "-n 50 -z"},
	} {
		t.Run(strings.TrimSpace(c.program+" "+c.args), func(t *testing.T) {
			args := append(strings.Fields(c.args), "-F", "-d", "rxe0")
			for _, server := range []bool{true, false} {
				if i >= both && !c.config.CM && server != (i%2 == 0) {
					continue
				}
				began := time.Now()
				config := c.config
				var us, them *process
				if server {
					waits := make(banner, 2)
					us = start(t, ourCommand("ours", config), waits)
					select {
					case <-waits:
					case <-us.ended:
						t.Fatalf("%v: %s", us.err, us.output.String())
					}
					them = start(t, exec.Command(c.program, append(args, "10.9.0.2")...))
					finish(t, us, them)
				} else {
					config.Server = "10.9.0.1"
					them = start(t, exec.Command(c.program, args...))
					listens := listeners("")
					if c.config.CM || c.config.ExchangeCM {
						listens = []string{"rdma", "resource", "show", "cm_id", "state", "LISTEN", "src-port",
							fmt.Sprint(DefaultPort)}
					}
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					err := awaitOutput(ctx, listens)
					if cancel(); err != nil {
						t.Fatalf("%v: %s", err, them.output.String())
					}
					us = start(t, ourCommand("ours", config))
					finish(t, them, us)
				}
				t.Logf("server %v: %v", server, time.Since(began))
				header, theirs := rows(them.output.String())
				_, mine := rows(us.output.String())
				if len(theirs) == 0 || len(theirs) != len(mine) {
					t.Fatalf("%d and %d rows\n%s\n%s", len(theirs), len(mine), them.output.String(),
						us.output.String())
				}
				var result Result
				if text := us.output.String(); json.Unmarshal([]byte(text[strings.LastIndex(strings.TrimSpace(
					text), "\n")+1:]), &result) != nil || result.Sent == 0 || result.BadICRC > 0 {
					t.Errorf("%+v", result)
				}
				for _, row := range theirs {
					// On a busy host it finds no rate of its processor's clock, and all is endless.
					if strings.Contains(row, "inf") {
						t.Logf("the program measured nothing: %q", row)
						continue
					}
					if h, again := reprint(t, &config, row); again != row || h != header {
						t.Errorf("the program prints\n%q\n%q\nand this package\n%q\n%q", header, row, h,
							again)
					}
				}
			}
		})
	}
}
