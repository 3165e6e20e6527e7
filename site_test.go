package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/browsertest"
)

// TestSite builds the manual and looks at pages and at the search in a browser, wide and narrow, on light and
// dark screens.
func TestSite(t *testing.T) {
	hosttest.Need(t, hosttest.Mkdocs, hosttest.Chromium)
	hosttest.Long(t)
	site := t.TempDir()
	out, err := exec.Command("mkdocs", "build", "--strict", "--site-dir", site).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.Contains(string(out), "not included in the \"nav\"") {
		t.Errorf("%s", out)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(site)))
	defer server.Close()
	b := browsertest.Open(t, server.URL+"/index.html")
	for _, page := range []string{"index", "tutorial", "reference/checks", "how-to/faults"} {
		for scheme, want := range map[string]string{"light": "default", "dark": "slate"} {
			for _, width := range []int64{1400, 400} {
				b.Text("localStorage.clear()") // else the page takes the scheme of the last visit
				b.Screen(scheme, width, 900)
				b.Do(chromedp.Navigate(server.URL + "/" + page + ".html"))
				name := fmt.Sprintf("%s-%d-%s", filepath.Base(page), width, scheme)
				b.Picture(t.ArtifactDir(), name, scheme, width, 900)
				if got := b.Text("document.body.dataset.mdColorScheme"); got != want {
					t.Errorf("%s: scheme %s on a %s screen, want %s", page, got, scheme, want)
				}
			}
		}
		if titles := b.Text("document.querySelectorAll('h1').length"); titles != "1" {
			t.Errorf("%s: %s titles, want 1", page, titles)
		}
	}
	b.Screen("light", 1400, 900)
	for name, page := range map[string]string{"search": server.URL + "/index.html",
		"search-from-disk": "file://" + site + "/how-to/faults.html"} {
		b.Do(chromedp.Navigate(page), chromedp.Click(".md-search__input"),
			chromedp.SendKeys(".md-search__input", "dcqcn"))
		b.Await("document.querySelectorAll('.md-search-result__item').length > 0")
		b.Picture(t.ArtifactDir(), name, "light", 1400, 900)
		found := b.Text("document.querySelector('.md-search-result').innerText")
		if !strings.Contains(found, "RoCEv2") {
			t.Errorf("%s: the search for dcqcn finds\n%s", name, found)
		}
		b.Do(chromedp.Click(".md-search-result__link"))
		b.Await("document.querySelector('h1') !== null && location.href.includes('?h=dcqcn')")
	}
}
