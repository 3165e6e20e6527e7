package flows

import (
	"slices"
	"testing"
	"time"
)

// A rank decodes two requests at once. The third waits until one of them is done, whatever the
// other rank does. Waiting requests follow in the order in which their caches arrived.
func TestDecode(t *testing.T) {
	s := &Schedule{Prompts: []Prompt{{To: 2, Output: 10}, {To: 2, Output: 4}, {To: 3, Output: 100},
		{To: 2, Output: 1}, {To: 2, Output: 2}}}
	got := s.Decode(Decode{Slots: 2, TokenTime: 5}, []time.Duration{0, 10, 0, 25, 20})
	want := []Decoded{{0, 50}, {10, 30}, {0, 500}, {40, 45}, {30, 40}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
