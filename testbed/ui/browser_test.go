package ui

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"railbed/plan/spec"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/browsertest"
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

// browser is a browser that the keyboard uses.
type browser struct {
	*browsertest.Browser
	t *testing.T
}

func open(t *testing.T, url string) browser {
	t.Helper()
	return browser{browsertest.Open(t, url), t}
}

// press presses keys, one after the other.
func (b browser) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.Do(chromedp.KeyEvent(key))
	}
}

// tabTo presses Tab until an element has the focus.
func (b browser) tabTo(selector string) {
	b.t.Helper()
	for range 80 {
		if b.Text(fmt.Sprintf("document.activeElement.matches(%q)", selector)) == "true" {
			return
		}
		b.press(kb.Tab)
	}
	b.t.Fatalf("Tab does not lead to %s", selector)
}

// picture takes a screenshot. With -update it writes the picture ui into docs/.
func (b browser) picture(name, scheme string, width, height int64) {
	b.t.Helper()
	folder := b.t.ArtifactDir()
	if *updatePictures && name == "ui" {
		folder = filepath.Join("..", "..", "docs", "pictures")
	}
	b.Picture(folder, name, scheme, width, height)
	made, err := os.Stat(filepath.Join(folder, name+".png"))
	if err != nil || name == "ui" && made.Size() > 200_000 {
		b.t.Errorf("%s: %v, %v", name, made, err)
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
	if where := b.Text("location.href"); strings.Contains(where, s.token) {
		t.Errorf("the address has the token: %s", where)
	}
	const packets = `Number(document.querySelector('[data-link="h0--leaf1"] .packets').textContent.replace(/,/g, ""))`
	b.Await(`document.querySelectorAll("#picture [data-links]").length == 12`)
	b.Await(packets + " > 0")
	before := b.Text(packets)
	b.Await(packets + " > " + before)
	b.Await(`/\d %/.test(document.querySelector("#picture").textContent)`) // the load of some link

	// What comes from the testbed is text.
	if err := tb.Node("h3").Command(t.Context(), "true", hostile).Run(); err != nil {
		t.Fatal(err)
	}
	b.Await(fmt.Sprintf("document.querySelector('#events').textContent.includes(%q)", hostile))
	if made := b.Text(`document.querySelectorAll("img, #events b b").length + document.title`); made !=
		"0ui-page: Railbed" {
		t.Errorf("hostile text made elements: %s", made)
	}

	useDrawing(b)
	usePanel(b, s)
	showChecks(b, s)
	b.Do(chromedp.ScrollIntoView("header"))
	down := supervisor.LinkRequest{Where: "h7--leaf2", State: "down"}
	if err := tb.ChangeLink(t.Context(), down); err != nil {
		t.Fatal(err)
	}
	b.Await(`document.querySelector('[data-link="h7--leaf2"]').textContent.includes("✕ down")`)
	b.Await(`document.querySelector("#picture .down") != null`)
	slow, err := spec.ParseDirection("slow", "{rate: 4mbit}")
	if err != nil {
		t.Fatal(err)
	}
	lossy, err := spec.ParseDirection("lossy", "{loss: 10%}")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tb.SetLink(t.Context(), "h2--leaf1", slow),
		tb.SetLink(t.Context(), "h1--leaf1", lossy)); err != nil {
		t.Fatal(err)
	}
	b.Await(`document.querySelector("#picture .mark.hot") != null`)
	b.Await(`/▲/.test(document.querySelector("#picture").textContent)`)
	b.Await(`/▲/.test(document.querySelector('[data-link="h1--leaf1"]').textContent)`)
	b.picture("ui", "light", 1280, 800)
	b.picture("ui-dark", "dark", 1280, 800)
	b.picture("ui-narrow", "light", 400, 800)
	b.picture("ui-narrow-dark", "dark", 400, 800)

	if err := tb.Close(); err != nil {
		t.Fatal(err)
	}
	b.Await(`document.querySelector("#status").textContent == "The testbed was taken down."`)
	b.Text(`console.log("end")`)
	for message, err := range b.Console {
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
func useDrawing(b browser) {
	b.t.Helper()
	b.tabTo("#picture [role=button]")
	first := b.Text(`document.activeElement.getAttribute("aria-label")`)
	b.press(kb.ArrowRight, kb.ArrowRight, kb.ArrowLeft)
	b.Await(fmt.Sprintf(`document.activeElement.matches("#picture [role=button]") &&
		document.activeElement.getAttribute("aria-label") != %q`, first))
	for range 40 {
		if b.Text(`document.activeElement.getAttribute("aria-label") == "h2--leaf1"`) == "true" {
			break
		}
		b.press(kb.ArrowDown)
	}
	b.press(kb.Enter)
	b.Await(`document.querySelector("#panel h2")?.textContent == "h2--leaf1"`)
	b.press(kb.Escape)
	b.Await(`document.querySelector("#panel").hidden`)
	b.Await(`document.querySelectorAll("#picture [role=button][tabindex='0']").length == 1`)
}

// showChecks adds verdicts of checks as a run does. A later verdict replaces an earlier one.
func showChecks(b browser, s *served) {
	b.t.Helper()
	if hidden := b.Text(`document.querySelector("#checks").hidden`); hidden != "true" {
		b.t.Error("checks without a run")
	}
	for _, detail := range []string{"PASS so far: every element of 8 ranks is right", "FAIL: " + hostile} {
		if err := s.testbed.Note(b.t.Context(), supervisor.NoteRequest{Kind: supervisor.CheckVerdict,
			Subject: "workload ar", Detail: detail}); err != nil {
			b.t.Fatal(err)
		}
		_, found, _ := strings.Cut(detail, ": ")
		b.Await(fmt.Sprintf(`document.querySelector("#verdicts").textContent.includes(%q)`, found))
	}
	row := b.Text(`document.querySelector("#verdicts").innerText.trim()`)
	b.Text(`document.querySelector("#checks").scrollIntoView()`)
	b.picture("ui-checks", "dark", 1280, 500)
	b.picture("ui-checks-narrow", "light", 400, 500)
	b.Screen("light", 1280, 800)
	if row != "workload ar\t✕ FAIL\t"+hostile {
		b.t.Errorf("the checks are %q", row)
	}
}

// usePanel opens a link, changes it and records its packets, by the keyboard alone.
func usePanel(b browser, s *served) {
	t, tb := b.t, s.testbed
	t.Helper()
	b.tabTo(`[data-link="h1--leaf1"] button`)
	if outline := b.Text(`getComputedStyle(document.activeElement).outlineStyle`); outline != "solid" {
		t.Errorf("the focus is not visible: outline %s", outline)
	}
	b.press(kb.Enter)
	b.Await(`document.activeElement.textContent == "h1--leaf1"`)
	b.Await(`document.querySelector("#set-rate")?.value == "100mbit"`)
	b.tabTo("#set-rate")
	b.press(kb.End, "x", kb.Enter)
	b.Await(`document.querySelector("#wrong-rate").textContent.includes("100mbitx")`)
	b.Await(`document.activeElement.id == "set-rate"`)
	b.press(kb.Backspace)
	b.tabTo("#set-delay")
	b.press("7us", kb.Enter) // Tab has selected the old text
	b.Await(`document.querySelector(".said").textContent == "The link has the new settings."`)
	if l := inspect(t, tb, "h1--leaf1"); l.AToB.Delay.String() != "7us" || l.BToA.Delay.String() != "7us" {
		t.Errorf("the link has the delays %s and %s", l.AToB.Delay, l.BToA.Delay)
	}
	b.tabTo("#display")
	b.press("icmp", kb.Enter)
	b.Await(`document.querySelectorAll(".packets li").length > 5`)
	if line := b.Text(`document.querySelector(".packets li").textContent`); !strings.Contains(line, "h1:eth0") ||
		!strings.Contains(line, "ICMP") {
		t.Errorf("a packet is %q", line)
	}
	b.Text(`document.querySelector("#panel").scrollTo(0, 0)`)
	b.picture("ui-panel", "light", 1280, 800)
	b.picture("ui-panel-narrow", "light", 400, 800)
	b.Screen("light", 1280, 800)
	b.press(kb.Escape)
	b.Await(`document.querySelector("#panel").hidden`)
	if focus := b.Text(`document.activeElement.textContent`); focus != "h1--leaf1" {
		t.Errorf("after Escape the focus is on %q", focus)
	}
	awaitStops(t, tb, 1) // with its panel
}
