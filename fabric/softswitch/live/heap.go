package live

import "runtime/metrics"

// Heap is the memory that the soft switches' process has of Go's.
type Heap struct {
	// Objects counts all that were ever allocated, Bytes is what they take now,
	// those included that nobody needs any more. Objects are counted when a span
	// of them is used up, or at the next collection.
	Objects uint64 `json:"allocated_objects"`
	Bytes   uint64 `json:"bytes"`
}

// readHeap reads the counts without stopping the timing thread.
func readHeap() Heap {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"},
		{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(samples)
	return Heap{Objects: samples[0].Value.Uint64(), Bytes: samples[1].Value.Uint64()}
}
