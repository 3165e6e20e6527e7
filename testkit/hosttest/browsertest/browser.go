// Package browsertest shows tests how pages look and behave in a headless Chromium.
package browsertest

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// Browser is a browser whose only tab shows a page. Its methods fail the test on errors.
type Browser struct {
	t   testing.TB
	ctx context.Context
	// Console has the messages that the page wrote to the console.
	Console iter.Seq2[chromedp.ConsoleMessage, error]
}

// Tab starts a browser with one empty tab, whose context it returns. The browser ends with the test.
func Tab(t testing.TB, tab ...chromedp.ContextOption) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"),
		chromedp.UserDataDir(t.TempDir()), chromedp.Env("HOME="+t.TempDir()),
		chromedp.Flag("disable-breakpad", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has no sandbox for root
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, tab...)
	t.Cleanup(cancel)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("close the browser: %v", err)
		}
	})
	if err := chromedp.Do(ctx); err != nil { // the tab lasts as long as the context of the first action
		t.Fatal(err)
	}
	return ctx
}

// Open opens a URL in a window of 1,280 by 800 pixels with a light screen. The browser ends with the test.
func Open(t testing.TB, url string) *Browser {
	t.Helper()
	ctx := Tab(t)
	b := &Browser{t: t, ctx: ctx, Console: chromedp.Console(ctx)}
	b.Screen("light", 1280, 800)
	b.Do(chromedp.Navigate(url))
	return b
}

// Do performs actions in at most 15 seconds.
func (b *Browser) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 15*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// Text evaluates an expression of JavaScript.
func (b *Browser) Text(expression string) string {
	b.t.Helper()
	result, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return result
}

// Screen sets the width and height in pixels, and the colour scheme, light or dark.
func (b *Browser) Screen(scheme string, width, height int64) {
	b.t.Helper()
	b.Do(chromedp.EmulateViewport(width, height))
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"}}})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Await waits until an expression is true.
func (b *Browser) Await(expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); b.Text(expression) != "true"; {
		if time.Now().After(deadline) {
			b.t.Fatalf("not true within 10 s: %s\nthe page says:\n%s", expression,
				b.Text("document.body.innerText"))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Picture takes a screenshot in a width, height and colour scheme, and writes NAME.png into the folder. It
// fails the test if the page is wider than the screen.
func (b *Browser) Picture(folder, name, scheme string, width, height int64) {
	b.t.Helper()
	b.Screen(scheme, width, height)
	b.Do(chromedp.Sleep(150 * time.Millisecond)) // for the next frame
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if wide := b.Text("document.documentElement.scrollWidth"); wide != fmt.Sprint(width) {
		b.t.Errorf("%s: the page is %s pixels wide, want %d", name, wide, width)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), shot, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
