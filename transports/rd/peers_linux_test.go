package rd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports"
)

// The environment by which the test's executable plays one end of a comparison.
const (
	roleEnv   = "RAILBED_BENCH_ROLE"
	insideEnv = "RAILBED_BENCH_INSIDE"
)

const (
	nearAddr, farAddr = "10.9.0.1", "10.9.0.2"
	compareMTU        = 4200
	compareRounds     = 20_000
)

// part is the role of an end.
type part struct {
	Play    string // ping, pong, udp-ping, udp-pong, and those of versus
	Size    int
	Engines int
	Grain   int
	Paths   int
	// Of versus.
	Near, Far string // addresses
	MTU       int
	Peers     int
	Encrypt   bool
	For       time.Duration
	Rate      uint64
}

func init() {
	text := os.Getenv(roleEnv)
	if text == "" {
		return
	}
	var o part
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	if err := o.play(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, o.Play, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// near says which end this is.
func (o part) near() bool { return strings.HasSuffix(o.Play, "ping") }

func (o part) play(in io.Reader, out io.Writer) error {
	addr := netip.MustParseAddr(farAddr)
	if o.near() {
		addr = netip.MustParseAddr(nearAddr)
	}
	if strings.HasPrefix(o.Play, "udp-") {
		return o.udp(out)
	}
	if strings.HasPrefix(o.Play, "versus-") {
		return o.versus(bufio.NewReader(in), out)
	}
	e, err := Open(Config{Addr: addr, MTU: compareMTU, Engines: o.Engines, Grain: o.Grain, Paths: o.Paths})
	if err != nil {
		return err
	}
	defer e.Close()
	region, err := e.Register(make([]byte, max(o.Size, 1)), transports.RemoteWrite)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%x %x\n", e.Address(), region.Remote())
	var address, remote []byte
	if _, err := fmt.Fscanf(bufio.NewReader(in), "%x %x\n", &address, &remote); err != nil {
		return err
	}
	peer, err := e.AddPeer(address)
	if err != nil {
		return err
	}
	request := transports.Request{Op: transports.OpWriteImm, Peer: peer, Local: make([]byte, o.Size),
		Remote: remote}
	if o.near() {
		return bounce(e, request, out)
	}
	return answer(e, request)
}

// bounce prints the nanoseconds of a round trip.
func bounce(e *Endpoint, request transports.Request, out io.Writer) error {
	start := time.Now()
	for range compareRounds {
		if _, err := e.Post(context.Background(), []transports.Request{request}); err != nil {
			return err
		}
		if err := await(e, transports.OpReceive); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%d\n", time.Since(start).Nanoseconds()/compareRounds)
	return err
}

// await polls until an operation completes.
func await(e *Endpoint, op transports.Op) error {
	var done [16]transports.Completion
	for {
		if err := e.Wait(context.Background()); err != nil {
			return err
		}
		found := false
		for _, c := range done[:e.Poll(done[:])] {
			if c.Err != nil {
				return c.Err
			}
			found = found || c.Op == op
		}
		if found {
			return nil
		}
	}
}

// answer serves until its peer closes.
func answer(e *Endpoint, request transports.Request) error {
	for {
		if err := await(e, transports.OpReceive); err != nil {
			return nil // the peer has closed
		}
		if _, err := e.Post(context.Background(), []transports.Request{request}); err != nil {
			return nil
		}
	}
}

// udp is a ping-pong of Go's UDP sockets.
func (o part) udp(out io.Writer) error {
	local, remote := farAddr, nearAddr
	if o.near() {
		local, remote = remote, local
	}
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(local+":9000")),
		net.UDPAddrFromAddrPort(netip.MustParseAddrPort(remote+":9000")))
	if err != nil {
		return err
	}
	buffer := make([]byte, o.Size)
	if !o.near() {
		fmt.Fprintln(out, "ready")
		for {
			if _, err := conn.Read(buffer); err != nil {
				return err
			}
			if _, err := conn.Write(buffer); err != nil {
				return nil
			}
		}
	}
	start := time.Now()
	for range compareRounds {
		if _, err := conn.Write(buffer); err != nil {
			return err
		}
		if _, err := conn.Read(buffer); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "%d\n", time.Since(start).Nanoseconds()/compareRounds)
	return err
}

// pair is two network namespaces joined by a veth whose offloads are off, as
// nodes of a testbed have them; the near one is this process's.
type pair struct {
	b   *testing.B
	far int // a process in the far one
}

// inPair runs the calling benchmark again in a namespace of its own, with a
// peer's, and reports there whether this is that run.
func inPair(b *testing.B) *pair {
	hosttest.Need(b, hosttest.Netns, hosttest.IP, hosttest.Ethtool)
	if os.Getenv(insideEnv) != b.Name() {
		self, err := os.Executable()
		if err != nil {
			b.Fatal(err)
		}
		name := "^" + strings.ReplaceAll(b.Name(), "/", "$/^") + "$"
		cmd := exec.Command(self, "-test.run", "^$", "-test.bench", name, "-test.benchtime", "1x")
		cmd.Env = append(os.Environ(), insideEnv+"="+b.Name())
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		return nil
	}
	holder := exec.Command("cat")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if _, err := holder.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { holder.Process.Kill(); holder.Wait() })
	p := &pair{b, holder.Process.Pid}
	mtu, pid := strconv.Itoa(compareMTU), strconv.Itoa(p.far)
	run(b, "ip", "link", "add", "near", "mtu", mtu, "type", "veth", "peer", "name", "far", "mtu", mtu,
		"netns", pid)
	for _, end := range []struct {
		prefix []string
		name   string
		addr   string
	}{{nil, "near", nearAddr}, {p.inFar(), "far", farAddr}} {
		for _, words := range [][]string{
			{"ip", "link", "set", "lo", "up"}, {"ip", "addr", "add", end.addr + "/24", "dev", end.name},
			{"ip", "link", "set", end.name, "up"},
			{"ethtool", "-K", end.name, "tso", "off", "gso", "off", "gro", "off", "tx", "off",
				"tx-udp-segmentation", "off"},
		} {
			run(b, append(slices.Clone(end.prefix), words...)...)
		}
	}
	return p
}

