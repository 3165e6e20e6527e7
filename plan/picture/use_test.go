package picture

import (
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"railbed/internal/svg"
	"railbed/testkit/plantest"
)

// drawn returns the drawing of a shape with uses.
func drawn(t *testing.T, shape string, use func(i int) [2]Use) string {
	t.Helper()
	p := plantest.Compile(t, shapes[shape])
	p.Name = "<script>"
	uses := Uses{}
	for i := range p.Links {
		uses[p.Links[i].Name] = use(i)
	}
	var out strings.Builder
	if err := DrawUse(&out, p, uses); err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(strings.NewReader(out.String()))
	for {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%s is not well-formed: %v", shape, err)
		}
	}
	for _, banned := range []string{"http:", "<script", "NaN", "Inf"} {
		if strings.Contains(out.String(), banned) {
			t.Errorf("%s has %q", shape, banned)
		}
	}
	return out.String()
}

// TestUseIsWidthShadeAndText: a link's shares, drops and marks can be read without colour.
func TestUseIsWidthShadeAndText(t *testing.T) {
	text := drawn(t, "leaf-spine", func(i int) [2]Use {
		if i > 0 {
			return [2]Use{}
		}
		return [2]Use{{Share: 1, Peak: 1, Drops: 12}, {Share: 0.1, Peak: 0.3, Marks: 34}}
	})
	for _, want := range []string{"↑ used 100%, at most 100%, 12 dropped",
		"↓ used 10%, at most 30%, 34 marked",
		`>↑100% ↓10% ×12 △34</text>`, `class="u u4" style="fill:none" stroke-width="4.5"`,
		`class="u u1" style="fill:none" stroke-width="1.4"`, "packets dropped"} {
		if !strings.Contains(text, want) {
			t.Errorf("the drawing lacks %q", want)
		}
	}
	if n := strings.Count(text, `class="v"`); n != 1 {
		t.Errorf("%d lines have labels, want the one that was used", n)
	}
}

// TestLinesOfManyLinksShowTheBusiest: eight servers share a box, and a line for each of their NICs.
func TestLinesOfManyLinksShowTheBusiest(t *testing.T) {
	text := drawn(t, "rails256", func(i int) [2]Use {
		return [2]Use{{Share: float64(i%100) / 100, Peak: 1, Drops: 1}, {}}
	})
	if !strings.Contains(text, "↑ used 99%, at most 100% (the busiest)") {
		t.Error("no line of several links shows the busiest")
	}
}

// TestLabelsStayApart: no two labels of lines overlap.
func TestLabelsStayApart(t *testing.T) {
	place := regexp.MustCompile(`<text class="v" text-anchor="middle" x="([0-9.-]+)" y="([0-9.-]+)">([^<]*)<`)
	for shape := range shapes {
		type label struct{ x, y, half float64 }
		var labels []label
		text := drawn(t, shape, func(i int) [2]Use {
			return [2]Use{{Share: float64(i%7) / 7}, {Share: 0.5,
				Drops: 3}}
		})
		for _, found := range place.FindAllStringSubmatch(text, -1) {
			l := label{half: svg.Width(found[3], 9.5) / 2}
			if _, err := fmt.Sscan(found[1], &l.x); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Sscan(found[2], &l.y); err != nil {
				t.Fatal(err)
			}
			for _, o := range labels {
				if x, y := l.x-o.x, l.y-o.y; x*x < (l.half+o.half)*(l.half+o.half) && y*y < 100 {
					t.Errorf("%s: labels at %v and %v overlap", shape, l, o)
				}
			}
			labels = append(labels, l)
		}
		if len(labels) == 0 {
			t.Errorf("%s has no labels", shape)
		}
	}
}
