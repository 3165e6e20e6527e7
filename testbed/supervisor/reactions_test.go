package supervisor

import (
	"slices"
	"testing"
	"time"
)

// What routers do is a reaction to the latest change, and of changes at one moment to
// all of them.
func TestReactions(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	r := &reactions{}
	r.changed("leaf1", 7, at(0)) // of the bring-up
	r.converged(time.Second)
	r.begin("a down", at(100))
	r.begin("b down", at(110))
	r.changed("leaf1", 2, at(150))
	r.changed("leaf2", 1, at(160))
	r.changed("leaf1", 1, at(190))
	r.begin("c down", at(191)) // another one, as routes have changed since
	r.begin("d down", at(300))
	r.changed("leaf2", 4, at(310))
	want := []Reaction{
		{To: []string{"a down", "b down"}, At: at(100), Routes: 4, Routers: 2, First: 50 * time.Millisecond,
			Last: 90 * time.Millisecond},
		{To: []string{"c down"}, At: at(191)},
		{To: []string{"d down"}, At: at(300), Routes: 4, Routers: 1, First: 10 * time.Millisecond,
			Last: 10 * time.Millisecond},
	}
	got := r.now()
	if !slices.EqualFunc(got.Reactions, want, func(a, b Reaction) bool {
		return slices.Equal(a.To, b.To) && a.At.Equal(b.At) && a.Routes == b.Routes &&
			a.Routers == b.Routers && a.First == b.First && a.Last == b.Last
	}) || got.Converged != time.Second {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for i := range 2 * reactionsKept {
		r.begin("e", at(1000*i+1000))
	}
	if all := r.now().Reactions; len(all) > reactionsKept ||
		!all[len(all)-1].At.Equal(at(2000*reactionsKept)) {
		t.Errorf("%d reactions are kept, the last one of %s", len(all), all[len(all)-1].At)
	}
	if (*reactions)(nil).now() != nil {
		t.Error("a testbed without daemons has reactions")
	}
}
