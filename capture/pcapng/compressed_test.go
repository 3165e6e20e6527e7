package pcapng_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"railbed/capture/pcapng"
)

// zipped compresses a file, in two members of gzip.
func zipped(t *testing.T, file []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, part := range [][]byte{file[:len(file)/2], file[len(file)/2:]} {
		w := gzip.NewWriter(&out)
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// TestCompressed: a compressed file gives the packets of the file, and a broken one an error by its class.
func TestCompressed(t *testing.T) {
	file := unhex(t, bigEndian)
	plain, err := pcapng.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	want, wantEnd := readAll(plain)
	packed := zipped(t, file)
	for what, src := range map[string]io.Reader{
		"whole":        iotest.DataErrReader(bytes.NewReader(packed)),
		"byte by byte": iotest.OneByteReader(bytes.NewReader(packed)),
	} {
		reader, err := pcapng.NewReader(src)
		if err != nil {
			t.Fatal(what, err)
		}
		got, end := readAll(reader)
		if diff := cmp.Diff(want, got); diff != "" || !errors.Is(end, wantEnd) {
			t.Errorf("%s: end %v, want %v; packets (-want +got):\n%s", what, end, wantEnd, diff)
		}
	}
	corrupt := bytes.Clone(packed)
	corrupt[len(corrupt)-6] ^= 1 // the checksum of the second member
	for what, c := range map[string]struct {
		file []byte
		want error
		says string
	}{
		"cut":      {packed[:len(packed)-20], pcapng.ErrTruncated, ""},
		"checksum": {corrupt, pcapng.ErrFormat, "checksum"},
		"header":   {[]byte{0x1F, 0x8B, 8, 0xFF}, pcapng.ErrFormat, "gzip"},
		"zstd":     {[]byte("\x28\xB5\x2F\xFDnnnnnn"), pcapng.ErrFormat, "compressed by zstd"},
		"xz":       {[]byte("\xFD7zXZ\x00nnnn"), pcapng.ErrFormat, "compressed by xz"},
		"twice":    {zipped(t, packed), pcapng.ErrFormat, "neither pcapng nor pcap"},
	} {
		reader, err := pcapng.NewReader(bytes.NewReader(c.file))
		if err == nil {
			_, err = readAll(reader)
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want %v that says %q", what, err, c.want, c.says)
		}
	}
}
