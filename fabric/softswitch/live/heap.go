package live

import "runtime/metrics"

// Heap is the heap memory of the soft switches' process.
type Heap struct {
	// Objects counts all objects ever allocated. Bytes is the memory of the current objects,
	// including unreachable objects. Objects are counted when a span of them is full, or at the
	// next garbage collection.
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
