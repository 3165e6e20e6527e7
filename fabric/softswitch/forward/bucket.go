package forward

import (
	"time"

	"railbed/internal/clock"
)

// bucket is a token bucket, kept as the time at which it would be full: the
// generic cell rate algorithm of ITU-T I.371.
type bucket struct {
	token time.Duration // the time of one token
	depth time.Duration // the time of a full bucket
	full  clock.Time
}

// newBucket returns a full bucket that holds some tokens and gets some in a
// second.
func newBucket(perSecond, depth int) bucket {
	token := time.Second / time.Duration(perSecond)
	return bucket{token: token, depth: token * time.Duration(depth)}
}

// take takes some tokens, or none where there are not so many.
func (b *bucket) take(now clock.Time, tokens int) bool {
	full := max(b.full, now).Add(b.token * time.Duration(tokens))
	if full.Sub(now) > b.depth {
		return false
	}
	b.full = full
	return true
}
