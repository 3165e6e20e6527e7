package judge

import (
	"errors"
	"fmt"
	"io"

	"railbed/capture/pcapng"
)

// countingReader reports how much was read of it and other readers.
type countingReader struct {
	r     io.Reader
	at    int64
	total *int64
	read  func(int64)
}

// Seek implements io.Seeker, if the underlying reader does.
func (c *countingReader) Seek(offset int64, whence int) (int64, error) {
	seeker, can := c.r.(io.Seeker)
	if !can {
		return 0, errors.New("seek recording: it is a stream")
	}
	at, err := seeker.Seek(offset, whence)
	*c.total += at - c.at
	c.at = at
	return at, err
}

// NextPart implements pcapng.Parted.
func (c *countingReader) NextPart(number int) (int, error) {
	parted, is := c.r.(pcapng.Parted)
	if !is {
		return 0, fmt.Errorf("file %d: the recording is a single file", number)
	}
	return parted.NextPart(number)
}

// Read implements io.Reader.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.at += int64(n)
	*c.total += int64(n)
	c.read(*c.total)
	return n, err
}
