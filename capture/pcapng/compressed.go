package pcapng

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// compressions has the first bytes of files of compression programs other than gzip, which is read.
var compressions = []struct{ magic, program string }{
	{"\x28\xB5\x2F\xFD", "zstd"}, {"\xFD7zXZ\x00", "xz"}, {"BZh", "bzip2"}, {"\x04\x22\x4D\x18", "lz4"},
}

// decompress makes the reader read a gzip file (RFC 1952) as if it was not compressed. Offsets in errors are
// then those of the decompressed bytes. It refuses other compressions by their names.
func (r *Reader) decompress() error {
	head, err := r.peek(3)
	if err != nil {
		return nil // the caller reports it
	}
	if bytes.Equal(head, []byte{0x1F, 0x8B, 8}) {
		read := bytes.Clone(r.buf[r.start:r.end])
		packed, err := gzip.NewReader(io.MultiReader(bytes.NewReader(read), r.src))
		if err != nil {
			return r.bad("gzip header: %v", err)
		}
		r.src, r.start, r.end, r.srcErr = &gunzip{packed}, 0, 0, nil
		return nil
	}
	head, _ = r.peek(6) // a file that is this short has no magic of six bytes
	for _, c := range compressions {
		if bytes.HasPrefix(head, []byte(c.magic)) {
			return r.bad("compressed by %s; want it decompressed (%s -d), or compressed by gzip", c.program,
				c.program)
		}
	}
	return nil
}

// gunzip gives the errors of broken gzip data the meaning that a reader's errors have.
type gunzip struct{ src *gzip.Reader }

func (g *gunzip) Read(p []byte) (int, error) {
	n, err := g.src.Read(p)
	if errors.As(err, new(flate.CorruptInputError)) || errors.Is(err, gzip.ErrChecksum) ||
		errors.Is(err, gzip.ErrHeader) {
		err = fmt.Errorf("%w: %w", err, ErrFormat)
	}
	return n, err
}
