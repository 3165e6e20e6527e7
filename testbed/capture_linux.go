package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"railbed/capture"
	"railbed/internal/descriptors"
	"railbed/internal/frame"
	"railbed/testbed/supervisor"
)

// Capture is a running recording.
type Capture struct {
	conn  *frames
	done  chan struct{}
	stats capture.Stats
	err   error
}

// Capture starts a recording of the packets of all taps into w as pcapng, in the order of time. It
// records until Stop or the end of ctx. After Capture has returned, every packet that passes a tap
// is recorded or counted as dropped. The recording process itself writes into a w that is an
// *os.File; the file must stay open until the recording has ended.
func (t *Testbed) Capture(ctx context.Context, request supervisor.CaptureRequest, w io.Writer) (*Capture,
	error) {
	conn, err := t.upgrade(ctx, "/v1/capture", request)
	if err != nil {
		return nil, err
	}
	out, err := capture.NewOutput(w)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("record packets: %w", err)
	}
	err = conn.giveOutput(out)
	stop := context.AfterFunc(ctx, func() { conn.Write(frame.Stdin, nil) })
	if err == nil {
		conn.SetReadDeadline(time.Now().Add(answerTimeout))
		_, err = conn.started()
		conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		stop()
		conn.Close()
		return nil, err
	}
	c := &Capture{conn: conn, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer conn.Close()
		defer stop()
		c.err = c.receive()
		if err := out.Wait(); err != nil {
			c.err = fmt.Errorf("record packets: %w", err)
		}
	}()
	return c, nil
}

// giveOutput passes the output's file to the supervisor.
func (f *frames) giveOutput(out *capture.Output) error {
	socket, err := descriptors.Socket(f.Conn)
	if err == nil {
		err = descriptors.Send(socket, "recording", out.File)
	}
	out.Passed()
	if err != nil {
		return fmt.Errorf("record packets: pass the file: %w", err)
	}
	return nil
}

// receive waits for the end of the recording.
func (c *Capture) receive() error {
	kind, payload, err := c.conn.Read()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	switch {
	case err != nil:
		return fmt.Errorf("record packets: connection to the supervisor lost: %w", err)
	case kind == frame.Failure:
		return readFailureFrame(payload)
	case kind != frame.Exit:
		return fmt.Errorf("record packets: the supervisor's answer has type %d, want Exit or Failure", kind)
	}
	return json.Unmarshal(payload, &c.stats)
}

// Done is closed when the recording has ended.
func (c *Capture) Done() <-chan struct{} { return c.done }

// Stop ends the recording, waits until the last packet is written, and returns the counts of
// recorded and lost packets.
func (c *Capture) Stop() (capture.Stats, error) {
	select {
	case <-c.done:
	default:
		if err := c.conn.Write(frame.Stdin, nil); err != nil {
			c.conn.Close()
		}
	}
	<-c.done
	return c.stats, c.err
}

// Recording is a recording that is read as pcapng while it is made.
type Recording struct {
	*io.PipeReader
	capture *Capture
	end     context.CancelFunc
}

// Record starts a recording as Capture does. It ends with Close, End or ctx.
func (t *Testbed) Record(ctx context.Context, request supervisor.CaptureRequest) (*Recording, error) {
	ctx, end := context.WithCancel(ctx)
	out, in := io.Pipe()
	recording, err := t.Capture(ctx, request, in)
	if err != nil {
		end()
		return nil, err
	}
	go func() {
		<-recording.Done()
		_, err := recording.Stop()
		in.CloseWithError(err)
	}()
	return &Recording{out, recording, end}, nil
}

// End ends the recording without waiting. Reads return the rest, and then io.EOF.
func (r *Recording) End() { r.end() }

// Close ends the recording and waits for its end. Packets that were not read are lost.
func (r *Recording) Close() error {
	r.end()
	err := r.PipeReader.Close()
	<-r.capture.Done()
	return err
}

// Stats waits for the end of the recording, and returns its counts.
func (r *Recording) Stats() (capture.Stats, error) { return r.capture.Stop() }
