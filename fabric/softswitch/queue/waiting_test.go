package queue

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
)

// serve drives a NIC's queue by a server that takes service for each packet.
// Packet n comes at arrivals[n]; the result is how long each waited before its
// service.
func serve(t *testing.T, arrivals []clock.Time, service time.Duration) []time.Duration {
	t.Helper()
	p := NewNIC(1 << 40)
	waits := make([]time.Duration, 0, len(arrivals))
	spare := []*packet.Packet{}
	free := clock.Time(0)
	for next := 0; next < len(arrivals) || p.Packets() > 0; {
		if p.Packets() == 0 || next < len(arrivals) && arrivals[next] <= free {
			free = max(free, arrivals[next])
			if len(spare) == 0 {
				spare = append(spare, &packet.Packet{Data: make([]byte, 64)})
			}
			p.Enqueue(arrivals[next], spare[len(spare)-1])
			spare = spare[:len(spare)-1]
			next++
			continue
		}
		one := p.Dequeue(free)
		if one == nil {
			t.Fatal("a packet waits and none is sent")
		}
		spare = append(spare, one)
		waits = append(waits, p.Last().Waited)
		free = free.Add(service)
	}
	return waits
}

// Poisson arrivals and constant service, M/D/1: the mean time in the queue is W = rho * S / (2 * (1
// - rho)). This is Pollaczek and Khinchine's formula for a service without variance (Kleinrock,
// Queueing Systems I, 1975, equation 5.71).
func TestWaitingTimeOfMD1(t *testing.T) {
	const service = 10 * time.Microsecond
	for _, rho := range []float64{0.3, 0.5, 0.8, 0.9} {
		const batches = 50
		each := 8_000
		if rho > 0.8 {
			each = 20_000 // long queues are long remembered
		}
		random := rand.New(rand.NewPCG(1, uint64(rho*100)))
		arrivals := make([]clock.Time, batches*each)
		at := 0.0
		for i := range arrivals {
			at += random.ExpFloat64() * float64(service) / rho
			arrivals[i] = clock.Time(at)
		}
		waits := serve(t, arrivals, service)
		want := rho * float64(service) / (2 * (1 - rho))
		mean, half := batchMeans(waits, batches)
		if half > want/15 {
			t.Errorf("rho %.1f: the mean is only known to +-%.0f of %.0f ns", rho, half, want)
		}
		if math.Abs(mean-want) > half {
			t.Errorf("rho %.1f: packets waited %.0f +- %.0f ns, want %.0f", rho, mean, half, want)
		}
	}
}

// batchMeans is the mean and half of its 99.9 % confidence interval by the method
// of batch means (Law, Simulation Modeling and Analysis, section 9.5.3).
func batchMeans(waits []time.Duration, batches int) (mean, half float64) {
	means := make([]float64, batches)
	each := len(waits) / batches
	for i, w := range waits {
		means[min(i/each, batches-1)] += float64(w) / float64(each)
	}
	for _, m := range means {
		mean += m / float64(batches)
	}
	variance := 0.0
	for _, m := range means {
		variance += (m - mean) * (m - mean) / float64(batches-1)
	}
	const student = 3.50 // t of 49 degrees of freedom, two-sided 0.001
	return mean, student * math.Sqrt(variance/float64(batches))
}

// Constant arrivals every T and constant service S, D/D/1 (Kleinrock, section 1.2). No packet waits
// while T >= S; otherwise packet n waits n*(S-T). Of k simultaneous packets, packet i waits i*S.
// All to the nanosecond.
func TestWaitingTimeOfDD1(t *testing.T) {
	const service = 1230 * time.Nanosecond
	for _, every := range []time.Duration{2 * service, service, service - 7, service / 2} {
		arrivals := make([]clock.Time, 1000)
		for i := range arrivals {
			arrivals[i] = clock.Time(i) * clock.Time(every)
		}
		for i, got := range serve(t, arrivals, service) {
			if want := time.Duration(i) * max(service-every, 0); got != want {
				t.Fatalf("every %v: packet %d waited %v, want %v", every, i, got, want)
			}
		}
	}
	for i, got := range serve(t, make([]clock.Time, 100), service) {
		if want := time.Duration(i) * service; got != want {
			t.Fatalf("packet %d of a burst waited %v, want %v", i, got, want)
		}
	}
}
