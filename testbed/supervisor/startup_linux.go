package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"railbed/internal/frame"
	"railbed/plan"
)

// startupChannel is the supervisor's end of the startup channel.
type startupChannel struct {
	file   *os.File
	reader *frame.Reader
	writer *frame.Writer
	// answered reports whether the client was notified of the end of the bring-up.
	answered atomic.Bool
	told     time.Time // time of the last progress message
}

// tellEvery is the least time between two messages of progress. It is short enough for people and
// avoids one message for each of a thousand steps.
const tellEvery = 20 * time.Millisecond

func openStartup() (*startupChannel, Start, error) {
	file := os.NewFile(startupFd, "startup")
	c := &startupChannel{file: file, reader: frame.NewReader(file), writer: frame.NewWriter(file)}
	var start Start
	_, payload, err := c.reader.Read()
	if err != nil {
		return nil, start, err
	}
	if err := json.Unmarshal(payload, &start); err != nil {
		return nil, start, err
	}
	if start.Name == "" || start.Dir == "" {
		return nil, start, errors.New("start message lacks the name or the directory of the testbed")
	}
	return c, start, nil
}

// plan reads the second message.
func (c *startupChannel) plan() (*plan.Plan, error) {
	_, payload, err := c.reader.Read()
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	received := &plan.Plan{}
	if err := json.Unmarshal(payload, received); err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	return received, nil
}

func (c *startupChannel) receive() (string, error) {
	_, payload, err := c.reader.Read()
	return string(payload), err
}

// send sends a message to the client. watchClient detects a client that is gone, so send ignores
// errors.
func (c *startupChannel) send(message Startup) { _ = c.writer.WriteJSON(frame.Message, message) }

// progress reports how much is done. It is called by one goroutine at a time.
func (c *startupChannel) progress(phase string, done, total int) {
	if done < total && time.Since(c.told) < tellEvery {
		return
	}
	c.told = time.Now()
	c.send(Startup{Kind: StartupProgress, Text: phase, Done: done, Total: total})
}

// trace sends a line while the client reads, which it does until ready.
func (c *startupChannel) trace(line string) {
	if !c.answered.Load() {
		c.send(Startup{Kind: StartupTrace, Text: line})
	}
}

func (c *startupChannel) ready() {
	c.answered.Store(true)
	c.send(Startup{Kind: StartupReady})
}

func (c *startupChannel) failed(err error) {
	message := Startup{Kind: StartupFailed, Text: err.Error()}
	errors.As(err, &message.Unsupported)
	errors.As(err, &message.Mistake)
	var at *placed
	if errors.As(err, &at) {
		message.Where = at.where
	}
	c.send(message)
}

// placed is an error about the setting at a position of the file.
type placed struct {
	error
	where string
}

func (p *placed) Unwrap() error { return p.error }

func (c *startupChannel) close() { c.file.Close() }
