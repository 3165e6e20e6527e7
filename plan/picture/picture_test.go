package picture

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strings"
	"testing"

	"railbed/internal/svg"
	"railbed/plan/topology"
	"railbed/testkit/plantest"
)

func generated(name, params string) string {
	return fmt.Sprintf("name: t\nfabric: {topology: %s, params: {%s}}\n", name, params)
}

var shapes = map[string]string{
	"single":        generated(topology.SingleSwitch, "hosts: 8"),
	"leaf-spine":    generated(topology.LeafSpine, "leaves: 2, spines: 2, hosts-per-leaf: 4"),
	"striped":       generated(topology.LeafSpine, "leaves: 2, spines: 2, hosts-per-leaf: 4, striped: 1"),
	"leaf-spine256": generated(topology.LeafSpine, "leaves: 16, spines: 8, hosts-per-leaf: 16"),
	"fat-tree":      generated(topology.FatTree, "k: 4"),
	"fat-tree8":     generated(topology.FatTree, "k: 8"),
	"rails":         generated(topology.RailOptimized, "servers: 8, rails: 4"),
	"rails256":      generated(topology.RailOptimized, "servers: 256, rails: 8, spines: 4"),
	"hpn":           generated(topology.HPN, "segments: 2, servers: 4, rails: 2, aggs: 2"),
	"hpn256":        generated(topology.HPN, "segments: 4, servers: 64, rails: 8, aggs: 4"),
	"torus":         generated(topology.Torus, "x: 4, y: 4"),
	"torus3":        generated(topology.Torus, "x: 3, y: 3, z: 3, hosts-per-switch: 3"),
	"ring":          generated(topology.Torus, "x: 6, hosts-per-switch: 20"),
	"dragonfly":     generated(topology.Dragonfly, "groups: 5, switches: 4"),
	"explicit": `name: t
fabric:
  topology: explicit
  hosts: [a-server-with-a-long-nam, b]
  switches: {s: {}, a-switch-with-a-long-nam: {}, u: {}}
  connect: [a-server-with-a-long-nam -- s, b -- a-switch-with-a-long-nam, b -- s, s -- a-switch-with-a-long-nam, s -- u, a-switch-with-a-long-nam -- u, s -- u]
  links: {fabric: {rate: 400gbit}, s:p4--u:p2: {a-to-b: {rate: 100mbit}}}
`,
}

// uneven returns a star of switches whose names need boxes of different widths, too many for one
// row.
func uneven() string {
	var hosts, switches, links []string
	for i := range 60 {
		name := fmt.Sprintf("s%d", i)
		if i%3 == 0 {
			name = fmt.Sprintf("a-switch-with-a-name-%d", i)
		}
		hosts = append(hosts, fmt.Sprintf("h%d", i))
		switches = append(switches, name+": {}")
		links = append(links, fmt.Sprintf("h%d -- %s", i, name), name+" -- root")
	}
	return fmt.Sprintf("name: t\nfabric:\n  topology: explicit\n  hosts: [%s]\n  switches: {%s, root: "+
		"{}}\n  connect: [%s]\n",
		strings.Join(hosts, ", "), strings.Join(switches, ", "), strings.Join(links, ", "))
}

// TestSwitchesStandAboveTheirs: a leaf is above the middle of its servers. A switch above all
// servers is above the middle of the picture.
func TestSwitchesStandAboveTheirs(t *testing.T) {
	s := newScene(plantest.Compile(t, shapes["leaf-spine"]), true)
	width, _ := s.layout()
	middle := map[string]float64{}
	for i := range s.boxes {
		middle[s.boxes[i].name] = s.boxes[i].middle()
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if got < want-0.5 || got > want+0.5 {
			t.Errorf("%s is at %v, want %v", what, got, want)
		}
	}
	near("leaf1", middle["leaf1"], (middle["h0"]+middle["h3"])/2)
	near("leaf2", middle["leaf2"], (middle["h4"]+middle["h7"])/2)
	near("the spines", (middle["spine1"]+middle["spine2"])/2, width/2)
}

