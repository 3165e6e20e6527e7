package ui

import (
	"crypto/subtle"
	"embed"
	"io/fs"
	"net"
	"net/http"
	"strings"

	"railbed/plan/picture"
)

// cookie is the name of the cookie with the token.
const cookie = "railbed"

// policy allows the page its own files and requests, and nothing else. No code of the page can make elements
// from text (require-trusted-types-for).
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

//go:embed page
var page embed.FS

// handler serves the page behind all checks.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	mux.HandleFunc("GET "+s.root+"{$}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, files, "index.html")
	})
	mux.Handle("GET "+s.root+"page/", http.StripPrefix(s.root+"page/", http.FileServerFS(files)))
	mux.HandleFunc("GET "+s.root+"picture.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css")
		_, _ = w.Write([]byte(picture.Style())) // the client may be gone
	})
	mux.HandleFunc("GET "+s.root+"picture.svg", func(w http.ResponseWriter, r *http.Request) {
		if err := s.testbed.Reload(r.Context()); err != nil {
			failChange(w, err)
			return
		}
		w.Header().Set("Content-Type", "image/svg+xml")
		_ = picture.Inline(w, s.testbed.Plan()) // the client may be gone
	})
	mux.HandleFunc("GET "+s.root+"stream", s.serveStream)
	mux.HandleFunc("GET "+s.root+"link", s.serveLink)
	mux.HandleFunc("POST "+s.root+"link/set", s.serveSet)
	mux.HandleFunc("POST "+s.root+"link/state", s.serveState)
	mux.HandleFunc("POST "+s.root+"capture", s.serveCapture)
	mux.HandleFunc("POST "+s.root+"capture/stop", s.serveStop)
	return s.guard(mux)
}

// guard refuses requests that do not come from the page, and exchanges the token of a URL for the cookie.
func (s *Server) guard(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.running.Add(1)
		defer s.running.Done()
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			w.Header().Set(name, value)
		}
		if !loopback(r.Host) {
			refuse(w, "this page answers to 127.0.0.1 and localhost alone")
			return
		}
		if given := r.URL.Query().Get("token"); given != "" && r.Method == http.MethodGet &&
			r.URL.Path == s.root {
			if !s.isToken(given) {
				refuse(w, "wrong token: open the URL that railbed ui printed last")
				return
			}
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: s.token, Path: s.root, HttpOnly: true,
				SameSite: http.SameSiteStrictMode})
			http.Redirect(w, r, s.root, http.StatusSeeOther)
			return
		}
		if held, err := r.Cookie(cookie); err != nil || !s.isToken(held.Value) {
			refuse(w, "no token: open the URL that railbed ui printed")
			return
		}
		if origins.Check(r) != nil || !ownSite(r) {
			refuse(w, "request from another site: open the URL that railbed ui printed")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownSite reports whether a request comes from the page itself, from an address that a user typed, or from a
// program that is no browser.
func ownSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "":
		return true
	case "none":
		return r.Method == http.MethodGet
	}
	return false
}

func (s *Server) isToken(given string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(s.token)) == 1
}

// loopback reports whether a Host header has a name that leads to this machine in every browser. The port may
// be that of a tunnel. A name that a stranger can make lead here (DNS rebinding) is none of these.
func loopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return name == "127.0.0.1" || strings.EqualFold(name, "localhost")
}

func refuse(w http.ResponseWriter, reason string) { http.Error(w, reason, http.StatusForbidden) }
