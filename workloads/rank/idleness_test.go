package rank

import (
	"testing"
	"time"
)

// TestWaitsAreKeptWithinBounds: few waits stay as they are. Of many, close ones become one, and none is lost.
func TestWaitsAreKeptWithinBounds(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(us int) time.Time { return began.Add(time.Duration(us) * time.Microsecond) }
	var l waitLog
	l.begin(began)
	l.add(at(10), at(20))
	l.add(at(20), at(25)) // a poll between two waits
	l.add(at(100), at(300))
	if got := l.end(); len(got) != 2 || got[0] != (Wait{10 * time.Microsecond, 25 * time.Microsecond}) ||
		got[1] != (Wait{100 * time.Microsecond, 300 * time.Microsecond}) {
		t.Errorf("waits are %v", got)
	}
	l.begin(began)
	for i := range 1000 {
		// Every hundredth gap is long.
		begin := i*10 + i/100*5000
		l.add(at(begin), at(begin+5))
	}
	got := l.end()
	if len(got) < 10 || len(got) > waitsKept || got[0].From != 0 ||
		got[len(got)-1].To != at(999*10+9*5000+5).Sub(began) {
		t.Errorf("%d waits from %v to %v, want 10 to %d that cover all", len(got), got[0].From,
			got[len(got)-1].To,
			waitsKept)
	}
	for i := 1; i < len(got); i++ {
		if got[i].From-got[i-1].To < 4*time.Millisecond {
			t.Errorf("waits %v and %v are apart although they are close", got[i-1], got[i])
		}
	}
}
