package ui

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"railbed/internal/hosttest"
	"railbed/plan/spec"
	"railbed/testbed/supervisor"
)

var updatePictures = flag.Bool("update", false, "write the pictures of the page in docs/pictures")

// leafSpine is a testbed of eight hosts, as the page's documentation shows it.
const leafSpine = `
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 4}
  switch: {kind: soft, load-balance: flow}
  links:
    default: {rate: 1gbit, delay: 10us, mtu: 9000}
    host: {rate: 100mbit}
nodes: {default: {ranks: 1}}
`

// hostile is text that would run if the page took it for HTML.
const hostile = `<img src=x onerror="document.title='run'"><b>`

// browser is a headless browser whose tab shows a page.
type browser struct {
	t       *testing.T
	ctx     context.Context
	console iter.Seq2[chromedp.ConsoleMessage, error]
}

func open(t *testing.T, url string) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"),
		chromedp.Flag("disable-breakpad", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has no sandbox for root
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("close the browser: %v", err)
		}
	})
	b := &browser{t: t, ctx: ctx, console: chromedp.Console(ctx)}
	b.screen("light", 1280, 800)
	b.do(chromedp.Navigate(url))
	return b
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 15*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// text evaluates an expression of JavaScript.
func (b *browser) text(expression string) string {
	b.t.Helper()
	result, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return result
}

// screen sets the width and height, and the colour scheme.
func (b *browser) screen(scheme string, width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"}}})
	if err != nil {
		b.t.Fatal(err)
	}
}

// await waits until an expression is true.
func (b *browser) await(expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); b.text(expression) != "true"; {
		if time.Now().After(deadline) {
			b.t.Fatalf("not true within 10 s: %s\nthe page says:\n%s", expression,
				b.text("document.body.innerText"))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// press presses keys, one after the other.
func (b *browser) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.do(chromedp.KeyEvent(key))
	}
}

// tabTo presses Tab until an element has the focus.
func (b *browser) tabTo(selector string) {
	b.t.Helper()
	for range 80 {
		if b.text(fmt.Sprintf("document.activeElement.matches(%q)", selector)) == "true" {
			return
		}
		b.press(kb.Tab)
	}
	b.t.Fatalf("Tab does not lead to %s", selector)
}

// picture takes a screenshot in a width and a colour scheme, and checks that nothing sticks out.
func (b *browser) picture(name, scheme string, width, height int64) {
	b.t.Helper()
	b.screen(scheme, width, height)
	b.do(chromedp.Sleep(150 * time.Millisecond)) // for the next frame
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if wide := b.text("document.documentElement.scrollWidth"); wide != fmt.Sprint(width) {
		b.t.Errorf("%s: the page is %s pixels wide, want %d", name, wide, width)
	}
	folder := b.t.ArtifactDir()
	if *updatePictures && name == "ui" {
		folder = filepath.Join("..", "..", "docs", "pictures")
	}
	if name == "ui" && len(shot) > 200_000 {
		b.t.Errorf("%s: the picture has %d bytes", name, len(shot))
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), shot, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// TestPage opens the page of a running testbed in a browser and uses it by the keyboard.
func TestPage(t *testing.T) {
	hosttest.Need(t, hosttest.Chromium)
	tb := up(t, "ui-page", leafSpine, "cluster.yaml")
	s := serve(t, tb)
	for i := range 3 {
		traffic(t, tb, fmt.Sprint("h", i), fmt.Sprint("h", i+4), "-i", "0.002", "-s", fmt.Sprint(2000*(i+1)))
	}
	b := open(t, s.URL())
	if where := b.text("location.href"); strings.Contains(where, s.token) {
		t.Errorf("the address has the token: %s", where)
	}
	const packets = `Number(document.querySelector('[data-link="h0--leaf1"] .packets').textContent.replace(/,/g, ""))`
	b.await(`document.querySelectorAll("#picture [data-links]").length == 12`)
	b.await(packets + " > 0")
	before := b.text(packets)
	b.await(packets + " > " + before)
	b.await(`/\d %/.test(document.querySelector("#picture").textContent)`) // the load of some link

	// What comes from the testbed is text.
	if err := tb.Node("h3").Command(b.ctx, "true", hostile).Run(); err != nil {
		t.Fatal(err)
	}
	b.await(fmt.Sprintf("document.querySelector('#events').textContent.includes(%q)", hostile))
	if made := b.text(`document.querySelectorAll("img, #events b b").length + document.title`); made !=
		"0ui-page: Railbed" {
		t.Errorf("hostile text made elements: %s", made)
	}

	useDrawing(b)
	usePanel(b, s)
	showChecks(b, s)
	b.do(chromedp.ScrollIntoView("header"))
	if err := tb.ChangeLink(b.ctx, supervisor.LinkRequest{Where: "h7--leaf2", State: "down"}); err != nil {
		t.Fatal(err)
	}
	b.await(`document.querySelector('[data-link="h7--leaf2"]').textContent.includes("✕ down")`)
	b.await(`document.querySelector("#picture .down") != null`)
	slow, err := spec.ParseDirection("slow", "{rate: 4mbit}")
	if err != nil {
		t.Fatal(err)
	}
	lossy, err := spec.ParseDirection("lossy", "{loss: 10%}")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tb.SetLink(b.ctx, "h2--leaf1", slow),
		tb.SetLink(b.ctx, "h1--leaf1", lossy)); err != nil {
		t.Fatal(err)
	}
	b.await(`document.querySelector("#picture .mark.hot") != null`)
	b.await(`/▲/.test(document.querySelector("#picture").textContent)`)
	b.await(`/▲/.test(document.querySelector('[data-link="h1--leaf1"]').textContent)`)
	b.picture("ui", "light", 1280, 800)
	b.picture("ui-dark", "dark", 1280, 800)
	b.picture("ui-narrow", "light", 400, 800)
	b.picture("ui-narrow-dark", "dark", 400, 800)

	if err := tb.Close(); err != nil {
		t.Fatal(err)
	}
	b.await(`document.querySelector("#status").textContent == "The testbed was taken down."`)
	b.text(`console.log("end")`)
	for message, err := range b.console {
		if err != nil {
			t.Fatal(err)
		}
		if message.Text == "end" {
			break
		}
		if strings.Contains(message.Text, "422") { // the browser notes the wrong rate, too
			continue
		}
		t.Errorf("the page complains: %s %s", message, message.URL)
	}
}

