package spec

// Ordered is a mapping whose order in the file is kept, because later entries
// win over earlier ones.
type Ordered[T any] []Entry[T]

// Entry is one key of an Ordered with its value.
type Entry[T any] struct {
	Key   string `json:"key"`
	Value T      `json:"value"`
}
