package medium

// bounded is a hash table that evicts the least recently used entry when it is full. It grows as it
// is filled, up to its limit, and allocates only then.
type bounded[K comparable, V any] struct {
	limit   int
	slots   []slot[K, V]
	buckets []int32 // index of the first slot of each chain plus 1, or 0
	// newest and oldest are the ends of the list of slots by their last use; they are valid if
	// there is a slot.
	newest, oldest int32
}

type slot[K comparable, V any] struct {
	key          K
	value        V
	hash         uint64
	chain        int32 // index of the next slot in the bucket plus 1, or 0
	newer, older int32
}

// minSlots is the table's initial size.
const minSlots = 16

// find returns the value of a key, and makes it the newest. The pointer is valid until the next
// add.
func (b *bounded[K, V]) find(hash uint64, key K) (*V, bool) {
	if len(b.buckets) == 0 {
		return nil, false
	}
	for at := b.buckets[b.bucket(hash)]; at != 0; at = b.slots[at-1].chain {
		if one := &b.slots[at-1]; one.hash == hash && one.key == key {
			b.touch(at - 1)
			return &one.value, true
		}
	}
	return nil, false
}

// add adds a key that was not found, with the zero value, as the newest, and returns the value.
func (b *bounded[K, V]) add(hash uint64, key K) *V {
	if len(b.slots) == b.limit {
		at := b.oldest
		b.unchain(at)
		b.touch(at)
		b.chain(at, hash, key)
		return &b.slots[at].value
	}
	if len(b.slots) == len(b.buckets) {
		b.grow()
	}
	at := int32(len(b.slots))
	b.slots = append(b.slots, slot[K, V]{})
	if at == 0 {
		b.oldest = at
	} else {
		b.slots[b.newest].newer, b.slots[at].older = at, b.newest
	}
	b.newest = at
	b.chain(at, hash, key)
	return &b.slots[at].value
}

func (b *bounded[K, V]) bucket(hash uint64) uint64 { return hash & uint64(len(b.buckets)-1) }

// grow doubles the table. Its size is a power of two, but its limit need not be.
func (b *bounded[K, V]) grow() {
	size := max(minSlots, 2*len(b.buckets))
	slots := make([]slot[K, V], len(b.slots), min(size, b.limit))
	copy(slots, b.slots)
	b.slots, b.buckets = slots, make([]int32, size)
	for i := range b.slots {
		bucket := b.bucket(b.slots[i].hash)
		b.slots[i].chain, b.buckets[bucket] = b.buckets[bucket], int32(i)+1
	}
}

// chain assigns a slot to a key.
func (b *bounded[K, V]) chain(at int32, hash uint64, key K) {
	one, bucket := &b.slots[at], b.bucket(hash)
	var zero V
	one.key, one.value, one.hash = key, zero, hash
	one.chain, b.buckets[bucket] = b.buckets[bucket], at+1
}

// unchain removes a slot from its bucket.
func (b *bounded[K, V]) unchain(at int32) {
	from := &b.buckets[b.bucket(b.slots[at].hash)]
	for *from != at+1 {
		from = &b.slots[*from-1].chain
	}
	*from = b.slots[at].chain
}

// touch makes a slot the newest.
func (b *bounded[K, V]) touch(at int32) {
	if at == b.newest {
		return
	}
	one := &b.slots[at]
	b.slots[one.newer].older = one.older
	if at == b.oldest {
		b.oldest = one.newer
	} else {
		b.slots[one.older].newer = one.newer
	}
	b.slots[b.newest].newer, one.older = at, b.newest
	b.newest = at
}
