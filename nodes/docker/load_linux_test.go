package docker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/client"

	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/plan"
	"railbed/plan/spec"
)

// TestLoadErrors loads an archive with engines that refuse it, and with engines that go away. Only a refused
// archive is a mistake of the file.
func TestLoadErrors(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "root.tar")
	if err := os.WriteFile(archive, []byte("archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	leave := func() { panic(http.ErrAbortHandler) } // closes the connection
	write := func(w http.ResponseWriter, text string) {
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
	tests := []struct {
		name    string
		answer  func(w http.ResponseWriter)
		mistake bool
	}{
		{"refused in the report", func(w http.ResponseWriter) {
			write(w, `{"error":"archive/tar: invalid tar header"}`)
		}, true},
		{"refused at once", func(w http.ResponseWriter) {
			http.Error(w, "archive/tar: invalid tar header", http.StatusInternalServerError)
		}, true},
		{"no space", func(w http.ResponseWriter) {
			write(w, `{"error":"write /var/lib/docker/tmp/x: no space left on device"}`)
		}, false},
		{"unavailable", func(w http.ResponseWriter) {
			http.Error(w, "the engine is shutting down", http.StatusServiceUnavailable)
		}, false},
		{"away before the answer", func(http.ResponseWriter) { leave() }, false},
		{"away in the report", func(w http.ResponseWriter) { write(w, `{"status":"Impor`); leave() }, false},
		// The next test must be the last, because it ends ctx.
		{"cancelled", func(w http.ResponseWriter) { cancel(); leave() }, false},
	}
	for _, test := range tests {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			_, _ = io.Copy(io.Discard, request.Body)
			test.answer(w)
		}))
		engine, err := client.NewClientWithOpts(client.WithHost("tcp://"+server.Listener.Addr().String()),
			client.WithVersion("1.45"))
		if err != nil {
			t.Fatal(err)
		}
		r := &Runtime{client: engine}
		_, err = r.load(ctx, nodes.Config{Node: plan.Node{Container: &spec.Container{RootFS: archive}}})
		var mistake *verdict.MistakeError
		if err == nil || errors.As(err, &mistake) != test.mistake {
			t.Errorf("%s: error %v, want one that is a mistake of the file: %v", test.name, err, test.mistake)
		}
		_ = engine.Close()
		server.Close()
	}
}
