package evidence

// Slots has a value for each tap or for each flow of a capture, by its index. The zero value is ready.
type Slots[V any] []V

// At returns the value of an index, which is zero at first. The pointer is valid until the next call.
func (s *Slots[V]) At(index int) *V {
	for len(*s) <= index {
		*s = append(*s, *new(V))
	}
	return &(*s)[index]
}

// Made returns the value of an index. It makes the values up to this index, each once.
func (s *Slots[V]) Made(index int, make func(index int) V) V {
	for len(*s) <= index {
		*s = append(*s, make(len(*s)))
	}
	return (*s)[index]
}
