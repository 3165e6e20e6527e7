package arbiter

import (
	"math/rand/v2"
	"testing"
)

// TestAllocator checks random demands. In no slot does a host send or receive twice, and no pair is
// left out whose hosts are both free. Each pair's wait is bounded by the number of pairs, and in
// the end each pair has been granted all its bytes.
func TestAllocator(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		hosts, slot := 2+r.IntN(20), 1+r.IntN(10_000)
		a := NewAllocator(hosts, slot)
		wanted, since, total := map[[2]int]int{}, map[[2]int]int{}, 0
		for round := 0; ; round++ {
			if round < 50 {
				for range r.IntN(10) {
					from, to, bytes := r.IntN(hosts), r.IntN(hosts), 1+r.IntN(5*slot)
					a.Want(from, to, bytes)
					if from != to {
						wanted[[2]int{from, to}] += bytes
						total += bytes
					}
				}
			} else if total == 0 {
				break
			}
			if a.Waiting() != total {
				t.Fatalf("seed %d: %d bytes wait, want %d", seed, a.Waiting(), total)
			}
			sends, receiver := map[int]bool{}, map[int]bool{}
			for _, g := range a.Allocate(nil) {
				key := [2]int{g.From, g.To}
				if sends[g.From] || receiver[g.To] || g.Bytes < 1 || g.Bytes > min(slot, wanted[key]) {
					t.Fatalf("seed %d, slot %d: %+v", seed, round, g)
				}
				sends[g.From], receiver[g.To] = true, true
				total -= g.Bytes
				wanted[key] -= g.Bytes
				since[key] = 0
			}
			open := 0
			for key, bytes := range wanted {
				if bytes == 0 {
					since[key] = 0
					continue
				}
				if open++; !sends[key[0]] && !receiver[key[1]] {
					t.Fatalf("seed %d, slot %d: %v has nothing, and both are free", seed, round, key)
				}
				if since[key]++; since[key] > hosts*hosts {
					t.Fatalf("seed %d: %v waits for %d slots", seed, key, since[key])
				}
			}
		}
	}
}

// TestAllocatorIsFair checks that pairs that compete for one host have equal shares at all times.
// An all-to-all of equal shares takes little more than the minimum number of slots.
func TestAllocatorIsFair(t *testing.T) {
	const hosts = 9
	a := NewAllocator(hosts, 1)
	for from := 1; from < hosts; from++ {
		a.Want(from, 0, 100*from) // some want more than others
	}
	got := make([]int, hosts)
	for slot := 1; slot <= 300; slot++ {
		for _, g := range a.Allocate(nil) {
			got[g.From]++
		}
		for from := 1; from < hosts; from++ {
			if fair := slot / (hosts - 1); got[from] < min(fair, 100*from) {
				t.Fatalf("slot %d: %d has %d, want %d", slot, from, got[from], fair)
			}
		}
	}
	all := NewAllocator(16, 1)
	const each = 20
	for from := range 16 {
		for to := range 16 {
			all.Want(from, to, each)
		}
	}
	slots := 0
	for ; all.Waiting() > 0; slots++ {
		all.Allocate(nil)
	}
	if least := 15 * each; slots < least || slots > least*3/2 {
		t.Errorf("%d slots, at least %d are needed", slots, least)
	}
}

// TestAllocatorTakesNoMemory holds that slots cost none.
func TestAllocatorTakesNoMemory(t *testing.T) {
	a := NewAllocator(32, 1)
	grants := make([]Grant, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		for from := range 32 {
			a.Want(from, (from*7+1)%32, 2)
			a.Want(from, (from+5)%32, 2)
		}
		grants = a.Allocate(grants[:0])
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkAllocate is one slot of 32 hosts that all want everything.
func BenchmarkAllocate(b *testing.B) {
	a := NewAllocator(32, 1)
	for from := range 32 {
		for to := range 32 {
			a.Want(from, to, 1<<30)
		}
	}
	grants := make([]Grant, 0, 64)
	for b.Loop() {
		grants = a.Allocate(grants[:0])
	}
}
