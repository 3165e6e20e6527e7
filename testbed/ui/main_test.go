package ui

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"strings"
	"testing"
	"time"

	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

var _ = hosttest.MarkPackage(hosttest.AsNobody)

func TestMain(m *testing.M) {
	testbed.Init()
	os.Exit(hosttest.Main(m))
}

// soft is a testbed of two hosts behind a soft switch.
const soft = `
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: 100mbit}}
`

// up brings a testbed up for the time of the test.
func up(t *testing.T, name, text, file string) *testbed.Testbed {
	t.Helper()
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	tb, err := testbed.Up(t.Context(), plantest.Compile(t, "name: "+name+text), testbed.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
	})
	return tb
}

// served is a server that serves, with a client that has its cookie.
type served struct {
	*Server
	t      *testing.T
	client *http.Client
	stop   context.CancelFunc // ends Serve
	ended  chan error         // has what Serve returned
}

// serve serves the page of a testbed for the time of the test.
func serve(t *testing.T, tb *testbed.Testbed) *served {
	t.Helper()
	server, err := Listen(tb, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	s := &served{server, t, &http.Client{Jar: jar, Transport: transport}, stop, make(chan error, 1)}
	go func() { s.ended <- server.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		transport.CloseIdleConnections()
		select {
		case err := <-s.ended:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(hosttest.Bound):
			t.Error("the server does not end")
		}
	})
	if status, _ := s.get(""); status != http.StatusForbidden {
		t.Errorf("without the token: status %d", status)
	}
	answer, err := s.client.Get(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || strings.Contains(answer.Request.URL.String(), s.token) {
		t.Fatalf("the URL leads to %s: %s", answer.Request.URL, answer.Status)
	}
	return s
}

func (s *served) address(path string) string {
	return "http://" + s.listener.Addr().String() + s.root + path
}

func (s *served) get(path string) (status int, body string) {
	s.t.Helper()
	answer, err := s.client.Get(s.address(path))
	return read(s.t, answer, err)
}

func (s *served) post(path string, v any) (status int, body string) {
	s.t.Helper()
	answer, err := s.client.Post(s.address(path), "application/json", bytes.NewReader(marshal(s.t, v)))
	return read(s.t, answer, err)
}

func read(t *testing.T, answer *http.Response, err error) (status int, body string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// updates opens the stream of a page and returns its messages. The channel is closed at its end.
func (s *served) updates(ctx context.Context) <-chan update {
	s.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.address("stream"), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := s.client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		_, body := read(s.t, answer, nil)
		s.t.Fatalf("stream: %s: %s", answer.Status, body)
	}
	updates := make(chan update)
	go func() {
		defer close(updates)
		defer answer.Body.Close()
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			text, is := strings.CutPrefix(lines.Text(), "data: ")
			var u update
			if !is || json.Unmarshal([]byte(text), &u) != nil {
				continue
			}
			select {
			case updates <- u:
			case <-ctx.Done():
				return
			}
		}
	}()
	return updates
}

// await returns when an update is as wanted.
func await(t *testing.T, updates <-chan update, what string, wanted func(update) bool) {
	t.Helper()
	deadline := time.After(hosttest.Bound)
	for {
		select {
		case u, open := <-updates:
			if !open {
				t.Fatalf("the stream ended before: %s", what)
			}
			if wanted(u) {
				return
			}
		case <-deadline:
			t.Fatalf("there was none within %v: %s", hosttest.Bound, what)
		}
	}
}

// rows are the links of an update.
func (u update) rows(t *testing.T) (rows []link) {
	t.Helper()
	for _, text := range u.Links {
		var row link
		if err := json.Unmarshal(text, &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// traffic runs a ping between two nodes of a testbed until the test ends.
func traffic(t *testing.T, tb *testbed.Testbed, from, to string, args ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ping := tb.Node(from).Command(ctx, "ping", append([]string{"-4", "-q", "-i", "0.01", to}, args...)...)
	if err := ping.Start(); err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		ping.Wait()
	})
}
