package testbed

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"railbed/internal/frame"
	"railbed/testbed/supervisor"
)

// frames is a connection that was upgraded from HTTP to frames.
type frames struct {
	*frame.Reader
	*frame.Writer
	net.Conn
}

// Read and Write use the frames, not the bytes of the connection.
func (f *frames) Read() (frame.Type, []byte, error)        { return f.Reader.Read() }
func (f *frames) Write(t frame.Type, payload []byte) error { return f.Writer.Write(t, payload) }

// upgrade opens a connection of frames and sends the request as the first frame, within
// answerTimeout.
func (t *Testbed) upgrade(ctx context.Context, path string, first any) (*frames, error) {
	f, _, err := t.upgradeFor(ctx, path, first)
	return f, err
}

// upgradeFor does as upgrade and also returns the supervisor's answer.
func (t *Testbed) upgradeFor(ctx context.Context, path string, first any) (*frames, []byte, error) {
	ctx, cancel := t.limited(ctx)
	defer cancel()
	conn, err := t.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	f, answer, err := upgradeConn(ctx, conn, path, first)
	if !stop() {
		err = context.Cause(ctx) // its end has made the connection unusable
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return f, answer, nil
}

func upgradeConn(ctx context.Context, conn net.Conn, path string, first any) (*frames, []byte, error) {
	request, err := newRequest(ctx, http.MethodPost, path, nil)
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", supervisor.Upgrade)
	if err := request.Write(conn); err != nil {
		return nil, nil, fmt.Errorf("ask supervisor: %w", err)
	}
	buffered := bufio.NewReader(conn)
	response, err := http.ReadResponse(buffered, request)
	if err != nil {
		return nil, nil, fmt.Errorf("ask supervisor: %w", err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		defer response.Body.Close()
		return nil, nil, readFailure(response)
	}
	f := &frames{Reader: frame.NewReader(buffered), Writer: frame.NewWriter(conn), Conn: conn}
	if err := f.WriteJSON(frame.Message, first); err != nil {
		return nil, nil, err
	}
	payload, err := f.started()
	if err != nil {
		return nil, nil, err
	}
	return f, payload, nil
}

// started reads the supervisor's answer, which is Started or Failure.
func (f *frames) started() (payload []byte, err error) {
	kind, payload, err := f.Read()
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask supervisor: %w", err)
	case kind == frame.Failure:
		return nil, readFailureFrame(payload)
	case kind != frame.Started:
		return nil, fmt.Errorf("ask supervisor: the answer has type %d, want Started or Failure", kind)
	}
	return payload, nil
}

func readFailureFrame(payload []byte) error {
	var failure supervisor.Failure
	if err := json.Unmarshal(payload, &failure); err != nil {
		return err
	}
	return failureError(failure)
}