func (p *pair) inFar() []string { return []string{"nsenter", "-t", strconv.Itoa(p.far), "-n"} }

func run(b *testing.B, words ...string) string {
	b.Helper()
	output, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		b.Fatalf("%v: %v\n%s", words, err, output)
	}
	return string(output)
}

// ours runs two ends and returns the number that the near one prints.
func (p *pair) ours(near, far part) float64 {
	self, err := os.Executable()
	if err != nil {
		p.b.Fatal(err)
	}
	start := func(prefix []string, o part) (*exec.Cmd, io.WriteCloser, *bufio.Reader) {
		text, _ := json.Marshal(o)
		words := append(slices.Clone(prefix), self)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = append(os.Environ(), roleEnv+"="+string(text))
		cmd.Stderr = os.Stderr
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			p.b.Fatal(err)
		}
		return cmd, in, bufio.NewReader(out)
	}
	there, thereIn, thereOut := start(p.inFar(), far)
	defer func() { there.Process.Kill(); there.Wait() }()
	hello, err := thereOut.ReadString('\n')
	if err != nil {
		p.b.Fatal(err)
	}
	here, hereIn, hereOut := start(nil, near)
	defer func() { here.Process.Kill(); here.Wait() }()
	if !strings.HasPrefix(near.Play, "udp-") {
		own, err := hereOut.ReadString('\n')
		if err != nil {
			p.b.Fatal(err)
		}
		io.WriteString(thereIn, own)
		io.WriteString(hereIn, hello)
	}
	line, err := hereOut.ReadString('\n')
	if err != nil {
		p.b.Fatal(err)
	}
	number, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	if err != nil {
		p.b.Fatal(err)
	}
	return number
}

// compare measures in turn, five times each, and prints medians and ranges, and
// the ratio of the first to each.
func (p *pair) compare(unit string, names []string, measure []func() float64) {
	results := make([][]float64, len(measure))
	for range 5 {
		for i, f := range measure {
			results[i] = append(results[i], f())
		}
	}
	for i, r := range results {
		slices.Sort(r)
		fmt.Printf("%-28s %10.2f %s (%.2f to %.2f), first is %.2f times\n", names[i], r[2], unit, r[0], r[4],
			results[0][2]/r[2])
	}
}

// BenchmarkRoundTripBesidePeers is a ping-pong of 64 bytes, in microseconds.
func BenchmarkRoundTripBesidePeers(b *testing.B) {
	p := inPair(b)
	if p == nil {
		return
	}
	p.compare("us", []string{"rd WRITE_IMM", "Go UDP sockets"}, []func() float64{
		func() float64 { return p.ours(part{Play: "ping", Size: 64}, part{Play: "pong", Size: 64}) / 1e3 },
		func() float64 {
			return p.ours(part{Play: "udp-ping", Size: 64}, part{Play: "udp-pong", Size: 64}) / 1e3
		},
	})
}
