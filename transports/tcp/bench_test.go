package tcp

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"railbed/transports"
)

// Both benchmarks move messages of one size over the loopback from one
// goroutine's memory into another's. Compare their MB/s: the endpoint should
// reach at least 0.9 of the plain loop from 64 KiB on.
var benchSizes = []int{64, 4 << 10, 64 << 10, 256 << 10, 1 << 20}

func BenchmarkEndpoint(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) { benchmarkEndpoint(b, size) })
	}
}

func benchmarkEndpoint(b *testing.B, size int) {
	from, to := open(b, Config{}), open(b, Config{})
	peer, err := from.AddPeer(to.Address())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := to.AddPeer(from.Address()); err != nil {
		b.Fatal(err)
	}
	const slots = 16
	region, err := to.Register(make([]byte, slots*size), transports.RemoteWrite)
	if err != nil {
		b.Fatal(err)
	}
	local, remote := make([]byte, size), region.Remote()
	b.SetBytes(int64(size))
	received := make(chan error, 1)
	go func() { received <- drain(b, to, b.N) }()
	defer reportCPU(b)()
	b.ResetTimer()
	requests := make([]transports.Request, slots)
	for sent := 0; sent < b.N; {
		batch := requests[:min(slots, b.N-sent)]
		for i := range batch {
			batch[i] = transports.Request{Op: transports.OpWriteImm, Peer: peer, Local: local, Remote: remote,
				Offset: uint64((sent + i) % slots * size)}
		}
		n, err := from.Post(b.Context(), batch)
		if err != nil {
			b.Fatal(err)
		}
		sent += n
		if n < len(batch) {
			if err := from.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		var done [64]transports.Completion
		from.Poll(done[:])
	}
	if err := <-received; err != nil {
		b.Fatal(err)
	}
}

// drain polls at least once, and until count messages were received.
func drain(b *testing.B, e *Endpoint, count int) error {
	var batch [64]transports.Completion
	for got := 0; ; {
		if err := e.Wait(b.Context()); err != nil {
			return err
		}
		for _, c := range batch[:e.Poll(batch[:])] {
			if c.Op == transports.OpReceive {
				got++
			}
		}
		if got >= count {
			return nil
		}
	}
}

// reportCPU adds the processor time per operation, which a busy machine
// disturbs less than the time on the wall.
func reportCPU(b *testing.B) func() {
	before := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op") }
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func BenchmarkPlainConn(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) { benchmarkPlainConn(b, size) })
	}
}

func benchmarkPlainConn(b *testing.B, size int) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	received := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			defer conn.Close()
			buf := make([]byte, size)
			for range b.N {
				if _, err = io.ReadFull(conn, buf); err != nil {
					break
				}
			}
		}
		received <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	local := make([]byte, size)
	b.SetBytes(int64(size))
	defer reportCPU(b)()
	b.ResetTimer()
	for range b.N {
		if _, err := conn.Write(local); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-received; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRoundTrip is a 64 B WRITE_IMM there and back.
func BenchmarkRoundTrip(b *testing.B) {
	ends := []*Endpoint{open(b, Config{}), open(b, Config{})}
	peers := make([]transports.Peer, 2)
	remotes := make([][]byte, 2)
	for i, e := range ends {
		var err error
		if peers[i], err = e.AddPeer(ends[1-i].Address()); err != nil {
			b.Fatal(err)
		}
		region, err := e.Register(make([]byte, 64), transports.RemoteWrite)
		if err != nil {
			b.Fatal(err)
		}
		remotes[1-i] = region.Remote()
	}
	local := make([]byte, 64)
	post := func(i int) error {
		for {
			n, err := ends[i].Post(b.Context(),
				[]transports.Request{{Op: transports.OpWriteImm, Peer: peers[i], Local: local,
					Remote: remotes[i]}})
			if n == 1 || err != nil {
				return err
			}
			if err := drain(b, ends[i], 0); err != nil {
				return err
			}
		}
	}
	echoed := make(chan error, 1)
	go func() {
		for range b.N {
			if err := drain(b, ends[1], 1); err != nil {
				echoed <- err
				return
			}
			if err := post(1); err != nil {
				echoed <- err
				return
			}
		}
		echoed <- nil
	}()
	defer reportCPU(b)()
	b.ResetTimer()
	for range b.N {
		if err := post(0); err != nil {
			b.Fatal(err)
		}
		if err := drain(b, ends[0], 1); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-echoed; err != nil {
		b.Fatal(err)
	}
}
