package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed/supervisor"
	"railbed/testkit/plantest"
)

// recorder notes what a linkBook asks of the testbed.
type recorder struct {
	asked []string
	fails map[string]error
}

func (r *recorder) change(ctx context.Context, request supervisor.LinkRequest) error {
	text := request.Where + " " + request.State
	if request.Back != nil { // both directions at once
		there, back := request, request
		there.Where, there.Back = request.Where+" a-to-b", nil
		back.Where, back.Set, back.Back = request.Where+" b-to-a", request.Back, nil
		return errors.Join(r.change(ctx, there), r.change(ctx, back))
	}
	if request.Set != nil {
		text = fmt.Sprintf("%s rate %v delay %v", request.Where, request.Set.Rate, request.Set.Delay)
	}
	r.asked = append(r.asked, text)
	return r.fails[request.Where]
}

func twoLinks() *plan.Plan {
	d := plan.Direction{Rate: 1e9, Queue: 256 << 10}
	return &plan.Plan{Links: []plan.Link{{Name: "a--s", AToB: d, BToA: d}, {Name: "b--s", AToB: d, BToA: d}}}
}

func TestOverlappingChangesAreUndoneInAnyOrder(t *testing.T) {
	r := &recorder{}
	book := newLinkBook(twoLinks(), r.change)
	apply := func(where string, set spec.Direction) func(context.Context) error {
		t.Helper()
		undo, err := book.apply(t.Context(), &spec.LinkChange{Where: where, Set: &set})
		if err != nil {
			t.Fatal(err)
		}
		return undo
	}
	undoRate := apply("a--s a-to-b", spec.Direction{Rate: 1e6})
	undoDelay := apply("a--s", spec.Direction{Delay: units.Duration(5e6)})
	for _, undo := range []func(context.Context) error{undoRate, undoDelay} {
		if err := undo(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"a--s a-to-b rate 1mbit delay 0s",
		"a--s a-to-b rate 1mbit delay 5ms", "a--s b-to-a rate 1gbit delay 5ms",
		"a--s a-to-b rate 1gbit delay 5ms", // the rate is back, the delay stands
		"a--s a-to-b rate 1gbit delay 0s", "a--s b-to-a rate 1gbit delay 0s",
	}
	if diff := cmp.Diff(want, r.asked); diff != "" {
		t.Error(diff)
	}
}

func TestGlobChangesEveryLinkAndStateStaysDownWhileOneWantsIt(t *testing.T) {
	r := &recorder{}
	book := newLinkBook(twoLinks(), r.change)
	undoAll, err := book.apply(t.Context(), &spec.LinkChange{Where: "*--s", State: "down"})
	if err != nil {
		t.Fatal(err)
	}
	undoOne, err := book.apply(t.Context(), &spec.LinkChange{Where: "b--s", State: "down"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(undoAll(t.Context()), undoOne(t.Context())); err != nil {
		t.Fatal(err)
	}
	want := []string{"a--s down", "b--s down", "b--s down", "a--s up", "b--s down", "b--s up"}
	if diff := cmp.Diff(want, r.asked); diff != "" {
		t.Error(diff)
	}
}

// One direction goes down and comes up by itself, and stays as it is when the whole
// link comes up again.
func TestOneDirectionGoesDown(t *testing.T) {
	for name, c := range map[string]struct {
		// steps are changes by name, and "undo" of an earlier one by its place.
		steps []spec.LinkChange
		undo  []int
		want  []string
	}{
		"by itself": {[]spec.LinkChange{{Where: "a--s a-to-b", State: "down"}}, []int{0},
			[]string{"a--s a-to-b down", "a--s a-to-b up"}},
		"up by steps": {[]spec.LinkChange{{Where: "a--s b-to-a", State: "down"},
			{Where: "a--s b-to-a", State: "up"}}, nil, []string{"a--s b-to-a down", "a--s b-to-a up"}},
		"both at once": {[]spec.LinkChange{{Where: "a--s a-to-b", State: "down"},
			{Where: "a--s b-to-a", State: "down"}}, []int{0, 1},
			[]string{"a--s a-to-b down", "a--s b-to-a down", "a--s a-to-b up", "a--s b-to-a up"}},
		"the whole link comes up": {[]spec.LinkChange{{Where: "a--s a-to-b", State: "down"},
			{Where: "a--s", State: "up"}}, []int{0},
			[]string{"a--s a-to-b down", "a--s up", "a--s a-to-b up"}},
		"the whole link was down meanwhile": {[]spec.LinkChange{{Where: "a--s a-to-b", State: "down"},
			{Where: "a--s", State: "down"}}, []int{1, 0},
			[]string{"a--s a-to-b down", "a--s down", "a--s up", "a--s a-to-b down", "a--s a-to-b up"}},
		"and longer than the direction": {[]spec.LinkChange{{Where: "a--s", State: "down"},
			{Where: "a--s a-to-b", State: "down"}}, []int{1, 0},
			[]string{"a--s down", "a--s a-to-b down", "a--s up"}},
		"of many links": {[]spec.LinkChange{{Where: "*--s b-to-a", State: "down"}}, []int{0},
			[]string{"a--s b-to-a down", "b--s b-to-a down", "a--s b-to-a up", "b--s b-to-a up"}},
		"up of a link that is down is for the testbed to refuse": {[]spec.LinkChange{{Where: "a--s",
			State: "down"}, {Where: "a--s a-to-b", State: "up"}}, nil,
			[]string{"a--s down", "a--s a-to-b up"}},
	} {
		r := &recorder{}
		book := newLinkBook(twoLinks(), r.change)
		var undo []func(context.Context) error
		for i := range c.steps {
			one, err := book.apply(t.Context(), &c.steps[i])
			if err != nil {
				t.Fatal(err)
			}
			undo = append(undo, one)
		}
		for _, i := range c.undo {
			if err := undo[i](t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(c.want, r.asked); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestChangeThatFailsIsTakenBack(t *testing.T) {
	refused := errors.New("refused")
	r := &recorder{fails: map[string]error{"b--s b-to-a": refused}}
	book := newLinkBook(twoLinks(), r.change)
	if _, err := book.apply(t.Context(),
		&spec.LinkChange{Where: "b--s", Set: &spec.Direction{Rate: 1e6}}); !errors.Is(err, refused) {
		t.Fatalf("error %v, want the testbed's", err)
	}
	if last := r.asked[len(r.asked)-2]; last != "b--s a-to-b rate 1gbit delay 0s" {
		t.Errorf("asked %q, want a-to-b set back", r.asked)
	}
	if _, err := book.apply(t.Context(), &spec.LinkChange{Where: "c--s", State: "down"}); err == nil {
		t.Error("a link that does not exist was changed")
	}
}

// TestStepsDeriveAsFilesDo: the time of four frames follows the rate that steps set,
// and comes back with it.
func TestStepsDeriveAsFilesDo(t *testing.T) {
	p := plantest.Compile(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, switch: "+
		"{kind: soft}, links: {default: {rate: 100mbit}}}\n")
	var by []string
	book := newLinkBook(p, func(_ context.Context, request supervisor.LinkRequest) error {
		by = append(by, request.Set.ReorderBy.String())
		return nil
	})
	var undo []func(context.Context) error
	for _, set := range []spec.Direction{{Reorder: units.Ratio{Num: 1, Den: 10}}, {Rate: 1e7}} {
		back, err := book.apply(t.Context(), &spec.LinkChange{Where: "h0--leaf1 b-to-a", Set: &set})
		if err != nil {
			t.Fatal(err)
		}
		undo = append(undo, back)
	}
	for _, back := range undo {
		if err := back(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"484.48us", "4.8448ms", "4.8448ms", "484.48us"}, by); diff != "" {
		t.Error(diff)
	}
}

// TestStepsAreCheckedAsFilesAre: what two steps make of a link together is refused
// in the run, with the words about a file.
func TestStepsAreCheckedAsFilesAre(t *testing.T) {
	r := runAll(t, t.Context(), options(t, `
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {delay: 5us}}
steps:
  - link: {where: h0--leaf1, set: {rate: 10mbit, reorder: 10%}}
  - link: {where: h0--leaf1, set: {jitter: 1ms}}
`))
	carried(t, r)
	if want := "link h0--leaf1 set jitter 1ms: jitter is 1ms and delay 5us; want a delay at least as long " +
		"as the jitter"; r.Verdict != verdict.Fail || !strings.Contains(r.Reason, want) {
		t.Errorf("%s %q, want %q", r.Verdict, r.Reason, want)
	}
	if got, want := r.Steps[0].Name, "link h0--leaf1 set rate 10mbit reorder 10%"; got != want {
		t.Errorf("the first step is called %q, want %q", got, want)
	}
}
