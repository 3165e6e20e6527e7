package rd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"railbed/testkit/hosttest"
)

// program returns a contestant that is an external program: a server at the far end and a client at
// the near one. Both are started anew for each measurement and end by themselves. read finds the
// bytes per second, and all bytes, in the client's output.
func (f *field) program(name string, server, client []string,
	read func(output []byte) (rate, moved float64, err error)) contestant {
	if _, err := exec.LookPath(server[0]); err != nil {
		f.b.Skipf("needs %s", server[0])
	}
	return contestant{name, func() []float64 {
		there := f.command(true, "", server...)
		if err := there.Start(); err != nil {
			f.b.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		here := f.command(false, "", client...)
		output, err := here.Output()
		if err != nil {
			there.Process.Kill()
			there.Wait()
			f.b.Fatalf("%v: %v\n%s", client, err, output)
		}
		there.Wait()
		rate, moved, err := read(output)
		if err != nil {
			f.b.Fatalf("%v: %v\n%s", client, err, output)
		}
		if !f.children {
			return []float64{rate * 8 / 1e9}
		}
		var cpu time.Duration
		for _, cmd := range []*exec.Cmd{here, there} {
			cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		}
		return []float64{rate * 8 / 1e9, float64(cpu.Nanoseconds()) / (moved / 1024)}
	}}
}

// iperf3 is the kernel's TCP by so many connections, as its receiver counts. It
// writes 1 MiB at once at most.
func (f *field) iperf3(name string, size, connections int) contestant {
	hosttest.Need(f.b, hosttest.IPerf3)
	server := []string{"iperf3", "-s", "-1"}
	client := []string{"iperf3", "-c", f.far, "-t", strconv.Itoa(int(versusFor.Seconds())), "-J", "-l",
		strconv.Itoa(min(size, 1<<20)), "-P", strconv.Itoa(connections)}
	return f.program(name, server, client, func(output []byte) (float64, float64, error) {
		var report struct {
			End struct {
				Received struct {
					Bytes float64 `json:"bytes"`
					Rate  float64 `json:"bits_per_second"`
				} `json:"sum_received"`
			} `json:"end"`
		}
		err := json.Unmarshal(output, &report)
		if got := report.End.Received; err == nil && got.Bytes == 0 {
			err = fmt.Errorf("nothing was received")
		}
		return report.End.Received.Rate / 8, report.End.Received.Bytes, err
	})
}

// libfabric is a provider's ping-pong of messages, of which one is under way, as
// its client counts: both directions.
func (f *field) libfabric(provider string, size int) contestant {
	hosttest.Need(f.b, hosttest.Libfabric)
	rounds := min(max(256<<20/2/size, 8), 4000)
	words := []string{"fi_pingpong", "-p", provider, "-e", "rdm", "-I", strconv.Itoa(rounds), "-S",
		strconv.Itoa(size)}
	name := strings.NewReplacer(";", "-").Replace(provider)
	return f.program(name, words, append(words[:len(words):len(words)], f.far),
		func(output []byte) (float64, float64, error) {
			lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
			// bytes, #sent, #ack, total, time, MB/sec, usec/xfer, Mxfers/sec
			columns := strings.Fields(string(lines[len(lines)-1]))
			if len(columns) != 8 {
				return 0, 0, fmt.Errorf("%d columns, want 8", len(columns))
			}
			rate, err := strconv.ParseFloat(columns[5], 64)
			return rate * 1e6, float64(2 * rounds * size), err
		})
}

// offloaded is a contestant with the segmentation offloads that nodes of a testbed
// have switched off, because a frame is a packet there.
func (p *pair) offloaded(c contestant) contestant {
	set := func(to string) {
		for _, end := range []struct {
			prefix []string
			name   string
		}{{nil, "near"}, {p.inFar(), "far"}} {
			run(p.b, append(end.prefix, "ethtool", "-K", end.name, "tx", to, "tso", to, "gso", to, "gro",
				to)...)
		}
	}
	return contestant{c.name, func() []float64 {
		set("on")
		defer set("off")
		return c.measure()
	}}
}
