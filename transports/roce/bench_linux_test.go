package roce

import (
	"fmt"
	"net/netip"
	"testing"

	"railbed/testkit/hosttest"
	"railbed/testkit/transportstest"
	"railbed/transports"
)

// BenchmarkGoodput is one pair on the loopback device, by message size and path MTU,
// go-back-N and selective; with the CPU time of a packet at both ends.
func BenchmarkGoodput(b *testing.B) {
	for _, c := range []Config{{MTU: 1500}, {MTU: 4200}, {MTU: 4200, Selective: true}} {
		for _, size := range []int{64, 4096, 1 << 20} {
			b.Run(fmt.Sprintf("mtu=%d/selective=%v/bytes=%d", c.MTU, c.Selective, size), func(b *testing.B) {
				goodput(b, c, size)
			})
		}
	}
}

func goodput(b *testing.B, c Config, size int) {
	hosttest.Need(b, hosttest.Root)
	c.Addr = netip.MustParseAddr("127.0.0.1")
	open := func() *Endpoint {
		e, err := Open(c)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { e.Close() })
		return e
	}
	from, to := open(), open()
	peer, err := from.AddPeer(to.Address())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := to.AddPeer(from.Address()); err != nil {
		b.Fatal(err)
	}
	region, err := to.Register(make([]byte, size), transports.RemoteWrite)
	if err != nil {
		b.Fatal(err)
	}
	request := transports.Request{Op: transports.OpWrite, Peer: peer, Local: make([]byte, size),
		Remote: region.Remote()}
	b.SetBytes(int64(size))
	cpu := transportstest.Flood(b, from, request)
	counters := from.Counters()
	packets := float64(counters.Sent)
	b.ReportMetric(float64(cpu.Nanoseconds())/packets, "cpu-ns/packet")
	b.ReportMetric(float64(counters.Resent)/packets*100, "%resent")
}
