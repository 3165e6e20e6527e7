package wireshark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// endTimeout is how long the rest of a recording may take after Wireshark has ended it. Wireshark kills the
// plugin after 30 seconds.
const endTimeout = 5 * time.Second

// errClosed is the cause of the end if Wireshark has closed the FIFO.
var errClosed = errors.New("the FIFO was closed by Wireshark")

// capture records until Wireshark ends it: by SIGTERM, which ends ctx, or by closing the FIFO.
func (p *Plugin) capture(ctx context.Context, a *arguments) error {
	// The FIFO comes before any other error, because tshark waits until somebody opens it.
	fifo, err := openFIFO(ctx, a.fifo)
	if err != nil {
		return err
	}
	defer fifo.Close()
	testbed, err := a.testbed()
	if err != nil {
		return err
	}
	n := &narrowing{taps: "all", drops: a.drops}
	if err := n.setFilter(a.narrow); err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	context.AfterFunc(ctx, func() { _ = fifo.SetWriteDeadline(time.Now().Add(endTimeout)) })
	go watchFIFO(ctx, fifo, func() { end(errClosed) })
	if a.in != "" || a.out != "" {
		c := &controls{narrowing: n}
		go c.run(ctx, a.in, a.out, func() ([]string, error) { return p.Testbeds.Taps(ctx, testbed) })
	}

	reader, writer := io.Pipe()
	recorded := make(chan error, 1)
	go func() {
		err := p.Testbeds.Record(ctx, testbed, a.recording(), writer)
		writer.CloseWithError(err)
		recorded <- err
	}()
	passed := pass(reader, fifo, n)
	reader.CloseWithError(errClosed) // ends a recording that still writes
	err = <-recorded
	switch {
	case errors.Is(passed, syscall.EPIPE), errors.Is(context.Cause(ctx), errClosed):
		return nil // Wireshark does not read any more
	case err != nil && !errors.Is(err, errClosed):
		return err
	}
	return passed
}
