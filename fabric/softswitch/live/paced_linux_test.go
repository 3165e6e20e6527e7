package live_test

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/transports"
	"railbed/transports/rd"
	"railbed/transports/roce"
	"railbed/transports/roce/dcqcn"
)

// pacedRate is the rate of transports on links of twice that rate.
const pacedRate = 500_000_000

func openPacedRd(at netip.Addr) (transports.Endpoint, error) {
	return rd.Open(rd.Config{Addr: at, Device: "eth0", Bypass: true, Slot: -1, MTU: 4200, Rate: pacedRate})
}

func openPacedRoCE(at netip.Addr) (transports.Endpoint, error) {
	params := dcqcn.Scaled(pacedRate)
	return roce.Open(roce.Config{Addr: at, Bypass: true, MTU: 4200, Congestion: &params})
}

// paced is a pair of endpoints past the kernel. One sends messages of 1 MiB to the other, at a rate.
type paced struct {
	near, far transports.Endpoint
	request   []transports.Request
}

const pacedPackets = 1 << 20 / 4096 // of a message

// openPaced opens the endpoints, and sends the first message.
func openPaced(t testing.TB, open func(at netip.Addr) (transports.Endpoint, error)) paced {
	_, p, spaces := twoHosts(t, "{rate: 1gbit, mtu: 4200}")
	s := paced{near: openOn(t, p, spaces, "h0", open), far: openOn(t, p, spaces, "h1", open)}
	s.request = writer(t, s.near, s.far, 1<<20)
	if _, err := s.far.AddPeer(s.near.Address()); err != nil {
		t.Fatal(err)
	}
	s.send(t)
	return s
}

func (s *paced) send(t testing.TB) {
	var done [8]transports.Completion
	s.near.Poll(done[:])
	if _, err := s.near.Post(t.Context(), s.request); err != nil {
		t.Fatal(err)
	}
	if !receive(t, s.far) {
		t.Fatal("the endpoint ended")
	}
}

// usage returns the processor time of this process, and how often its threads slept.
func usage(t testing.TB) (used time.Duration, slept int64) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), u.Nvcsw
}

// BenchmarkPathsPaced sends at a rate that the transport keeps to. cpu-us and sleeps are the processor time
// of both endpoints, and how often their threads slept.
func BenchmarkPathsPaced(b *testing.B) {
	for name, open := range map[string]func(at netip.Addr) (transports.Endpoint, error){
		"rd": openPacedRd, "roce": openPacedRoCE,
	} {
		b.Run(name, func(b *testing.B) {
			s := openPaced(b, open)
			used, slept := usage(b)
			b.SetBytes(1 << 20)
			for b.Loop() {
				s.send(b)
			}
			usedThen, sleptThen := usage(b)
			packets := float64(b.N * pacedPackets)
			b.ReportMetric(float64(usedThen-used)/1e3/packets, "cpu-us/packet")
			b.ReportMetric(float64(sleptThen-slept)/packets, "sleeps/packet")
		})
	}
}

// The NIC keeps the times of departure, so endpoints wake for several packets at once, at both ends. roce
// also sleeps for its acknowledgements and timers, whose number depends on the host: BenchmarkPathsPaced
// shows it.
func TestPacedEndpointsWakeForBatches(t *testing.T) {
	s := openPaced(t, openPacedRd)
	_, before := usage(t)
	const messages = 30
	for range messages {
		s.send(t)
	}
	_, after := usage(t)
	// Go's runtime sleeps, too.
	if slept := after - before; slept > messages*pacedPackets*3/2 {
		t.Errorf("threads slept %d times for %d packets", slept, messages*pacedPackets)
	}
}
