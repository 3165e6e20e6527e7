package forward

import (
	"time"

	"railbed/internal/clock"
)

// bucket is a token bucket, stored as the time at which it would be full: the generic cell rate
// algorithm of ITU-T I.371.
type bucket struct {
	token time.Duration // duration of one token
	depth time.Duration // duration of a full bucket
	full  clock.Time
}

// newBucket returns a full bucket with a depth and a rate in tokens a second.
func newBucket(perSecond, depth int) bucket {
	token := time.Second / time.Duration(perSecond)
	return bucket{token: token, depth: token * time.Duration(depth)}
}

// take takes a number of tokens, or none if there are fewer.
func (b *bucket) take(now clock.Time, tokens int) bool {
	full := max(b.full, now).Add(b.token * time.Duration(tokens))
	if full.Sub(now) > b.depth {
		return false
	}
	b.full = full
	return true
}
