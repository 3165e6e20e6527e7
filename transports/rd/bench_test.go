package rd

import (
	"context"
	"fmt"
	"testing"

	"railbed/testkit/privacytest"
	"railbed/testkit/transportstest"
	"railbed/transports"
)

// BenchmarkGoodput is one pair on the loopback device, by message size; with CPU
// time per packet's payload.
func BenchmarkGoodput(b *testing.B) {
	for _, mtu := range []int{1500, 4200, 9000} {
		for _, size := range []int{64, 4096, 256 << 10} {
			b.Run(fmt.Sprintf("mtu=%d/bytes=%d", mtu, size), func(b *testing.B) {
				goodput(b, Config{MTU: mtu}, size)
			})
		}
	}
	for _, c := range []Config{{MTU: 4200}, {MTU: 4200, Secret: privacytest.Secret()},
		{MTU: 4200, Secret: privacytest.Secret(), Readable: true}} {
		b.Run(fmt.Sprintf("mtu=4200/bytes=262144/encrypted=%v/readable=%v", c.Secret != nil, c.Readable),
			func(b *testing.B) {
				goodput(b, c, 256<<10)
			})
	}
	// A packet a path, four in a row, and as many as a call takes.
	for _, grain := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("mtu=4200/bytes=262144/grain=%d", grain), func(b *testing.B) {
			goodput(b, Config{MTU: 4200, Grain: grain}, 256<<10)
		})
	}
	b.Run("rate=100mbit", func(b *testing.B) { goodput(b, Config{MTU: 4200, Rate: 100_000_000}, 256<<10) })
	b.Run("rate=1gbit", func(b *testing.B) { goodput(b, Config{MTU: 4200, Rate: 1_000_000_000}, 256<<10) })
}

// BenchmarkRequests is WRITEs of 64 bytes by how they are posted.
func BenchmarkRequests(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	for _, kind := range []struct {
		name   string
		change func(*transports.Request)
	}{
		{"plain", func(*transports.Request) {}},
		{"inline", func(r *transports.Request) { r.Inline = true }},
		{"pieces=4", func(r *transports.Request) {
			for at := 16; at < 64; at += 16 {
				r.More = append(r.More, r.Local[at:][:16])
			}
			r.Local = r.Local[:16]
		}},
		{"context", func(r *transports.Request) { r.Context = ctx }},
	} {
		b.Run(kind.name, func(b *testing.B) { goodput(b, Config{MTU: 4200}, 64, kind.change) })
	}
}

func goodput(b *testing.B, c Config, size int, change ...func(*transports.Request)) {
	from, to := open(b, c), open(b, c)
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
	for _, f := range change {
		f(&request)
	}
	b.SetBytes(int64(size))
	cpu := transportstest.Flood(b, from, request)
	packets := float64(from.Counters().Sent)
	b.ReportMetric(float64(cpu.Nanoseconds())/packets, "cpu-ns/packet")
	b.ReportMetric(float64(from.Counters().Repeated)/packets*100, "%repeated")
	b.ReportMetric(float64(to.Counters().Acks)/packets, "acks/packet")
}
