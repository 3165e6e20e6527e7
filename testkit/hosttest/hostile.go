package hosttest

import (
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"
)

// Bounds of RefusesHostile. They are far above the measured values and far below those of anything
// quadratic.
const (
	mostHostileTime   = 30 * time.Second
	mostHostileMemory = 1 << 30
	mostHostileError  = 200_000
)

// RefusesHostile reads texts of at most size bytes, each built to cost as much as possible in one place. Each
// must be refused in bounded time, memory and words. Of the texts it tries those that Sampled selects.
func RefusesHostile(t *testing.T, texts map[string]string, size int, read func(text string) error) {
	t.Helper()
	for i, name := range slices.Sorted(maps.Keys(texts)) {
		text := texts[name]
		if !Sampled(t, i) {
			continue
		}
		if len(text) > size {
			t.Fatalf("%s: %d bytes", name, len(text))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		err := read(text)
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		used := after.TotalAlloc - before.TotalAlloc
		t.Logf("%-20s %8v %5d MiB", name, took.Round(time.Millisecond), used>>20)
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if len(err.Error()) > mostHostileError {
			t.Errorf("%s: a message of %d bytes", name, len(err.Error()))
		}
		if took > mostHostileTime || used > mostHostileMemory {
			t.Errorf("%s: %v and %d bytes", name, took, used)
		}
	}
}
