package runner

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"railbed/scenarios/runner/judge"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/reporting"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/browsertest"
)

// browser is a tab of a headless Chromium. said has the errors of its console, and the addresses that pages
// loaded besides their own.
type browser struct {
	context.Context
	mu   sync.Mutex
	said []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	b := &browser{}
	b.Context = browsertest.Tab(t, chromedp.WithListener(b.take))
	return b
}

// take takes an event of the browser. It keeps errors and loads.
func (b *browser) take(event any) {
	said := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		said = e.ExceptionDetails.Text
	case *runtime.EventConsoleAPICalled:
		said = fmt.Sprint(e.Type)
	case *log.EventEntryAdded:
		said = e.Entry.Text
	case *page.EventJavascriptDialogOpening:
		said = e.Message
	case *network.EventRequestWillBeSent:
		if e.Type != network.ResourceTypeDocument {
			said = "loads " + e.Request.URL
		}
	}
	if said != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.said = append(b.said, said)
	}
}

// look loads a page as a screen of a width and a colour scheme shows it, and measures it.
func (b *browser) look(t *testing.T, path string, width int64, scheme string) (m measured) {
	t.Helper()
	b.mu.Lock()
	b.said = nil
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(b, 30*time.Second)
	defer cancel()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}}}
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media)
	if err == nil {
		err = chromedp.Do(ctx, chromedp.EmulateViewport(width, 800),
			chromedp.Navigate((&url.URL{Scheme: "file", Path: path}).String()))
	}
	if err == nil {
		m, err = chromedp.Run(ctx, chromedp.Evaluate[measured](measureScript))
	}
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.said) > 0 {
		t.Errorf("the browser says %q", b.said)
	}
	return m
}

// measured is the result of measureScript.
type measured struct {
	Wide     float64  `json:"wide"` // of the document, and the window, in pixels
	Inner    float64  `json:"inner"`
	Overlaps []string `json:"overlaps"` // of texts of one chart
	Outside  []string `json:"outside"`  // texts outside of their chart
	Small    float64  `json:"small"`    // height of the smallest text of a chart, in pixels
	Charts   int      `json:"charts"`
	Unnamed  int      `json:"unnamed"` // charts without a name for screen readers
	Foreign  int      `json:"foreign"` // elements that a report's text must not make
	// Wider are elements outside of scrollers that are wider than the window. Dim are texts with too little
	// contrast. Broken are names of links in more than one line.
	Wider, Dim, Broken []string
	// Uncued counts scrollers without shadows at their edges. Used is the width of the content in pixels.
	Uncued int
	Used   float64
	// Headings are headings of the first level. Named counts texts that are the name of the run.
	Headings []string
	Named    int

	Title      string `json:"title"`
	Text       string `json:"text"`
	Background string `json:"background"`
}

const measureScript = `(() => {
	const m = {wide: document.scrollingElement.scrollWidth, inner: innerWidth, overlaps: [], outside: [], small: 1e9,
		charts: 0, unnamed: 0, foreign: document.querySelectorAll("script, img, iframe, object, b").length,
		title: document.title, text: document.body.textContent, wider: [], dim: [], broken: [], uncued: 0,
		used: document.querySelector("main").clientWidth,
		headings: [...document.querySelectorAll("h1")].map(h => h.textContent),
		background: getComputedStyle(document.body).backgroundColor};
	m.named = [...document.querySelectorAll("body *")].filter(e => !e.closest("title") && !e.children.length &&
		e.textContent === m.headings[0]).length;
	// The contrast is that of WCAG 2. Colours are drawn to read any notation of CSS.
	const pixel = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	const light = colours => {
		for (const c of colours) { pixel.fillStyle = c; pixel.fillRect(0, 0, 1, 1); }
		const [r, g, b] = [...pixel.getImageData(0, 0, 1, 1).data].map(v => v / 255)
			.map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
	};
	const behind = e => {
		const colours = [];
		for (; e; e = e.parentElement) colours.unshift(getComputedStyle(e).backgroundColor);
		return colours;
	};
	for (const e of document.querySelectorAll("body *")) {
		const box = e.getBoundingClientRect(), style = getComputedStyle(e), scroller = e.closest(".scroll");
		if (box.width > innerWidth && (!scroller || scroller === e)) m.wider.push(e.tagName + " " + e.className);
		if (e.classList.contains("scroll") && !style.backgroundImage.includes("gradient")) m.uncued++;
		const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
		const fabric = e.closest("svg.fabric");
		if (!own || !box.width || e.closest("svg") && !fabric || e.tagName === "title") continue;
		const back = light(behind(e)), front = light([...behind(e), fabric ? style.fill : style.color]);
		const contrast = Math.max(back, front) / Math.min(back, front);
		if (contrast < 4.5) m.dim.push(contrast.toFixed(1) + " " + e.textContent.slice(0, 30));
	}
	for (const cell of document.querySelectorAll("td.whole")) {
		const lines = document.createRange();
		lines.selectNode(cell.firstChild);
		if (lines.getClientRects().length > 1) m.broken.push(cell.textContent);
	}
	for (const chart of document.querySelectorAll("svg[role]")) {
		m.charts++;
		if (!chart.getAttribute("aria-label")) m.unnamed++;
		const frame = chart.getBoundingClientRect();
		const texts = [...chart.querySelectorAll("text")].filter(t => t.textContent.trim())
			.map(t => [t.textContent, t.getBoundingClientRect()]).filter(([, r]) => r.width > 0);
		for (const [i, [text, r]] of texts.entries()) {
			m.small = Math.min(m.small, r.height);
			if (r.left < frame.left - 2 || r.right > frame.right + 2 || r.top < frame.top - 2 || r.bottom > frame.bottom + 2)
				m.outside.push(text);
			for (const [other, o] of texts.slice(i + 1))
				if (Math.min(r.right, o.right) - Math.max(r.left, o.left) > 1 &&
					Math.min(r.bottom, o.bottom) - Math.max(r.top, o.top) > 3)
					m.overlaps.push(text + " / " + other);
		}
	}
	return m;
})()`