// TestBoxesStayApart: no two boxes touch, and every label fits into its box, so no labels overlap.
func TestBoxesStayApart(t *testing.T) {
	all := maps.Clone(shapes)
	all["uneven"] = uneven()
	for name, text := range all {
		t.Run(name, func(t *testing.T) {
			s := newScene(plantest.Compile(t, text), true)
			width, height := s.layout()
			for i := range s.boxes {
				b := &s.boxes[i]
				if b.x < 0 || b.y < 0 || b.x+b.w > width+0.01 || b.y+b.h > height+0.01 {
					t.Errorf("%s is outside of the picture", b.name)
				}
				if b.w < svg.Width(b.name, nameSize) || b.w < svg.Width(b.note, noteSize) {
					t.Errorf("%s is narrower than its label", b.name)
				}
				for j := range s.boxes[:i] {
					o := &s.boxes[j]
					if b.x < o.x+o.w && o.x < b.x+b.w && b.y < o.y+o.h && o.y < b.y+b.h {
						t.Fatalf("%s at %v,%v and %s at %v,%v overlap", b.name, b.x, b.y, o.name, o.x, o.y)
					}
				}
			}
			if width > 2600 && name != "uneven" {
				t.Errorf("the picture is %v wide", width)
			}
		})
	}
}

// TestEverythingIsShown: the boxes contain every node and switch once, and the lines every link
// once.
func TestEverythingIsShown(t *testing.T) {
	for name, text := range shapes {
		p := plantest.Compile(t, text)
		s := newScene(p, true)
		shown, links := map[string]int{}, 0
		for _, b := range s.boxes {
			if b.members == nil {
				shown[b.name]++
			}
			for _, m := range b.members {
				shown[m]++
			}
		}
		for _, l := range s.lines {
			links += len(l.links)
		}
		for _, n := range p.Nodes {
			if shown[n.Name] != 1 {
				t.Errorf("%s: %s is shown %d times", name, n.Name, shown[n.Name])
			}
		}
		if len(shown) != len(p.Nodes)+len(p.Switches) || links != len(p.Links) {
			t.Errorf("%s: %d boxes and members, %d links, want %d and %d", name, len(shown), links,
				len(p.Nodes)+len(p.Switches), len(p.Links))
		}
	}
}

// TestSVG: the SVG is well-formed, has no script or external reference, is the same each time, and
// has tooltips.
func TestSVG(t *testing.T) {
	for name, text := range shapes {
		p := plantest.Compile(t, text)
		var out strings.Builder
		if err := Draw(&out, p, "svg"); err != nil {
			t.Fatal(err)
		}
		elements := map[string]int{}
		for decoder := xml.NewDecoder(strings.NewReader(out.String())); ; {
			token, err := decoder.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			start, isStart := token.(xml.StartElement)
			if !isStart {
				continue
			}
			elements[start.Name.Local]++
			for _, a := range start.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" {
					t.Errorf("%s: attribute %s", name, a.Name.Local)
				}
			}
		}
		if elements["script"]+elements["image"]+elements["foreignObject"] > 0 ||
			strings.Contains(out.String(), "@import") || strings.Contains(out.String(), "url(") {
			t.Errorf("%s: script or outside reference", name)
		}
		if !strings.Contains(out.String(), "prefers-color-scheme:dark") {
			t.Errorf("%s: no dark mode", name)
		}
		s := newScene(p, true)
		if want := 1 + len(s.boxes) + len(s.lines); elements["title"] != want {
			t.Errorf("%s: %d titles, want %d", name, elements["title"], want)
		}
		if strings.Contains(out.String(), "NaN") || strings.Contains(out.String(), "Inf") {
			t.Errorf("%s: a place that is no number", name)
		}
		if out.String() != drawSVG(p, nil) {
			t.Errorf("%s: a second picture differs", name)
		}
	}
}

