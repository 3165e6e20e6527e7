package worker

import (
	"fmt"
	"testing"

	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
	"railbed/workloads/flows"
	"railbed/workloads/training"
)

// wantSent runs a job and compares the traffic that each rank sent, in all and by group, with its
// planned traffic.
func wantSent(t *testing.T, name string, j Job) {
	t.Helper()
	wanted, err := j.Wanted()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	result, err := Run(t.Context(), j, goroutines{}, nil)
	if err != nil || result.Wrong() != 0 {
		t.Fatalf("%s: %v, %+v", name, err, result)
	}
	for rank, r := range result.PerRank {
		var sent uint64
		ends := max(len(r.Channels), 1)
		for i := range ends {
			of := wanted.Sent(rank*ends + i).Bytes
			if sent += of; len(r.Channels) > 0 && j.Transport == RD && r.Channels[i].Stream.Sent != of {
				t.Errorf("%s: channel %d of rank %d sent %d bytes, want %d", name, i, rank,
					r.Channels[i].Stream.Sent, of)
			}
		}
		if r.Payload.Sent != sent {
			t.Errorf("%s: rank %d sent %d bytes, want %d", name, rank, r.Payload.Sent, sent)
		}
		own, trains := result.Own.(*Iterations)
		if !trains {
			continue
		}
		for group, bytes := range own.Groups[rank] {
			if want := wanted.Groups[rank][group]; bytes != want {
				t.Errorf("%s: rank %d sent %d bytes in group %s, want %d", name, rank, bytes, group, want)
			}
		}
	}
}

// TestWanted: each rank sends what is counted before, in jobs of every kind, of sizes that ranks cannot
// share evenly and less than an element for each among them.
func TestWanted(t *testing.T) {
	count := 0
	sizes := []int{2, 5, 8}
	if raced {
		sizes = []int{5}
	}
	for _, kind := range kindsBut(spec.Barrier) {
		for _, algorithm := range spec.Algorithms(kind) {
			if algorithm == schedule.MSCCL || algorithm == schedule.Hierarchical ||
				algorithm == schedule.InNetwork {
				continue // files, and testbeds, of their own
			}
			for _, ranks := range sizes {
				if count++; !hosttest.Sampled(t, count) {
					continue
				}
				if algorithm == schedule.HyperCube {
					ranks = 8
				}
				j := job(ranks, 0)
				j.Kind, j.Algorithm, j.Transport, j.Root = kind, algorithm, []string{TCP, RD}[count%2],
					ranks/2
				j.Type = element.Types()[count%len(element.Types())]
				each := units.Bytes(j.Type.Size())
				j = sweepOf(j, 1, each, 3*each, 24, 1009*each, 40_003*each)
				wantSent(t, fmt.Sprintf("%s by %s of %d", kind, algorithm, ranks), j)
				if spec.HasChannels(kind, algorithm) && 3*ranks <= rdSlots {
					j = inChannels(j, 3)
					wantSent(t, fmt.Sprintf("%s by %s of %d in channels", kind, algorithm, ranks), j)
				}
			}
		}
	}
	skewed := job(5, 4*1013)
	skewed.Kind, skewed.Algorithm, skewed.Skew = spec.AllToAll, schedule.Pairwise, 2
	wantSent(t, "a skew", skewed)
	wantSent(t, "a mixture", mixtureJob(4, TCP))
	wantSent(t, "a mixture in channels", inChannels(mixtureJob(3, RD), 2))
	blocks := flows.Blocks{Ranks: 3, Servers: 1, Count: 20, Block: 4097, Outstanding: 4, Reads: 0.5,
		Seed: 1}.Schedule()
	wantSent(t, "blocks", messagesJob(3, TCP, blocks))
}

// TestWantedOfTrainings checks Wanted for exchanges whose bytes ranks cannot share evenly, with and
// without sums of gradients that may lack parts.
func TestWantedOfTrainings(t *testing.T) {
	program := func() *training.Program {
		p := &training.Program{Tasks: make([][]training.Task, 5)}
		for i, kind := range []schedule.Kind{schedule.AllReduce, schedule.AllGather, schedule.ReduceScatter,
			schedule.Broadcast, schedule.AllToAll, schedule.Barrier} {
			for k, bytes := range []uint64{4, 8196, 300_004} {
				if kind == schedule.Barrier {
					bytes = 0
				}
				p.Operations = append(p.Operations, training.Operation{
					Group:   []string{training.DataParallel, "tp"}[i%2],
					Channel: 3*i + k,
					Kind:    kind,
					Ranks:   []int{4, 0, 2},
					Bytes:   bytes,
				})
			}
		}
		for _, rank := range []int{4, 0, 2} {
			for i := range p.Operations {
				p.Tasks[rank] = append(p.Tasks[rank],
					training.Task{Name: "exchange", Kind: training.Exchange, Operation: i})
			}
		}
		return p
	}
	j := job(5, 0)
	j.Algorithm, j.Work = "", Training{program()}
	wantSent(t, "a training", j)
	j.Transport, j.RD = RD, &spec.RD{Droppable: units.Ratio{Num: 1, Den: 100}}
	wantSent(t, "a training that may lose", j)
}

// BenchmarkWanted counts the traffic of all-to-alls. The time for a pair of ranks does not grow with their
// number.
func BenchmarkWanted(b *testing.B) {
	for _, ranks := range []int{16, 128, 512, 1024} {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			j := job(1, 0)
			for len(j.Ranks) < ranks {
				next := j.Ranks[0]
				next.Rank, next.Node = len(j.Ranks), fmt.Sprintf("h%d", len(j.Ranks))
				j.Ranks = append(j.Ranks, next)
			}
			j.Kind, j.Algorithm, j.Size = spec.AllToAll, schedule.Direct, units.Bytes(4*1009*ranks)
			for b.Loop() {
				if _, err := j.Wanted(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ranks*ranks), "ns/pair")
		})
	}
}
