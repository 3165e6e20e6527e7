package live_test

import (
	"net"
	"net/netip"
	"testing"

	"railbed/transports"
	"railbed/transports/rd"
	"railbed/transports/roce"
)

// BenchmarkPathsRoundTrip measures round trips of 64 bytes between two nodes over one soft switch. Go's UDP
// sockets and transports on the kernel's path are beside the transports past the kernel.
func BenchmarkPathsRoundTrip(b *testing.B) {
	b.Run("udp", func(b *testing.B) {
		_, p, spaces := twoHosts(b, "{rate: 10gbit, mtu: 9000}")
		var ends [2]net.PacketConn
		for i, node := range []string{"h0", "h1"} {
			if err := spaces[node].Do(func() (err error) {
				ends[i], err = net.ListenPacket("udp", net.JoinHostPort(address(p, node), "9000"))
				return err
			}); err != nil {
				b.Fatal(err)
			}
			defer ends[i].Close()
		}
		go func() {
			buffer := make([]byte, 100)
			for {
				n, from, err := ends[1].ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = ends[1].WriteTo(buffer[:n], from)
			}
		}()
		to, buffer := ends[1].LocalAddr(), make([]byte, 100)
		for b.Loop() {
			if _, err := ends[0].WriteTo(buffer[:64], to); err != nil {
				b.Fatal(err)
			}
			if _, _, err := ends[0].ReadFrom(buffer); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, past := range []bool{false, true} {
		path := map[bool]string{false: "/kernel", true: "/bypass"}[past]
		b.Run("rd"+path, func(b *testing.B) {
			roundTrips(b, func(at netip.Addr) (transports.Endpoint, error) {
				return rd.Open(rd.Config{Addr: at, Device: "eth0", Bypass: past, Slot: -1, MTU: 9000})
			})
		})
		b.Run("roce"+path, func(b *testing.B) {
			roundTrips(b, func(at netip.Addr) (transports.Endpoint, error) {
				return roce.Open(roce.Config{Addr: at, Bypass: past, MTU: 9000})
			})
		})
	}
}

func roundTrips(b *testing.B, open func(at netip.Addr) (transports.Endpoint, error)) {
	_, p, spaces := twoHosts(b, "{rate: 10gbit, mtu: 9000}")
	near, far := openOn(b, p, spaces, "h0", open), openOn(b, p, spaces, "h1", open)
	ping, pong := writer(b, near, far, 64), writer(b, far, near, 64)
	go func() {
		for receive(b, far) {
			if _, err := far.Post(b.Context(), pong); err != nil {
				return
			}
		}
	}()
	for b.Loop() {
		if _, err := near.Post(b.Context(), ping); err != nil {
			b.Fatal(err)
		}
		if !receive(b, near) {
			b.Fatal("the endpoint ended")
		}
	}
}

// writer returns the request for a message of so many bytes from one endpoint to another.
func writer(b testing.TB, from, to transports.Endpoint, size int) []transports.Request {
	b.Helper()
	peer, err := from.AddPeer(to.Address())
	if err != nil {
		b.Fatal(err)
	}
	region, err := to.Register(make([]byte, size), transports.RemoteWrite)
	if err != nil {
		b.Fatal(err)
	}
	return []transports.Request{{Op: transports.OpWriteImm, Peer: peer, Local: make([]byte, size),
		Remote: region.Remote()}}
}

// receive waits for a message. It returns false when the endpoint has ended.
func receive(b testing.TB, at transports.Endpoint) bool {
	var done [8]transports.Completion
	for {
		for _, c := range done[:at.Poll(done[:])] {
			if c.Err != nil {
				return false
			}
			if c.Op == transports.OpReceive {
				return true
			}
		}
		if at.Wait(b.Context()) != nil {
			return false
		}
	}
}
