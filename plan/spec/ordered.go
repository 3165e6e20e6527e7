package spec

// Ordered is a mapping that keeps the order of the file, because later entries override earlier
// entries.
type Ordered[T any] []Entry[T]

// Entry is a key of an Ordered with its value.
type Entry[T any] struct {
	Key   string `json:"key"`
	Value T      `json:"value"`
}
