package ui

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"railbed/testbed"
)

// asked returns a server without a testbed, whose refusals need none, and a way to ask it.
func asked(t *testing.T) (*Server, func(method, path, body string, header map[string]string) *http.Response) {
	t.Helper()
	s, err := Listen(&testbed.Testbed{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: s.listener, Config: &http.Server{Handler: s.handler()}}
	server.Start()
	t.Cleanup(server.Close)
	return s, func(method, path, body string, header map[string]string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range header {
			if request.Header.Set(name, value); name == "Host" {
				request.Host = value
			}
		}
		answer, err := server.Client().Transport.RoundTrip(request) // without redirects
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer
	}
}

// TestStrangersAreRefused: without the token every request is refused.
func TestStrangersAreRefused(t *testing.T) {
	s, ask := asked(t)
	if !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("the page is at %s", s.URL())
	}
	const get, post = http.MethodGet, http.MethodPost
	wrong := strings.Repeat("A", len(s.token))
	for _, c := range []struct {
		name, method, path, cookie string
	}{
		{"no token", get, s.root, ""},
		{"wrong token", get, s.root + "?token=" + wrong, ""},
		{"part of the token", get, s.root + "?token=" + s.token[:5], ""},
		{"wrong cookie", get, s.root, wrong},
		{"empty cookie", get, s.root, `""`},
		{"token of a request that changes", post, s.root + "link/set?token=" + s.token, ""},
		{"token at another path", get, s.root + "stream?token=" + s.token, ""},
		{"file without a cookie", get, s.root + "page/main.js", ""},
		{"picture without a cookie", get, s.root + "picture.svg", ""},
		{"stream without a cookie", get, s.root + "stream", ""},
		{"capture without a cookie", post, s.root + "capture", ""},
		{"capture with a wrong cookie", post, s.root + "capture", wrong},
		{"root of the port", get, "/", ""},
	} {
		header := map[string]string{}
		if c.cookie != "" {
			header["Cookie"] = cookie + "=" + c.cookie
		}
		if got := ask(c.method, c.path, "", header); got.StatusCode != http.StatusForbidden ||
			got.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %s", c.name, got.Status)
		}
	}
	given := ask(get, s.root+"?token="+s.token, "", nil)
	if given.StatusCode != http.StatusSeeOther || given.Header.Get("Location") != s.root {
		t.Fatalf("the URL: %s, to %s", given.Status, given.Header.Get("Location"))
	}
	held := given.Cookies()[0]
	if !held.HttpOnly || held.SameSite != http.SameSiteStrictMode || held.Path != s.root ||
		held.Domain != "" {
		t.Errorf("cookie %v", held)
	}
	got := ask(get, s.root, "", map[string]string{"Cookie": held.Name + "=" + held.Value})
	if got.StatusCode != http.StatusOK {
		t.Errorf("with the cookie: %s", got.Status)
	}
	for name, want := range map[string]string{"Content-Security-Policy": "script-src 'self';",
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"} {
		if text := got.Header.Get(name); !strings.Contains(text, want) || strings.Contains(text, "unsafe") {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// TestOtherSitesAreRefused: a page of another site gets nothing, even with the cookie, and changes nothing.
func TestOtherSitesAreRefused(t *testing.T) {
	s, ask := asked(t)
	address := s.listener.Addr().String()
	const get, post = http.MethodGet, http.MethodPost
	for _, c := range []struct {
		name, method, path string
		header             map[string]string
		want               int
	}{
		{"the page itself", post, "link/set", map[string]string{"Sec-Fetch-Site": "same-origin",
			"Origin": "http://" + address}, http.StatusBadRequest}, // its body is no JSON
		{"a program with the cookie", post, "link/set", nil, http.StatusBadRequest},
		{"a tunnel", get, "", map[string]string{"Host": "localhost:8080"}, http.StatusOK},
		{"a typed address", get, "", map[string]string{"Sec-Fetch-Site": "none"}, http.StatusOK},

		{"a name that leads here", get, "", map[string]string{"Host": "evil.example"}, http.StatusForbidden},
		{"a name with the port", get, "", map[string]string{"Host": "evil.example:80"}, http.StatusForbidden},
		{"a name like ours", get, "", map[string]string{"Host": "127.0.0.1.evil.example"},
			http.StatusForbidden},
		{"another site", post, "capture", map[string]string{"Sec-Fetch-Site": "cross-site",
			"Origin": "https://evil.example"}, http.StatusForbidden},
		{"another port", post, "link/set", map[string]string{"Sec-Fetch-Site": "same-site",
			"Origin": "http://127.0.0.1:1"}, http.StatusForbidden},
		{"another origin, old browser", post, "link/state", map[string]string{"Origin": "http://127.0.0.1:1"},
			http.StatusForbidden},
		{"an opaque origin", post, "link/state", map[string]string{"Origin": "null"}, http.StatusForbidden},
		{"a post from no page", post, "link/state", map[string]string{"Sec-Fetch-Site": "none"},
			http.StatusForbidden},
		{"a script of another site", get, "stream", map[string]string{"Sec-Fetch-Site": "cross-site"},
			http.StatusForbidden},
		{"an image of another port", get, "picture.svg", map[string]string{"Sec-Fetch-Site": "same-site"},
			http.StatusForbidden},

		{"a link change by GET", get, "link/set?where=h0--leaf1", nil, http.StatusMethodNotAllowed},
		{"a link down by GET", get, "link/state?where=x&state=down", nil, http.StatusMethodNotAllowed},
		{"a capture by GET", get, "capture?at=all", nil, http.StatusMethodNotAllowed},
		{"the end of a capture by GET", get, "capture/stop?id=1", nil, http.StatusMethodNotAllowed},
		{"a method that is none", "PUT", "link/set", nil, http.StatusMethodNotAllowed},
	} {
		header := map[string]string{"Cookie": cookie + "=" + s.token}
		for name, value := range c.header {
			header[name] = value
		}
		if got := ask(c.method, s.root+c.path, "{", header); got.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", c.name, got.Status, c.want)
		}
	}
}

// TestBodiesAreBounded: a long or strange body is an error of the request.
func TestBodiesAreBounded(t *testing.T) {
	s, ask := asked(t)
	for name, body := range map[string]string{
		"long":    `{"where": "` + strings.Repeat("a", maxBody) + `"}`,
		"unknown": `{"where": "h0--leaf1", "sate": "down"}`,
		"none":    "",
	} {
		got := ask(http.MethodPost, s.root+"link/state", body,
			map[string]string{"Cookie": cookie + "=" + s.token})
		if got.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", name, got.Status)
		}
	}
}