// useDrawing opens a link in the drawing by the keyboard alone. The drawing has one place for Tab.
func useDrawing(b *browser) {
	b.t.Helper()
	b.tabTo("#picture [role=button]")
	first := b.text(`document.activeElement.getAttribute("aria-label")`)
	b.press(kb.ArrowRight, kb.ArrowRight, kb.ArrowLeft)
	b.await(fmt.Sprintf(`document.activeElement.matches("#picture [role=button]") &&
		document.activeElement.getAttribute("aria-label") != %q`, first))
	for range 40 {
		if b.text(`document.activeElement.getAttribute("aria-label") == "h2--leaf1"`) == "true" {
			break
		}
		b.press(kb.ArrowDown)
	}
	b.press(kb.Enter)
	b.await(`document.querySelector("#panel h2")?.textContent == "h2--leaf1"`)
	b.press(kb.Escape)
	b.await(`document.querySelector("#panel").hidden`)
	b.await(`document.querySelectorAll("#picture [role=button][tabindex='0']").length == 1`)
}

// showChecks adds verdicts of checks as a run does. A later verdict replaces an earlier one.
func showChecks(b *browser, s *served) {
	b.t.Helper()
	if hidden := b.text(`document.querySelector("#checks").hidden`); hidden != "true" {
		b.t.Error("checks without a run")
	}
	for _, detail := range []string{"PASS so far: every element of 8 ranks is right", "FAIL: " + hostile} {
		if err := s.testbed.Note(b.ctx, supervisor.NoteRequest{Kind: supervisor.CheckVerdict,
			Subject: "workload ar", Detail: detail}); err != nil {
			b.t.Fatal(err)
		}
		_, found, _ := strings.Cut(detail, ": ")
		b.await(fmt.Sprintf(`document.querySelector("#verdicts").textContent.includes(%q)`, found))
	}
	row := b.text(`document.querySelector("#verdicts").innerText.trim()`)
	b.text(`document.querySelector("#checks").scrollIntoView()`)
	b.picture("ui-checks", "dark", 1280, 500)
	b.picture("ui-checks-narrow", "light", 400, 500)
	b.screen("light", 1280, 800)
	if row != "workload ar\t✕ FAIL\t"+hostile {
		b.t.Errorf("the checks are %q", row)
	}
}

// usePanel opens a link, changes it and records its packets, by the keyboard alone.
func usePanel(b *browser, s *served) {
	t, tb := b.t, s.testbed
	t.Helper()
	b.tabTo(`[data-link="h1--leaf1"] button`)
	if outline := b.text(`getComputedStyle(document.activeElement).outlineStyle`); outline != "solid" {
		t.Errorf("the focus is not visible: outline %s", outline)
	}
	b.press(kb.Enter)
	b.await(`document.activeElement.textContent == "h1--leaf1"`)
	b.await(`document.querySelector("#set-rate")?.value == "100mbit"`)
	b.tabTo("#set-rate")
	b.press(kb.End, "x", kb.Enter)
	b.await(`document.querySelector("#wrong-rate").textContent.includes("100mbitx")`)
	b.await(`document.activeElement.id == "set-rate"`)
	b.press(kb.Backspace)
	b.tabTo("#set-delay")
	b.press("7us", kb.Enter) // Tab has selected the old text
	b.await(`document.querySelector(".said").textContent == "The link has the new settings."`)
	if l := inspect(t, tb, "h1--leaf1"); l.AToB.Delay.String() != "7us" || l.BToA.Delay.String() != "7us" {
		t.Errorf("the link has the delays %s and %s", l.AToB.Delay, l.BToA.Delay)
	}
	b.tabTo("#display")
	b.press("icmp", kb.Enter)
	b.await(`document.querySelectorAll(".packets li").length > 5`)
	if line := b.text(`document.querySelector(".packets li").textContent`); !strings.Contains(line, "h1:eth0") ||
		!strings.Contains(line, "ICMP") {
		t.Errorf("a packet is %q", line)
	}
	b.text(`document.querySelector("#panel").scrollTo(0, 0)`)
	b.picture("ui-panel", "light", 1280, 800)
	b.picture("ui-panel-narrow", "light", 400, 800)
	b.screen("light", 1280, 800)
	b.press(kb.Escape)
	b.await(`document.querySelector("#panel").hidden`)
	if focus := b.text(`document.activeElement.textContent`); focus != "h1--leaf1" {
		t.Errorf("after Escape the focus is on %q", focus)
	}
	awaitStops(t, tb, 1) // with its panel
}
