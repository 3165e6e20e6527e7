package wireshark

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// openFIFO opens the FIFO that Wireshark has made, for writing, and waits until Wireshark has opened it.
func openFIFO(ctx context.Context, path string) (*os.File, error) {
	if path == "" {
		return nil, errors.New("--capture without --fifo; want the FIFO that Wireshark reads")
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open FIFO: %w", err)
	}
	if info.Mode()&fs.ModeNamedPipe == 0 {
		return nil, fmt.Errorf("open FIFO: %s is not a FIFO; railbed capture -w writes files", path)
	}
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened, 1)
	go func() {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		done <- opened{file, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, fmt.Errorf("open FIFO: %w", o.err)
		}
		return o.file, nil
	case <-ctx.Done():
		// A reader lets the waiting open return.
		if reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			defer reader.Close()
		}
		if o := <-done; o.file != nil {
			o.file.Close()
		}
		return nil, context.Cause(ctx)
	}
}

// watchInterval is how long the end of a context is not noticed, in milliseconds.
const watchInterval = 100

// watchFIFO calls closed when no process has the FIFO open for reading. Without packets there is no write
// that could fail.
func watchFIFO(ctx context.Context, fifo *os.File, closed func()) {
	conn, err := fifo.SyscallConn()
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		gone := false
		err := conn.Control(func(fd uintptr) {
			polled := []unix.PollFd{{Fd: int32(fd)}} // POLLERR is reported without being asked for
			n, _ := unix.Poll(polled, watchInterval)
			gone = n > 0 && polled[0].Revents&unix.POLLERR != 0
		})
		if err != nil {
			return // the file is closed
		}
		if gone {
			closed()
			return
		}
	}
}
