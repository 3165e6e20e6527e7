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

	"railbed/internal/hosttest"
	"railbed/internal/hosttest/browsertest"
)

// TestSite builds the manual and looks at it in a browser: pages, the menu and the search, wide and narrow, on
// light and dark screens.
func TestSite(t *testing.T) {
	hosttest.Need(t, hosttest.Mkdocs, hosttest.Chromium)
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
	for _, page := range []string{"index", "tutorial", "reference/scenarios", "how-to/faults"} {
		for _, screen := range []struct {
			scheme, name string
			width        int64
		}{{"light", "default", 1400}, {"dark", "slate", 1400}, {"light", "default", 400}, {"dark", "slate", 400}} {
			b.Text("localStorage.clear()") // the scheme of the first visit
			b.Screen(screen.scheme, screen.width, 900)
			b.Do(chromedp.Navigate(server.URL + "/" + page + ".html"))
			b.Picture(t.ArtifactDir(), fmt.Sprintf("%s-%d-%s", filepath.Base(page), screen.width, screen.scheme),
				screen.scheme, screen.width, 900)
			if got := b.Text("document.body.dataset.mdColorScheme"); got != screen.name {
				t.Errorf("%s: scheme %s on a %s screen, want %s", page, got, screen.scheme, screen.name)
			}
		}
		if titles := b.Text("document.querySelectorAll('h1').length"); titles != "1" {
			t.Errorf("%s: %s titles, want 1", page, titles)
		}
	}
	b.Screen("light", 1400, 900)
	b.Do(chromedp.Navigate(server.URL + "/index.html"))
	b.Do(chromedp.Click(".md-search__input"), chromedp.SendKeys(".md-search__input", "dcqcn"))
	b.Await("document.querySelectorAll('.md-search-result__item').length > 0")
	b.Picture(t.ArtifactDir(), "search", "light", 1400, 900)
	if text := b.Text("document.querySelector('.md-search-result').innerText"); !strings.Contains(text, "RoCEv2") {
		t.Errorf("the search for dcqcn finds\n%s", text)
	}
}