// savedPage writes the page of testdata/page/NAME.json.gz, the report of the file NAME.yaml.
func savedPage(t *testing.T, name string, change func(*plan.Plan, *report.Report)) string {
	t.Helper()
	file, err := os.Open("testdata/page/" + name + ".json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := report.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	p := load(t, "testdata/page/"+name+".yaml").Plan
	change(p, r)
	return writePage(t, p, r)
}

// writePage writes a page and returns its path.
func writePage(t *testing.T, p *plan.Plan, r *report.Report) string {
	t.Helper()
	var topology, html bytes.Buffer
	if err := errors.Join(judge.DrawUse(&topology, p, r),
		reporting.WriteHTML(&html, r, reporting.HTMLOptions{Topology: topology.Bytes()})); err != nil {
		t.Fatal(err)
	}
	const most = 2 << 20
	if html.Len() > most {
		t.Errorf("the page of %s has %d bytes, want at most %d", p.Name, html.Len(), most)
	}
	path := filepath.Join(t.TempDir(), report.HTMLFile)
	mustWrite(t, path, html.String())
	return path
}

// saveReport keeps a report for savedPage, without the facts of the host.
func saveReport(t *testing.T, name string, r *report.Report) {
	t.Helper()
	if r.Verdict != verdict.Pass {
		t.Fatalf("the run for %s is %s, want PASS: run the test again on an idle host", name, r.Verdict)
	}
	r.File, r.Repeat, r.Host.Name = name+".yaml", []string{"railbed", "run", name + ".yaml"}, "host"
	var packed bytes.Buffer
	to := gzip.NewWriter(&packed)
	if err := errors.Join(r.WriteJSON(to), to.Close(),
		os.WriteFile("testdata/page/"+name+".json.gz", packed.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// TestPageInBrowser renders the pages of a run of 8 ranks, of a saved run of 64, and of a report with hostile
// words. With -update it runs 64 ranks and saves their report, and writes the pictures of
// docs/how-to/read-a-report.md.
func TestPageInBrowser(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed, hosttest.Chromium)
	o := load(t, "testdata/page/ranks8.yaml")
	r := runAll(t, t.Context(), o)
	if *update {
		saveReport(t, "ranks64", runAll(t, t.Context(), load(t, "testdata/page/ranks64.yaml")))
	}
	kinds(t, r)
	ringSteps(t, r, 8)
	pages := map[string]string{
		"ranks8": filepath.Join(o.Out, report.HTMLFile),
		"ranks64": savedPage(t, "ranks64", func(p *plan.Plan, r *report.Report) {
			p.Name, r.Name = "sixty-four-ranks", "sixty-four-ranks"
			ringSteps(t, r, 64)
		}),
		"hostile": savedPage(t, "ranks64", makeHostile),
	}
	b := newBrowser(t)
	for name, path := range pages {
		backgrounds := map[string]bool{}
		for _, width := range []int64{1600, 1000, 400} {
			for _, scheme := range []string{"light", "dark"} {
				t.Run(fmt.Sprintf("%s %s %d", name, scheme, width), func(t *testing.T) {
					m := b.look(t, path, width, scheme)
					backgrounds[m.Background] = true
					m.judge(t)
					if name == "hostile" && (m.Title != "PASS: "+hostile || !strings.Contains(m.Text,
						hostile+": "+hostile)) {
						t.Errorf("the page %q does not show the words of the report as text", m.Title)
					}
				})
			}
		}
		if len(backgrounds) != 2 {
			t.Errorf("%s has backgrounds %v, want one of each scheme", name, backgrounds)
		}
	}
	if *update {
		o.Plan.Name = "eight-ranks"
		pages["ranks8"] = writePage(t, o.Plan, r)
		b.pictures(t, pages)
	}
}

// kinds requires that a run's report has data for every chart.
func kinds(t *testing.T, r *report.Report) {
	t.Helper()
	if r.Series == nil || len(r.Series.Links) == 0 || len(r.Activities) == 0 || len(r.Distributions) == 0 {
		t.Fatalf("the report lacks data: %+v", r.Charts)
	}
	for _, c := range r.Checks {
		if len(c.Commands) > 0 && c.Excerpt != "" {
			return
		}
	}
	t.Error("no check names the commands that show its packets")
}

// ringSteps requires the 2(n-1) steps of each rank in the first activity, a ring all-reduce of n ranks. They
// follow each other within the rank's operation.
func ringSteps(t *testing.T, r *report.Report, n int) {
	t.Helper()
	a := &r.Activities[0]
	if len(a.Lanes) != n {
		t.Fatalf("%s has %d lanes, want %d", a.Step, len(a.Lanes), n)
	}
	for _, lane := range a.Lanes {
		if len(lane.Steps) != 1 || lane.Steps[0].Count != 2*(n-1) {
			t.Fatalf("rank %d of %d has steps %+v", *lane.Rank, n, lane.Steps)
		}
		s, operation := &lane.Steps[0], &lane.Spans[0]
		times := slices.Concat([]float64{operation.Start, s.Start}, s.Ends, []float64{operation.End})
		if operation.Of != report.OperationSpan || len(s.Ends) != s.Count || !slices.IsSorted(times) {
			t.Errorf("rank %d of %d has steps at %v of %+v", *lane.Rank, n, times, operation)
		}
	}
}

func (m *measured) judge(t *testing.T) {
	t.Helper()
	if m.Wide > m.Inner {
		t.Errorf("the page is %v pixels wide in a window of %v", m.Wide, m.Inner)
	}
	if m.Used < min(m.Inner, 1600)*0.9 {
		t.Errorf("the content is %v pixels wide in a window of %v", m.Used, m.Inner)
	}
	if len(m.Wider) > 0 || len(m.Broken) > 0 || m.Uncued > 0 {
		t.Errorf("wider than the window: %.20q; broken names: %.20q; scrollers without shadows: %d", m.Wider,
			m.Broken, m.Uncued)
	}
	if len(m.Dim) > 0 {
		t.Errorf("contrast below 4.5: %.20q", m.Dim)
	}
	if len(m.Headings) != 1 || m.Named != 1 && m.Headings[0] != hostile {
		t.Errorf("headings %q, and %d texts with the name of the run, want one of each", m.Headings, m.Named)
	}
	if len(m.Overlaps) > 0 || len(m.Outside) > 0 {
		t.Errorf("texts overlap: %.20q; texts are outside of their chart: %.20q", m.Overlaps, m.Outside)
	}
	if m.Small < 7 {
		t.Errorf("a chart has text %v pixels high, want at least 7", m.Small)
	}
	if m.Charts < 4 || m.Unnamed > 0 || m.Foreign > 0 {
		t.Errorf("%d charts, %d without a name, %d elements that the page must not have", m.Charts, m.Unnamed,
			m.Foreign)
	}
}

// hostile is text that a page must not take for elements.
const hostile = `</title></svg><img src=x onerror=alert(1)><script>alert(2)</script>"'><b>`

func makeHostile(p *plan.Plan, r *report.Report) {
	p.Name, r.Name, r.Description = hostile, hostile, hostile
	for i := range r.Steps {
		r.Steps[i].Name = hostile
	}
	for i := range r.Series.Links {
		r.Series.Links[i].From = hostile
	}
	for i := range r.Activities {
		r.Activities[i].Step, r.Activities[i].What = hostile, hostile
		r.Activities[i].Lanes[0].Node = hostile
	}
	for i := range r.Distributions {
		r.Distributions[i].Step = hostile
	}
	r.Checks[0].Name, r.Checks[0].Commands = hostile, [][]string{{"railbed", hostile}}
}

// pictures writes the pictures of the docs.
func (b *browser) pictures(t *testing.T, pages map[string]string) {
	t.Helper()
	for _, p := range []struct{ name, page, scheme, section string }{
		{"report-topology", "ranks8", "light", "#topology"},
		{"report-timeline", "ranks8", "light", "#timeline"},
		{"report-ranks", "ranks8", "light", "#ranks details:first-of-type"},
		{"report-topology-64", "ranks64", "dark", "#topology"},
	} {
		b.look(t, pages[p.page], 1200, p.scheme)
		picture, err := chromedp.Run(b, chromedp.Screenshot(p.section))
		if err != nil {
			t.Fatal(err)
		}
		if len(picture) > 200_000 {
			t.Errorf("%s has %d bytes, want at most 200 kB", p.name, len(picture))
		}
		path := "../../docs/pictures/" + p.name + ".png"
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, picture, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}
