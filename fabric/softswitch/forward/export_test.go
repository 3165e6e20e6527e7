package forward

import "testing"

// KnownFrames are the frames of the tests of answers, from a to s of Answering.
func KnownFrames(t testing.TB) (names []string, frames [][]byte) {
	for _, c := range answers {
		names, frames = append(names, c.name), append(frames, octets(t, c.frame))
	}
	pool := newPool(t)
	for _, c := range complaints() {
		one := c.d.packet(pool)
		names, frames = append(names, c.name), append(frames, append([]byte{}, one.Data...))
	}
	return names, frames
}
