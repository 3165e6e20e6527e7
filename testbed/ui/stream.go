package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// sendTime is how long a client may take to accept a message. A page whose browser sleeps is cut off,
	// and connects again.
	sendTime = 10 * time.Second
	// pause is the least time between two messages to a page, so that many events make one message.
	pause = 100 * time.Millisecond
	// keepAlive is how often a page without news gets an empty message, which shows whether it is there.
	keepAlive = 15 * time.Second
	// maxBody bounds a request's JSON, in bytes.
	maxBody = 16 << 10
)

// serveStream sends a page what changes, as server-sent events.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request) {
	select {
	case s.pages <- struct{}{}:
		defer func() { <-s.pages }()
	default:
		fail(w, http.StatusServiceUnavailable, fmt.Errorf("%d pages are open already", maxPages))
		return
	}
	defer s.watch.enter()()
	w.Header().Set("Content-Type", "text/event-stream")
	to := sender{w: w, before: "data: ", after: "\n\n"}
	for at := uint64(0); ; {
		news, changed := s.watch.since(at)
		if to.send(news) != nil || news.Ended != "" {
			return
		}
		at = news.change
		select {
		case <-r.Context().Done():
			return
		case <-time.After(pause):
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(keepAlive):
		case <-changed:
		}
	}
}

// sender writes JSON to a client that may be slow.
type sender struct {
	w             http.ResponseWriter
	before, after string // of each message
}

func (s *sender) send(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("send to the page: %w", err)
	}
	conn := http.NewResponseController(s.w)
	if err := conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return fmt.Errorf("send to the page: %w", err)
	}
	if _, err := io.WriteString(s.w, s.before+string(text)+s.after); err != nil {
		return err
	}
	return conn.Flush()
}

// readJSON reads the body of a request. If it reports false, the client has its answer.
func readJSON(w http.ResponseWriter, r *http.Request, v any) bool {
	conn := http.NewResponseController(w)
	if err := conn.SetReadDeadline(time.Now().Add(requestTime)); err != nil {
		fail(w, http.StatusInternalServerError, err)
		return false
	}
	defer conn.SetReadDeadline(time.Time{}) // the end of the connection must not look like a late body
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("read request: %w", err))
		return false
	}
	return true
}

// problem is an error in a request, or in a field of its form.
type problem struct {
	Key  string `json:"key,omitempty"`
	Text string `json:"text"`
}

// fail answers with an error.
func fail(w http.ResponseWriter, status int, err error) {
	answer(w, status, map[string][]problem{"problems": {{Text: err.Error()}}})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