// TestHoverAndWidth: rates are in the legend and on the line, and a faster link is wider.
func TestHoverAndWidth(t *testing.T) {
	text := drawSVG(plantest.Compile(t, shapes["explicit"]), nil)
	for _, want := range []string{
		"400gbit (3 links)", "100mbit/400gbit (1 link)", "1gbit (3 links)",
		"s:p4--u:p2&#xA;s:p4 to u:p2&#xA;100mbit/400gbit, mtu 1500",
		"a-server-with-a-long-nam&#xA;10.0.0.1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
	widths := regexp.MustCompile(`stroke-width="([0-9.]+)" d="M[0-9.]+ [0-9.]+h26"`).FindAllStringSubmatch(
		text, -1)
	if got := fmt.Sprint(widths); len(widths) != 3 || widths[0][1] <= widths[1][1] ||
		widths[1][1] <= widths[2][1] {
		t.Errorf("widths in the legend are %s", got)
	}
}

// TestSoft: the titles of a soft switch and its links give their settings.
func TestSoft(t *testing.T) {
	text := drawSVG(plantest.Compile(t,
		strings.Replace(generated(topology.LeafSpine, "leaves: 2, spines: 2, hosts-per-leaf: 2"), "}}",
			"}, switch: {kind: router}}", 1)), nil)
	if strings.Contains(text, "load-balance") {
		t.Error("a router has the features of a soft switch")
	}
	text = drawSVG(plantest.Compile(t, `name: t
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}
  switch: {kind: soft, load-balance: spray, ecn: true, trim: true, pfc: {priorities: [5, 3]}, gfc: {priorities: [2]}, int: true, aggregation: true}
  links:
    leaf1--spine1: {weight: 3, a-to-b: {drop-list: [5, 6], reorder: 1%}, b-to-a: {gilbert-elliott: {enter: 1%, leave: 20%}, overhead: 24B, flap: {every: 1s, for: 1ms}}}
`), nil)
	for _, want := range []string{
		"leaf1&#xA;leaf, soft l3, 4 ports",
		"&#xA;load-balance spray, buffer 2MB, ecn red, trim on 4, pfc on 3,5, gfc by buffer on 2, int, " +
			"aggregation of 128 slots for 2 ranks<",
		"mtu 1500, weight 3, a-to-b drop-list [5 6], a-to-b reorder 1% by 48.448us, b-to-a gilbert-elliott " +
			"enter 1% leave 20% loss 100%, b-to-a overhead 24B, b-to-a flap every 1s for 1ms<",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
}

func TestDotAndMermaid(t *testing.T) {
	p := plantest.Compile(t, shapes["leaf-spine"])
	d, m := dot(p), mermaid(p)
	if got := strings.Count(d, " -- "); got != len(p.Links) {
		t.Errorf("dot has %d edges, want %d", got, len(p.Links))
	}
	for _, want := range []string{`"h0" [label="h0"`, `"spine2" -- "leaf1" [color=`, "rank=same"} {
		if !strings.Contains(d, want) {
			t.Errorf("dot lacks %s:\n%s", want, d)
		}
	}
	if got := strings.Count(m, "---|"); got != len(p.Links) || !strings.HasPrefix(m, "flowchart TB\n") {
		t.Errorf("mermaid has %d edges:\n%s", got, m)
	}
	// Mermaid draws at most 500 edges by default.
	big := mermaid(plantest.Compile(t, shapes["leaf-spine256"]))
	if got := strings.Count(big, "---|"); got != 16+128 || !strings.Contains(big, "16 x 1gbit") {
		t.Errorf("mermaid of 256 servers has %d edges", got)
	}
}

type brokenWriter struct{}

var errFull = errors.New("disk full")

func (brokenWriter) Write([]byte) (int, error) { return 0, errFull }

func TestDrawErrors(t *testing.T) {
	p := plantest.Compile(t, shapes["single"])
	if err := Draw(io.Discard, p, "png"); err == nil ||
		!strings.Contains(err.Error(), "want dot, mermaid, svg") {
		t.Errorf("got %v", err)
	}
	if err := Draw(brokenWriter{}, p, "svg"); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}

// TestMonotone compares with a case worked by hand: 3,1,2 pool to their mean.
func TestMonotone(t *testing.T) {
	if got := fmt.Sprint(monotone([]float64{0, 3, 1, 2, 5})); got != "[0 2 2 2 5]" {
		t.Errorf("got %s", got)
	}
}

// TestInline: the SVG for a page has no style of its own. Its lines name every link once, and its boxes every
// device.
func TestInline(t *testing.T) {
	named := regexp.MustCompile(`data-(links|devices)="([^"]*)"`)
	for name, text := range shapes {
		p := plantest.Compile(t, text)
		var out strings.Builder
		if err := Inline(&out, p); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "style") {
			t.Errorf("%s: a style in the SVG", name)
		}
		seen := map[string]int{}
		for _, group := range named.FindAllStringSubmatch(out.String(), -1) {
			for _, one := range strings.Fields(group[2]) {
				seen[group[1]+" "+one]++
			}
		}
		for _, l := range p.Links {
			if seen["links "+l.Name] != 1 {
				t.Errorf("%s: link %s is named %d times", name, l.Name, seen["links "+l.Name])
			}
		}
		if want := len(p.Links) + len(p.Nodes) + len(p.Switches); len(seen) != want {
			t.Errorf("%s: %d names, want %d", name, len(seen), want)
		}
	}
	if !strings.Contains(Style(), "prefers-color-scheme:dark") {
		t.Error("no dark mode")
	}
}
