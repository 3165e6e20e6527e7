package worker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
	"railbed/workloads/rank"
)

// inChannels gives each rank of a job so many channels at its own place.
func inChannels(j Job, channels int) Job {
	j.BasePort = int(basePort.Add(int32(Ports(channels*len(j.Ranks))))) - Ports(channels*len(j.Ranks))
	for _, r := range j.Ranks {
		for range channels {
			r.Rank = len(j.Channels)
			j.Channels = append(j.Channels, r)
		}
	}
	return j
}

// TestChannels checks operations of every kind and algorithm in channels. Results must be right out
// of place and in place, each channel must send its part, and damaged elements must be counted.
func TestChannels(t *testing.T) {
	count := 0
	for _, kind := range kindsBut(spec.Barrier) {
		for _, algorithm := range spec.WithChannels(kind) {
			for _, size := range []units.Bytes{108_000, 107_952, 8 << 20, 8} {
				// the second one with rests in channels
				i := count
				if count++; size > 1<<20 && i%6 != 0 || !hosttest.Sampled(t, i) {
					continue
				}
				ranks, channels := 3, 3
				if algorithm == schedule.HyperCube {
					ranks = 4
				}
				j := inChannels(job(ranks, size), channels)
				j.Kind, j.Algorithm, j.Transport, j.InPlace, j.Root = kind, algorithm, []string{TCP, RD}[i%2],
					kind != spec.AllToAll, 1
				j.Type, j.Op = element.Types()[i%12], element.Ops()[(i/2)%5]
				result, err := Run(t.Context(), j, goroutines{}, nil)
				if err != nil || result.Wrong() != 0 {
					t.Errorf("%s by %s of %v: %v, %+v", kind, algorithm, size, err, result)
					continue
				}
				if size == 108_000 {
					checkChannels(t, &j, result)
				}
			}
		}
	}
	j := inChannels(mixtureJob(3, RD), 2)
	result, err := Run(t.Context(), j, goroutines{}, nil)
	if err != nil || result.Wrong() != 0 {
		t.Errorf("mixture: %v, %+v", err, result)
	} else {
		checkChannels(t, &j, result)
	}
	testWrongChannels(t)
}

// checkChannels holds that each channel of each rank sent its part, which is as much as that
// of the others.
func checkChannels(t *testing.T, j *Job, result *Result) {
	t.Helper()
	operations, ranks := uint64(len(result.Operations)), len(j.Ranks)
	for rank, r := range result.PerRank {
		of := schedule.Share{Num: ranks - 1, Den: ranks}
		if j.Kind != spec.AllToAll {
			of = schedule.Sent(schedule.Kind(j.Kind),
				plan.AlgorithmFor(j.Kind, j.Algorithm, j.Ranks, j.channels(), j.Size), ranks, rank, j.Root)
		}
		want := operations * of.Of(uint64(j.Size))
		if mixture, is := j.Work.(MoE); is {
			want = 0
			load := mixture.Config.Load()
			for to := range ranks {
				if out, back := mixture.Config.Bytes(&load, rank, to); to != rank {
					want += operations * uint64(out+back)
				}
			}
		}
		if len(r.Channels) != j.channels() || r.Payload.Sent != want {
			t.Errorf("%s by %s: rank %d sent %d bytes in %d channels, want %d", j.Kind, j.Algorithm, rank,
				r.Payload.Sent, len(r.Channels), want)
		}
		ports := map[string]bool{}
		for _, c := range r.Channels {
			ports[fmt.Sprint(c.Addr, c.Port)] = true
			if j.Transport == RD && c.Stream.Sent != want/uint64(j.channels()) {
				t.Errorf("%s by %s: a channel of rank %d sent %d bytes, want %d", j.Kind, j.Algorithm, rank,
					c.Stream.Sent, want/uint64(j.channels()))
			}
		}
		if len(ports) != j.channels() {
			t.Errorf("%s by %s: channels of rank %d hear on %v", j.Kind, j.Algorithm, rank, ports)
		}
	}
}

// testWrongChannels holds that what is damaged is counted, and that what cannot be does not run.
func testWrongChannels(t *testing.T) {
	t.Helper()
	l := after(func(rank int, id rank.OperationID, result []byte) {
		if rank == 1 && id.Index == 0 { // two channels' parts in each other's places
			for i := range 1600 {
				result[i], result[2400+i] = result[2400+i], result[i]
			}
		}
	})
	result, err := Run(t.Context(), inChannels(job(2, 4800), 2), l, nil)
	if err != nil || result.Wrong() < 700 || result.PerRank[1].Wrong != result.Wrong() {
		t.Errorf("%v, %+v", err, result)
	}
	for name, change := range map[string]func(*Job){
		"kind":      func(j *Job) { j.Kind, j.Size = spec.Barrier, 0 },
		"algorithm": func(j *Job) { j.Algorithm = schedule.Hierarchical },
		"places":    func(j *Job) { j.Channels = j.Channels[1:] },
		"arbiter":   func(j *Job) { j.Transport, j.RD = RD, &spec.RD{Control: spec.ControlArbiter} },
	} {
		j := inChannels(job(2, 4800), 2)
		change(&j)
		if _, err := Run(t.Context(), j, goroutines{}, nil); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
}

// TestPlacesOfChannels holds that channels of a rank are on its node's NICs in turn.
func TestPlacesOfChannels(t *testing.T) {
	file, err := spec.Decode("a.yaml",
		[]byte("name: a\nfabric: {topology: rail-optimized, params: {servers: 2, rails: 2, spines: 1}}\n"+
			"nodes: {default: {ranks: 2}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, c := range Channels(p, p.Ranks, 3) {
		got = append(got, c.Node+":"+c.NIC)
		if own := p.Ranks[i/3]; c.Rank != i || i%3 == 0 && (c.Addr4 != own.Addr4 || c.Addr6 != own.Addr6) ||
			i%3 == 1 && c.Addr4 == own.Addr4 {
			t.Errorf("place %d: %+v of %+v", i, c, own)
		}
	}
	const want = "[h0:eth0 h0:eth1 h0:eth0 h0:eth1 h0:eth0 h0:eth1 h1:eth0 h1:eth1 h1:eth0 h1:eth1 h1:eth0 " +
		"h1:eth1]"
	if fmt.Sprint(got) != want {
		t.Errorf("channels are at %v, want %s", got, want)
	}
}

// TestWhoDiesIsNamed holds that a rank that dies is named where ranks have several endpoints,
// or several users of one.
func TestWhoDiesIsNamed(t *testing.T) {
	for name, j := range map[string]Job{"channels": inChannels(job(3, 1<<20), 2),
		"mixture": mixtureJob(3, RD)} {
		l := processes{started: func(node string, p *realProcess) {
			if node == "h2" {
				time.AfterFunc(500*time.Millisecond, func() { _ = p.Kill() })
			}
		}}
		j.Iterations = 100_000
		began := time.Now()
		_, err := Run(t.Context(), j, l, nil)
		if err == nil || !strings.Contains(err.Error(), "rank 2 on h2: ") ||
			time.Since(began) > 15*time.Second {
			t.Errorf("%s: %v after %v, want rank 2 on h2", name, err, time.Since(began))
		}
	}
}
